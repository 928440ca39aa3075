"""Bring an effect about: perform it for its run, once a visit, or deliver it by a person's order. Intents are saved before.

It knows nothing of runs. What holds an effect's origin is an interface; the worker's side implements it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import transaction

from console.kernel.errors import Refusal
from effects import doubles, fresh, moves, outcomes, receivers
from effects.claiming import Claim
from effects.contracts import contract
from effects.intents import Conflict, adopt, adopt_intended, ask_under_new_version
from effects.models import (
    Effect,
    EffectAttempt,
    Order,
    WouldHave,
)
from effects.moves import orders
from effects.origin import Origin, Result
from effects.receivers import Answer
from effects.selectors import answer_of, lost_right_to_grant, request_of, revision_of
from effects.states import (
    NEVER_SENDS,
    Decision,
    EffectStatus,
    ReviewReason,
    Stance,
    SubState,
)


class Refused(Refusal):
    """The receiver refused the effect for good: nothing exists there."""

    code = "effect_refused"
    status = 422

    def __init__(self, message: str, *, effect_id: str, receiver: str) -> None:
        super().__init__(message)
        self.effect_id = effect_id
        self.receiver = receiver


class Unreachable(Refused):
    """The receiver could not be reached in all the time there was. Nothing was sent."""

    code = "receiver_unreachable"


class SettledAsNotDone(Refused):
    """A person has settled that it was not done and is not to be: nothing exists, and nothing more is sent."""


class Blocked(Refused):
    """An irreversible type in a live replay or branch, while no releaser has permitted it there. Nothing was sent."""

    code = "effect_blocked"


@dataclass(frozen=True)
class Wait:
    """Not settled: the caller pauses and comes again when there is something to do."""

    effect_id: str
    why: str


@dataclass
class Visit:
    """One go of a worker at a node: an effect is sent at most once in it."""

    sent: set[str] = field(default_factory=set)


def perform(origin: Origin, effect_id: str, visit: Visit, *, until: str = "completed") -> Result | Wait:
    """Bring the effect about, or say what became of it. Sends at most once a visit, and never sleeps.

    Raises Refused or Unreachable where nothing exists and nothing more will be tried, OriginLost when the origin is
    no longer ours. The stored result comes back when the effect is settled already.
    """
    effect_id = own_id(origin, effect_id)
    if effect_id.startswith(doubles.PREFIX):
        return _without_sending(origin, effect_id)
    if (inherited := origin.inherited(effect_id)) is not None:
        return outcome_of(inherited.effect, until=until)
    effect = _own(origin, effect_id)
    if effect.status == EffectStatus.PENDING and not effect.tries:
        _check_not_blocked(origin, effect)
    if effect_id not in visit.sent and effect.status == EffectStatus.PENDING:
        if _send_once(origin, effect):
            visit.sent.add(effect_id)
        effect = _own(origin, effect_id)
    if effect.sub_state == SubState.CANCELLED:
        # With its run, whose cancel then says so; or by people, who settled that it was not done.
        with transaction.atomic():
            origin.hold()
    return outcome_of(effect, until=until)


def own_id(origin: Origin, effect_id: str) -> str:
    """The id by which *origin* acts on what its state calls *effect_id*.

    The state of a replay or branch carries the ids of the run that it was made from. What was settled before its
    checkpoint is history and keeps its id: its result is given back. Anything later is this run's own to bring about,
    under an id of its own. Evidence brings nothing about: everything keeps its id.
    """
    if origin.stance in (Stance.LIVE, Stance.EVIDENCE):
        return effect_id
    if effect_id.startswith(doubles.PREFIX):
        before = origin.intended_before(effect_id)
        return adopt_intended(origin, before) if before else effect_id
    inherited = origin.inherited(effect_id)
    if inherited is None or inherited.is_history:
        return effect_id
    return adopt(origin, inherited.effect)


def intended(origin: Origin, would_have_id: str) -> WouldHave:
    """What a run that never sends would have sent. Conflict for an id that is not its own.

    Raises NotRecorded in evidence: what is recorded bears the recorded effect's id, so this one is not.
    """
    row = WouldHave.objects.filter(
        id=would_have_id, workspace_id=origin.workspace_id, run_id=origin.run_id
    ).first()
    if row is None or origin.stance not in NEVER_SENDS:
        raise Conflict(f"This run has no effect {would_have_id}.")
    if origin.stance == Stance.EVIDENCE:
        raise doubles.NotRecorded(
            f"{row.effect_type} ({row.command_key}) has no recorded result for this payload, "
            "and evidence asks nobody.",
            intended=row,
        )
    return row


def _without_sending(origin: Origin, would_have_id: str) -> Result | Wait:
    """What a simulation's double says, once its launcher has decided where the contract asks somebody."""
    row = intended(origin, would_have_id)
    decision = doubles.decision_on(row)
    if decision is None and contract(row.effect_type).asking is not None:
        return Wait(row.id, "Asks who launched the simulation")
    if decision is not None and decision.decision in (Decision.REJECT, Decision.RESPOND):
        return Result(row.id, EffectStatus.FAILED, rejected=True, reason=decision.reason)
    answer = doubles.doubled(row)
    reference = answer.get("id", "") if isinstance(answer, dict) else ""
    return Result(row.id, EffectStatus.COMPLETED, str(reference), answer)


