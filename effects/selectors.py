"""Questions to the ledger's rows. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from console.access import Actor
from console.kernel.canonical import JSONValue
from console.kernel.crypto import unseal, unseal_json
from console.kernel.errors import NotFound
from console.models import Capability
from effects.models import Approval, Effect, EffectRevision, Review
from effects.states import SETTLED, UNSENT, ApprovalStatus, Dedup, SubState


def effects_seen_by(actor: Actor) -> QuerySet[Effect]:
    """The effects that *actor* may see, masked."""
    actor.require(Capability.SEE)
    return Effect.objects.filter(workspace=actor.workspace)


def effect_seen_by(actor: Actor, effect_id: str) -> Effect:
    effect = effects_seen_by(actor).select_related("command", "receiver").filter(id=effect_id).first()
    if effect is None:
        raise NotFound(f"There is no effect {effect_id} here.")
    return effect


def approvals_seen_by(actor: Actor) -> QuerySet[Approval]:
    actor.require(Capability.SEE)
    return Approval.objects.filter(workspace=actor.workspace)


def approval_seen_by(actor: Actor, approval_id: str) -> Approval:
    approval = approvals_seen_by(actor).select_related("effect").filter(id=approval_id).first()
    if approval is None:
        raise NotFound(f"There is no approval {approval_id} here.")
    return approval


def inbox(actor: Actor) -> QuerySet[Approval]:
    """The open approvals that *actor* is asked for, in the order of their deciding: overdue first."""
    if not actor.may(Capability.DECIDE):
        return Approval.objects.none()
    return (
        approvals_seen_by(actor)
        .filter(status=ApprovalStatus.PENDING, expires_at__gt=Now())
        .filter(Q(asked_of="") | Q(asked_of__in=actor.group_names))
        .order_by("due_at", "-irreversible", "created_at", "id")
    )


def revision_of(effect: Effect, n: int | None = None) -> EffectRevision:
    return EffectRevision.objects.get(effect_id=effect.id, n=effect.revision if n is None else n)


def payload_of(effect: Effect, revision: EffectRevision) -> JSONValue:
    """The whole payload, protected fields too. For sending, and for those whose reading is recorded."""
    return unseal_json(revision.payload, workspace=effect.workspace_id, owner=effect.id)


def request_of(effect: Effect, revision: EffectRevision) -> bytes:
    """The exact bytes to send."""
    return unseal(revision.request, workspace=effect.workspace_id, owner=effect.id)


def answer_of(effect: Effect) -> JSONValue:
    """What the receiver answered at completion; None where it said nothing."""
    if effect.answer is None:
        return None
    return unseal_json(effect.answer, workspace=effect.workspace_id, owner=effect.id)


def granted() -> Q:
    """No approval is needed, or there is a grant for exactly these bytes and its time is not over."""
    return Q(needs_approval=False) | Q(
        grant_revision=F("revision"), grant_hash=F("request_hash"), grant_until__gt=Now()
    )


def due() -> Q:
    return Q(due_at__lte=Now()) | Q(due_at__isnull=True)


def repeatable_by_key() -> Q:
    """Uncertain, and the same key with the same bytes may go again: inside the key's window, with a valid grant."""
    return Q(sub_state=SubState.UNCERTAIN, dedup=Dedup.KEY, key_until__gt=Now()) & granted()


def worth_a_visit_query() -> QuerySet[Effect]:
    """Effects for which a run that waits has something to do now.

    Settled; ready to send; due for another try; uncertain where the same key may be sent again. An effect under
    review is worth none until it is settled.
    """
    sendable = Q(sub_state__in=[SubState.READY, SubState.HELD]) | (
        due() & (Q(sub_state=SubState.BACKOFF) | repeatable_by_key())
    )
    in_review = Q(
        id__in=Review.objects.filter(closed_at__isnull=True, effect__isnull=False).values("effect_id")
    )
    return Effect.objects.filter(SETTLED | (sendable & ~in_review))


def worth_a_visit(effect_ids: Iterable[str]) -> QuerySet[Effect]:
    return worth_a_visit_query().filter(id__in=list(effect_ids))


def unsent_effects() -> QuerySet[Effect]:
    """Nothing of them is under way, and nothing can have reached the receiver."""
    return Effect.objects.filter(sub_state__in=list(UNSENT), unresolved=False)


def open_reviews(run_id: str) -> QuerySet[Review]:
    return Review.objects.filter(effect__run_id=run_id, closed_at__isnull=True).select_related("effect")
