"""What the sweep does for the ledger: leases that ended, tries that are over, look-ups that are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Greatest, Now

from console.kernel.live import announce
from effects import moves, receivers
from effects.contracts import EffectContract, UnknownType, contract, contracts
from effects.evidence import settle as settle_by_evidence
from effects.models import Effect, Review
from effects.moves import evidence
from effects.outcomes import OLD_ERROR, review_if_hopeless, stands_at_old_error
from effects.selectors import granted, repeatable_by_key, request_of, revision_of, unprobed
from effects.states import Dedup, EffectStatus, ReviewReason, SubState
from effects.wires import HttpWire

logger = logging.getLogger(__name__)

#: How many looks that prove nothing before a person is asked.
LOOKS = 6
#: The longest between two looks: of what nobody has been asked about, and of what stands under review.
LONGEST_WAIT = timedelta(minutes=5)
LONGEST_UNDER_REVIEW = timedelta(hours=1)
#: An effect that its run could repeat by key and did not, for this long, is looked up instead.
NOBODY_REPEATS = timedelta(seconds=60)


def lose_leases() -> list[str]:
    """Senders that were lost: their effects become uncertain; what nobody can look up goes to review with it."""
    late = Effect.objects.filter(sub_state=SubState.IN_FLIGHT, lease_until__lt=Now())
    ids = list(late.values_list("id", flat=True)[:200])
    return [effect_id for effect_id in ids if _handled(lose_lease, effect_id)]


def lose_lease(effect_id: str) -> bool:
    """One of them. False: it has no lease that has ended, or somebody else is at it."""
    with transaction.atomic():
        effect = moves.lose_lease(effect_id)
        if effect is None:
            return False
        _review_if_hopeless(effect)
        _tell(effect)
    return True


def review_what_nobody_can_settle() -> int:
    """Uncertain, no look-up, no repeat, and no review.

    Whoever should have opened it was killed before it could; or the contract that said how to look is gone.
    """
    asked = [name for name, promise in contracts().items() if _looked_up(promise)]
    by_looks = Q(dedup__in=[Dedup.NATURAL, Dedup.QUERY]) & ~Q(effect_type__in=asked)
    forgotten = Effect.objects.filter(Q(dedup=Dedup.NONE) | by_looks, sub_state=SubState.UNCERTAIN).exclude(
        Exists(Review.objects.filter(effect=OuterRef("pk"), closed_at=None))
    )
    return sum(_handled(_open_forgotten, one) for one in list(forgotten.values_list("id", flat=True)[:200]))


def _open_forgotten(effect_id: str) -> bool:
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        if effect.sub_state != SubState.UNCERTAIN:
            return False
        _review_if_hopeless(effect)
        if not effect.reviews.filter(closed_at=None).exists():
            moves.open_review(
                effect,
                ReviewReason.UNQUERYABLE,
                f"It may or may not have been done, and its contract says no more how to ask {effect.receiver.name}.",
            )
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
    announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects", "reviews", "home")


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
    """backoff whose tries or time are over → held. One query for all types: the sweep asks several times a second."""
    over = Q(give_up_at__lte=Now())
    for effect_type, promise in contracts().items():
        over |= Q(effect_type=effect_type, tries__gte=F("tries_before") + promise.tries)
    due = Effect.objects.filter(over, sub_state=SubState.BACKOFF, effect_type__in=contracts().keys())
    return sum(
        moves.hold(effect_id, tries=contract(effect_type).tries)
        for effect_id, effect_type in due.values_list("id", "effect_type")[:500]
    )


def _looked_up(promise: EffectContract) -> bool:
    return isinstance(promise.wire, HttpWire) and promise.wire.look_up is not None


def _polled(promise: EffectContract) -> bool:
    return isinstance(promise.wire, HttpWire) and bool(promise.wire.poll or promise.wire.look_up)


def looks_due(limit: int = 50) -> list[str]:
    """Effects whose look-up is due: accepted ones; uncertain by natural key or query; by key once nobody repeats it."""
    types = contracts().items()
    looked_at = Effect.objects.filter(due_at__lte=Now()).filter(
        Q(
            sub_state=SubState.UNCERTAIN,
            effect_type__in=[name for name, promise in types if _looked_up(promise)],
        )
        | Q(
            status=EffectStatus.ACCEPTED,
            effect_type__in=[name for name, promise in types if _polled(promise)],
        )
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
    """Uncertain by key, which may not go again or tells no more, and no look-up to ask: a person decides."""
    asked = [name for name, promise in contracts().items() if _looked_up(promise)]
    known = Review.objects.filter(
        effect=OuterRef("pk"),
        closed_at=None,
        reason__in=[ReviewReason.KEY_EXPIRED, ReviewReason.CACHED_ERROR, ReviewReason.UNQUERYABLE],
    )
    expired = (
        Effect.objects.filter(sub_state=SubState.UNCERTAIN, dedup=Dedup.KEY, due_at__lte=Now())
        .exclude(effect_type__in=asked)
        .exclude(repeatable_by_key())
        .exclude(Exists(known))
    )
    return sum(_handled(_open_expired, one) for one in list(expired.values_list("id", flat=True)[:200]))


def _open_expired(effect_id: str) -> bool:
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        if effect.sub_state != SubState.UNCERTAIN or _repeatable(effect):
            return False
        _review_key(effect, f"{effect.receiver.name} can't be asked whether it was done.")
        _tell(effect)
    return True


def _review_key(effect: Effect, sentence: str) -> bool:
    """The key settles nothing any more: an old error stands under it, or it may not go again."""
    if stands_at_old_error(effect):
        return moves.open_review(effect, ReviewReason.CACHED_ERROR, f"{OLD_ERROR} {sentence}")
    reason, why = _why_not_repeated(effect)
    return moves.open_review(effect, reason, f"{why} {sentence}")


def _why_not_repeated(effect: Effect) -> tuple[ReviewReason, str]:
    """Of an effect whose key may not go again: its window has passed, or else it was not probed, or its approval is over."""
    row = Effect.objects.filter(id=effect.id)
    if not row.filter(key_until__gt=Now()).exists():
        return ReviewReason.KEY_EXPIRED, "The time in which its key protects a repeat is over."
    approved = row.filter(granted()).exists()
    over = "" if approved else "The approval that it had is over, so it is not sent again by itself."
    return ReviewReason.UNQUERYABLE, " ".join(why for why in (unprobed(effect), over) if why)


def _repeatable(effect: Effect) -> bool:
    return Effect.objects.filter(repeatable_by_key(), id=effect.id).exists()


def look(effect_id: str) -> str:
    """One look-up of one effect that is due: claim it, ask, settle. Returns what was found."""
    effect = Effect.objects.select_related("receiver").get(id=effect_id)
    promise = contract(effect.effect_type)
    if not moves.take_look(effect_id, lease=timedelta(seconds=promise.lease)):
        return "taken"
    return _look(effect, promise)


def questions_due(limit: int = 50) -> list[str]:
    """People's questions to receivers that nobody is at: the effects that they are about."""
    return list(evidence.open_questions().order_by("asked_at").values_list("effect_id", flat=True)[:limit])


