"""Every change of where an effect, an attempt or a review stands: one conditional UPDATE each.

Each answers whether it landed. False means that somebody else moved the row first, or that the move is not allowed
from where the row stands; the caller reads the row again before anything. Only the database's clock decides.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce, Now

from effects.models import Approval, Effect, EffectAttempt, Observation, Review
from effects.selectors import due, granted, repeatable_by_key
from effects.states import UNSENT, Dedup, EffectStatus, Outcome, ReviewReason, SubState

_OPEN_REVIEW = Exists(Review.objects.filter(effect=OuterRef("pk"), closed_at__isnull=True))


def _from(effect_id: str, *sub_states: SubState) -> Any:
    return Effect.objects.filter(id=effect_id, status=EffectStatus.PENDING, sub_state__in=sub_states)


def await_approval(effect_id: str, *, revision: int) -> bool:
    """recorded → awaiting_approval, for the revision that is asked about."""
    return bool(
        _from(effect_id, SubState.RECORDED)
        .filter(revision=revision, needs_approval=True)
        .update(sub_state=SubState.AWAITING_APPROVAL, updated_at=Now())
    )


def make_ready_without_approval(effect_id: str) -> bool:
    """recorded → ready, where the policy asks nobody."""
    return bool(
        _from(effect_id, SubState.RECORDED)
        .filter(needs_approval=False)
        .update(sub_state=SubState.READY, updated_at=Now())
    )


def grant(effect_id: str, *, approval: Approval, revision: int, request_hash: str, valid: timedelta) -> bool:
    """recorded / awaiting_approval → ready, with the grant for exactly this revision and hash."""
    return bool(
        _from(effect_id, SubState.RECORDED, SubState.AWAITING_APPROVAL)
        .filter(revision=revision, request_hash=request_hash)
        .update(
            sub_state=SubState.READY,
            grant_approval_id=approval.id,
            grant_revision=revision,
            grant_hash=request_hash,
            grant_until=Now() + valid,
            updated_at=Now(),
        )
    )


def require_approval(effect_id: str) -> bool:
    """recorded / ready → awaiting_approval, because a person was asked although the policy asks nobody."""
    return bool(
        _from(effect_id, SubState.RECORDED, SubState.READY)
        .filter(tries=0)
        .update(needs_approval=True, sub_state=SubState.AWAITING_APPROVAL, updated_at=Now())
    )


def void_grant(effect_id: str) -> bool:
    """ready → awaiting_approval: the grant's time is over before anything was sent. It is asked again."""
    return bool(
        _from(effect_id, SubState.READY, SubState.BACKOFF)
        .filter(needs_approval=True, unresolved=False)
        .exclude(_OPEN_REVIEW)
        .filter(Q(grant_until__lte=Now()) | Q(grant_until__isnull=True))
        .update(
            sub_state=SubState.AWAITING_APPROVAL,
            grant_approval_id="",
            grant_revision=None,
            grant_hash="",
            grant_until=None,
            updated_at=Now(),
        )
    )


def reject(effect_id: str, *, revision: int, problem: str) -> bool:
    """recorded / awaiting_approval → failed/rejected_by_person."""
    return bool(
        _from(effect_id, SubState.RECORDED, SubState.AWAITING_APPROVAL)
        .filter(revision=revision, unresolved=False)
        .update(
            status=EffectStatus.FAILED,
            sub_state=SubState.REJECTED,
            problem=problem,
            settled_at=Now(),
            updated_at=Now(),
        )
    )


def revise(effect_id: str, *, was: int, request_hash: str, recipient: str, customer_ref: str) -> bool:
    """Another payload before the first attempt: revision + 1, the grant void, back to recorded."""
    return bool(
        _from(effect_id, SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY)
        .filter(revision=was, tries=0)
        .update(
            revision=was + 1,
            request_hash=request_hash,
            recipient=recipient,
            customer_ref=customer_ref,
            sub_state=SubState.RECORDED,
            grant_approval_id="",
            grant_revision=None,
            grant_hash="",
            grant_until=None,
            updated_at=Now(),
        )
    )


def claimable() -> Q:
    """What a sender may take now: ready; backoff that is due; uncertain by the same key inside its window."""
    return (granted() & (Q(sub_state=SubState.READY) | (Q(sub_state=SubState.BACKOFF) & due()))) | (
        repeatable_by_key() & due()
    )


def claim(
    effect: Effect,
    *,
    lease: timedelta,
    key_window: timedelta,
    worker_id: str,
    origin: str,
) -> EffectAttempt | None:
    """→ in_flight: the attempt is inserted, and committed by the caller before the first byte.

    *key_window*: how long from the first attempt not proven unsent the same key may be sent again.

    None: not claimable now (moved, not due, no valid grant, window passed, a review open). Call it inside a
    transaction that also holds the origin's row.
    """
    landed = (
        Effect.objects.filter(
            claimable(),
            id=effect.id,
            status=EffectStatus.PENDING,
            fence=effect.fence,
        )
        .exclude(_OPEN_REVIEW)
        .update(
            sub_state=SubState.IN_FLIGHT,
            fence=F("fence") + 1,
            tries=F("tries") + 1,
            lease_until=Now() + lease,
            due_at=None,
            last_sent_at=Now(),
            first_sent_at=Coalesce(F("first_sent_at"), Now()),
            key_until=Coalesce(F("key_until"), Now() + key_window),
            problem="",
            updated_at=Now(),
        )
    )
    if not landed:
        return None
    effect.refresh_from_db()
    return EffectAttempt.objects.create(
        effect=effect,
        n=effect.tries,
        fence=effect.fence,
        revision=effect.revision,
        request_hash=effect.request_hash,
        worker_id=worker_id,
        origin=origin,
    )


