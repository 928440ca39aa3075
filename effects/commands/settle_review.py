"""Settle a review: what nobody but a person can say about an effect, with evidence and a reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import transaction

from console import audit
from console.access import Actor, actor_in
from console.kernel.crypto import seal_json
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, NotFound
from console.kernel.live import announce
from console.models import Capability, User
from effects import moves
from effects.commands.repeat import place
from effects.contracts import UnknownType, contract
from effects.models import Effect, Review
from effects.offers import Offer
from effects.selectors import granted, sent_anew
from effects.states import EffectStatus, OrderKind, Reversibility, ReviewOutcome, SubState


def outcomes_of(review: Review) -> dict[ReviewOutcome, str]:
    """Each way to settle it, with the reason why it is not open to anybody; empty: it is."""
    effect = review.effect
    if effect is None:
        only = "There is no effect of ours: look at it at the receiver, and note what you did about it."
        return {outcome: "" if outcome == ReviewOutcome.STANDS else only for outcome in ReviewOutcome}
    if effect.sub_state == SubState.IN_FLIGHT:
        return dict.fromkeys(ReviewOutcome, "It is in flight: wait until this attempt has ended.")
    return {
        ReviewOutcome.DONE: _done(effect),
        ReviewOutcome.NOT_DONE: _not_done(effect),
        ReviewOutcome.SEND: _send(effect),
        ReviewOutcome.STANDS: _stands(effect),
    }


def _done(effect: Effect) -> str:
    return "The ledger says so already." if effect.status == EffectStatus.COMPLETED else ""


def _not_done(effect: Effect) -> str:
    if effect.status == EffectStatus.COMPLETED:
        return "The receiver confirmed it: a completed effect never changes. Compensate it instead."
    return "The ledger says so already." if effect.status == EffectStatus.FAILED else ""


def _send(effect: Effect) -> str:
    if effect.sub_state != SubState.UNCERTAIN:
        return "Only an uncertain effect can be found not done and sent."
    if not Effect.objects.filter(granted(), id=effect.id).exists():
        return "Its approval is over: settle it as not done and send it as a new effect."
    if Effect.objects.filter(sent_anew(), id=effect.id).exists():
        return "Another one has been sent in its place: say whether this one was done."
    return ""


def _stands(effect: Effect) -> str:
    if effect.sub_state == SubState.UNCERTAIN:
        return "The ledger does not know: say whether it was done."
    return ""


def needs_second(review: Review, outcome: ReviewOutcome) -> bool:
    """Four eyes for what cannot be undone, unless nothing changes by it."""
    return (
        outcome != ReviewOutcome.STANDS
        and review.effect is not None
        and review.effect.reversibility == Reversibility.IRREVERSIBLE
    )


def settle_review(
    actor: Actor, review_id: str, *, outcome: ReviewOutcome, reason: str, token: str, evidence: str = ""
) -> Review:
    """Settle it, or, for an irreversible type, propose how: then a second person confirms.

    *evidence*: the receiver's own reference, needed where it was done. The same *token* again changes nothing. Raises
    Forbidden, NotFound, AlreadyDone (409, with what happened), Invalid (422). A refusal is recorded.
    """

    def settle(review: Review) -> None:
        if why_not := outcomes_of(review)[outcome]:
            raise AlreadyDone(why_not)
        _check_words(outcome, reason, evidence)
        if needs_second(review, outcome):
            moves.propose_settling(review.id, outcome, by=actor.user, why=reason, evidence=evidence.strip())
            _record(
                actor,
                review,
                "proposed",
                f"{actor.user.name} proposes: {outcome.label.lower()}",
                reason,
                token,
            )
        else:
            _apply(
                actor,
                review,
                outcome,
                by=actor.user,
                second=None,
                why=reason,
                evidence=evidence.strip(),
                token=token,
            )

    return _locked(actor, review_id, "review.settled", token, settle, capability=Capability.REPEAT)


def confirm(actor: Actor, review_id: str, *, token: str) -> Review:
    """The second person agrees with the proposal: it is carried out as proposed. Raises as :func:`settle_review`."""

    def settle(review: Review) -> None:
        proposer = _proposer(actor, review)
        _check_may_still_settle(proposer, review)
        outcome = ReviewOutcome(review.proposed_as)
        if why_not := outcomes_of(review)[outcome]:
            raise AlreadyDone(why_not)
        _apply(
            actor,
            review,
            outcome,
            by=proposer,
            second=actor.user,
            why=review.proposed_why,
            evidence=review.evidence,
            token=token,
        )

    return _locked(actor, review_id, "review.settled", token, settle, capability=Capability.SECOND)


def decline(actor: Actor, review_id: str, *, reason: str, token: str) -> Review:
    """The second person does not agree: the review stays open, and the audit trail says why."""

    def settle(review: Review) -> None:
        _proposer(actor, review)
        if not reason.strip():
            raise Invalid("Say why you do not agree.", field="reason")
        moves.drop_proposal(review.id)
        _record(actor, review, "declined", f"{actor.user.name} does not agree", reason, token)

    return _locked(actor, review_id, "review.declined", token, settle, capability=Capability.SECOND)


def _proposer(actor: Actor, review: Review) -> User:
    if review.proposed_by is None:
        raise AlreadyDone("There is nothing to agree with: nobody has proposed how to settle it.")
    if review.proposed_by == actor.user:
        raise Forbidden("Four eyes: you proposed this, so somebody else confirms it.")
    return review.proposed_by


def _check_may_still_settle(proposer: User, review: Review) -> None:
    """Rights are those of now: a proposal of somebody who may propose none any more is not carried out."""
    try:
        may = actor_in(proposer, review.workspace_id).may(Capability.REPEAT)
    except NotFound:
        may = False
    if not may:
        raise AlreadyDone(
            f"{proposer.name}, who proposed this, may no longer settle reviews. Propose it anew."
        )


def _check_words(outcome: ReviewOutcome, reason: str, evidence: str) -> None:
    if not reason.strip():
        raise Invalid("Say what you found out, and how.", field="reason")
    if outcome == ReviewOutcome.DONE and not evidence.strip():
        raise Invalid("Give the receiver's own reference of it.", field="evidence")
    if len(evidence.strip()) > 200 or not evidence.isprintable():
        raise Invalid("The reference is longer than 200 characters, or holds a line break.", field="evidence")


def _locked(
    actor: Actor,
    review_id: str,
    verb: str,
    token: str,
    settle: Callable[[Review], None],
    *,
    capability: Capability,
) -> Review:
    """The review under the locks of its effect and itself; a form that was used already changes nothing."""
    with audit.refusals_recorded(actor, "review.not_settled", review_id):
        actor.require(capability)
        with transaction.atomic():
            seen = Review.objects.filter(id=review_id, workspace=actor.workspace).first()
            if seen is None:
                raise NotFound(f"There is no review {review_id} here.")
            if seen.effect_id:
                Effect.objects.select_for_update().get(id=seen.effect_id)
            review = (
                Review.objects.select_for_update(of=("self",))
                .select_related("effect__receiver", "effect__command", "proposed_by", "settled_by")
                .get(id=seen.id)
            )
            if audit.done_by_form(review.id, verb, token) or audit.done_by_form(
                review.id, "review.proposed", token
            ):
                return review
            if review.closed_at is not None:
                who = f" by {review.settled_by.name}" if review.settled_by else ""
                raise AlreadyDone(f"It has been settled already{who}: {review.closed_why}")
            settle(review)
    return Review.objects.select_related("effect__receiver").get(id=review_id)


def _apply(
    actor: Actor,
    review: Review,
    outcome: ReviewOutcome,
    *,
    by: User,
    second: User | None,
    why: str,
    evidence: str,
    token: str,
) -> None:
    effect = review.effect
    said = f"{by.name}{f' and {second.name}' if second else ''}: {why}"
    if effect is not None and not _moved(effect, outcome, said, evidence):
        raise AlreadyDone("The effect has moved since you opened this. Look at it again.")
    moves.close_review(review, outcome, by=by, second=second, why=said, evidence=evidence)
    if effect is not None and outcome == ReviewOutcome.SEND:
        offer = Offer(OrderKind.DELIVER_AGAIN)
        # The releaser's who found it not done: a second person may be none, and their order would be refused.
        releaser = actor_in(by, effect.workspace_id)
        place(releaser, offer, effect, effect, reason=f"Found not done. {why}", token=f"{review.id}:send")
    confirmed = f", confirmed by {second.name}" if second else ""
    _record(
        actor,
        review,
        "settled",
        f"{outcome.label}, settled by {by.name}{confirmed}",
        why,
        token,
        evidence=evidence,
    )


def _moved(effect: Effect, outcome: ReviewOutcome, said: str, evidence: str) -> bool:
    if outcome == ReviewOutcome.DONE:
        answer = seal_json({"settled_by_people": said}, workspace=effect.workspace_id, owner=effect.id)
        try:
            return moves.settle_as_done(effect.id, reference=evidence, answer=answer)
        except moves.ReferenceTaken as taken:
            raise Invalid(f"{taken} Give the reference of this one.", field="evidence") from None
    if outcome == ReviewOutcome.NOT_DONE:
        return moves.settle_as_not_done(effect.id, why=f"Settled as not done. {said}")
    if outcome == ReviewOutcome.SEND:
        return moves.settle_as_to_be_sent(effect.id)
    if effect.status == EffectStatus.ACCEPTED:
        # It stands as accepted: from now on it has as long again, and then a person is asked again.
        return moves.wait_longer(effect.id, within=_time_for_a_result(effect))
    return True


def _time_for_a_result(effect: Effect) -> timedelta:
    """As long as its contract says; without one a day."""
    try:
        return timedelta(seconds=contract(effect.effect_type).final_within)
    except UnknownType:
        return timedelta(days=1)


def _record(
    actor: Actor, review: Review, what: str, sentence: str, reason: str, token: str, *, evidence: str = ""
) -> None:
    about = review.effect.effect_type if review.effect else review.provider_object
    audit.record(
        workspace_id=review.workspace_id,
        actor=actor.user,
        verb=f"review.{what}",
        subject=review.id,
        run_id=review.effect.run_id if review.effect else "",
        reason=reason,
        sentence=f"{sentence}: {review.get_reason_display().lower()} ({about})",
        token=token,
        effect=review.effect_id or "",
        evidence=evidence,
    )
    topics = [f"effect:{review.effect_id}", f"run:{review.effect.run_id}"] if review.effect else []
    announce(review.workspace_id, *topics, "effects", "reviews", "home")
