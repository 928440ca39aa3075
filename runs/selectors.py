"""Questions to the rows of runs. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat, Now

from console.access import Actor, actor_in
from console.kernel.crypto import unseal_json
from console.kernel.errors import NotFound
from console.models import AuditEvent, Capability, User, Worker
from effects import doubles, rounds
from effects.models import Approval, Command, Effect, EffectRevision, Stop, WouldHave
from effects.origin import Inherited
from effects.selectors import accepted_as_it_stands, stopped_query, stops_on, worth_a_visit
from effects.states import ApprovalStatus, EffectStatus, Stance
from runs.models import Checkpoint, Conversation, Pause, Run, Step, TypePermit, WorkflowVersion
from runs.states import ANSWERED_BY_ENGINE, APART, TOGETHER, RunKind, RunMode

#: A worker that has not been heard of for this long does not count.
ALIVE = timedelta(seconds=30)


def runs_seen_by(actor: Actor) -> QuerySet[Run]:
    actor.require(Capability.SEE)
    return Run.objects.filter(workspace=actor.workspace)


#: The filters of the Runs page that are a column each.
_COLUMNS = {
    "status": "status",
    "failure": "failure",
    "of": "failure_of",
    "workflow": "workflow__name",
    "kind": "kind",
    "mode": "mode",
    "customer": "customer_ref",
}


def narrowed(found: QuerySet[Run], filters: Mapping[str, str]) -> QuerySet[Run]:
    """What the Runs page's filters leave of *found*. ``q`` looks in title, customer and customer's name."""
    for name, value in filters.items():
        if name == "q":
            found = found.filter(
                Q(title__icontains=value)
                | Q(customer_ref=value)
                | Q(conversation__customer_name__icontains=value)
            )
        elif name == "status" and value in TOGETHER:
            found = found.filter(status__in=TOGETHER[value])
        else:
            found = found.filter(**{_COLUMNS[name]: value})
    return found


def run_seen_by(actor: Actor, run_id: str) -> Run:
    run = (
        runs_seen_by(actor)
        .select_related("workflow", "workspace", "conversation", "starter", "parent_run", "parent_checkpoint")
        .filter(id=run_id)
        .first()
    )
    if run is None:
        raise NotFound(f"There is no run {run_id} here.")
    return run


#: So many runs are offered to stand beside one.
MAX_BESIDE = 40


def to_stand_beside(actor: Actor, run: Run) -> tuple[list[Run], list[Run]]:
    """What a run may be compared with: those of its lineage, its parent first; and the newest others of its workflow."""
    seen = runs_seen_by(actor).exclude(id=run.id).select_related("workflow")
    related = list(
        seen.filter(Q(root_run=run.root_run_id or run.id) | Q(id=run.root_run_id)).order_by(
            "created_at", "id"
        )[:MAX_BESIDE]
    )
    if run.parent_run_id and all(one.id != run.parent_run_id for one in related):
        related += seen.filter(id=run.parent_run_id)
    related.sort(key=lambda one: one.id != run.parent_run_id)
    others = seen.filter(workflow__name=run.workflow.name).exclude(id__in=[one.id for one in related])
    return related, list(others.order_by("-created_at", "-id")[:MAX_BESIDE])


def checkpoint_seen_by(actor: Actor, run_id: str, checkpoint_id: str) -> Checkpoint:
    """A checkpoint of this run of the actor's workspace."""
    found = (
        Checkpoint.objects.select_related("run__workflow", "run__workspace")
        .filter(id=checkpoint_id, run_id=run_id, run__workspace=actor.workspace)
        .first()
    )
    if found is None:
        raise NotFound(f"There is no checkpoint {checkpoint_id} in this run.")
    return found


def nodes_that_led_to(checkpoint: Checkpoint) -> list[str]:
    """The nodes whose output led to a checkpoint of the outermost graph, by the steps that ran; several ran side by side.

    Not by the versions that the checkpoint says were seen: nodes that were sent to leave none, and an earlier node
    would be taken for them. Empty: no node of the workflow led to it, as to the one after the input.
    """
    at = checkpoint
    while at.fence == 0 and at.run.parent_run is not None:
        # Copied, or a branch's own edit, which counts as the output of what led to the checkpoint that was edited.
        same = Checkpoint.objects.filter(run=at.run.parent_run, namespace="", engine_id=at.engine_id).first()
        before = same or at.run.parent_checkpoint
        assert before is not None, "the database holds it: a replay or branch names its checkpoint"
        at = before
    steps = Step.objects.filter(run=at.run_id, namespace="", number=at.number)
    return sorted(set(steps.values_list("node", flat=True)))


