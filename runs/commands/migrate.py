"""Migrate the state: the same run goes on under another version of its workflow, by a migration that its author declared.

What it makes of the state is computed first, in memory and outside of any transaction, and shown as a difference; it is
stored as a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, NotFound, Stale
from effects import approvals
from effects.models import Effect
from effects.states import EffectStatus
from runs import moves, selectors, versions, waiting
from runs.availability import OperatorCommand, availability
from runs.engine.branching import Edited, write_edited
from runs.engine.copying import NothingToCopy
from runs.engine.migrating import migrated
from runs.engine.registry import Workflow, workflows
from runs.inspection import Change, difference_of_kept
from runs.models import Checkpoint, Run, StateMigration, WorkflowVersion

VERB = "run.migrated"


@dataclass(frozen=True)
class Preview:
    """What a migration would make of the run. *why_not*: in words, why it is not possible now.

    *misfits*: what of the two versions differs, for who has to judge whether the migration is right.
    """

    target: WorkflowVersion
    summary: str
    misfits: list[str]
    why_not: str = ""
    changes: tuple[Change, ...] = ()
    more_changes: bool = False
    next_before: tuple[str, ...] = ()
    next_nodes: tuple[str, ...] = ()


def targets_of(run: Run) -> list[WorkflowVersion]:
    """The versions to which a run may be migrated: declared, and held by a worker that is alive."""
    there = versions.other_versions(run, versions.alive())
    return [one for one in there if run.workflow.version in one.migrates]


def preview(actor: Actor, run_id: str, version: str) -> Preview:
    """Show what would be done. Changes nothing. Raises NotFound for a run or version that is not there."""
    run = selectors.run_seen_by(actor, run_id)
    target = _target(run, version)
    source = _newest(run)
    misfits = versions.misfits(run, target, next_nodes=())
    shown = Preview(target, target.migrates[run.workflow.version], misfits)
    offer = availability(run, actor)[OperatorCommand.MIGRATE]
    why_not = offer.reason or _effects_in_the_way(run, source)
    if why_not:
        return Preview(target, shown.summary, misfits, why_not=why_not)
    try:
        found = _computed(run, source, target)
    except (Invalid, AlreadyDone) as refusal:
        return Preview(target, shown.summary, misfits, why_not=refusal.message)
    changes, more = difference_of_kept(
        found.before, found.after, sorted({*run.workflow.masks, *target.masks})
    )
    return Preview(
        target,
        shown.summary,
        misfits,
        changes=tuple(changes),
        more_changes=more,
        next_before=tuple(found.next_before),
        next_nodes=tuple(found.next_nodes),
    )


def migrate(
    actor: Actor, run_id: str, version: str, *, token: str, shown_next: Sequence[str] | None = None
) -> Run:
    """Take the run to *version*. It stands still afterwards, for Continue. The same token again changes nothing.

    Raises NotFound, Forbidden, AlreadyDone with the reason (it does not stand still; an effect is not final, or is
    final without its node's checkpoint), Invalid where the migration does not fit, Stale where something else would come
    next than was shown.
    """
    run = selectors.run_seen_by(actor, run_id)
    if audit.done_by_form(run.id, VERB, token):
        return run
    target = _target(run, version)
    offer = availability(run, actor)[OperatorCommand.MIGRATE]
    if not offer.available:
        raise offer.refusal("Its state can't be migrated")
    source = _newest(run)
    _check_effects(run, source)
    found = _computed(run, source, target)
    if shown_next is not None and list(shown_next) != found.next_nodes:
        raise Stale("Something else would come next than was shown. Look at it again.")
    with transaction.atomic():
        locked = _locked(actor, run)
        if audit.done_by_form(run.id, VERB, token):
            return locked
        newest = _newest(locked)
        if newest.id != source.id or locked.workflow_id != run.workflow_id:
            raise Stale("The run has moved since you looked. Look at it again.")
        _check_effects(locked, source)
        made = write_edited(found, source, locked)
        if not moves.take_to_version(locked, target):
            raise AlreadyDone("Somebody else moved this run just now. Look at it again.")
        # What was asked, was asked by the old version's pause: the new one asks for itself.
        approvals.close_for_run(run.id, why=f"The state was migrated to {target}")
        StateMigration.objects.create(
            run=locked, source=run.workflow, target=target, checkpoint=made, by=actor.user
        )
        _record(actor, locked, run.workflow, target, made, token)
        waiting.tell(locked)
    locked.refresh_from_db()
    return locked


def _locked(actor: Actor, run: Run) -> Run:
    locked = (
        Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run.id)
    )
    offer = availability(locked, actor)[OperatorCommand.MIGRATE]
    if not offer.available:
        raise offer.refusal("Its state can't be migrated")
    return locked


def _target(run: Run, version: str) -> WorkflowVersion:
    target = WorkflowVersion.objects.filter(name=run.workflow.name, version=version).first()
    if target is None or run.workflow.version not in target.migrates:
        raise NotFound(f"No migration from {run.workflow} to version {version} is declared.")
    return target


def _newest(run: Run) -> Checkpoint:
    newest = run.checkpoints.filter(namespace="").order_by("-engine_id").first()
    if newest is None:
        raise AlreadyDone("It has no checkpoint yet: start it anew under the other version.")
    return newest


def _check_effects(run: Run, source: Checkpoint) -> None:
    if why_not := _effects_in_the_way(run, source):
        raise AlreadyDone(f"Its state can't be migrated: {why_not}.")


def _effects_in_the_way(run: Run, source: Checkpoint) -> str:
    """Product.md, Version check: refused while an effect is not final, or final without its node's checkpoint."""
    effects = Effect.objects.filter(run_id=run.id).select_related("command")
    open_ones = effects.exclude(status__in=[EffectStatus.COMPLETED, EffectStatus.FAILED])
    if (one := open_ones.first()) is not None:
        return f"the effect {one.id} is not final: what comes of it belongs to the version that asked for it"
    for effect in effects:
        if not effect.command.position.startswith("order:") and _step_of(effect) > source.number:
            return (
                f"the effect {effect.id} is final, and the step of its node {effect.command.node} is not saved: "
                "the new version would not know of it"
            )
    return ""


def _step_of(effect: Effect) -> int:
    """The outermost graph's step in which the effect was asked for."""
    place = effect.command.place
    namespaces = place.get("namespaces") or []
    if len(namespaces) > 1 and namespaces[1][1] is not None:
        return int(namespaces[1][1]) + 1
    return int(place.get("step", 0))


def _computed(run: Run, source: Checkpoint, target: WorkflowVersion) -> Edited:
    workflow = _held(target)
    nodes = selectors.nodes_that_led_to(source)
    if not nodes:
        raise AlreadyDone("No step has been taken yet: start it anew under the other version.")
    try:
        return migrated(source, workflow, workflow.migrations[run.workflow.version], predecessors=nodes)
    except NothingToCopy as gone:
        raise AlreadyDone(str(gone)) from gone


def _held(target: WorkflowVersion) -> Workflow:
    workflow = workflows().get(str(target))
    if workflow is None or workflow.fingerprint != target.fingerprint:
        raise AlreadyDone(f"This console does not hold {target}, so it can't compute the migration.")
    return workflow


def _record(
    actor: Actor,
    run: Run,
    before: WorkflowVersion,
    target: WorkflowVersion,
    made: Checkpoint,
    token: str,
) -> None:
    audit.record(
        workspace_id=run.workspace_id,
        actor=actor.user,
        verb=VERB,
        subject=run.id,
        run_id=run.id,
        sentence=f"State migrated from {before} to {target} by {actor.user.name}: {run.title}",
        source=str(before),
        target=str(target),
        checkpoint=made.id,
        token=token,
    )