def end_attempt(attempt: EffectAttempt, outcome: Outcome, **fields: Any) -> bool:
    """sending → *outcome*, once. False: it had ended already (its lease ran out), and what came is an observation."""
    return bool(
        EffectAttempt.objects.filter(id=attempt.id, outcome=Outcome.SENDING).update(
            outcome=outcome, ended_at=Now(), **fields
        )
    )


def _in_flight(attempt: EffectAttempt) -> Any:
    return Effect.objects.filter(
        id=attempt.effect_id,
        status=EffectStatus.PENDING,
        sub_state=SubState.IN_FLIGHT,
        fence=attempt.fence,
    )


def complete(attempt: EffectAttempt, *, reference: str, answer: bytes) -> bool:
    """in_flight → completed, by the sender that holds the fence."""
    return bool(_in_flight(attempt).update(**_completed(reference, answer)))


def accept(attempt: EffectAttempt, *, reference: str, wait: timedelta, deadline: timedelta) -> bool:
    """in_flight → accepted: the receiver took it, the final result is not known. Looked at after *wait*, and due by
    *deadline*."""
    return bool(
        _in_flight(attempt).update(
            status=EffectStatus.ACCEPTED,
            sub_state=SubState.NONE,
            provider_reference=reference,
            lease_until=None,
            due_at=Now() + wait,
            final_by=Now() + deadline,
            updated_at=Now(),
        )
    )


def refuse(attempt: EffectAttempt, *, problem: str) -> bool:
    """in_flight → failed/refused, only when no earlier attempt is unknown."""
    return bool(
        _in_flight(attempt)
        .filter(unresolved=False)
        .update(
            status=EffectStatus.FAILED,
            sub_state=SubState.REFUSED,
            problem=problem,
            lease_until=None,
            first_sent_at=None,
            key_until=None,
            settled_at=Now(),
            updated_at=Now(),
        )
    )


def back_off(attempt: EffectAttempt, *, wait: timedelta, give_up: timedelta, problem: str) -> bool:
    """in_flight → backoff: proven unsent, and no earlier attempt unknown."""
    return bool(
        _in_flight(attempt)
        .filter(unresolved=False)
        .update(
            sub_state=SubState.BACKOFF,
            lease_until=None,
            due_at=Now() + wait,
            first_sent_at=None,
            key_until=None,
            give_up_at=Coalesce(F("give_up_at"), Now() + give_up),
            problem=problem,
            updated_at=Now(),
        )
    )


def leave_uncertain(attempt: EffectAttempt, *, wait: timedelta, problem: str) -> bool:
    """in_flight → uncertain: it may have been done. The next look, or the same key again, is due after *wait*."""
    return bool(
        _in_flight(attempt).update(
            sub_state=SubState.UNCERTAIN,
            unresolved=True,
            lease_until=None,
            due_at=Now() + wait,
            problem=problem,
            updated_at=Now(),
        )
    )


def hold(effect_id: str, *, tries: int) -> bool:
    """backoff → held: the tries or the time are over, and every attempt is proven not sent."""
    return bool(
        _from(effect_id, SubState.BACKOFF)
        .filter(unresolved=False)
        .exclude(_OPEN_REVIEW)
        .filter(Q(tries__gte=F("tries_before") + tries) | Q(give_up_at__lte=Now()))
        .update(sub_state=SubState.HELD, due_at=None, updated_at=Now())
    )


def make_ready_again(effect_id: str) -> bool:
    """held, failed/refused → ready (with a valid grant or without need of one) or awaiting_approval. Nothing exists."""
    standing = (
        Effect.objects.filter(id=effect_id, unresolved=False)
        .exclude(_OPEN_REVIEW)
        .filter(
            Q(status=EffectStatus.PENDING, sub_state=SubState.HELD)
            | Q(status=EffectStatus.FAILED, sub_state=SubState.REFUSED)
        )
    )
    again = {
        "status": EffectStatus.PENDING,
        "due_at": None,
        "give_up_at": None,
        "tries_before": F("tries"),
        "settled_at": None,
        "problem": "",
        "updated_at": Now(),
    }
    if standing.filter(granted()).update(sub_state=SubState.READY, **again):
        return True
    return bool(
        standing.update(
            sub_state=SubState.AWAITING_APPROVAL,
            grant_approval_id="",
            grant_revision=None,
            grant_hash="",
            grant_until=None,
            **again,
        )
    )


LOST_SENDER = "The worker that sent it was lost before it could say what came of it."


