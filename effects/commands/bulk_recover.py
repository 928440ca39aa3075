"""Bulk recover: after an outage, what can be delivered again or looked up without a second person, one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest, Now

from console import audit
from console.access import Actor, actor_in
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound, Refusal, Stale
from console.kernel.live import announce
from console.models import Capability
from effects.commands.ask_receiver import ask_receiver
from effects.commands.repeat import deliver_again
from effects.models import Effect, Recovery, RecoveryItem
from effects.offers import Known, known_of_many, offer_of
from effects.selectors import effects_seen_by
from effects.states import (
    EffectStatus,
    ItemState,
    OrderKind,
    RecoveryStatus,
    SubState,
    Verdict,
)

#: A recovery takes at most so many effects; a longer list is done in parts.
MOST = 2_000
#: How many effects a minute are handed to the workers, at most.
FASTEST = 600
#: Not more than this in one turn of the sweep, which has other duties.
A_TURN = 50
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
    return DryRun(items, cut=len(known) > MOST, digest=_digest(items))


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


def _digest(items: list[Planned]) -> str:
    text = "\n".join(f"{item.effect.id} {item.verdict}" for item in items)
    return hashlib.sha256(text.encode()).hexdigest()


def start(
    actor: Actor, filters: Mapping[str, str], *, digest: str, reason: str, per_minute: int, token: str
) -> Recovery:
    """Begin to recover what the dry run with this *digest* showed. The same *token* again returns the first recovery.

    Raises Forbidden, Stale (409: what would be done is not what was shown), AlreadyDone (nothing to do), Invalid.
    """
    with audit.refusals_recorded(actor, "recovery.not_started", actor.workspace.id):
        actor.require(Capability.REPEAT)
        if earlier := Recovery.objects.filter(token=token).first():
            if (earlier.workspace_id, earlier.by_id) != (actor.workspace.id, actor.user.id):
                raise KeyReused("This form was used for another recovery. Open the page again.")
            return earlier
        _check(reason, per_minute)
        plan = dry_run(actor, filters)
        if plan.digest != digest:
            raise Stale("Some of these effects have moved since you looked. Look at the list again.")
        if not plan.eligible:
            raise AlreadyDone("There is nothing here that can be delivered again or looked up by one person.")
        try:
            with transaction.atomic():
                return _written(actor, filters, plan, reason=reason, per_minute=per_minute, token=token)
        except IntegrityError:
            return Recovery.objects.get(token=token)


def _check(reason: str, per_minute: int) -> None:
    if not reason.strip():
        raise Invalid("Say why.", field="reason")
    if not 1 <= per_minute <= FASTEST:
        raise Invalid(f"Between 1 and {FASTEST} a minute.", field="per_minute")


def _written(
    actor: Actor, filters: Mapping[str, str], plan: DryRun, *, reason: str, per_minute: int, token: str
) -> Recovery:
    recovery = Recovery.objects.create(
        workspace=actor.workspace,
        filters=dict(filters),
        reason=reason.strip(),
        per_minute=per_minute,
        by=actor.user,
        token=token,
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
    _record(actor, recovery, "started", f"Recovery of {counts} started by {actor.user.name}", reason=reason)
    return recovery


def stop(actor: Actor, recovery_id: str) -> Recovery:
    """No further effect of it is taken. What was ordered already goes on. Raises Forbidden, NotFound, AlreadyDone."""
    with audit.refusals_recorded(actor, "recovery.not_stopped", recovery_id), transaction.atomic():
        actor.require(Capability.REPEAT)
        recovery = recovery_seen_by(actor, recovery_id)
        if not _end(recovery, RecoveryStatus.STOPPED, by=actor):
            raise AlreadyDone(f"It is {recovery.get_status_display().lower()} already.")
        _record(actor, recovery, "stopped", f"Recovery stopped by {actor.user.name}")
    recovery.refresh_from_db()
    return recovery


def recoveries_seen_by(actor: Actor) -> QuerySet[Recovery]:
    actor.require(Capability.SEE)
    return Recovery.objects.filter(workspace=actor.workspace).select_related("by", "stopped_by")


def recovery_seen_by(actor: Actor, recovery_id: str) -> Recovery:
    found = recoveries_seen_by(actor).filter(id=recovery_id).first()
    if found is None:
        raise NotFound(f"There is no recovery {recovery_id} here.")
    return found


def _end(recovery: Recovery, status: RecoveryStatus, *, by: Actor | None = None) -> bool:
    landed = Recovery.objects.filter(id=recovery.id, status=RecoveryStatus.RUNNING).update(
        status=status, ended_at=Now(), stopped_by=by.user if by else None
    )
    if landed:
        RecoveryItem.objects.filter(recovery=recovery, state=ItemState.WAITING).update(
            state=ItemState.STOPPED, ended_at=Now(), came_of_it="The recovery was stopped before it."
        )
        announce(recovery.workspace_id, f"recovery:{recovery.id}", "home")
    return bool(landed)


def work() -> int:
    """The sweep's duty: take what is due of every recovery that runs. Returns how many effects."""
    due = Recovery.objects.filter(status=RecoveryStatus.RUNNING, next_at__lte=Now())
    return sum(
        _work_on(recovery) for recovery in due.select_related("by", "workspace").order_by("next_at")[:20]
    )


