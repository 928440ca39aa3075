"""What a receiver says later, asked or not, and what the ledger makes of it: the moves and reviews of one finding.

The caller has recorded the finding as an observation and holds the lock on the effect's row. An absence is not settled
here: what it proves depends on who asked, and when (effects.reconcile).
"""

from __future__ import annotations

from datetime import timedelta

from effects import moves
from effects.contracts import EffectContract
from effects.models import Effect
from effects.moves import evidence
from effects.outcomes import found_at_receiver, wait_before
from effects.receivers import Finding
from effects.states import Dedup, EffectStatus, ReviewReason, SubState

#: Nothing of these is under way by the ledger, and nothing exists: what a sender may take again.
_SENDABLE = (
    SubState.RECORDED,
    SubState.AWAITING_APPROVAL,
    SubState.READY,
    SubState.BACKOFF,
    SubState.HELD,
)


def settle(effect: Effect, promise: EffectContract, finding: Finding, *, why: str) -> None:
    """Bring the effect to where *finding* puts it, or open the review that it calls for. *why* closes what it answers.

    Only a final word moves anything: completed from anywhere that still may be, failed from accepted (an uncertain one
    was accepted, as is known now). A sender that has it in flight settles it by its own answer.
    """
    if finding.found == "found":
        _found(effect, promise, finding, why=why)
    elif finding.found == "failed":
        _failed(effect, promise, finding, why=why)
    elif finding.found == "under_way":
        _under_way(effect, promise, finding, why=why)
    elif finding.found == "several":
        evidence.retract_absence(effect.id)
        moves.open_review(effect, ReviewReason.DUPLICATE_FOUND, finding.sentence)
    elif finding.found == "mismatch":
        evidence.retract_absence(effect.id)
        reason = (
            ReviewReason.CONTRADICTION if effect.status == EffectStatus.COMPLETED else ReviewReason.MISMATCH
        )
        moves.open_review(effect, reason, finding.sentence)


def _found(effect: Effect, promise: EffectContract, finding: Finding, *, why: str) -> None:
    if _belongs_to_another(effect, promise, finding.reference):
        moves.open_review(
            effect,
            ReviewReason.MISMATCH,
            f"{finding.reference} belongs to another effect already.",
        )
    else:
        found_at_receiver(effect, finding.reference, finding.body, why=why)


def _belongs_to_another(effect: Effect, promise: EffectContract, reference: str) -> bool:
    """Whether an object that can be one effect's only is another's. Several may change one and the same otherwise."""
    makes_it = promise.creates or promise.dedup in (Dedup.NATURAL, Dedup.QUERY)
    return makes_it and (
        Effect.objects.filter(
            receiver=effect.receiver, effect_type=effect.effect_type, provider_reference=reference
        )
        .exclude(id=effect.id)
        .exclude(provider_reference="")
        .exists()
    )


def _failed(effect: Effect, promise: EffectContract, finding: Finding, *, why: str) -> None:
    if effect.status == EffectStatus.COMPLETED:
        moves.open_review(
            effect,
            ReviewReason.CONTRADICTION,
            f"{finding.sentence} But the ledger says: completed as {effect.provider_reference}.",
        )
        return
    if effect.sub_state == SubState.UNCERTAIN:
        _accept(effect, promise, finding)
    if evidence.refuse_accepted(effect.id, problem=finding.sentence):
        moves.close_answered_reviews(effect.id, why=why)


def _under_way(effect: Effect, promise: EffectContract, finding: Finding, *, why: str) -> None:
    if effect.sub_state == SubState.UNCERTAIN and _accept(effect, promise, finding):
        moves.close_answered_reviews(effect.id, why=why)
    elif effect.status == EffectStatus.PENDING and effect.sub_state in _SENDABLE:
        moves.open_review(
            effect,
            ReviewReason.CONTRADICTION,
            f"{finding.sentence} But the ledger says: {effect.get_sub_state_display().lower()}.",
        )


def _accept(effect: Effect, promise: EffectContract, finding: Finding) -> bool:
    return evidence.accept_by_evidence(
        effect.id,
        reference=finding.reference,
        wait=wait_before(1, finding.retry_after),
        deadline=timedelta(seconds=promise.final_within),
    )
