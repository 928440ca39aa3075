"""What a node made and, run again, no longer asked for: a person accepts it as it stands, or cancels it."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import TextChoices

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, KeyReused, NotFound
from console.models import AuditEvent
from effects import approvals
from effects import moves as effect_moves
from effects.models import Effect, Review
from effects.selectors import dropped, ordered
from effects.states import UNSENT, EffectStatus, ReviewOutcome, ReviewReason, SubState
from runs import moves, selectors, waiting
from runs.availability import OperatorCommand, availability
from runs.models import Run

VERB = "run.dropped_settled"
REFUSED = "Nothing is to be settled here"
LONGEST_REASON = 300


class Act(TextChoices):
    """The two things that a person may do about it. Each is open where the other is not, never both."""

    ACCEPT = "accept", "Accept as it stands"
    CANCEL = "cancel", "Cancel the effect"


@dataclass(frozen=True)
class Choice:
    """A dropped effect, and for each act what it does or, in words, why it is not open."""

    review: Review
    effect: Effect
    reasons: dict[Act, str]
    does: str


def choices_of(run: Run) -> list[Choice]:
    """What the run waits for a person to settle, in the order in which it was made."""
    reviews = dropped(run.id).select_related("effect__receiver").order_by("effect__created_at")
    return [
        Choice(review, review.effect, reasons_of(review.effect), _does(review.effect))
        for review in reviews
        if review.effect is not None
    ]


def reasons_of(effect: Effect) -> dict[Act, str]:
    """Why each act is not open for the effect as it stands; empty: it is."""
    if effect.sub_state == SubState.IN_FLIGHT:
        return dict.fromkeys(Act, "it is in flight: wait until this attempt has ended")
    if effect.sub_state in UNSENT and not effect.unresolved:
        if Effect.objects.filter(ordered(), id=effect.id).exists():
            return {Act.ACCEPT: "", Act.CANCEL: "a person has ordered it sent"}
        return {
            Act.ACCEPT: "nothing of it was sent, and no step is left to send it: cancel it",
            Act.CANCEL: "",
        }
    return {Act.ACCEPT: "", Act.CANCEL: _too_late(effect)}


def _too_late(effect: Effect) -> str:
    if effect.status == EffectStatus.FAILED:
        return "nothing of it exists already"
    if effect.status == EffectStatus.COMPLETED:
        return "the receiver has it, and what was sent stays sent"
    if effect.status == EffectStatus.ACCEPTED:
        return "the receiver has taken it and may still bring it about"
    return "it may have been done: only a review can find that it was not"


def _does(effect: Effect) -> str:
    """What the act that is open does, in words."""
    if effect.sub_state == SubState.IN_FLIGHT:
        return "Under way; its outcome is recorded."
    if not reasons_of(effect)[Act.CANCEL]:
        return "Is cancelled, never sent; what was asked about it leaves the queue."
    if effect.status == EffectStatus.COMPLETED:
        return "Was sent and stays sent."
    if effect.status == EffectStatus.FAILED:
        return "Nothing of it exists, and nothing is sent."
    if effect.sub_state in UNSENT:
        return "Is sent by the order alone."
    return "Stays as it is: what became of it is still found out, and it is not sent by this run."


def settle_dropped(actor: Actor, run_id: str, effect_id: str, *, act: Act, reason: str, token: str) -> Run:
    """Accept the effect as it stands, or cancel it. With the last of them the run goes on, its node without asking again.

    The same token again changes nothing. Raises NotFound, Forbidden, AlreadyDone with the reason where there is
    nothing to settle or it stands otherwise, Invalid without a reason, KeyReused.
    """
    selectors.run_seen_by(actor, run_id)
    with transaction.atomic():
        run = (
            Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)
        )
        offer = availability(run, actor)[OperatorCommand.SETTLE_DROPPED]
        if offer.forbidden:
            raise offer.refusal(REFUSED)
        if _done_already(run, effect_id, act, token):
            return run
        if not offer.available:
            raise offer.refusal(REFUSED)
        review = _review_of(run, effect_id)
        reason = _checked(reason)
        _apply(actor, review, act, reason)
        _record(actor, run, effect_id, act, reason, token)
        if not dropped(run.id).exists():
            moves.continue_(run.id)
            waiting.ring(run)
        waiting.tell(run)
    run.refresh_from_db()
    return run


def _done_already(run: Run, effect_id: str, act: Act, token: str) -> bool:
    earlier = AuditEvent.objects.filter(subject=run.id, verb=VERB, detail__token=token).first()
    if earlier is None:
        return False
    if (earlier.detail.get("effect"), earlier.detail.get("act")) != (effect_id, act.value):
        raise KeyReused("This form was used for something else. Open it again.", field="form_token")
    return True


def _review_of(run: Run, effect_id: str) -> Review:
    of_it = Review.objects.filter(
        effect_id=effect_id, effect__run_id=run.id, reason=ReviewReason.NOT_ASKED_AGAIN
    ).order_by("-opened_at", "-id")
    found = of_it.first()
    if found is None:
        raise NotFound(f"No node of this run has dropped an effect {effect_id[:60]}.")
    if found.closed_at is not None:
        raise AlreadyDone(f"{REFUSED}: it is settled. {found.closed_why}")
    return found


def _checked(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise Invalid("Say why.", field="reason")
    if len(reason) > LONGEST_REASON:
        raise Invalid(f"The reason is longer than {LONGEST_REASON} characters.", field="reason")
    return reason


def _apply(actor: Actor, review: Review, act: Act, reason: str) -> None:
    """The locks in their order: the run is held, then approvals, then the effect."""
    why = f"{act.label} by {actor.user.name}: {reason}"
    if act == Act.CANCEL:
        approvals.close_for_effect(
            str(review.effect_id), why=f"The effect was cancelled by {actor.user.name}"
        )
    effect = Effect.objects.select_for_update().get(id=review.effect_id)
    if refused := reasons_of(effect)[act]:
        raise AlreadyDone(f"{act.label} is not possible: {refused}.")
    if act == Act.CANCEL and not effect_moves.cancel_dropped(effect.id, why=why):
        raise AlreadyDone("The effect has moved since you opened this. Look at it again.")
    outcome = ReviewOutcome.NOT_DONE if act == Act.CANCEL else ReviewOutcome.STANDS
    effect_moves.close_review(review, outcome, by=actor.user, second=None, why=why, evidence="")


def _record(actor: Actor, run: Run, effect_id: str, act: Act, reason: str, token: str) -> None:
    done = {Act.ACCEPT: "accepted as it stands", Act.CANCEL: "cancelled"}[act]
    audit.record(
        workspace_id=run.workspace_id,
        actor=actor.user,
        verb=VERB,
        subject=run.id,
        run_id=run.id,
        reason=reason,
        sentence=f"An effect that {run.failure_of} dropped was {done} by {actor.user.name}: {run.title} — {reason}",
        token=token,
        effect=effect_id,
        act=act.value,
    )
