"""What can't be an effect is refused when it is asked for, with the path of the field, and leaves no row."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from console.kernel.errors import Invalid
from effects.intents import NoReceiver
from effects.models import Receiver
from effects.origin import OriginLost
from tests.effects.book import Book, rows_of_all_tables

LINE = {"sku": "SEAT", "description": "Seat", "quantity": 2, "unit_minor": 500}

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "NaN": ("ledger.customer_note", {"discount": math.nan}, "discount"),
    "infinity": ("ledger.customer_note", {"discount": math.inf}, "discount"),
    "a decimal NaN": ("ledger.customer_note", {"seen_at": Decimal("NaN")}, "seen_at"),
    "2^53": ("ledger.offer", {"amount_minor": 2**53}, "amount_minor"),
    "-2^53 as a float": ("ledger.customer_note", {"discount": -(2.0**53)}, "discount"),
    "2^53 deep inside": (
        "ledger.offer",
        {"lines": [LINE, {**LINE, "unit_minor": 2**53}]},
        "lines[1].unit_minor",
    ),
    "half of a surrogate pair": ("ledger.offer", {"subject": "40 \ud83d seats"}, "subject"),
    "U+0000": ("ledger.offer", {"subject": "40 \x00 seats"}, "subject"),
    "a naive time": ("ledger.customer_note", {"seen_at": datetime(2026, 7, 1, 12, 0)}, "seen_at"),  # noqa: DTZ001
    "bytes": ("ledger.customer_note", {"seen_at": b"raw"}, "seen_at"),
    "one key in two spellings": (
        "ledger.customer_note",
        {"seen_at": {"caf\u00e9": 1, "cafe\u0301": 2}},
        "seen_at",
    ),
    "no recipient": ("ledger.offer", {"customer_id": ""}, "customer_id"),
    "an unknown key": ("ledger.offer", {"discount": 5}, "payload"),
    "a wrong type": ("ledger.offer", {"amount_minor": "1000"}, "amount_minor"),
    "too small a value": ("ledger.offer", {"lines": [{**LINE, "quantity": 0}]}, "lines.0.quantity"),
    "a value that is not among them": ("ledger.ticket", {"priority": "urgent"}, "priority"),
    "an unknown type": ("ledger.nothing", {}, "effect_type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_path_and_leaves_no_row(book: Book, name: str) -> None:
    effect_type, changes, path = REFUSED[name]
    rows = rows_of_all_tables()

    with pytest.raises(Invalid) as refused:
        book.propose(effect_type, **changes)

    assert str(refused.value.field).startswith(path), refused.value
    assert rows_of_all_tables() == rows
    # With what was wrong put right, the same command is taken.
    if effect_type != "ledger.nothing":
        assert book.propose(effect_type).revision == 1


def test_a_missing_field_is_refused(book: Book) -> None:
    rows = rows_of_all_tables()
    with pytest.raises(Invalid, match="customer_id"):
        book.propose("ledger.customer_note", customer_id=None)
    assert rows_of_all_tables() == rows


#: Text that the mail, the address or the row can't carry: refused like any other, never an error of a library.
UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "a line break in a mail's subject": (
        "ledger.mail",
        {"subject": "Offer\nBcc: all@corp.example"},
        "subject",
    ),
    "a line break in a mail's recipient": ("ledger.mail", {"to": "a@b.example\r\nBcc: c@d.example"}, "to"),
    "a recipient longer than the row takes": ("ledger.offer", {"customer_id": "c" * 2000}, "customer_id"),
    "a way out of the path": ("ledger.customer_note", {"customer_id": ".."}, "customer_id"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_the_request_cannot_carry_is_refused_with_its_path(book: Book, name: str) -> None:
    effect_type, changes, path = UNFIT[name]
    rows = rows_of_all_tables()
    with pytest.raises(Invalid) as refused:
        book.propose(effect_type, **changes)
    assert str(refused.value.field).startswith(path)
    assert rows_of_all_tables() == rows


def test_a_command_key_that_is_too_long_is_refused(book: Book) -> None:
    rows = rows_of_all_tables()
    with pytest.raises(Invalid):
        book.propose(key="k" * 300)
    assert rows_of_all_tables() == rows


def test_a_workspace_without_the_receiver_proposes_nothing(book: Book) -> None:
    Receiver.objects.filter(workspace=book.world.workspace, name="crm").update(name="another")
    rows = rows_of_all_tables()
    with pytest.raises(NoReceiver, match="crm"):
        book.propose()
    assert rows_of_all_tables() == rows


def test_a_run_that_is_no_longer_ours_proposes_nothing(book: Book) -> None:
    book.run.lost = True
    rows = rows_of_all_tables()
    with pytest.raises(OriginLost):
        book.propose()
    assert rows_of_all_tables() == rows


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1 and 1.0": ({"amount_minor": 1000}, {"amount_minor": 1000.0}),
    "two spellings of one word": ({"subject": "Caf\u00e9"}, {"subject": "Cafe\u0301"}),
    "the order of keys": (
        {"lines": [LINE]},
        {"lines": [dict(reversed(LINE.items()))]},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_meaning_is_the_same_payload(book: Book, name: str) -> None:
    first, second = SAME[name]
    assert book.propose(**second) == book.propose(**first)
