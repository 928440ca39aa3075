"""That the machine can fail: with a mistake in the ledger it finds, within so many steps, that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from django.db.models import Q

from effects import moves, outcomes
from effects.contracts import EffectContract
from effects.models import Effect, EffectAttempt
from effects.receivers import Answer
from effects.selectors import due
from effects.states import Dedup, Outcome, SubState
from tests.model.figures import Figures
from tests.model.ledger import Ledger
from tests.model.machine import Core, Setting
from tests.model.playing import Share, play

STEPS = 4_000


@contextmanager
def natural_keys_are_sent_again_unseen() -> Iterator[None]:
    """An uncertain effect with a natural key may be claimed, as one with a key may."""
    claimable = moves.claimable

    def mistaken() -> Q:
        return claimable() | (Q(sub_state=SubState.UNCERTAIN, dedup=Dedup.NATURAL) & due())

    with mock.patch.object(moves, "claimable", mistaken):
        yield


@contextmanager
def no_answer_is_a_refusal() -> Iterator[None]:
    """What nobody knows is taken for "not done"."""
    move = outcomes._move

    def taken(effect: Any, attempt: Any, promise: Any, answer: Any) -> None:
        unknown = answer.outcome == Outcome.UNKNOWN
        move(effect, attempt, promise, replace(answer, outcome=Outcome.REFUSED) if unknown else answer)

    with mock.patch.object(outcomes, "_move", taken):
        yield


@contextmanager
def no_fence() -> Iterator[None]:
    """A sender that was taken for lost writes its answer as if it still held the effect."""
    settle, end_attempt = outcomes.settle, moves.end_attempt

    def settled(effect: Effect, attempt: EffectAttempt, promise: EffectContract, answer: Answer) -> None:
        attempt.fence = Effect.objects.get(id=effect.id).fence
        settle(effect, attempt, promise, answer)

    def ended(attempt: EffectAttempt, outcome: Outcome, **fields: Any) -> bool:
        return end_attempt(attempt, outcome, **fields) or True

    with mock.patch.object(outcomes, "settle", settled), mock.patch.object(moves, "end_attempt", ended):
        yield


class Natural(Ledger):
    """Effects by natural key alone: what the mistake is about comes soon."""

    kinds = ("model.natural", "model.twice_looked")


@pytest.mark.parametrize(
    ("mistake", "machine", "says"),
    [
        (natural_keys_are_sent_again_unseen, Natural, "was sent again although it may exist"),
        (no_answer_is_a_refusal, Ledger, "the receiver has it or will"),
        (no_fence, Ledger, "which is under way"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_the_machine_finds(
    setting: Setting, mistake: Callable[[], Any], machine: type[Core], says: str
) -> None:
    own = replace(setting, figures=Figures())
    with mistake():
        found = play(machine, own, Share(0, STEPS, 1))
    assert says in found, f"not found in {own.figures.step_count} steps: {found!r}"
