"""Effects where they stand, brought there by the ledger's own moves: rows can't be edited to stand just anywhere."""

from __future__ import annotations

from datetime import timedelta

from effects import moves
from effects.approvals import request_for_effect
from effects.models import Approval, Effect, EffectAttempt
from effects.states import Outcome, ReviewReason
from runs.models import Run
from tests.views.asking import opened

DAYS = timedelta(days=5)
LOST = "No usable answer came: ReadTimeout."


def fresh(effect: Effect) -> Effect:
    return Effect.objects.select_related("receiver", "command").get(id=effect.id)


def granted(effect: Effect) -> Approval:
    """With an approver's grant for the bytes that stand."""
    approval = opened(Run.objects.get(id=effect.run_id), request_for_effect(effect))
    assert moves.grant(
        effect.id,
        approval=approval,
        revision=effect.revision,
        request_hash=effect.request_hash,
        valid=timedelta(hours=1),
    )
    Approval.objects.filter(id=approval.id).update(status="closed", ended_at=approval.created_at)
    return approval


def in_flight(effect: Effect, *, window: timedelta = DAYS) -> EffectAttempt:
    """A worker has claimed it and has yet to say what came of it."""
    effect = fresh(effect)
    if effect.needs_approval and not effect.grant_approval_id:
        granted(effect)
        effect = fresh(effect)
    attempt = moves.claim(
        effect, lease=timedelta(minutes=5), key_window=window, worker_id="wrk_test", origin="exe_test"
    )
    assert attempt is not None
    return attempt


def _ended(effect: Effect, outcome: Outcome, window: timedelta = DAYS, **fields: object) -> EffectAttempt:
    attempt = in_flight(effect, window=window)
    assert moves.end_attempt(attempt, outcome, latency_ms=1500, **fields)
    return attempt


def uncertain(effect: Effect, *, window: timedelta = DAYS, problem: str = LOST) -> Effect:
    """Its answer was lost. *window*: how long the same key may be sent again; negative: it has passed."""
    attempt = _ended(effect, Outcome.UNKNOWN, window, problem=problem)
    assert moves.leave_uncertain(attempt, wait=timedelta(minutes=1), problem=problem)
    return fresh(effect)


def completed(effect: Effect, reference: str = "off_000042") -> Effect:
    attempt = _ended(effect, Outcome.COMPLETED, answer_status="201", provider_reference=reference)
    assert moves.complete(attempt, reference=reference, answer=b"")
    return fresh(effect)


def accepted(effect: Effect, reference: str = "off_000042") -> Effect:
    attempt = _ended(effect, Outcome.ACCEPTED, answer_status="202", provider_reference=reference)
    assert moves.accept(attempt, reference=reference, wait=timedelta(minutes=1), deadline=timedelta(hours=1))
    return fresh(effect)


def refused(effect: Effect) -> Effect:
    attempt = _ended(effect, Outcome.REFUSED, answer_status="422", problem="crm answered 422.")
    assert moves.refuse(attempt, problem="crm answered 422.")
    return fresh(effect)


def held(effect: Effect) -> Effect:
    problem = "crm could not be reached: ConnectError"
    attempt = _ended(effect, Outcome.NOT_SENT, problem=problem)
    assert moves.back_off(attempt, wait=timedelta(0), give_up=timedelta(hours=1), problem=problem)
    assert moves.hold(effect.id, tries=1)
    return fresh(effect)


def cancelled(effect: Effect) -> Effect:
    assert moves.cancel_ordered(effect.id, why="Cancelled with its run before it was sent.")
    return fresh(effect)


def rejected(effect: Effect) -> Effect:
    assert moves.reject(effect.id, revision=effect.revision, problem="Rejected by Approver: too much.")
    return fresh(effect)


def looked(effect: Effect, found: str = "absent") -> None:
    """The receiver was asked after the last sending."""
    name = effect.receiver.name
    said = {"absent": f"{name} has no object with exactly this id.", "found": f"{name} has it as off_000042."}
    moves.observe(effect, "look_up", found, said.get(found, f"{name} did not answer: ReadTimeout"))


def absent(effect: Effect) -> Effect:
    """Proven not to be at the receiver since the last sending."""
    looked(effect)
    Effect.objects.filter(id=effect.id).update(absences=1, absent_at=effect.last_sent_at)
    return fresh(effect)


def reviewed(effect: Effect, reason: ReviewReason = ReviewReason.MISMATCH) -> None:
    assert moves.open_review(effect, reason, "Another amount is there.")