def _check_not_blocked(origin: Origin, effect: Effect) -> None:
    """effects.md, Moves; product.md, Replay, live: irreversible types are blocked until a releaser permits them."""
    permitted = origin.permitted_types if origin.stance == Stance.FRESH else None
    if why := fresh.why_blocked(effect.effect_type, effect.reversibility, permitted):
        raise Blocked(why, effect_id=effect.id, receiver=effect.receiver.name)


def deliver_by_order(origin: Origin, order: Order) -> Effect:
    """One sending by a person's order, whatever the run's status; the effect as it stands afterwards.

    *origin* holds the order's row. What the order overrides (that the receiver may have it already) it overrides with
    its first delivery alone. Raises OriginLost when the order is not due any more, Unpermitted, and Blocked as a run's own
    sending does.
    """
    effect = Effect.objects.select_related("receiver", "command").get(id=order.sends_id)
    if effect.status == EffectStatus.PENDING:
        _send_once(origin, effect, order=order)
    return Effect.objects.select_related("receiver", "command").get(id=order.sends_id)


def _send_once(origin: Origin, effect: Effect, order: Order | None = None) -> bool:
    # Before the claim: whatever holds this process up from here on counts against the time to send.
    began = time.monotonic()
    attempt = _claim(origin, effect, order)
    if attempt is None:
        return False
    _send(effect, attempt, began)
    return True


def _own(origin: Origin, effect_id: str) -> Effect:
    """The effect of this run: an id from another run's state is never acted on."""
    effect = (
        Effect.objects.select_related("receiver", "command")
        .filter(id=effect_id, workspace_id=origin.workspace_id, run_id=origin.run_id)
        .first()
    )
    if effect is None:
        raise Conflict(f"This run has no effect {effect_id}.")
    return effect


def outcome_of(effect: Effect, *, until: str = "completed") -> Result | Wait:
    """Read the row: a result, a wait, or the refusal that it stands for.

    One that is proven not to exist, and that people have sent anew, stands for its successor.
    """
    if effect.sub_state in (SubState.REFUSED, SubState.CANCELLED) and (successor := successor_of(effect)):
        return outcome_of(successor, until=until)
    if effect.status == EffectStatus.COMPLETED or (
        effect.status == EffectStatus.ACCEPTED and until == "accepted"
    ):
        return Result(effect.id, effect.status, effect.provider_reference, answer_of(effect))
    if effect.sub_state == SubState.REJECTED:
        return Result(effect.id, effect.status, rejected=True, reason=effect.problem)
    if effect.sub_state == SubState.REFUSED:
        raise Refused(
            f"{effect.receiver.name} refused {effect.effect_type}: {effect.problem}",
            effect_id=effect.id,
            receiver=effect.receiver.name,
        )
    if effect.sub_state == SubState.HELD:
        raise Unreachable(
            f"{effect.receiver.name} could not be reached for {effect.effect_type}; nothing was sent. {effect.problem}",
            effect_id=effect.id,
            receiver=effect.receiver.name,
        )
    if effect.sub_state == SubState.CANCELLED:
        raise SettledAsNotDone(
            f"{effect.effect_type} was settled as not done: {effect.problem}",
            effect_id=effect.id,
            receiver=effect.receiver.name,
        )
    return Wait(effect.id, effect.get_sub_state_display() if effect.sub_state else "Accepted, not final")