def conversations_seen_by(actor: Actor) -> QuerySet[Conversation]:
    actor.require(Capability.SEE)
    return Conversation.objects.filter(workspace=actor.workspace)


def workflows_of(actor: Actor) -> list[WorkflowVersion]:
    """The newest version of each workflow that the workspace has enabled."""
    newest: dict[str, WorkflowVersion] = {}
    for version in WorkflowVersion.objects.filter(name__in=actor.workspace.workflows).order_by(
        "first_seen", "id"
    ):
        newest[version.name] = version
    return sorted(newest.values(), key=lambda version: version.title)


def workers_holding(run: Run) -> QuerySet[Worker]:
    """The workers that are alive, take its mode and hold the run's version, with the fingerprint it was made with."""
    return workers_for(run, RunMode(run.mode))


def workers_for(run: Run, mode: RunMode) -> QuerySet[Worker]:
    """The workers that would take a run of the same version in that *mode*: replayers for what runs apart."""
    return Worker.objects.filter(
        stopped_at=None,
        replayer=mode in APART,
        last_seen__gt=Now() - ALIVE,
        versions__contains=[held(run.workflow, run.fingerprint)],
    )


def workflows_held() -> QuerySet[WorkflowVersion]:
    """The versions that a living worker holds."""
    alive = Worker.objects.filter(stopped_at=None, last_seen__gt=Now() - ALIVE).values_list(
        "versions", flat=True
    )
    names = {version.rpartition("#")[0] for versions in alive for version in versions}
    return WorkflowVersion.objects.annotate(full=Concat("name", Value("@"), "version")).filter(full__in=names)


def held(workflow: WorkflowVersion, fingerprint: str) -> str:
    return f"{workflow.name}@{workflow.version}#{fingerprint}"


def input_of(run: Run) -> object:
    return unseal_json(run.input, workspace=run.workspace_id, owner=run.id)


def has_command(run_id: str, positions: list[str], namespaces: list[list[object]]) -> bool:
    """Whether the task, or one of a graph that its node called, has made a command in this or an earlier go."""
    below = Q()
    for depth, segment in enumerate(namespaces):
        below &= Q(**{f"place__namespaces__{depth}": segment})
    return Command.objects.filter(Q(position__in=positions) | below, run_id=run_id).exists()


def has_paused(run_id: str, task_id: str, namespace: str) -> bool:
    """Whether the task, or one of a graph that its node called, has paused before: people have seen what it asked."""
    below = Q(namespace=namespace) | Q(namespace__startswith=f"{namespace}|")
    return Pause.objects.filter(Q(task_id=task_id) | below, run_id=run_id).exists()


def effects_not_asked_again(run_id: str, position: str, proposed: set[str]) -> list[str]:
    """Effects that the task made in an earlier go and that this go did not ask for.

    Those that failed are no debt, nor those that a person has accepted as they stand.
    """
    return list(
        Effect.objects.filter(run_id=run_id, command__position=position)
        .exclude(status=EffectStatus.FAILED)
        .exclude(id__in=proposed)
        .exclude(accepted_as_it_stands())
        .values_list("id", flat=True)
    )


def current_pauses(run: Run) -> QuerySet[Pause]:
    """The pauses as the newest execution left them."""
    return Pause.objects.filter(run=run, fence=run.fence)


def something_to_do(run: Run) -> bool:
    """Whether a worker's visit would get the waiting run further. Settle and the sweep ask this same question.

    An effect that a pause waits for is settled, ready or due; or every action of an answered-by-people pause is
    decided and its answer is not in the checkpoint yet.
    """
    pauses = list(current_pauses(run))
    waited_for = [pause.effect_id for pause in pauses if pause.kind not in ANSWERED_BY_ENGINE]
    if waited_for and worth_a_visit(waited_for).exists():
        return True
    answered = [
        pause
        for pause in pauses
        if (pause.kind in ANSWERED_BY_ENGINE and not pause.answered)
        # A simulation has no effects: what it waits for is its launcher's decision.
        or pause.effect_id.startswith(doubles.PREFIX)
    ]
    if not answered:
        return False
    decided = rounds.decided_pauses(run.id)
    return any((pause.interrupt_id, pause.value_hash) in decided for pause in answered)


