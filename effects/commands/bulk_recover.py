"""Bulk recover: after an outage, what can be delivered again or looked up without a second person, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from console.access import Actor
from console.bulk import A_TURN, FASTEST, MOST, Done, Form, Kind, digest_of
from console.kernel.errors import Invalid
from console.models import Capability, ItemState
from effects.commands.ask_receiver import ask_receiver
from effects.commands.repeat import deliver_again
from effects.models import Effect, Recovery, RecoveryItem
from effects.offers import Known, known_of_many, offer_of
from effects.selectors import effects_seen_by
from effects.states import EffectStatus, OrderKind, SubState, Verdict

__all__ = ["A_TURN", "FASTEST", "KIND", "MOST", "DryRun", "Planned", "dry_run", "start", "work"]

KIND = Kind(
    model=Recovery,
    code="recovery",
    name="recovery",
    capability=Capability.REPEAT,
    subject="effect__receiver",
    moved="Some of these effects have moved since you looked. Look at the list again.",
    nothing="There is nothing here that can be delivered again or looked up by one person.",
    topics=("effects", "home"),
)
recoveries_seen_by, recovery_seen_by, stop = KIND.seen_by, KIND.one_seen_by, KIND.stop

#: The columns of the effect log that may choose them.
FILTERS = frozenset({"status", "sub_state", "effect_type", "receiver__name", "customer_ref", "run_id"})


@dataclass(frozen=True)
class Planned:
    """One effect of a dry run, and what would be done with it."""

    effect: Effect
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class DryRun:
    """What a recovery would do, before anything is done. *digest* stands for exactly this list of verdicts."""

    items: list[Planned]
    cut: bool
    digest: str

    def count(self, verdict: Verdict) -> int:
        return sum(item.verdict == verdict for item in self.items)

    @property
    def eligible(self) -> int:
        return len(self.items) - self.count(Verdict.SKIP)


def dry_run(actor: Actor, filters: Mapping[str, str]) -> DryRun:
    """A verdict for each effect that *filters* choose and that is not final for good. Changes nothing, asks nobody.

    Raises Invalid for a filter that there is not.
    """
    found = _chosen(actor, filters)
    known = known_of_many(found[: MOST + 1])
    items = [_planned(one, actor) for one in known[:MOST]]
    lines = (f"{item.effect.id} {item.verdict}" for item in items)
    return DryRun(items, cut=len(known) > MOST, digest=digest_of(lines))


def _chosen(actor: Actor, filters: Mapping[str, str]) -> QuerySet[Effect]:
    if unknown := set(filters) - FILTERS:
        raise Invalid(f"The effect log has no filter {min(unknown)!r}.", field=min(unknown))
    stuck = (
        Q(
            sub_state__in=[
                SubState.HELD,
                SubState.REFUSED,
                SubState.UNCERTAIN,
                SubState.BACKOFF,
                SubState.READY,
            ]
        )
        | Q(sub_state=SubState.IN_FLIGHT)
        | Q(status=EffectStatus.ACCEPTED)
    )
    return effects_seen_by(actor).filter(stuck, **filters).order_by("created_at", "id")


def _planned(known: Known, actor: Actor) -> Planned:
    """What may be done with it by one person: the rest is left alone, saying why."""
    effect = known.effect
    offer = offer_of(OrderKind.DELIVER_AGAIN, known, actor)
    if offer.offered and not offer.needs_second:
        return Planned(effect, Verdict.DELIVER, offer.says)
    unknown = effect.sub_state == SubState.UNCERTAIN or effect.status == EffectStatus.ACCEPTED
    if unknown and known.can_be_asked and not known.stops:
        return Planned(
            effect, Verdict.LOOK, f"{effect.receiver.name} is asked whether it has it; nothing is sent."
        )
    why = offer.reason or "It needs a second person: order it on its own page."
    return Planned(effect, Verdict.SKIP, why)


def start(
    actor: Actor, filters: Mapping[str, str], *, digest: str, reason: str, per_minute: int, token: str
) -> Recovery:
    """Begin to recover what the dry run with this *digest* showed, as console.bulk says."""
    form = Form(digest, reason, per_minute, token)
    return KIND.start(
        actor, form, lambda: dry_run(actor, filters), lambda plan: _written(actor, filters, plan, form)
    )


def _written(actor: Actor, filters: Mapping[str, str], plan: DryRun, form: Form) -> Recovery:
    recovery = Recovery.objects.create(
        workspace=actor.workspace,
        filters=dict(filters),
        reason=form.reason.strip(),
        per_minute=form.per_minute,
        by=actor.user,
        token=form.token,
    )
    RecoveryItem.objects.bulk_create(
        RecoveryItem(
            recovery=recovery,
            effect=item.effect,
            verdict=item.verdict,
            why=item.why,
            state=ItemState.SKIPPED if item.verdict == Verdict.SKIP else ItemState.WAITING,
            came_of_it=item.why if item.verdict == Verdict.SKIP else "",
        )
        for item in plan.items
    )
    counts = f"{plan.eligible} of {len(plan.items)} effects"
    said = f"Recovery of {counts} started by {actor.user.name}"
    KIND.record(actor, recovery, "started", said, reason=form.reason)
    return recovery


def work() -> int:
    """The sweep's duty: recover what is due. Returns how many effects."""
    return KIND.work(_recover)


def _recover(actor: Actor, recovery: Recovery, item: RecoveryItem) -> Done:
    """One effect; its own token makes it one order, however often it is tried."""
    token = f"{recovery.id}:{item.effect_id}"
    if item.verdict == Verdict.LOOK:
        ask_receiver(actor, item.effect_id, token=token)
        return Done(f"{item.effect.receiver.name} was asked whether it has it.")
    order = deliver_again(actor, item.effect_id, reason=f"Recovery: {recovery.reason}", token=token)
    return Done("Ordered to be delivered again.", {"order": order})
