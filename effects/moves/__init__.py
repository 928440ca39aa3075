"""Every change of where an effect, an attempt or a review stands: one conditional UPDATE each.

Each answers whether it landed. False means that somebody else moved the row first, or that the move is not allowed
from where the row stands; the caller reads the row again before anything. Only the database's clock decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import DateTimeField, DurationField, Exists, ExpressionWrapper, F, OuterRef, Q, Value
from django.db.models.functions import Coalesce, Now

from console.models import User
from effects.contracts import EffectContract
from effects.models import Approval, Effect, EffectAttempt, Observation, Order, Receiver, Review
from effects.selectors import due, granted, probed, repeatable_by_key, sent_anew, stopped, unsent_effects
from effects.states import (
    OPEN_ORDERS,
    OVERRIDABLE,
    UNSENT,
    Dedup,
    EffectStatus,
    Outcome,
    ReviewOutcome,
    ReviewReason,
    SubState,
)

_OPEN_REVIEW = Exists(Review.objects.filter(effect=OuterRef("pk"), closed_at__isnull=True))
#: What no person's order overrides: there is something at the receiver that has to be looked at first.
_BLOCKING_REVIEW = Exists(
    Review.objects.filter(effect=OuterRef("pk"), closed_at__isnull=True).exclude(reason__in=OVERRIDABLE)
)
_OPEN_ORDER = Exists(Order.objects.filter(sends=OuterRef("pk"), status__in=OPEN_ORDERS))


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


_NO_GRANT: dict[str, Any] = {
    "grant_approval_id": "",
    "grant_revision": None,
    "grant_hash": "",
    "grant_until": None,
}


def void_grant(effect_id: str, *, lost_by: str = "") -> bool:
    """ready / backoff → awaiting_approval: the grant's time is over, or its giver may no longer give it.

    *lost_by*: who lost the right, in words. Nothing of it is at the receiver; it is asked again.
    """
    held = _from(effect_id, SubState.READY, SubState.BACKOFF).filter(needs_approval=True, unresolved=False)
    if not lost_by:
        held = held.filter(Q(grant_until__lte=Now()) | Q(grant_until__isnull=True))
    return bool(
        held.exclude(_OPEN_REVIEW).update(
            sub_state=SubState.AWAITING_APPROVAL, problem=lost_by, updated_at=Now(), **_NO_GRANT
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
            updated_at=Now(),
            **_NO_GRANT,
        )
    )


def adopt_contract(effect: Effect, promise: EffectContract, *, why: str) -> bool:
    """ready / backoff → awaiting_approval under the contract's new version: revision + 1, the grant void. It is unsent."""
    return bool(
        _from(effect.id, SubState.READY, SubState.BACKOFF)
        .filter(revision=effect.revision, unresolved=False)
        .exclude(_OPEN_REVIEW)
        .update(
            revision=effect.revision + 1,
            contract_version=promise.version,
            reversibility=promise.reversibility,
            dedup=promise.dedup,
            creates=promise.creates,
            needs_approval=True,
            sub_state=SubState.AWAITING_APPROVAL,
            due_at=None,
            problem=why,
            updated_at=Now(),
            **_NO_GRANT,
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
    overriding: bool = False,
) -> EffectAttempt | None:
    """→ in_flight: the attempt is inserted, and committed by the caller before the first byte.

    *key_window*: how long from the first attempt not proven unsent the same key may be sent again. *overriding*: two
    people accept that the receiver may have it already, so an uncertain one may go, once, by their order alone.

    None: not claimable now (moved, not due, no valid grant, window passed, a review open, a kill switch on, another
    one sent in its place). Call it inside a transaction that also holds the origin's row.
    """
    # Locked before it is judged: what the UPDATE asks of other tables it reads as of its own beginning, and whoever
    # opened a review or made a successor held this row until that was committed.
    Effect.objects.select_for_update().filter(id=effect.id).values_list("id").first()
    may = claimable()
    in_the_way = _OPEN_REVIEW
    if overriding:
        may |= granted() & Q(sub_state=SubState.UNCERTAIN)
        in_the_way = _BLOCKING_REVIEW
    landed = (
        Effect.objects.filter(
            may,
            id=effect.id,
            status=EffectStatus.PENDING,
            fence=effect.fence,
        )
        .exclude(in_the_way)
        .exclude(stopped())
        .exclude(sent_anew())
        .update(
            sub_state=SubState.IN_FLIGHT,
            fence=F("fence") + 1,
            tries=F("tries") + 1,
            lease_until=Now() + lease,
            due_at=None,
            last_sent_at=Now(),
            first_sent_at=Coalesce(F("first_sent_at"), Now()),
            key_until=Coalesce(F("key_until"), Now() + key_window),
            absent_at=None,
            absences=0,
            looks=0,
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


class ReferenceTaken(Exception):
    """The receiver's object is another effect's already, and each of this type makes one of its own. Nothing moved."""


def complete(attempt: EffectAttempt, *, reference: str, answer: bytes) -> bool:
    """in_flight → completed, by the sender that holds the fence. Raises ReferenceTaken; the transaction goes on."""
    return _complete(_in_flight(attempt), reference, answer)


def _complete(rows: Any, reference: str, answer: bytes) -> bool:
    try:
        with transaction.atomic():
            return bool(rows.update(**_completed(reference, answer)))
    except IntegrityError as clash:
        if "effect_reference_once" not in str(clash):
            raise
        raise ReferenceTaken(f"{reference} belongs to another effect already.") from None


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
    """held, failed/refused → ready (with a valid grant or without need of one) or awaiting_approval. Nothing exists.

    A run's own, of which people have sent no other in its place: what an order made, no run sends.
    """
    standing = (
        Effect.objects.filter(id=effect_id, unresolved=False, successor_of=None, compensates=None)
        .exclude(_OPEN_REVIEW)
        .exclude(sent_anew())
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
    return bool(standing.update(sub_state=SubState.AWAITING_APPROVAL, **_NO_GRANT, **again))


def make_ready_by_order(effect_id: str, *, granted_by: Approval | None, valid: timedelta) -> bool:
    """held, failed/refused → ready by a person's order; with *granted_by*, its grant for exactly these bytes.

    False: it moved, or it needs a grant and has none. Nothing of it exists at the receiver.
    """
    standing = Effect.objects.filter(id=effect_id, unresolved=False).filter(
        Q(status=EffectStatus.PENDING, sub_state=SubState.HELD)
        | Q(status=EffectStatus.FAILED, sub_state=SubState.REFUSED)
    )
    again: dict[str, Any] = {
        "status": EffectStatus.PENDING,
        "sub_state": SubState.READY,
        "due_at": None,
        "give_up_at": None,
        "tries_before": F("tries"),
        "settled_at": None,
        "problem": "",
        "updated_at": Now(),
    }
    if granted_by is None:
        standing = standing.filter(granted())
    else:
        again |= _grant_of(granted_by, valid)
        standing = standing.filter(_the_bytes_of(granted_by))
    return bool(standing.exclude(_BLOCKING_REVIEW).exclude(sent_anew()).update(**again))


def renew_grant(effect_id: str, *, granted_by: Approval, valid: timedelta) -> bool:
    """A fresh grant for the bytes that stand, where the effect stays: ready, backoff or uncertain."""
    return bool(
        _from(effect_id, SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN)
        .filter(_the_bytes_of(granted_by))
        .update(**_grant_of(granted_by, valid), updated_at=Now())
    )


def _the_bytes_of(approval: Approval) -> Q:
    return Q(revision=approval.revision, request_hash=approval.payload_hash)


def _grant_of(approval: Approval, valid: timedelta) -> dict[str, Any]:
    return {
        "grant_approval_id": approval.id,
        "grant_revision": approval.revision,
        "grant_hash": approval.payload_hash,
        "grant_until": Now() + valid,
    }


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

    A sender that has it in flight meanwhile finds it moved, and what it learns becomes an observation. Raises
    ReferenceTaken; the transaction goes on.
    """
    return _complete(
        Effect.objects.filter(id=effect_id)
        .filter(Q(status=EffectStatus.PENDING, tries__gt=0) | Q(status=EffectStatus.ACCEPTED))
        .exclude(sub_state=SubState.RECORDED),
        reference,
        answer,
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
    """uncertain → ready: an authoritative look-up proved absence, and a probe that the receiver enforces uniqueness.

    *fence*: the effect's when it was asked. A send since then makes the answer one about the past.
    """
    return bool(
        _from(effect_id, SubState.UNCERTAIN)
        .filter(probed(), dedup=Dedup.NATURAL, fence=fence)
        .exclude(_OPEN_REVIEW)
        .exclude(sent_anew())
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
    return (
        unsent_effects()
        .filter(run_id=run_id, status=EffectStatus.PENDING)
        .update(**_cancelled("Cancelled with its run before it was sent."))
    )


def cancel_dropped(effect_id: str, *, why: str) -> bool:
    """recorded … held → failed/cancelled, by a person: its node no longer asks for it, and nothing of it was sent."""
    return bool(
        unsent_effects()
        .filter(_OPEN_REVIEW, id=effect_id, status=EffectStatus.PENDING)
        .update(**_cancelled(why))
    )


def say_why_it_waits(effect_id: str, problem: str) -> bool:
    """Why it is not sent although it is due; the next claim takes the words away."""
    return bool(
        _from(effect_id, SubState.READY, SubState.BACKOFF)
        .exclude(problem=problem)
        .update(problem=problem, updated_at=Now())
    )


def cancel_ordered(effect_id: str, *, why: str) -> bool:
    """recorded … held → failed/cancelled: the order that made it, or made it ready, is not carried out."""
    return bool(
        Effect.objects.filter(
            id=effect_id, status=EffectStatus.PENDING, sub_state__in=UNSENT, unresolved=False
        ).update(**_cancelled(why))
    )


def cancel_proven_absent(effect_id: str, *, why: str) -> bool:
    """uncertain → failed/cancelled: it is proven that nothing of it exists, and its successor takes its place.

    Its review, which asked what to do about it, is answered by that.
    """
    landed = bool(
        _from(effect_id, SubState.UNCERTAIN)
        .filter(absent_at__isnull=False)
        .filter(_OPEN_REVIEW)
        .update(**_cancelled(why))
    )
    if landed:
        close_overridden_reviews(effect_id, why=why)
    return landed


def _cancelled(why: str) -> dict[str, Any]:
    return {
        "status": EffectStatus.FAILED,
        "sub_state": SubState.CANCELLED,
        "problem": why,
        "unresolved": False,
        "lease_until": None,
        "due_at": None,
        "settled_at": Now(),
        "updated_at": Now(),
    }


def open_review(effect: Effect, reason: ReviewReason, sentence: str) -> bool:
    """Open a review, once a reason. False: one is open already."""
    _, made = Review.objects.get_or_create(
        effect=effect,
        reason=reason,
        closed_at=None,
        defaults={"workspace_id": effect.workspace_id, "sentence": sentence},
    )
    return made


def close_not_asked_again(run_id: str, *, why: str) -> int:
    """What a node dropped is no question any more: the node runs again and may ask for it, or its run is over."""
    return Review.objects.filter(
        effect__run_id=run_id, reason=ReviewReason.NOT_ASKED_AGAIN, closed_at__isnull=True
    ).update(closed_at=Now(), closed_why=why)


def settle_as_done(effect_id: str, *, reference: str, answer: bytes) -> bool:
    """under review → completed, by a releaser with evidence: wherever it stands but in flight. Raises ReferenceTaken."""
    return _complete(_under_review(effect_id).exclude(status=EffectStatus.COMPLETED), reference, answer)


def settle_as_not_done(effect_id: str, *, why: str) -> bool:
    """under review → failed/cancelled, by a releaser: it was not done, and is not to be."""
    return bool(
        _under_review(effect_id)
        .filter(status__in=[EffectStatus.PENDING, EffectStatus.ACCEPTED])
        .update(**_cancelled(why))
    )


def settle_as_to_be_sent(effect_id: str) -> bool:
    """under review, uncertain → ready, by a releaser: it was not done, and may go. False without a valid grant."""
    return bool(
        _under_review(effect_id)
        .filter(granted(), sub_state=SubState.UNCERTAIN)
        .exclude(sent_anew())
        .update(
            sub_state=SubState.READY,
            unresolved=False,
            first_sent_at=None,
            key_until=None,
            due_at=None,
            give_up_at=None,
            tries_before=F("tries"),
            problem="",
            updated_at=Now(),
        )
    )


def wait_longer(effect_id: str, *, within: timedelta) -> bool:
    """under review, accepted: a person lets it wait *within* from now for its final result."""
    return bool(
        _under_review(effect_id)
        .filter(status=EffectStatus.ACCEPTED)
        .update(final_by=Now() + within, updated_at=Now())
    )


def _under_review(effect_id: str) -> Any:
    return Effect.objects.filter(id=effect_id).filter(_OPEN_REVIEW).exclude(sub_state=SubState.IN_FLIGHT)


def propose_settling(review_id: str, outcome: ReviewOutcome, *, by: User, why: str, evidence: str) -> bool:
    """How a releaser would settle an open review; a second person confirms it. A newer proposal replaces it."""
    return bool(
        Review.objects.filter(id=review_id, closed_at=None).update(
            proposed_as=outcome, proposed_by=by, proposed_at=Now(), proposed_why=why, evidence=evidence
        )
    )


def drop_proposal(review_id: str) -> bool:
    """The second person does not agree: the review stays open, without a proposal."""
    return bool(
        Review.objects.filter(id=review_id, closed_at=None, proposed_at__isnull=False).update(
            proposed_as="", proposed_by=None, proposed_at=None, proposed_why="", evidence=""
        )
    )


def close_review(
    review: Review, outcome: ReviewOutcome, *, by: User, second: User | None, why: str, evidence: str
) -> bool:
    """open → closed, with who settled it as what; with an outcome for the effect all its open reviews are answered."""
    which = Review.objects.filter(id=review.id, closed_at=None)
    if outcome != ReviewOutcome.STANDS and review.effect_id:
        which = Review.objects.filter(effect_id=review.effect_id, closed_at=None)
    return bool(
        which.update(
            settled_as=outcome,
            settled_by=by,
            confirmed_by=second,
            closed_at=Now(),
            closed_why=why,
            evidence=evidence,
        )
    )


#: Exact positive evidence answers these by itself; the others are closed by people.
CLOSED_BY_EVIDENCE = (ReviewReason.UNQUERYABLE, ReviewReason.DEADLINE_PASSED, ReviewReason.CACHED_ERROR)


def close_answered_reviews(effect_id: str, *, why: str) -> int:
    return Review.objects.filter(
        effect_id=effect_id, closed_at__isnull=True, reason__in=CLOSED_BY_EVIDENCE
    ).update(closed_at=Now(), closed_why=why)


def close_overridden_reviews(effect_id: str, *, why: str) -> int:
    """A person's order answers the reviews that only said "nobody knows"."""
    return Review.objects.filter(effect_id=effect_id, closed_at__isnull=True, reason__in=OVERRIDABLE).update(
        closed_at=Now(), closed_why=why
    )


def note_clock(receiver_id: str, *, said_at: datetime, most: timedelta) -> float | None:
    """Compare a receiver's clock with the database's. Seconds by which it differs by more than *most*; None: it does not.

    The row changes only when the answer does: most answers write nothing.
    """
    apart = ExpressionWrapper(Value(said_at, DateTimeField()) - Now(), output_field=DurationField())
    receiver = Receiver.objects.annotate(apart=apart).get(id=receiver_id)
    ahead = receiver.apart.total_seconds()
    found = round(ahead, 1) if abs(ahead) > most.total_seconds() else None
    if (found is None) != (receiver.clock_ahead is None):
        Receiver.objects.filter(id=receiver_id).update(clock_ahead=found)
    return found


def observe(
    effect: Effect, kind: str, found: str, sentence: str, *, reference: str = "", **detail: Any
) -> None:
    Observation.objects.create(
        effect=effect, kind=kind, found=found, sentence=sentence, provider_reference=reference, detail=detail
    )