def successor_of(effect: Effect) -> Effect | None:
    """The newest effect that people sent in its place and that was not turned down."""
    return (
        effect.successors.select_related("receiver", "command")
        .exclude(sub_state__in=[SubState.REJECTED, SubState.CANCELLED])
        .order_by("-created_at", "-id")
        .first()
    )


def _claim(origin: Origin, effect: Effect, order: Order | None = None) -> EffectAttempt | None:
    """Take the effect in one transaction with the origin's row. The attempt is committed before the first byte."""
    promise = contract(effect.effect_type)
    with Claim() as claim:
        origin.hold()
        origin.check_permitted()
        _check_not_blocked(origin, effect)
        if not claim.is_safe(effect):
            return None
        if promise.version != effect.contract_version and effect.sub_state in _CLAIMED_FROM:
            ask_under_new_version(effect, promise)
            return None
        if effect.account != effect.receiver.account:
            moves.open_review(
                effect,
                ReviewReason.MISMATCH,
                f"The account at {effect.receiver.name} changed since this was asked for.",
            )
            return None
        if moves.void_grant(effect.id) or _grant_is_lost(effect):
            return None
        attempt = moves.claim(
            effect,
            lease=timedelta(seconds=promise.lease),
            key_window=promise.key_window,
            worker_id=origin.worker_id,
            origin=origin.name,
            overriding=order is not None and _overrides_still(order),
        )
        claim.note(attempt)
        if attempt is not None and order is not None:
            orders.count_attempt(order.id)
            moves.close_overridden_reviews(effect.id, why=f"Delivered again by the order {order.id}.")
        return attempt
    return None


def _overrides_still(order: Order) -> bool:
    """By its row as it is now, which the origin holds: another worker may have made its one delivery since it was read."""
    return order.overrides and Order.objects.filter(id=order.id, attempts=0).exists()


def _grant_is_lost(effect: Effect) -> bool:
    """Whether who approved it may no longer approve. Unsent it is asked again; uncertain it goes to a person."""
    if not effect.needs_approval or not effect.grant_approval_id:
        return False
    lost = lost_right_to_grant(effect)
    if lost and not moves.void_grant(effect.id, lost_by=lost) and effect.unresolved:
        # Its run would come again and again, and never send.
        moves.open_review(
            effect,
            ReviewReason.UNQUERYABLE,
            f"It may have been done. {lost} So it is not sent again by itself.",
        )
    return bool(lost)


_CLAIMED_FROM = (SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN)


def _send(effect: Effect, attempt: EffectAttempt, began: float) -> None:
    """Outside any transaction: deliver the stored bytes once, then settle. *began*: monotonic, before the claim."""
    answer = _deliver(effect, attempt, began)
    outcomes.settle(effect, attempt, contract(effect.effect_type), answer)


def _deliver(effect: Effect, attempt: EffectAttempt, began: float) -> Answer:
    promise = contract(effect.effect_type)
    request = request_of(effect, revision_of(effect, attempt.revision))
    left = promise.lease - promise.deadline - (time.monotonic() - began)
    return receivers.deliver(promise, effect, request, send_by=left)


def send_unsettled(origin: Origin, effect_id: str) -> tuple[EffectAttempt, Answer] | None:
    """What `perform` does up to the moment in which it would write the answer down; None where it may not send now.

    For a probe: the process that calls this is killed with the answer in its hands.
    """
    effect = _own(origin, effect_id)
    began = time.monotonic()
    attempt = _claim(origin, effect)
    return None if attempt is None else (attempt, _deliver(effect, attempt, began))
