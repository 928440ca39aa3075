"""What the sweep does for the ledger: leases that ended, tries that are over, look-ups that are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from console.kernel.live import announce
from effects import moves, receivers
from effects.contracts import EffectContract, HttpWire, UnknownType, contract, contracts
from effects.ledger import found_at_receiver, review_if_hopeless, wait_before
from effects.models import Effect, Review
from effects.receivers import Finding
from effects.selectors import repeatable_by_key, request_of, revision_of
from effects.states import Dedup, EffectStatus, ReviewReason, SubState

logger = logging.getLogger(__name__)

#: How many looks in a row that prove nothing before a person is asked.
LOOKS = 6
#: An effect that its run could repeat by key and did not, for this long, is looked up instead.
NOBODY_REPEATS = timedelta(seconds=60)


def lose_leases() -> list[str]:
    """Senders that were lost: their effects become uncertain; what nobody can look up goes to review with it."""
    late = Effect.objects.filter(sub_state=SubState.IN_FLIGHT, lease_until__lt=Now())
    ids = list(late.values_list("id", flat=True)[:200])
    return [effect_id for effect_id in ids if _handled(_lose_lease, effect_id)]


def _lose_lease(effect_id: str) -> bool:
    with transaction.atomic():
        effect = moves.lose_lease(effect_id)
        if effect is None:
            return False
        _review_if_hopeless(effect)
        _tell(effect)
    return True


def review_what_nobody_can_settle() -> int:
    """Uncertain, no look-up, no repeat, and no review: whoever should have opened it was killed before it could."""
    forgotten = Effect.objects.filter(sub_state=SubState.UNCERTAIN, dedup=Dedup.NONE).exclude(
        Exists(Review.objects.filter(effect=OuterRef("pk"), closed_at=None))
    )
    return sum(_handled(_open_forgotten, one) for one in list(forgotten.values_list("id", flat=True)[:200]))


def _open_forgotten(effect_id: str) -> bool:
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        if effect.sub_state != SubState.UNCERTAIN:
            return False
        _review_if_hopeless(effect)
        _tell(effect)
    return True


def _review_if_hopeless(effect: Effect) -> None:
    """By its contract; one whose contract the deployment no longer has can be settled by nobody but a person."""
    try:
        review_if_hopeless(effect, contract(effect.effect_type))
    except UnknownType as unknown:
        moves.open_review(
            effect, ReviewReason.UNQUERYABLE, f"It may or may not have been done. {unknown.message}"
        )


def _tell(effect: Effect) -> None:
    announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects", "home")


def _handled(duty: Callable[[str], bool], effect_id: str) -> bool:
    """One effect that can't be handled holds up no other."""
    try:
        return duty(effect_id)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("effect %s could not be handled", effect_id)
        return False


def hold_what_is_over() -> int:
    """backoff whose tries or time are over → held."""
    held = 0
    for effect_type, promise in contracts().items():
        due = Effect.objects.filter(effect_type=effect_type, sub_state=SubState.BACKOFF).filter(
            Q(tries__gte=F("tries_before") + promise.tries) | Q(give_up_at__lte=Now())
        )
        for effect_id in due.values_list("id", flat=True)[:500]:
            held += moves.hold(effect_id, tries=promise.tries)
    return held


def _looked_up(promise: EffectContract) -> bool:
    return isinstance(promise.wire, HttpWire) and promise.wire.look_up is not None


def looks_due(limit: int = 50) -> list[str]:
    """Effects whose look-up is due: accepted ones; uncertain by natural key or query; by key once nobody repeats it."""
    types = [name for name, promise in contracts().items() if _looked_up(promise)]
    looked_at = Effect.objects.filter(effect_type__in=types, due_at__lte=Now()).filter(
        Q(sub_state=SubState.UNCERTAIN) | Q(status=EffectStatus.ACCEPTED)
    )
    nobody_repeats = Q(dedup=Dedup.KEY) & (~repeatable_by_key() | Q(due_at__lte=Now() - NOBODY_REPEATS))
    decided_by_people = Review.objects.filter(
        effect=OuterRef("pk"),
        closed_at=None,
        reason__in=[ReviewReason.MISMATCH, ReviewReason.DUPLICATE_FOUND],
    )
    return list(
        looked_at.exclude(Exists(decided_by_people))
        .filter(Q(dedup__in=[Dedup.NATURAL, Dedup.QUERY]) | Q(status=EffectStatus.ACCEPTED) | nobody_repeats)
        .order_by("due_at")
        .values_list("id", flat=True)[:limit]
    )