def _work_on(recovery: Recovery) -> int:
    """As many items as its rate allows now. One that was begun and not noted is done again, and finds itself done."""
    taken = _take(recovery)
    items = list(
        RecoveryItem.objects.filter(recovery=recovery, state=ItemState.WAITING)
        .select_related("effect")
        .order_by("id")[:taken]
    )
    for item in items:
        # Again before each: a stop that came meanwhile holds from the next effect on.
        if Recovery.objects.filter(id=recovery.id, status=RecoveryStatus.RUNNING).exists():
            _recover(recovery, item)
    if not RecoveryItem.objects.filter(recovery=recovery, state=ItemState.WAITING).exists():
        _end(recovery, RecoveryStatus.DONE)
    return len(items)


def _take(recovery: Recovery) -> int:
    """How many are due by now, and the moment of the next ones. A sweep that was late does not catch up in a rush."""
    with transaction.atomic():
        row = Recovery.objects.select_for_update().annotate(now=Now()).get(id=recovery.id)
        late = max(timedelta(0), row.now - row.next_at)
        each = timedelta(minutes=1) / row.per_minute
        count = min(1 + int(late / each), A_TURN)
        Recovery.objects.filter(id=recovery.id).update(next_at=Greatest(F("next_at") + each * count, Now()))
    return count


def _recover(recovery: Recovery, item: RecoveryItem) -> None:
    """One effect, by the rights that the person has now; its own token makes it one order, however often it is tried."""
    token = f"{recovery.id}:{item.effect_id}"
    order = None
    try:
        actor = actor_in(recovery.by, recovery.workspace_id)
        if item.verdict == Verdict.LOOK:
            ask_receiver(actor, item.effect_id, token=token)
            said, state = f"{item.effect.receiver.name} is being asked.", ItemState.DONE
        else:
            order = deliver_again(actor, item.effect_id, reason=f"Recovery: {recovery.reason}", token=token)
            said, state = "Ordered to be delivered again.", ItemState.DONE
    except (Forbidden, NotFound) as lost:
        _end(recovery, RecoveryStatus.STOPPED)
        said, state = lost.message, ItemState.STOPPED
    except Refusal as refusal:
        said, state = refusal.message, ItemState.SKIPPED
    RecoveryItem.objects.filter(id=item.id).update(state=state, came_of_it=said, order=order, ended_at=Now())
    announce(recovery.workspace_id, f"recovery:{recovery.id}")


def _record(actor: Actor, recovery: Recovery, what: str, sentence: str, *, reason: str = "") -> None:
    audit.record(
        workspace_id=recovery.workspace_id,
        actor=actor.user,
        verb=f"recovery.{what}",
        subject=recovery.id,
        reason=reason,
        sentence=f"{sentence}{f': {reason.strip()}' if reason else ''}",
        filters=recovery.filters,
        per_minute=recovery.per_minute,
    )
    announce(recovery.workspace_id, f"recovery:{recovery.id}", "effects", "home")