def answer_question(effect_id: str) -> str:
    """Ask the receiver because a person wants to know, wherever the effect stands. Returns what was found."""
    effect = Effect.objects.select_related("receiver").get(id=effect_id)
    try:
        promise = contract(effect.effect_type)
    except UnknownType:
        evidence.end_question(effect_id, found="unclear")
        return "unclear"
    if not evidence.take_question(effect_id, lease=timedelta(seconds=promise.lease)):
        return "taken"
    found = _look(effect, promise)
    evidence.end_question(effect_id, found=found)
    announce(effect.workspace_id, f"effect:{effect.id}")
    return found


def _look(effect: Effect, promise: EffectContract) -> str:
    """Ask outside any transaction, then settle what was found under the effect's lock."""
    if effect.account != effect.receiver.account:
        return _not_asked(effect)
    # Before asking: an answer is proof only of what had settled by the moment of the question.
    settled = _has_settled(effect, promise)
    revision = revision_of(effect)
    finding = receivers.look_up(promise, effect, revision, request_of(effect, revision))
    fence = effect.fence
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect.id)
        moves.observe(
            effect,
            "look_up",
            finding.found,
            finding.sentence,
            reference=finding.reference,
            **finding.detail,
        )
        wait = _before_next_look(effect, finding.retry_after)
        moves.look_later(effect.id, wait=wait)
        if finding.found == "absent" and settled and effect.status == EffectStatus.COMPLETED:
            _not_there_any_more(effect, promise)
        elif finding.found == "absent" and settled and fence == effect.fence:
            _count_absence(effect, promise, wait)
        elif finding.found in ("absent", "unclear"):
            evidence.break_row(effect.id)
            _give_up_looking(effect, promise, finding.sentence)
        else:
            settle_by_evidence(effect, promise, finding, why=LOOKED)
        _tell(effect)
    return finding.found