def raised_on_answer(run: Run) -> QuerySet[Pause]:
    """The pauses on whose answer a node raised in the newest execution, and that can be asked again.

    Not those whose decision was about an effect: it granted or rejected that, and is no mere answer.
    """
    about_effects = Approval.objects.filter(run_id=run.id, effect__isnull=False).values("interrupt_id")
    decided = [interrupt_id for interrupt_id, _ in rounds.decided_pauses(run.id)]
    return (
        current_pauses(run)
        .filter(kind__in=ANSWERED_BY_ENGINE, raised=True, interrupt_id__in=decided)
        .exclude(interrupt_id__in=about_effects)
    )


def pauses_of_tasks(pauses: QuerySet[Pause]) -> QuerySet[Pause]:
    """Every pause that the tasks of *pauses* have come to: one task may have asked several times."""
    tasks = list(pauses.values_list("run_id", "namespace", "task_id"))
    same = Q(pk__in=[])
    for run_id, namespace, task_id in tasks:
        same |= Q(run_id=run_id, namespace=namespace, task_id=task_id)
    return Pause.objects.filter(same)


def asked_again(run_id: str) -> frozenset[str]:
    """The interrupts whose answer a person has taken back, and that have not been asked in another round since."""
    newest = rounds.newest_rounds(run_id)
    return frozenset(row.interrupt_id for row in newest if row.status == ApprovalStatus.SUPERSEDED)


def stops_in_the_way(run: Run) -> list[Stop]:
    """The kill switches that are on for an effect that the run's pauses wait to send."""
    waited_for = [pause.effect_id for pause in current_pauses(run) if pause.kind not in ANSWERED_BY_ENGINE]
    held_up = Effect.objects.filter(stopped_query(), id__in=waited_for).select_related("receiver")
    return [stop for effect in held_up for stop in stops_on(effect)]


def asks_people(run: Run) -> bool:
    """Whether an approval of the run is open."""
    return run_approvals(run).filter(status=ApprovalStatus.PENDING).exists()


def expired_and_unanswered(run: Run) -> bool:
    """A pause that only people can end, of which at least one request has expired: nobody is asked any more."""
    expired = {
        row.interrupt_id
        for row in rounds.newest_rounds(run.id)
        if row.status in (ApprovalStatus.EXPIRED, ApprovalStatus.CLOSED, ApprovalStatus.SUPERSEDED)
    }
    return any(pause.interrupt_id in expired and not pause.answered for pause in current_pauses(run))


def stance_of(run: Run) -> Stance:
    """How the run's effects stand to the outside world: an original sends; a live replay or branch always asks."""
    if run.mode == RunMode.LIVE:
        return Stance.LIVE if run.kind == RunKind.ORIGINAL else Stance.FRESH
    return Stance.SIMULATION if run.mode == RunMode.SIMULATION else Stance.EVIDENCE


def fresh_runs(run_ids: Collection[str]) -> dict[str, frozenset[str]]:
    """Those of the runs that are live replays or branches, each with the irreversible types that it is permitted."""
    fresh = Run.objects.filter(id__in=run_ids, mode=RunMode.LIVE).exclude(kind=RunKind.ORIGINAL)
    found: dict[str, set[str]] = {}
    for run_id, effect_type in fresh.values_list("id", "permits__effect_type"):
        found.setdefault(run_id, set()).update([effect_type] if effect_type else [])
    return {run_id: frozenset(types) for run_id, types in found.items()}


@dataclass(frozen=True)
class Lineage:
    """A run and those that it was made from, nearest first, each earlier one with when the copied checkpoint was saved."""

    run_id: str
    earlier: tuple[tuple[str, datetime], ...] = ()

    @property
    def source_id(self) -> str:
        """The run whose recording a replay follows: the one that it was made from."""
        return self.earlier[0][0] if self.earlier else ""


def lineage_of(run: Run) -> Lineage:
    """The run with those that it was made from, nearest first."""
    earlier = []
    at = run
    while at.parent_run is not None:
        checkpoint = at.parent_checkpoint
        assert checkpoint is not None, "the database holds it: a replay or branch names its checkpoint"
        earlier.append((at.parent_run.id, checkpoint.at))
        at = at.parent_run
    return Lineage(run.id, tuple(earlier))


def effect_made_at(lineage: Lineage, position: str, effect_type: str, command_key: str) -> Effect | None:
    """The effect that the nearest earlier run of the lineage made at the same place by the same command."""
    for run_id, _ in lineage.earlier:
        found = (
            Effect.objects.select_related("receiver", "command")
            .filter(
                run_id=run_id,
                command__position=position,
                command__command_key=command_key,
                effect_type=effect_type,
            )
            .first()
        )
        if found is not None:
            return found
    return None


