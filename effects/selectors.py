"""Questions to the ledger's rows. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Now

from console.access import Actor, actor_in
from console.kernel.canonical import JSONValue
from console.kernel.crypto import unseal, unseal_json
from console.kernel.errors import NotFound
from console.models import Capability
from effects import durability
from effects.models import Approval, Effect, EffectRevision, Order, Probe, Receiver, Review, Stop
from effects.states import (
    OPEN_ORDERS,
    SETTLED,
    UNSENT,
    ApprovalStatus,
    Decision,
    Dedup,
    EffectStatus,
    ReviewReason,
    StopScope,
    SubState,
)

#: What the run_id of a probe's effects begins with: it is the probe's own id, and no run's.
PROBE_RUN = "prb_"


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
    seen = approvals_seen_by(actor).select_related(
        "effect", "order__asked_by", "order__effect__receiver", "simulated_for"
    )
    approval = seen.filter(id=approval_id).first()
    if approval is None:
        raise NotFound(f"There is no approval {approval_id} here.")
    return approval


def inbox(actor: Actor) -> QuerySet[Approval]:
    """The open approvals that *actor* is asked for, in the order of their deciding: overdue first.

    Those of runs for approvers of their groups; those of orders for every second person but who gave the order.
    """
    asked = Q(pk__in=[])
    if actor.may(Capability.DECIDE):
        asked |= Q(order=None) & (Q(asked_of="") | Q(asked_of__in=actor.group_names))
    if actor.may(Capability.SECOND):
        asked |= Q(order__isnull=False) & ~Q(order__asked_by=actor.user)
    return (
        approvals_seen_by(actor)
        .filter(asked, status=ApprovalStatus.PENDING, expires_at__gt=Now(), simulated_for=None)
        .order_by("due_at", "-irreversible", "created_at", "id")
    )


def reviews_seen_by(actor: Actor) -> QuerySet[Review]:
    """The reviews of the workspace, with their effects as everybody may see them."""
    actor.require(Capability.SEE)
    return Review.objects.filter(workspace=actor.workspace).select_related(
        "effect__receiver", "effect__command", "receiver", "proposed_by", "settled_by", "confirmed_by"
    )


def receiver_names(actor: Actor) -> list[str]:
    """The names of the workspace's receivers, live and isolated."""
    actor.require(Capability.SEE)
    return sorted(set(Receiver.objects.filter(workspace=actor.workspace).values_list("name", flat=True)))


def newest_probes(actor: Actor) -> dict[tuple[str, str], Probe]:
    """The newest probe of each (receiver, effect type) of the workspace, whatever its version and verdict."""
    actor.require(Capability.SEE)
    found = (
        Probe.objects.filter(receiver__workspace=actor.workspace)
        .order_by("receiver_id", "effect_type", "-at", "-id")
        .distinct("receiver_id", "effect_type")
    )
    return {(probe.receiver_id, probe.effect_type): probe for probe in found}


def stops_seen_by(actor: Actor) -> QuerySet[Stop]:
    actor.require(Capability.SEE)
    return Stop.objects.filter(workspace=actor.workspace).select_related("by", "lifted_by")


def held_up_by(stop: Stop) -> QuerySet[Effect]:
    """The effects that a kill switch keeps from being sent now."""
    found = Effect.objects.filter(stopped_query(), workspace_id=stop.workspace_id)
    if stop.scope == StopScope.RECEIVER:
        return found.filter(receiver__name=stop.target)
    return found.filter(effect_type=stop.target) if stop.scope == StopScope.TYPE else found


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


def belongs_to_another(effect: Effect, reference: str) -> bool:
    """Whether the receiver's object *reference* is what another effect of this type has made."""
    return (
        bool(reference)
        and Effect.objects.filter(
            receiver_id=effect.receiver_id, effect_type=effect.effect_type, provider_reference=reference
        )
        .exclude(id=effect.id)
        .exists()
    )