def _not_asked(effect: Effect) -> str:
    """The receiver answers for another account now: what that one has, or has not, proves nothing of the effect."""
    name = effect.receiver.name
    sentence = f"The account at {name} has changed since it was sent, so {name} can't be asked about it."
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect.id)
        moves.observe(effect, "look_up", "unclear", sentence)
        evidence.break_row(effect.id)
        if moves.look_later(effect.id, wait=_before_next_look(effect)):
            moves.open_review(effect, ReviewReason.MISMATCH, sentence)
        _tell(effect)
    return "unclear"


LOOKED = "A look-up of the receiver answered it."


def _before_next_look(effect: Effect, retry_after: float | None = None) -> timedelta:
    """1, 2, 4 … seconds after the look that was just made; no sooner than the receiver asked for (at most an hour)."""
    asked_for = timedelta(seconds=min(retry_after or 0, LONGEST_UNDER_REVIEW.total_seconds()))
    under_review = Review.objects.filter(effect=effect, closed_at=None).exists()
    longest = LONGEST_UNDER_REVIEW if under_review else LONGEST_WAIT
    return max(min(timedelta(seconds=2 ** min(effect.looks, 20)), longest), asked_for)


def _not_there_any_more(effect: Effect, promise: EffectContract) -> None:
    """A completed effect never changes; where "not there" proves something, that contradicts it, and a person looks."""
    if promise.authoritative:
        moves.open_review(
            effect,
            ReviewReason.CONTRADICTION,
            f"{effect.receiver.name} does not have it, but the ledger says: completed as {effect.provider_reference}.",
        )


def _count_absence(effect: Effect, promise: EffectContract, wait: timedelta) -> None:
    """One more look in a row that did not find it. Enough of them, where the contract says so, prove that it is not there."""
    settle = timedelta(seconds=promise.settle)
    # Two looks within the settle time are one and the same, also when a person asked for the second.
    just_now = effect.observations.filter(kind="look_up", found="absent", at__gt=Now() - settle)
    count = effect.absences
    if just_now.count() <= 1:
        count = evidence.count_absence(effect.id, fence=effect.fence, wait=max(wait, settle))
    looks = "One look" if count == 1 else f"{count} looks in a row"
    if not promise.authoritative or count < promise.looks:
        _give_up_looking(
            effect, promise, f"{looks} did not find it at {effect.receiver.name}, which proves nothing."
        )
    elif evidence.prove_absent(effect.id, fence=effect.fence):
        if moves.ready_by_proven_absence(effect.id, fence=effect.fence):
            return
        proved = f"{looks} proved that {effect.receiver.name} does not have it."
        _ask_about(effect, promise, f"{proved} {unprobed(effect)}".strip())


def _give_up_looking(effect: Effect, promise: EffectContract, sentence: str) -> None:
    """Several looks settled nothing: a person is asked."""
    if effect.sub_state == SubState.UNCERTAIN and effect.looks + 1 >= LOOKS:
        _ask_about(effect, promise, f"{LOOKS} looks at the receiver settled nothing. {sentence}")


def _ask_about(effect: Effect, promise: EffectContract, sentence: str) -> None:
    """A person decides what the looks leave open. A key that may still be repeated settles it itself."""
    if promise.dedup == Dedup.KEY:
        if not _repeatable(effect):
            _review_key(effect, sentence)
    else:
        moves.open_review(effect, ReviewReason.UNQUERYABLE, sentence)


def _has_settled(effect: Effect, promise: EffectContract) -> bool:
    """Whether "not found" counts: asked after the last send's lease, which outlasts its deadline, and the settle time."""
    settled_by = timedelta(seconds=promise.lease + promise.settle)
    return Effect.objects.filter(id=effect.id, last_sent_at__lte=Now() - settled_by).exists()


def review_what_is_overdue() -> int:
    """Accepted, and no final result by its deadline: a person looks; it is never failed for that."""
    asked = Review.objects.filter(
        effect=OuterRef("pk"),
        reason=ReviewReason.DEADLINE_PASSED,
        # One about an earlier sending or an earlier deadline says nothing about this one.
        opened_at__gte=Greatest(OuterRef("last_sent_at"), OuterRef("final_by")),
    )
    overdue = Effect.objects.filter(status=EffectStatus.ACCEPTED, final_by__lte=Now()).exclude(Exists(asked))
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