def review_expired_keys() -> int:
    """Uncertain by key, the key's window passed, and no look-up to ask: a person decides."""
    asked = [name for name, promise in contracts().items() if _looked_up(promise)]
    expired = (
        Effect.objects.filter(sub_state=SubState.UNCERTAIN, dedup=Dedup.KEY, due_at__lte=Now())
        .exclude(effect_type__in=asked)
        .exclude(repeatable_by_key())
        .exclude(reviews__closed_at=None, reviews__reason=ReviewReason.KEY_EXPIRED, reviews__isnull=False)
    )
    opened = 0
    for effect in expired[:200]:
        with transaction.atomic():
            opened += moves.open_review(
                effect,
                ReviewReason.KEY_EXPIRED,
                "It may or may not have been done, and the time in which its key protects a repeat is over.",
            )
            announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects", "home")
    return opened


def look(effect_id: str) -> str:
    """One look-up of one effect: claim it, ask outside any transaction, settle. Returns what was found."""
    effect = Effect.objects.select_related("receiver").get(id=effect_id)
    promise = contract(effect.effect_type)
    fence = effect.fence
    if not moves.take_look(effect_id, lease=timedelta(seconds=promise.lease)):
        return "taken"
    # Before asking: an answer is proof only of what had settled by the moment of the question.
    settled = _has_settled(effect, promise)
    revision = revision_of(effect)
    finding = receivers.look_up(promise, effect, revision, request_of(effect, revision))
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        moves.observe(
            effect,
            "look_up",
            finding.found,
            finding.sentence,
            reference=finding.reference,
            **finding.detail,
        )
        _settle(effect, promise, finding, proves=settled and fence == effect.fence)
        announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects")
    return finding.found


def _settle(effect: Effect, promise: EffectContract, finding: Finding, *, proves: bool) -> None:
    if finding.found == "found":
        if _belongs_to_another(effect, finding.reference):
            moves.open_review(
                effect,
                ReviewReason.DUPLICATE_FOUND,
                f"{finding.reference} belongs to another effect already.",
            )
        else:
            found_at_receiver(
                effect, finding.reference, finding.body, why="A look-up found it at the receiver."
            )
    elif finding.found == "several":
        moves.open_review(effect, ReviewReason.DUPLICATE_FOUND, finding.sentence)
    elif finding.found == "mismatch":
        moves.open_review(effect, ReviewReason.MISMATCH, finding.sentence)
    elif (
        finding.found == "absent" and proves and moves.ready_by_proven_absence(effect.id, fence=effect.fence)
    ):
        return
    else:
        moves.look_later(effect.id, wait=wait_before(effect.looks + 1))
        if effect.looks + 1 >= LOOKS and effect.sub_state == SubState.UNCERTAIN:
            _give_up_looking(effect, promise, finding)


def _give_up_looking(effect: Effect, promise: EffectContract, finding: Finding) -> None:
    """Several looks settled nothing: a person is asked. A key that may still be repeated settles it itself."""
    if promise.dedup != Dedup.KEY:
        moves.open_review(
            effect,
            ReviewReason.UNQUERYABLE,
            f"{LOOKS} looks at the receiver settled nothing. {finding.sentence}",
        )
    elif not Effect.objects.filter(repeatable_by_key(), id=effect.id).exists():
        moves.open_review(
            effect,
            ReviewReason.KEY_EXPIRED,
            f"The time in which its key protects a repeat is over, and {LOOKS} looks settled nothing. "
            f"{finding.sentence}",
        )


def _belongs_to_another(effect: Effect, reference: str) -> bool:
    return (
        bool(reference)
        and Effect.objects.filter(
            receiver=effect.receiver, effect_type=effect.effect_type, provider_reference=reference
        )
        .exclude(id=effect.id)
        .exists()
    )


def _has_settled(effect: Effect, promise: EffectContract) -> bool:
    """Whether "not found" would prove absence: an authoritative look-up after the last send's lease and settle time."""
    settled_by = timedelta(seconds=promise.lease + promise.settle)
    return (
        promise.authoritative
        and promise.dedup == Dedup.NATURAL
        and Effect.objects.filter(id=effect.id, last_sent_at__lte=Now() - settled_by).exists()
    )


def review_what_is_overdue() -> int:
    """Accepted, and no final result by its deadline: a person looks; it is never failed for that."""
    overdue = Effect.objects.filter(status=EffectStatus.ACCEPTED, final_by__lte=Now()).exclude(
        Exists(Review.objects.filter(effect=OuterRef("pk"), reason=ReviewReason.DEADLINE_PASSED))
    )
    return sum(_handled(_open_overdue, one) for one in list(overdue.values_list("id", flat=True)[:200]))


def _open_overdue(effect_id: str) -> bool:
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        if effect.status != EffectStatus.ACCEPTED:
            return False
        moves.open_review(
            effect,
            ReviewReason.DEADLINE_PASSED,
            f"{effect.receiver.name} accepted it and has not said in time what came of it.",
        )
        _tell(effect)
    return True