def granted() -> Q:
    """No approval is needed, or there is a grant for exactly these bytes and its time is not over."""
    return Q(needs_approval=False) | Q(
        grant_revision=F("revision"), grant_hash=F("request_hash"), grant_until__gt=Now()
    )


def lost_right_to_grant(effect: Effect) -> str:
    """Why the grant of *effect* no longer counts, in words: who approved it may not approve any more. Empty: it counts.

    An approval of a run needs an approver of the group that was asked; one of an order a second person.
    """
    approval = Approval.objects.filter(id=effect.grant_approval_id).first()
    if approval is None:
        return ""
    for given in approval.decisions.filter(decision=Decision.APPROVE).select_related("by"):
        if given.by is None:
            continue
        try:
            actor = actor_in(given.by, effect.workspace_id)
        except NotFound:
            return f"{given.by.name}, who approved it, is no longer a member here."
        needed = Capability.SECOND if approval.order_id else Capability.DECIDE
        grouped = not approval.order_id and approval.asked_of and approval.asked_of not in actor.group_names
        if not actor.may(needed) or grouped:
            return f"{given.by.name}, who approved it, may no longer approve it."
    return ""


def due() -> Q:
    return Q(due_at__lte=Now()) | Q(due_at__isnull=True)


def probed() -> Q:
    """It may be sent a second time without a person: the newest probe of its type, version and account has passed.

    A probe's own effects may: what becomes of them is what it wants to know. Never NULL, so that its opposite can be
    asked for too.
    """
    newest = Subquery(
        _probes(
            OuterRef("receiver_id"),
            OuterRef("account"),
            OuterRef("effect_type"),
            OuterRef("contract_version"),
        ).values("passed")[:1]
    )
    return Q(run_id__startswith=PROBE_RUN) | Q(Coalesce(newest, Value(False)))


def _probes(receiver_id: Any, account: Any, effect_type: Any, contract_version: Any) -> QuerySet[Probe]:
    return Probe.objects.filter(
        receiver_id=receiver_id,
        account=account,
        effect_type=effect_type,
        contract_version=contract_version,
    ).order_by("-at", "-id")


def newest_probe(receiver: Receiver, effect_type: str, contract_version: int) -> Probe | None:
    """The one that counts, for the account that the receiver has now; None before the first."""
    return _probes(receiver.id, receiver.account, effect_type, contract_version).first()


def unprobed(effect: Effect) -> str:
    """Why the effect is not sent a second time by itself, as far as probes go; empty where the newest has passed."""
    if effect.run_id.startswith(PROBE_RUN):
        return ""
    probe = _probes(effect.receiver_id, effect.account, effect.effect_type, effect.contract_version).first()
    if probe is None:
        return (
            f"{effect.effect_type} has not been probed at this account since version {effect.contract_version}, "
            "so it is not sent again by itself."
        )
    if not probe.passed:
        return (
            f"The newest probe of {effect.effect_type} at this account has failed, "
            "so it is not sent again by itself."
        )
    return ""


def repeatable_by_key() -> Q:
    """Uncertain, and the same key with the same bytes may go again: inside the key's window, granted, and probed."""
    return Q(sub_state=SubState.UNCERTAIN, dedup=Dedup.KEY, key_until__gt=Now()) & granted() & probed()


def stopped() -> Exists:
    """A kill switch is on for the effect: its workspace, its receiver or its type.

    No join: a condition of an UPDATE is judged again on the newest row only where it is the table's own.
    """
    receiver = Receiver.objects.filter(id=OuterRef(OuterRef("receiver_id")), name=OuterRef("target"))
    return Exists(
        Stop.objects.filter(workspace_id=OuterRef("workspace_id"), lifted_at=None).filter(
            Q(scope=StopScope.WORKSPACE)
            | Q(scope=StopScope.TYPE, target=OuterRef("effect_type"))
            | (Q(scope=StopScope.RECEIVER) & Exists(receiver))
        )
    )


