"""Questions to the rows of runs. Nothing here changes anything."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat, Now

from console.access import Actor, actor_in
from console.kernel.crypto import unseal_json
from console.kernel.errors import NotFound
from console.models import AuditEvent, Capability, Worker
from effects import rounds
from effects.ledger import outcome_of
from effects.models import Approval, Command, Effect, Stop, WouldHave
from effects.origin import Result
from effects.selectors import stopped_query, stops_on, worth_a_visit
from effects.states import ApprovalStatus, EffectStatus, Stance
from runs.models import Checkpoint, Conversation, Pause, Run, WorkflowVersion
from runs.states import ANSWERED_BY_ENGINE, RunKind, RunMode

#: A worker that has not been heard of for this long does not count.
ALIVE = timedelta(seconds=30)


def runs_seen_by(actor: Actor) -> QuerySet[Run]:
    actor.require(Capability.SEE)
    return Run.objects.filter(workspace=actor.workspace)


def run_seen_by(actor: Actor, run_id: str) -> Run:
    run = (
        runs_seen_by(actor)
        .select_related("workflow", "workspace", "conversation", "starter", "parent_run", "root_run")
        .filter(id=run_id)
        .first()
    )
    if run is None:
        raise NotFound(f"There is no run {run_id} here.")
    return run


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
    """The workers that are alive and hold the run's version, with the fingerprint it was made with."""
    return Worker.objects.filter(
        stopped_at=None,
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
    """Effects that the task made in an earlier go and that this go did not ask for. Those that failed are no debt."""
    return list(
        Effect.objects.filter(run_id=run_id, command__position=position)
        .exclude(status=EffectStatus.FAILED)
        .exclude(id__in=proposed)
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
    answered = [pause for pause in pauses if pause.kind in ANSWERED_BY_ENGINE and not pause.answered]
    if not answered:
        return False
    decided = rounds.decided_pauses(run.id)
    return any((pause.interrupt_id, pause.value_hash) in decided for pause in answered)


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


def recorded_result(run_id: str, intended: WouldHave) -> Result | None:
    """The result of the effect that the nearest ancestor made at the same place, by the same command, of the same payload."""
    at = Run.objects.select_related("parent_run").get(id=run_id).parent_run
    while at is not None:
        found = Effect.objects.filter(
            run_id=at.id,
            command__position=intended.position,
            command__command_key=intended.command_key,
            effect_type=intended.effect_type,
            request_hash=intended.request_hash,
        ).first()
        if found is not None:
            outcome = outcome_of(found)
            return outcome if isinstance(outcome, Result) else None
        at = at.parent_run
    return None


def lost_right_to_run(run_id: str) -> str:
    """Why nothing may be sent for a run, in words: who set it going last may not any more. Empty: they may."""
    continued = (
        AuditEvent.objects.filter(subject=run_id, verb="run.continued", actor__isnull=False)
        .select_related("actor")
        .order_by("-at", "-id")
        .first()
    )
    run = Run.objects.select_related("starter").get(id=run_id)
    person = continued.actor if continued and continued.actor else run.starter
    try:
        may = actor_in(person, run.workspace_id).may(Capability.RUN)
    except NotFound:
        may = False
    did = "continued" if continued else "started"
    return "" if may else f"{person.name}, who {did} this run, may no longer run anything here."


def run_approvals(run: Run) -> QuerySet[Approval]:
    """What the run asked. An order about one of its effects asks for itself, whatever the run's status."""
    return Approval.objects.filter(run_id=run.id, order=None)


def progress_marker(run: Run) -> str:
    """How far a run is: it changes with each new checkpoint and each settled effect."""
    checkpoints = Checkpoint.objects.filter(run=run).count()
    settled = Effect.objects.filter(run_id=run.id, settled_at__isnull=False).count()
    return f"{checkpoints}:{settled}"
