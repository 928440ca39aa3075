"""What is the same payload, what is another one, and what is none."""

from __future__ import annotations

import json
import math
import unicodedata
from datetime import datetime
from typing import Any

import pytest

from console.kernel.errors import Invalid
from effects.intents import Conflict
from effects.ledger import Wait
from effects.models import EffectRevision
from effects.origin import Result
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.effects.book import OFFER


@row(
    "41",
    "Another order of keys and other white space: the same effect",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_41(bench: Bench) -> None:
    payload = bench.usual("battery.offer")
    spaced = json.loads(json.dumps(dict(reversed(payload.items())), indent=7))
    lines = [dict(reversed(line.items())) for line in spaced["lines"]]
    first = bench.propose("battery.offer", **json.loads(json.dumps(payload, separators=(",", ":"))))
    assert bench.propose("battery.offer", **{**spaced, "lines": lines}) == first
    assert isinstance(bench.perform(first.effect_id), Result)


@row(
    "42",
    "1 and 1.0: the same hash, and the bytes that were stored first",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_42(bench: Bench) -> None:
    first = bench.propose("battery.offer", amount_minor=1000)
    assert bench.propose("battery.offer", amount_minor=1000.0) == first
    assert bench.perform(first.effect_id)
    [request] = bench.witness.requests()
    assert '"amount_minor":1000,' in request["body"]


@row(
    "43",
    "NFC and NFD of the same word: the same effect, sent as NFC",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_43(bench: Bench) -> None:
    composed, taken_apart = (unicodedata.normalize(form, "Crème brûlée") for form in ("NFC", "NFD"))
    assert composed != taken_apart
    first = bench.propose("battery.offer", subject=taken_apart)
    assert bench.propose("battery.offer", subject=composed) == first
    bench.perform(first.effect_id)
    [request] = bench.witness.requests()
    assert composed in request["body"]


#: Changed payload → the path that the refusal names.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"amount_minor": math.nan}, "amount_minor"),
    ({"amount_minor": math.inf}, "amount_minor"),
    ({"amount_minor": 2**53}, "amount_minor"),
    ({"lines": [{**OFFER["lines"][0], "unit_minor": 2**53}]}, "lines[0].unit_minor"),  # type: ignore[index]
    ({"subject": "half of a pair: \ud83d"}, "subject"),
    ({"subject": "a \x00 in it"}, "subject"),
    ({"subject": datetime(2026, 7, 1, 12)}, "subject"),  # noqa: DTZ001
    ({"subject": b"raw"}, "subject"),
    ({"lines": [{"caf\u00e9": 1, "cafe\u0301": 2}]}, "lines[0]"),
    ({"customer_id": ""}, "customer_id"),
    ({"no_such_field": 1}, "payload"),
]


@row(
    "46",
    "NaN, infinity, 2^53, half a surrogate, U+0000, a naive time, bytes, one key twice, no recipient: refused, no row",
    rx=(0, 0),
    stands="no row",
    attempts="",
)
def test_46(bench: Bench) -> None:
    for changes, path in REFUSED:
        with pytest.raises(Invalid) as refused:
            bench.propose("battery.offer", **changes)
        assert str(refused.value.field).startswith(path), (changes, refused.value)


@row(
    "49",
    "Another amount under the same id after the first attempt: Conflict, the original untouched",
    rx=(1, 1),
    stands="pending/uncertain",
    attempts="unknown",
)
def test_49(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("drop_after_commit")
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    _conflicts(bench, proposal.effect_id)


@row(
    "50",
    "Another amount under the same id after completion: Conflict, before any stored result is given back",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
@row(
    "C60",
    "A stored result was given back before the payload was compared: another payload is a Conflict",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_50(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    assert isinstance(bench.perform(proposal.effect_id), Result)
    _conflicts(bench, proposal.effect_id)


def _conflicts(bench: Bench, effect_id: str) -> None:
    before = type(bench.effect(effect_id)).objects.filter(id=effect_id).values().get()
    with pytest.raises(Conflict, match="sent already"):
        bench.propose("battery.offer", amount_minor=900)
    assert type(bench.effect(effect_id)).objects.filter(id=effect_id).values().get() == before
    assert EffectRevision.objects.filter(effect_id=effect_id).count() == 1


@row(
    "50b",
    "Another amount before the first attempt: revision 2, the approval void, nothing sent",
    rx=(0, 0),
    stands="pending/recorded",
    attempts="",
)
def test_50b(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    changed = bench.propose("battery.asked_offer", amount_minor=900)
    assert (changed.effect_id, changed.revision) == (effect.id, 2)
    after = bench.effect(effect.id)
    assert (after.grant_approval_id, after.grant_hash, after.grant_until) == ("", "", None)
    assert isinstance(bench.perform(effect.id), Wait)