def standing_stops(workspace_id: str) -> QuerySet[Stop]:
    """The kill switches that are on, oldest first."""
    return (
        Stop.objects.filter(workspace_id=workspace_id, lifted_at=None)
        .select_related("by")
        .order_by("at", "id")
    )


def ordered() -> Exists:
    """A person's order about it is open: it, and no run, says what becomes of it."""
    return Exists(Order.objects.filter(sends=OuterRef("pk"), status__in=OPEN_ORDERS))


def sent_anew() -> Exists:
    """People have sent another effect in its place, or are about to. That one counts; sent as well, there would be two."""
    return Exists(Effect.objects.filter(successor_of=OuterRef("pk")).exclude(status=EffectStatus.FAILED))


def unasked() -> Q:
    """It waits for an approval that nobody is asked for: an order asked in the run's place, and has ended since."""
    asked = Approval.objects.filter(effect=OuterRef("pk"), revision=OuterRef("revision"))
    return (
        Q(sub_state__in=[SubState.RECORDED, SubState.AWAITING_APPROVAL], needs_approval=True)
        & Exists(asked.filter(order__isnull=False))
        & ~Exists(asked.filter(order=None).exclude(status=ApprovalStatus.DECIDED))
    )


def _sendable() -> Q:
    return Q(sub_state__in=[SubState.READY, SubState.HELD]) | (
        due() & (Q(sub_state=SubState.BACKOFF) | repeatable_by_key())
    )


def stopped_query() -> Q:
    """What could be sent now and is not, because a kill switch is on for it."""
    return _sendable() & ~Q(sub_state=SubState.HELD) & Q(stopped())


def stops_on(effect: Effect) -> list[Stop]:
    """The kill switches that are on for this effect."""
    return [stop for stop in standing_stops(effect.workspace_id) if stops_it(stop, effect)]


def stops_it(stop: Stop, effect: Effect) -> bool:
    """Whether a kill switch of its workspace is one for this effect."""
    return stop.scope == StopScope.WORKSPACE or stop.target == (
        effect.receiver.name if stop.scope == StopScope.RECEIVER else effect.effect_type
    )


def worth_a_visit_query() -> QuerySet[Effect]:
    """Effects for which a run that waits has something to do now.

    Settled; ready to send; due for another try; uncertain where the same key may be sent again; to be asked about
    again. An effect under review, stopped, or under a person's order is worth none until that is over; nor is one that
    people have sent anew, nor an irreversible one while this database might forget it.
    """
    in_review = Q(
        id__in=Review.objects.filter(closed_at__isnull=True, effect__isnull=False).values("effect_id")
    )
    waits = in_review | Q(stopped()) | Q(ordered()) | Q(sent_anew()) | durability.held_back()
    return Effect.objects.filter(SETTLED | ((_sendable() | unasked()) & ~waits))


def worth_a_visit(effect_ids: Iterable[str]) -> QuerySet[Effect]:
    return worth_a_visit_query().filter(id__in=list(effect_ids))


def unsent_effects() -> QuerySet[Effect]:
    """A run's own, of which nothing is under way and nothing can have reached the receiver.

    What an order made, or is about to send, is the order's to close.
    """
    own = Effect.objects.filter(successor_of=None, compensates=None)
    return own.filter(sub_state__in=list(UNSENT), unresolved=False).exclude(ordered())


def dropped(run_id: str) -> QuerySet[Review]:
    """The open reviews of what the run's nodes made and no longer ask for."""
    return open_reviews(run_id).filter(reason=ReviewReason.NOT_ASKED_AGAIN)


def accepted_as_it_stands() -> Exists:
    """An effect that its node dropped, and of which a person has said so in a review: its node may go on without it."""
    return Exists(
        Review.objects.filter(
            effect=OuterRef("pk"),
            reason=ReviewReason.NOT_ASKED_AGAIN,
            closed_at__isnull=False,
            settled_by__isnull=False,
        )
    )


def open_reviews(run_id: str) -> QuerySet[Review]:
    return Review.objects.filter(effect__run_id=run_id, closed_at__isnull=True).select_related("effect")
