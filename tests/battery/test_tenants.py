"""Whose effect it is, at which account, and until when its key protects a repeat."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from effects.contracts import RELIED_ON, SKEW
from effects.intents import Conflict
from effects.ledger import Wait
from effects.models import Effect
from effects.origin import Result
from tests.battery import promises
from tests.battery.bench import Bench, isolated_receiver
from tests.battery.rows import row
from tests.effects.book import Book, Witness
from tests.people import make_world


@row(
    "51",
    "Two workspaces, the same run id and inputs: two effects, each at its own account",
    rx=(2, 2),
    stands="2 × completed",
    attempts="2 × completed",
)
def test_51(bench: Bench) -> None:
    world = make_world("neighbour")
    world.receivers(bench.witness.receiver, bench.witness.smtp_port)
    seen = bench.witness
    other = Book(world, Witness(seen.client, seen.receiver, seen.mail, seen.smtp_port))
    bench.neighbours.append(other)
    other.run.run_id = bench.run.run_id
    mine = bench.propose("battery.offer")
    theirs = other.propose("battery.offer", **bench.usual("battery.offer"))
    assert (mine.request_hash, mine.effect_id) != (theirs.request_hash, theirs.effect_id)
    assert mine.request_hash == theirs.request_hash
    with pytest.raises(Conflict):
        bench.perform(theirs.effect_id)
    assert isinstance(bench.perform(mine.effect_id), Result)
    assert isinstance(other.perform(theirs.effect_id), Result)
    assert [book.witness.rx for book in bench.books] == [(1, 1), (1, 1)]


@row(
    "52",
    "A live and an isolated receiver of one name: a live effect reaches only the live account",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_52(bench: Bench) -> None:
    isolated = isolated_receiver(bench.world, "crm", bench.witness.receiver)
    proposal = bench.propose("battery.offer")
    assert isinstance(bench.perform(proposal.effect_id), Result)
    effect = bench.effect(proposal.effect_id)
    assert (effect.receiver.standing, effect.account) == ("live", bench.world.account)
    seen = bench.witness
    beside = Witness(seen.client, seen.receiver, seen.mail, seen.smtp_port, account=isolated.account)
    assert beside.rx == (0, 0)


ANOTHER_ACCOUNT: dict[str, Any] = {
    "rx": (1, 1),
    "stands": "pending/uncertain, in review: mismatch",
    "attempts": "unknown",
}


@row(
    "54",
    "The receiver's account is another one at the second attempt, K: review, nothing sent there",
    case="K",
    **ANOTHER_ACCOUNT,
)
def test_54_key(bench: Bench) -> None:
    _lost_then_another_account(bench, "battery.offer", "crm")


@row(
    "54",
    "The same, N: review; that the other account does not have it proves nothing",
    case="N",
    **ANOTHER_ACCOUNT,
)
def test_54_natural(bench: Bench) -> None:
    _lost_then_another_account(bench, "battery.ticket", "desk")


def _lost_then_another_account(bench: Bench, effect_type: str, receiver: str) -> None:
    proposal = bench.propose(effect_type)
    bench.witness.order("drop_after_commit")
    bench.perform(proposal.effect_id)
    another = f"{bench.world.workspace.id}-another"
    Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], another).write_text(f"{another}:{bench.secret}")
    bench.point(bench.witness.receiver, receiver=receiver, account=another, secret_name=another)
    for _ in range(2):
        bench.time_passes()
        bench.sweep()
        assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    seen = bench.witness
    assert Witness(seen.client, seen.receiver, seen.mail, seen.smtp_port, account=another).rx == (0, 0)


@row(
    "55",
    "The last second of the key's window: the same key again",
    case="inside",
    rx=(1, 2),
    stands="completed",
    attempts="unknown, completed",
)
def test_55_inside(bench: Bench) -> None:
    effect = _lost_by_key(bench)
    promise = promises.unasked_offer
    assert effect.key_until is not None
    assert effect.first_sent_at is not None
    assert effect.key_until - effect.first_sent_at == (
        timedelta(seconds=RELIED_ON * promise.retention - promise.deadline) - SKEW
    )
    Effect.objects.filter(id=effect.id).update(key_until=Now() + timedelta(seconds=1))
    assert isinstance(bench.perform_now(effect.id), Result)


@row(
    "55",
    "The moment it is over: never again; a person is asked",
    case="past",
    rx=(1, 1),
    stands="pending/uncertain, in review: key_expired",
    attempts="unknown",
)
def test_55_past(bench: Bench) -> None:
    effect = _lost_by_key(bench)
    Effect.objects.filter(id=effect.id).update(key_until=Now())
    assert isinstance(bench.perform_now(effect.id), Wait)
    bench.sweep()
    assert isinstance(bench.perform_now(effect.id), Wait)


def _lost_by_key(bench: Bench) -> Effect:
    """Made, the answer lost; the receiver can't be asked."""
    proposal = bench.propose("battery.unasked_offer")
    bench.witness.order("drop_after_commit")
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    return bench.effect(proposal.effect_id)


@row(
    "57",
    "A key of unknown retention: no second send; a look finds it",
    rx=(1, 1),
    stands="completed",
    attempts="unknown",
)
def test_57(bench: Bench) -> None:
    proposal = bench.propose("battery.no_window")
    bench.witness.order("drop_after_commit")
    for _ in range(3):
        assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    bench.time_passes()
    bench.sweep()
    assert isinstance(bench.perform(proposal.effect_id), Result)
