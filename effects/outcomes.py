"""What came of an attempt, or of a look at the receiver: the moves, the observations and the reviews that follow."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.kernel.crypto import seal_json
from console.kernel.live import announce
from effects import moves
from effects.contracts import SKEW, EffectContract
from effects.models import Effect, EffectAttempt
from effects.moves import evidence
from effects.receivers import Answer
from effects.states import Dedup, EffectStatus, Outcome, Reversibility, ReviewReason, SubState

logger = logging.getLogger(__name__)


def settle(effect: Effect, attempt: EffectAttempt, promise: EffectContract, answer: Answer) -> None:
    """Write what came of an attempt, by the fence it holds. A late one becomes an observation."""
    with transaction.atomic():
        locked = Effect.objects.select_for_update().get(id=effect.id)
        latency = _latency(attempt)
        landed = moves.end_attempt(
            attempt,
            answer.outcome,
            latency_ms=latency,
            answer_status=answer.status,
            provider_reference=answer.reference,
            problem=answer.problem,
        )
        if not landed or locked.fence != attempt.fence or locked.sub_state != SubState.IN_FLIGHT:
            _late(locked, answer)
        else:
            _move(locked, attempt, promise, answer)
        announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects")
    _compare_clocks(effect, answer)


def _compare_clocks(effect: Effect, answer: Answer) -> None:
    """Key windows reckon with clocks that differ by so much and no more: beyond that it is said, on Home and in the log."""
    if answer.said_at is None:
        return
    ahead = moves.note_clock(effect.receiver_id, said_at=answer.said_at, most=SKEW)
    if ahead is not None:
        logger.warning(
            "the clock of %s is %+.1f s from the database's: windows of its keys are reckoned with %d s",
            effect.receiver.name,
            ahead,
            SKEW.total_seconds(),
        )


def _latency(attempt: EffectAttempt) -> int:
    return max(0, int((timezone.now() - attempt.started_at).total_seconds() * 1000))


def _move(effect: Effect, attempt: EffectAttempt, promise: EffectContract, answer: Answer) -> None:
    if answer.outcome == Outcome.COMPLETED:
        _complete(effect, attempt, answer)
    elif answer.outcome == Outcome.ACCEPTED:
        moves.accept(
            attempt,
            reference=answer.reference,
            wait=wait_before(1, answer.retry_after),
            deadline=timedelta(seconds=promise.final_within),
        )
    elif answer.outcome == Outcome.REFUSED and moves.refuse(attempt, problem=answer.problem):
        pass
    elif answer.outcome == Outcome.NOT_SENT and moves.back_off(
        attempt,
        wait=wait_before(attempt.n - effect.tries_before, answer.retry_after),
        give_up=timedelta(seconds=promise.give_up),
        problem=answer.problem,
    ):
        moves.hold(effect.id, tries=promise.tries)
    else:
        # Unknown, or a later attempt's refusal after one that may have been carried out: look before sending.
        moves.leave_uncertain(
            attempt,
            wait=wait_before(attempt.n - effect.tries_before, answer.retry_after),
            problem=answer.problem,
        )
        if answer.cached_error:
            evidence.close_key_window(effect.id)
            moves.observe(effect, "cached_error", "unclear", OLD_ERROR, status=answer.status)
        review_if_hopeless(effect, promise, mismatch=answer.problem if answer.mismatch else "")


def _complete(effect: Effect, attempt: EffectAttempt, answer: Answer) -> None:
    try:
        moves.complete(attempt, reference=answer.reference, answer=sealed_answer(effect, answer.body))
    except moves.ReferenceTaken as taken:
        moves.leave_uncertain(attempt, wait=wait_before(1), problem=str(taken))
        moves.open_review(effect, ReviewReason.MISMATCH, str(taken))
        return
    moves.close_answered_reviews(effect.id, why="The receiver confirmed it.")
    told = effect.observations.filter(kind="webhook", found="failed", at__gte=attempt.started_at).first()
    if told is not None:
        moves.open_review(
            effect,
            ReviewReason.CONTRADICTION,
            f"The receiver answered that it is done, but a webhook had said: {told.sentence}",
        )


OLD_ERROR = "The receiver keeps an old error under its key and would only repeat it."


def stands_at_old_error(effect: Effect) -> bool:
    """Whether its last sending was answered by an error that the receiver keeps: the same key says nothing new."""
    return effect.observations.filter(kind="cached_error", at__gte=effect.last_sent_at).exists()


def wait_before(tries: int, retry_after: float | None = None) -> timedelta:
    """Before the next try or look: 1, 2, 4 … at most 60 seconds, or what the receiver asked for (at most an hour)."""
    if retry_after is not None:
        return timedelta(seconds=min(max(retry_after, 0.5), 3600))
    return timedelta(seconds=min(2 ** max(tries - 1, 0), 60))


def sealed_answer(effect: Effect, body: Any) -> bytes:
    return seal_json(body, workspace=effect.workspace_id, owner=effect.id)


def review_if_hopeless(effect: Effect, promise: EffectContract, *, mismatch: str = "") -> None:
    """An uncertain effect that no look-up and no repeat can settle goes to a person."""
    if mismatch:
        moves.open_review(effect, ReviewReason.MISMATCH, mismatch)
    elif promise.dedup == Dedup.NONE:
        what = "irreversible" if effect.reversibility == Reversibility.IRREVERSIBLE else "not repeatable"
        moves.open_review(
            effect,
            ReviewReason.UNQUERYABLE,
            f"It may or may not have been delivered. {effect.receiver.name} can't be asked, and it is {what}.",
        )


def _late(effect: Effect, answer: Answer) -> None:
    """What a sender learned after it had lost its effect. Positive evidence still completes it."""
    moves.observe(
        effect,
        "late_answer",
        {"completed": "found", "refused": "absent"}.get(answer.outcome, "unclear"),
        f"A late answer came: {answer.problem or answer.outcome}.",
        reference=answer.reference,
        status=answer.status,
    )
    if answer.outcome == Outcome.COMPLETED:
        found_at_receiver(
            effect, answer.reference, answer.body, why="A late answer of the receiver confirmed it."
        )


def found_at_receiver(effect: Effect, reference: str, body: Any, *, why: str) -> None:
    """Exact positive evidence: the receiver holds this effect. It completes it wherever that may still be said.

    On an effect that is settled otherwise, or was never sent, it contradicts the ledger: a person looks. So where
    the object is another effect's.
    """
    try:
        completed = moves.complete_by_evidence(
            effect.id, reference=reference, answer=sealed_answer(effect, body)
        )
    except moves.ReferenceTaken as taken:
        moves.open_review(effect, ReviewReason.MISMATCH, str(taken))
        return
    if completed:
        moves.close_answered_reviews(effect.id, why=why)
        return
    now = Effect.objects.get(id=effect.id)
    if now.status != EffectStatus.COMPLETED or now.provider_reference != reference:
        says = now.get_sub_state_display() if now.sub_state else now.get_status_display()
        known = f" as {now.provider_reference}" if now.provider_reference else ""
        moves.open_review(
            now,
            ReviewReason.CONTRADICTION,
            f"The receiver has it as {reference}, but the ledger says: {says.lower()}{known}.",
        )