def inherited_effect(lineage: Lineage, effect_id: str) -> Inherited | None:
    """The effect that an id in the state of a replay or branch stands for; None where it is none of its lineage.

    An earlier replay that made it its own acted on it under another id: its state still carries the first one, so
    the nearest run with an effect of the same command is the one that is meant.
    """
    earlier_ids = [run_id for run_id, _ in lineage.earlier]
    named = (
        Effect.objects.select_related("receiver", "command")
        .filter(id=effect_id, run_id__in=earlier_ids)
        .first()
    )
    if named is None:
        return None
    for run_id, copied_at in lineage.earlier:
        found = named if named.run_id == run_id else _same_command(run_id, named)
        if found is not None:
            is_history = found.settled_at is not None and found.settled_at <= copied_at
            return Inherited(found, is_history)
    return None


def _same_command(run_id: str, effect: Effect) -> Effect | None:
    command = effect.command
    return (
        Effect.objects.select_related("receiver", "command")
        .filter(
            run_id=run_id,
            command__position=command.position,
            command__command_key=command.command_key,
            effect_type=effect.effect_type,
        )
        .first()
    )


def intended_before(lineage: Lineage, would_have_id: str) -> WouldHave | None:
    earlier_ids = [run_id for run_id, _ in lineage.earlier]
    return WouldHave.objects.filter(id=would_have_id, run_id__in=earlier_ids).first()


def effect_of_call(lineage: Lineage, tool_call_id: str, effect_type: str, *, evidence: bool = False) -> str:
    """The id of what was proposed for a tool call, by this run or by one that it was made from. Empty: nothing was.

    In *evidence* it is the recorded effect's id where the same payload was recorded, as propose says.
    """
    intended = WouldHave.objects.filter(
        run_id=lineage.run_id, tool_call_id=tool_call_id, effect_type=effect_type
    ).order_by("-created_at", "-id")
    if (row := intended.first()) is not None:
        recorded = evidence and EffectRevision.objects.filter(
            effect_id=row.stands_for, by=None, request_hash=row.request_hash
        )
        return row.stands_for if recorded else row.id
    for run_id in (lineage.run_id, *(run_id for run_id, _ in lineage.earlier)):
        command = (
            Command.objects.select_related("effect")
            .filter(run_id=run_id, tool_call_id=tool_call_id, effect_type=effect_type)
            .order_by("-created_at", "-id")
            .first()
        )
        if command is not None:
            return command.effect.id
    return ""


def permitted_types(run_id: str) -> frozenset[str]:
    """The irreversible types that a releaser has permitted on this live replay or branch."""
    return frozenset(TypePermit.objects.filter(run_id=run_id).values_list("effect_type", flat=True))


#: The acts of people by which a run goes on.
SETS_GOING = ("run.continued", "run.asked_again", "run.dropped_settled")


def lost_right_to_run(run_id: str) -> str:
    """Why nothing may be sent for a run, in words: who set it going last may not any more. Empty: they may.

    For a live replay or branch: nor may who launched it, who needs more than who continues it.
    """
    continued = (
        AuditEvent.objects.filter(subject=run_id, verb__in=SETS_GOING, actor__isnull=False)
        .select_related("actor")
        .order_by("-at", "-id")
        .first()
    )
    run = Run.objects.select_related("starter").get(id=run_id)
    if run.kind != RunKind.ORIGINAL and not _may(run.starter, run.workspace_id, Capability.LIVE):
        return f"{run.starter.name}, who launched this run, may no longer replay or branch live here."
    if continued is None and run.kind != RunKind.ORIGINAL:
        return ""
    person = continued.actor if continued and continued.actor else run.starter
    did = "continued" if continued else "started"
    may = _may(person, run.workspace_id, Capability.RUN)
    return "" if may else f"{person.name}, who {did} this run, may no longer run anything here."


def _may(person: User, workspace_id: str, capability: Capability) -> bool:
    try:
        return actor_in(person, workspace_id).may(capability)
    except NotFound:
        return False


def run_approvals(run: Run) -> QuerySet[Approval]:
    """What the run asked. An order about one of its effects asks for itself, whatever the run's status."""
    return Approval.objects.filter(run_id=run.id, order=None)


def progress_marker(run: Run) -> str:
    """How far a run is: it changes with each new checkpoint and each settled effect."""
    checkpoints = Checkpoint.objects.filter(run=run).count()
    settled = Effect.objects.filter(run_id=run.id, settled_at__isnull=False).count()
    return f"{checkpoints}:{settled}"
