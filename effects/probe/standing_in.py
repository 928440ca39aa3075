"""What a run, its worker and the sweep do for an effect, done for a probe: nobody else visits its effects."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from effects import intents, ledger, moves, origin, outcomes, reconcile
from effects.contracts import EffectContract, Payload
from effects.intents import Proposal, Why
from effects.ledger import Visit, Wait
from effects.models import Effect, EffectAttempt
from effects.origin import Result
from effects.probe.cases import has_look_up
from effects.probe.target import NotProbed, Target
from effects.receivers import Answer
from effects.selectors import repeatable_by_key
from effects.states import Dedup, EffectStatus, Outcome, SubState

T = TypeVar("T")

#: Between two looks at a row, in seconds.
POLL_S = 0.1
#: What a busy machine may take beside the contract's own times, in seconds.
SLACK_S = 20.0
_WHY = Why(position="probe", place={"node": "probe"}, node="probe")


@dataclass(frozen=True)
class StandIn(origin.Origin):
    """Stands where a run stands for its effects; *probe_id* is in the place of the run's id.

    Nothing holds it: no run is behind it that could be cancelled. Nobody is asked either: whoever may run the command
    may touch the receiver with what its contract says is harmless.
    """

    target: Target
    probe_id: str
    customer_ref: str = "probe"
    name: str = "probe"
    worker_id: str = ""

    @property
    def workspace_id(self) -> str:
        return self.target.workspace.id

    @property
    def run_id(self) -> str:
        return self.probe_id

    def hold(self) -> None:
        return

    def check_permitted(self) -> None:
        return

    @cached_property
    def promise(self) -> EffectContract:
        """The contract, but that it asks nobody and speaks for no customer."""
        return replace(self.target.promise, asking=None, customer="")

    @property
    def patience(self) -> float:
        """How long one effect may take to settle: a lost sender's lease, then deliveries or looks until it is found."""
        return self.promise.lease + 2 * self.promise.settle + 2 * self.promise.deadline + SLACK_S

    def propose(self, command: str, payload: Payload) -> Proposal:
        return intents.propose_under(self, self.promise, command, payload, _WHY)

    def send_unsettled(self, effect_id: str) -> tuple[EffectAttempt, Answer]:
        """Send it, and hold the receiver's answer without writing it down. Asked to wait, it waits and tries again."""

        def answered() -> tuple[EffectAttempt, Answer] | None:
            sent = ledger.send_unsettled(self, effect_id)
            if sent is not None and sent[1].outcome == Outcome.NOT_SENT:
                outcomes.settle(row(effect_id), sent[0], self.target.promise, sent[1])
                return None
            return sent

        sent = self._wait(answered)
        if sent is None:
            raise NotProbed(standing(row(effect_id)))
        return sent

    def bring_about(self, effect_id: str) -> Effect:
        """The effect's row once it is settled, or a person has to settle it, or all patience is over."""

        def settled() -> Effect | None:
            self._visit(effect_id)
            effect = row(effect_id)
            ended = effect.status == EffectStatus.FAILED or effect.sub_state == SubState.HELD
            for_a_person = effect.reviews.filter(closed_at=None).exists()
            return effect if self.is_done(effect) or ended or for_a_person else None

        return self._wait(settled) or row(effect_id)

    def result_of(self, effect_id: str) -> str:
        """The receiver's reference, as a worker gets it that performs the effect until there is a result."""
        result = self._wait(partial(self._visit, effect_id))
        if result is None:
            raise NotProbed(f"no result: {standing(row(effect_id))}")
        return result.reference

    def is_done(self, effect: Effect) -> bool:
        done = [EffectStatus.COMPLETED] + ([] if self.promise.synchronous else [EffectStatus.ACCEPTED])
        return effect.status in done

    def cancel_unsent(self) -> None:
        moves.cancel_unsent(self.run_id)

    def _visit(self, effect_id: str) -> Result | None:
        """What worker and sweep would do for it now. None while it is not settled, and where nothing was made."""
        reconcile.lose_lease(effect_id)
        until = "completed" if self.promise.synchronous else "accepted"
        with suppress(ledger.Refused, origin.OriginLost):
            found = ledger.perform(self, effect_id, Visit(), until=until)
            if not isinstance(found, Wait):
                return found
        repeatable = Effect.objects.filter(repeatable_by_key(), id=effect_id).exists()
        if has_look_up(self.promise) and not repeatable:
            reconcile.look(effect_id)
        elif self.promise.dedup == Dedup.KEY and not repeatable:
            reconcile.review_expired_keys()
        return None

    def _wait(self, look: Callable[[], T | None]) -> T | None:
        """The first of what *look* finds; None when it found nothing in all patience."""
        ends = time.monotonic() + self.patience
        while True:
            found = look()
            if found is not None or time.monotonic() > ends:
                return found
            time.sleep(POLL_S)


def row(effect_id: str) -> Effect:
    return Effect.objects.select_related("receiver", "command").get(id=effect_id)


def attempts_of(effect: Effect) -> int:
    """Those that may have reached the receiver."""
    return EffectAttempt.objects.filter(effect=effect).exclude(outcome=Outcome.NOT_SENT).count()


def standing(effect: Effect) -> str:
    """Where it stands and why, in words."""
    stands = effect.get_sub_state_display() if effect.sub_state else effect.get_status_display()
    said = [effect.problem, *effect.reviews.filter(closed_at=None).values_list("sentence", flat=True)]
    why = " ".join(dict.fromkeys(filter(None, said)))
    return f"it stands at “{stands}”" + (f": {why}" if why else "")
