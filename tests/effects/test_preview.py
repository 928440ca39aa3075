"""A preview: what the receiver has now, against what would be sent. It looks, and nothing comes of it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.kernel.words import MASKED
from effects import receivers
from effects.commands.preview import LONGEST_VALUE, MOST_FIELDS, Preview, preview_of
from effects.contracts import ContractError, contracts
from effects.models import Effect
from effects.wires import HttpPreview
from tests.effects import promises
from tests.effects.book import Book, rows_of_all_tables
from tests.effects.odd import OddServer, Play, says

Odd = Callable[[Play], OddServer]

NOTE = {"customer_id": "cus_000001", "name": "Hannah Whitlock", "newsletter": False}


def preview(
    book: Book, effect_type: str = "ledger.customer_note", *, whole: bool = True, **note: Any
) -> Preview:
    return preview_of(effect(book, effect_type, **note), whole=whole)


def effect(book: Book, effect_type: str = "ledger.customer_note", **note: Any) -> Effect:
    return book.effect(book.propose(effect_type, discount=10, **{**NOTE, **note}).effect_id)


def fields(seen: Preview) -> dict[str, tuple[str, str, str]]:
    assert seen.problem == ""
    return {one.path: (one.kind, one.before, one.after) for one in seen.fields}


def test_each_field_stands_beside_what_is_there_now(book: Book) -> None:
    """Of the demo's receiver, which has the customer and is not changed by being asked."""
    before = rows_of_all_tables()
    found = effect(book, name="Hannah Whitlock-Green", tags=["vip"])
    made = rows_of_all_tables()
    seen = preview_of(found, whole=True)
    shown = fields(seen)
    assert shown["customer_id"] == ("same", "cus_000001", "cus_000001")
    assert shown["name"] == ("changed", "Hannah Whitlock", "Hannah Whitlock-Green")
    assert shown["tags"] == ("added", "", '["vip"]')
    assert shown["newsletter"] == ("added", "", "false")
    # A PUT replaces the whole: what is not sent would be gone, but for what the receiver writes itself.
    assert shown["email"] == ("removed", "hannah.whitlock@harborpine.example", "")
    assert not {"id", "created_at"} & set(shown)
    assert timedelta(0) <= timezone.now() - seen.at < timedelta(seconds=30)
    assert (seen.receiver, seen.absent) == ("crm", False)
    # Asked once, with no key, and nothing was written here either.
    [asked] = book.witness.requests("GET")
    assert (asked["path"], asked["key"]) == ("/v1/customers/cus_000001", None)
    assert book.witness.rx == (0, 0)
    assert rows_of_all_tables() == made != before


def test_where_a_request_replaces_nothing_else_the_rest_stays(book: Book) -> None:
    assert {one.kind for one in preview(book, "ledger.patched_note").fields} == {"same", "added"}


def test_what_is_not_there_yet_would_be_made(book: Book) -> None:
    seen = preview(book, customer_id="cus_newcomer")
    assert (seen.problem, seen.absent) == ("", True)
    assert {one.kind for one in seen.fields} == {"added"}


def test_protected_values_are_masked_on_both_sides(book: Book) -> None:
    shown = fields(preview(book, "ledger.masked_note", whole=False, name="Somebody else"))
    assert shown["name"] == ("changed", MASKED, MASKED)
    # What the contract does not know, it can't protect: it is named, and not shown.
    assert shown["email"] == ("removed", MASKED, "")
    assert shown["customer_id"][0] == "same"
    told = str(shown)
    for secret in ("Hannah", "Somebody", "harborpine"):
        assert secret not in told
    whole = fields(preview(book, "ledger.masked_note", name="Somebody else"))
    assert whole["name"] == ("changed", "Hannah Whitlock", "Somebody else")


def test_objects_are_compared_field_by_field(book: Book, odd: Odd) -> None:
    there = {"id": "cus_000001", "seen_at": {"web": "Monday", "shop": 1}, "newsletter": 0}
    book.point(odd(says("200 OK", json.dumps(there).encode())).url)
    shown = fields(preview(book, "ledger.patched_note", seen_at={"web": "Friday", "shop": 1, "app": None}))
    assert shown["seen_at.web"] == ("changed", "Monday", "Friday")
    assert shown["seen_at.shop"] == ("same", "1", "1")
    assert shown["seen_at.app"] == ("added", "", "null")
    assert shown["newsletter"] == ("changed", "0", "false"), "a number is no flag"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        ("500 Broken", b"", "The receiver answered 500, which shows no record."),
        ("200 OK", b"[1]", "The receiver answered 200, which shows no record."),
        ("200 OK", b"{", "The receiver answered 200, which shows no record."),
        ("302 Found", b"", "The receiver answered 302, which shows no record."),
    ],
)
def test_what_can_not_be_shown_says_why(book: Book, odd: Odd, status: str, body: bytes, words: str) -> None:
    book.point(odd(says(status, body, "Location: http://127.0.0.1:1/")).url)
    seen = preview(book)
    assert (seen.problem, seen.fields) == (words, ())


def test_a_receiver_that_is_away_or_silent_keeps_nobody_waiting(
    book: Book, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = effect(book)
    book.point("http://127.0.0.1:9")
    assert "gave no usable answer in time: ConnectError" in preview_of(book.effect(found.id)).problem
    monkeypatch.setattr(receivers, "PREVIEW_WITHIN", 0.3)

    def silent(_request: bytes, connection: socket.socket) -> None:
        connection.recv(1)

    book.point(odd(silent).url)
    began = time.monotonic()
    assert "gave no usable answer in time" in preview_of(book.effect(found.id)).problem
    assert time.monotonic() - began < 3


def test_another_account_is_not_asked(book: Book) -> None:
    found = effect(book)
    book.point(book.witness.receiver, account="somebody-elses")
    assert "account at crm has changed" in preview_of(book.effect(found.id)).problem
    assert book.witness.requests("GET") == []


def test_a_type_without_one_says_so(book: Book) -> None:
    proposal = book.propose()
    assert preview_of(book.effect(proposal.effect_id)).problem == "This type has no preview."


def test_a_record_of_any_size_is_cut(book: Book, odd: Odd) -> None:
    there = {f"field_{number}": "x" * 1_000 for number in range(MOST_FIELDS + 40)}
    book.point(odd(says("200 OK", json.dumps(there).encode())).url)
    seen = preview(book)
    assert (len(seen.fields), seen.more > 0) == (MOST_FIELDS, True)
    assert max(len(one.before) for one in seen.fields) == LONGEST_VALUE + 1


def test_a_path_that_the_payload_does_not_fill_is_not_asked(book: Book) -> None:
    """Neither is a place made up, nor does a value of dots lead to another one."""
    found = effect(book)
    asked = HttpPreview("/v1/customers/{name}/{nobody}")
    seen = receivers.preview(
        _with(asked), found, {"name": "..", "customer_id": "cus_000001"}, b'{"path": "/v1/customers"}'
    )
    assert (seen.found, seen.sentence) == ("unclear", "The payload's name does not say where to look.")
    assert book.witness.requests("GET") == []


def _with(asked: HttpPreview) -> Any:
    return replace(promises.customer_note, preview=asked)


def test_a_mail_can_not_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (replace(promises.mail, preview=HttpPreview()),)
    monkeypatch.setattr("tests.effects.promises.CONTRACTS", broken)
    contracts.cache_clear()
    try:
        with pytest.raises(ContractError, match="has a preview but its wire can't be asked"):
            contracts()
    finally:
        monkeypatch.undo()
        contracts.cache_clear()
