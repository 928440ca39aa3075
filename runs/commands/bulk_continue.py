"""Bulk Continue: after an outage, the runs that failed by it go on, one by one, each at most once by this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from django.db.models import Case, IntegerField, QuerySet, Value, When

from console.access import Actor
from console.bulk import MOST, Done, Form, Kind, digest_of
from console.models import Capability, ItemState
from runs import versions
from runs.availability import OperatorCommand, availability
from runs.commands.continue_run import EffectPlan, continue_run, plans_of, unfinished_of
from runs.models import BulkContinue, BulkContinueItem, Run
from runs.selectors import narrowed, runs_seen_by
from runs.states import FINAL, RunStatus

KIND = Kind(
    model=BulkContinue,
    code="bulk",
    name="bulk Continue",
    capability=Capability.RUN,
    subject="run",
    moved="Some of these runs have moved since you looked. Look at the list again.",
    nothing="No run here can be continued.",
    topics=("runs", "home"),
)


@dataclass(frozen=True)
class Planned:
    """One run of a dry run. *why* it is left alone; empty: it would be continued.

    Then *nodes* are those that run again, and *workers* how many hold its version.
    """

    run: Run
    why: str = ""
    nodes: list[str] = field(default_factory=list)
    effects: list[EffectPlan] = field(default_factory=list)
    workers: int = 0


@dataclass(frozen=True)
class DryRun:
    """What a bulk Continue would do, before anything is done. *digest* stands for exactly that.

    *cut*: the filter leaves more runs than one takes.
    """

    items: list[Planned]
    cut: bool
    digest: str

    @property
    def continued(self) -> list[Planned]:
        return [item for item in self.items if not item.why]

    @property
    def eligible(self) -> int:
        return len(self.continued)


def dry_run(actor: Actor, filters: Mapping[str, str]) -> DryRun:
    """Run by run, of those that *filters* leave and that have not ended. Changes nothing and calls nobody outside.

    The same few questions to the database, however many runs there are.
    """
    found = list(_chosen(actor, filters)[: MOST + 1])
    runs = found[:MOST]
    there = versions.alive()
    why = {run.id: _left_alone(run, actor, there) for run in runs}
    go_on = [run for run in runs if not why[run.id]]
    nodes, effects = unfinished_of(go_on), plans_of(go_on)
    items = [
        Planned(run, why[run.id])
        if why[run.id]
        else Planned(run, "", nodes.get(run.id, []), effects[run.id], _workers(run, there))
        for run in runs
    ]
    lines = chain.from_iterable(_shown(item) for item in items if not item.why)
    return DryRun(items, cut=len(found) > MOST, digest=digest_of(lines))


def _chosen(actor: Actor, filters: Mapping[str, str]) -> QuerySet[Run]:
    """First those that stand still, then those that a worker may have left, oldest first."""
    rank = Case(
        When(status__in=[RunStatus.FAILED, RunStatus.PAUSED], then=Value(0)),
        When(status__in=[RunStatus.RUNNING, RunStatus.QUEUED], then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )
    unfinished = narrowed(runs_seen_by(actor), filters).exclude(status__in=FINAL)
    read = unfinished.select_related("workflow", "workspace", "conversation").defer("input")
    return read.order_by(rank, "created_at", "id")


def _workers(run: Run, there: versions.Alive) -> int:
    return versions.holders_of(run, there, apart=False).workers


def _left_alone(run: Run, actor: Actor, there: versions.Alive) -> str:
    """Why a run is not continued, as a sentence; empty: it is."""
    why = availability(run, actor, alive=there)[OperatorCommand.CONTINUE].reason
    return f"{why[:1].upper()}{why[1:]}." if why else ""


def _shown(item: Planned) -> Iterator[str]:
    """What a digest holds of a run that would be continued: where it stood, and what would become of its effects."""
    yield f"{item.run.id} {item.run.version}"
    for plan in item.effects:
        yield f"{plan.effect.id} {plan.what}"


@dataclass(frozen=True)
class Glance:
    """How many of the first runs that a filter leaves may be continued. *more*: there are others behind them."""

    eligible: int
    all: int
    more: bool


def glance(actor: Actor, filters: Mapping[str, str], *, most: int) -> Glance:
    """Two questions, for a page that leads to the dry run."""
    found = list(_chosen(actor, filters)[: most + 1]) if actor.may(KIND.capability) else []
    there = versions.alive() if found else ()
    eligible = sum(not _left_alone(run, actor, there) for run in found[:most])
    return Glance(eligible, min(len(found), most), more=len(found) > most)


def start(actor: Actor, filters: Mapping[str, str], form: Form) -> BulkContinue:
    """Begin to continue what the dry run of the form's digest showed, as console.bulk says."""
    return KIND.start(
        actor, form, lambda: dry_run(actor, filters), lambda plan: _written(actor, filters, plan, form)
    )


def _written(actor: Actor, filters: Mapping[str, str], plan: DryRun, form: Form) -> BulkContinue:
    bulk = BulkContinue(workspace=actor.workspace, filters=dict(filters), by=actor.user, token=form.token)
    bulk.reason, bulk.per_minute = form.reason.strip(), form.per_minute
    bulk.save(force_insert=True)
    BulkContinueItem.objects.bulk_create(
        BulkContinueItem(
            bulk=bulk,
            run=item.run,
            version=item.run.version,
            state=ItemState.SKIPPED if item.why else ItemState.WAITING,
            came_of_it=item.why,
        )
        for item in plan.items
    )
    counts = f"{plan.eligible} of {len(plan.items)} runs"
    KIND.record(actor, bulk, "started", f"{actor.user.name} continues {counts} in bulk", reason=form.reason)
    return bulk


def work() -> int:
    """The sweep's duty: continue what is due. Returns how many runs."""
    return KIND.work(_continue)


def _continue(actor: Actor, bulk: BulkContinue, item: BulkContinueItem) -> Done:
    """One run; its own token makes it one Continue, however often it is tried."""
    token = f"{bulk.id}:{item.run_id}"
    reason = f"Bulk Continue: {bulk.reason}"
    continue_run(actor, item.run_id, token=token, reason=reason, shown=item.version)
    return Done("Continued.")