def lose_lease(effect_id: str) -> Effect | None:
    """in_flight whose lease ended → uncertain, its attempt unknown: the sender may have sent. Inside a transaction.

    None: it was settled meanwhile, or somebody else is at it.
    """
    effect = (
        Effect.objects.select_for_update(of=("self",), skip_locked=True)
        .select_related("receiver")
        .filter(id=effect_id, sub_state=SubState.IN_FLIGHT, lease_until__lt=Now())
        .first()
    )
    if effect is None:
        return None
    EffectAttempt.objects.filter(effect=effect, outcome=Outcome.SENDING).update(
        outcome=Outcome.UNKNOWN, ended_at=Now(), problem=LOST_SENDER
    )
    Effect.objects.filter(id=effect_id).update(
        sub_state=SubState.UNCERTAIN,
        unresolved=True,
        lease_until=None,
        due_at=Now(),
        problem=LOST_SENDER,
        updated_at=Now(),
    )
    return effect


def complete_by_evidence(effect_id: str, *, reference: str, answer: bytes) -> bool:
    """Any pending effect with an attempt, accepted → completed: the receiver holds exactly this effect.

    A sender that has it in flight meanwhile finds it moved, and what it learns becomes an observation.
    """
    return bool(
        Effect.objects.filter(id=effect_id)
        .filter(Q(status=EffectStatus.PENDING, tries__gt=0) | Q(status=EffectStatus.ACCEPTED))
        .exclude(sub_state=SubState.RECORDED)
        .update(**_completed(reference, answer))
    )


def _completed(reference: str, answer: bytes) -> dict[str, Any]:
    return {
        "status": EffectStatus.COMPLETED,
        "sub_state": SubState.NONE,
        "provider_reference": reference,
        "answer": answer,
        "unresolved": False,
        "lease_until": None,
        "due_at": None,
        "problem": "",
        "settled_at": Now(),
        "updated_at": Now(),
    }


def ready_by_proven_absence(effect_id: str, *, fence: int) -> bool:
    """uncertain → ready: an authoritative look-up proved absence, and the receiver enforces uniqueness (dedup N).

    *fence*: the effect's when it was asked. A send since then makes the answer one about the past.
    """
    return bool(
        _from(effect_id, SubState.UNCERTAIN)
        .filter(dedup=Dedup.NATURAL, fence=fence)
        .exclude(_OPEN_REVIEW)
        .update(
            sub_state=SubState.READY,
            unresolved=False,
            first_sent_at=None,
            key_until=None,
            due_at=None,
            problem="",
            updated_at=Now(),
        )
    )


def _looked_at(effect_id: str) -> Any:
    """What a look-up may settle: uncertain, or accepted and not final."""
    return Effect.objects.filter(id=effect_id).filter(
        Q(status=EffectStatus.PENDING, sub_state=SubState.UNCERTAIN) | Q(status=EffectStatus.ACCEPTED)
    )


def look_later(effect_id: str, *, wait: timedelta) -> bool:
    """An inconclusive look: the next one is due after *wait*."""
    return bool(_looked_at(effect_id).update(looks=F("looks") + 1, due_at=Now() + wait, updated_at=Now()))


def take_look(effect_id: str, *, lease: timedelta) -> bool:
    """Claim a due look-up by pushing its due time past *lease*: two sweeps never look at once."""
    return bool(
        _looked_at(effect_id).filter(due_at__lte=Now()).update(due_at=Now() + lease, updated_at=Now())
    )


def cancel_unsent(run_id: str) -> int:
    """Every effect of the run without an unresolved attempt → failed/cancelled. Returns how many."""
    return Effect.objects.filter(
        run_id=run_id, status=EffectStatus.PENDING, sub_state__in=UNSENT, unresolved=False
    ).update(
        status=EffectStatus.FAILED,
        sub_state=SubState.CANCELLED,
        problem="Cancelled with its run before it was sent.",
        due_at=None,
        settled_at=Now(),
        updated_at=Now(),
    )


def open_review(effect: Effect, reason: ReviewReason, sentence: str) -> bool:
    """Open a review, once a reason. False: one is open already."""
    _, made = Review.objects.get_or_create(
        effect=effect,
        reason=reason,
        closed_at=None,
        defaults={"workspace_id": effect.workspace_id, "sentence": sentence},
    )
    return made


#: Exact positive evidence answers these by itself; the others are closed by people.
CLOSED_BY_EVIDENCE = (ReviewReason.UNQUERYABLE, ReviewReason.DEADLINE_PASSED, ReviewReason.CACHED_ERROR)


def close_answered_reviews(effect_id: str, *, why: str) -> int:
    return Review.objects.filter(
        effect_id=effect_id, closed_at__isnull=True, reason__in=CLOSED_BY_EVIDENCE
    ).update(closed_at=Now(), closed_why=why)


def observe(
    effect: Effect, kind: str, found: str, sentence: str, *, reference: str = "", **detail: Any
) -> None:
    Observation.objects.create(
        effect=effect, kind=kind, found=found, sentence=sentence, provider_reference=reference, detail=detail
    )
