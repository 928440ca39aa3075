"""What a worker does with a run: claim → advance → settle. No rule of the engine or the ledger is here."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections, connection, transaction
from django.db.models.functions import Now

from console.kernel.crypto import seal_json
from console.kernel.live import announce
from console.kernel.texts import storable
from console.models import Worker
from effects import approvals, restored
from effects import moves as effect_moves
from effects.models import Effect, Receiver, Standing
from effects.states import ReviewReason
from runs import moves, pauses, selectors, waiting
from runs.engine import files, policy
from runs.engine.advance import Ended, PendingPause, Watch, advance
from runs.engine.going import Going
from runs.engine.registry import Workflow, workflows
from runs.engine.saver import FencedSaver, OursFailed
from runs.models import Checkpoint, Divergence, Execution, Pause, Run, SharedPath, Step, WorkflowVersion
from runs.states import Cause, ExecutionOutcome, Failure, RunMode, RunStatus, StepOutcome

logger = logging.getLogger(__name__)

SHUTDOWN = "shutdown"
OVERRAN = "overran"
#: The exit status of a process that a node overran; its keeper starts another.
RESTART = 75


class FingerprintChanged(Exception):
    """A workflow version came back with other code than it was first registered with."""


@dataclass
class Underway:
    """An execution of this process, as the pulse sees it."""

    going: Going
    overran: bool = False


@dataclass
class WorkerProcess:
    """This process: its row, what it holds, and the pulse that renews its leases."""

    row: Worker
    held: dict[str, Workflow]
    #: A replayer: each of its children is bound to the mode of the one run that it takes.
    apart: bool = False
    underway: dict[str, Underway] = field(default_factory=dict)
    draining: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def versions(self) -> list[str]:
        return [f"{workflow.id}#{workflow.fingerprint}" for workflow in self.held.values()]

    @contextmanager
    def watching(self, underway: Underway) -> Iterator[None]:
        with self.lock:
            self.underway[underway.going.execution_id] = underway
        try:
            yield
        finally:
            with self.lock:
                self.underway.pop(underway.going.execution_id, None)

    def drain(self, reason: str) -> None:
        """Take nothing new, and stop every execution at its next safe point."""
        self.draining.set()
        with self.lock:
            several = list(self.underway.values())
        for one in several:
            one.going.drain(reason)


_process: WorkerProcess | None = None


def register_workflows() -> dict[str, Workflow]:
    """Make the rows of every workflow version this deployment holds. FingerprintChanged for changed code."""
    for workflow in workflows().values():
        described = _described(workflow)
        row, made = WorkflowVersion.objects.get_or_create(
            name=workflow.name,
            version=workflow.version,
            defaults={
                "schema_version": workflow.schema_version,
                "title": workflow.title,
                "summary": workflow.summary,
                **described,
            },
        )
        if not made and row.fingerprint != workflow.fingerprint:
            _fingerprint_changed(workflow, row, described)
        elif (row.node_hashes, row.migrates) != (described["node_hashes"], described["migrates"]):
            # No part of the fingerprint: how earlier versions become this one may be declared later.
            WorkflowVersion.objects.filter(id=row.id).update(
                node_hashes=described["node_hashes"], migrates=described["migrates"]
            )
    return dict(workflows())


def _described(workflow: Workflow) -> dict[str, Any]:
    """What the rows say of a version for processes that do not hold its code."""
    return {
        "fingerprint": workflow.fingerprint,
        "topology": workflow.topology,
        "input_schema": dict(workflow.input_schema),
        "state_schema": workflow.state_schema,
        "node_hashes": workflow.node_hashes,
        "migrates": {version: one.summary for version, one in workflow.migrations.items()},
        "masks": list(workflow.masks),
        "effect_types": list(workflow.effect_types),
        "needs_conversation": workflow.needs_conversation,
        "step_seconds": workflow.step_seconds or settings.STEP_SECONDS,
    }


def _fingerprint_changed(workflow: Workflow, row: WorkflowVersion, described: dict[str, Any]) -> None:
    if settings.PRODUCTION:
        raise FingerprintChanged(
            f"workflow {workflow.id} is registered with {row.fingerprint} and now has {workflow.fingerprint}; "
            "give the changed code a new version"
        )
    # While it is being written, a workflow may change under its version; runs of the old code stay with it.
    WorkflowVersion.objects.filter(id=row.id).update(**described)


def begin_process(*, apart: bool = False) -> WorkerProcess:
    """Register this process as a worker and start its pulse. Called once, after any fork.

    *apart*: as a replayer, which takes runs in evidence and simulation, each in a child. It has no pulse of its own.
    """
    global _process
    held = register_workflows()
    restored.check()
    row = Worker.objects.create(
        host=socket.gethostname(),
        pid=os.getpid(),
        replayer=apart,
        versions=[f"{workflow.id}#{workflow.fingerprint}" for workflow in held.values()],
    )
    _process = WorkerProcess(row=row, held=held, apart=apart)
    if not apart:
        begin_pulse(_process)
    return _process


def this_process() -> WorkerProcess:
    """RuntimeError where this process is no worker."""
    if _process is None:
        raise RuntimeError("this process is not a worker; begin_process() has not been called")
    return _process


def begin_pulse(process: WorkerProcess) -> None:
    """Renew the leases of what this process works on, from now on."""
    threading.Thread(target=_pulse, args=[process], name="pulse", daemon=True).start()


def show_alive(process: WorkerProcess) -> None:
    """Say that this worker is there. A database that is away for a moment is no reason to end."""
    try:
        close_old_connections()
        Worker.objects.filter(id=process.row.id).update(last_seen=Now())
    except (OperationalError, InterfaceError):
        logger.exception("the worker could not say that it is there")
        connection.close()


def end_process() -> None:
    """A warm shutdown is over: the row says that the worker has gone."""
    if _process is not None:
        Worker.objects.filter(id=_process.row.id).update(stopped_at=Now())


def drain_process(reason: str = SHUTDOWN) -> None:
    if _process is not None:
        _process.drain(reason)


def _pulse(process: WorkerProcess) -> None:
    """Renew leases and hear of cancels and pauses; never past a step's deadline."""
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    tick = min(1.0, settings.LEASE_SECONDS / 4)
    while True:
        try:
            show_alive(process)
            with process.lock:
                several = list(process.underway.values())
            for one in several:
                _renew(process, one, lease)
        except Exception:
            logger.exception("the pulse missed a beat")
            connection.close()
        threading.Event().wait(tick)


def _renew(process: WorkerProcess, one: Underway, lease: timedelta) -> None:
    flags = moves.renew(one.going.run_id, one.going.fence, lease=lease)
    if flags is None:
        one.going.saver.lost.set()
        one.going.drain("fenced out")
        if moves.past_its_deadline(one.going.run_id, one.going.fence) and not one.overran:
            one.overran = True
            threading.Thread(target=_restart, args=[process], name="restart", daemon=True).start()
    elif flags.cancel_requested:
        one.going.drain("cancel")
    elif flags.pause_requested:
        one.going.drain("pause")


def _restart(process: WorkerProcess) -> None:
    """A node overran its deadline and can't be stopped from outside: hand everything else back, then end."""
    logger.error("a node ran past its deadline; this process drains and restarts")
    process.drain(SHUTDOWN)
    waited = threading.Event()
    for _ in range(300):
        with process.lock:
            others = [one for one in process.underway.values() if not one.overran]
        if not others:
            break
        waited.wait(0.1)
    os._exit(RESTART)


def execute(run_id: str) -> str:
    """One visit of this worker to a run. Returns what came of it, for the log; it never raises for the run's sake."""
    process = this_process()
    if process.draining.is_set():
        return "draining"
    claimed = _claim(process, run_id)
    if claimed is None:
        return "not due"
    run, execution = claimed
    workflow = process.held[str(run.workflow)]
    if process.apart:
        bind(run)
    going = Going(
        workspace_id=run.workspace_id,
        run_id=run.id,
        customer_ref=run.customer_ref,
        conversation_id=run.conversation_id or "",
        fence=run.fence,
        worker_id=process.row.id,
        execution_id=execution.id,
        saver=FencedSaver(run.id, run.fence),
        effect_types=frozenset(workflow.effect_types),
        stance=selectors.stance_of(run),
        lineage=selectors.lineage_of(run),
        models_asked=run.models_asked,
        permitted_types=selectors.permitted_types(run.id),
    )
    files.watch()
    underway = Underway(going)
    with process.watching(underway):
        if process.draining.is_set():
            going.drain(SHUTDOWN)
        given = selectors.input_of(run)
        try:
            ended = advance(
                workflow,
                going,
                given=given if isinstance(given, dict) else {},
                watch=_watch(run, execution, workflow, going),
                recursion_limit=settings.RECURSION_LIMIT,
            )
        except OursFailed:
            logger.exception(
                "run %s: the database failed this worker; the sweep takes the run up again", run.id
            )
            return "taken up again"
    # A connection that the server has ended meanwhile is replaced before the last word is written.
    close_old_connections()
    _report_written(run, going)
    return settle(run, ended)


def _report_written(run: Run, going: Going) -> None:
    """Files that nodes wrote by paths of their own: told on the workflow, since every replay writes there again."""
    SharedPath.objects.bulk_create(
        [
            SharedPath(workflow=run.workflow, node=node[:200], path=path[:500], run_id=run.id)
            for node, path in sorted(going.written)
        ],
        ignore_conflicts=True,
    )


def bind(run: Run) -> None:
    """Bind this process to the run's mode, before any code of its workflow runs: what it may reach from now on.

    Evidence reaches the database and the broker; a simulation isolated receivers too, and where it was launched so the
    addresses of the models.
    """
    allowed = [settings.DATABASE_URL, settings.REDIS_URL]
    if run.mode == RunMode.SIMULATION:
        isolated = Receiver.objects.filter(workspace_id=run.workspace_id, standing=Standing.ISOLATED)
        allowed += [receiver.base_url for receiver in isolated if receiver.base_url]
        allowed += settings.MODEL_ADDRESSES if run.models_asked else []
    policy.install(run.get_mode_display().lower(), allowed=allowed, database=settings.DATABASE_URL)


def _claim(process: WorkerProcess, run_id: str) -> tuple[Run, Execution] | None:
    with transaction.atomic():
        cause = Run.objects.filter(id=run_id).values_list("next_cause", flat=True).first()
        run = moves.claim(
            run_id,
            holds=process.versions,
            worker_id=process.row.id,
            lease=timedelta(seconds=settings.LEASE_SECONDS),
            apart=process.apart,
        )
        if run is None:
            return None
        execution = Execution.objects.create(
            run=run, fence=run.fence, cause=cause or Cause.START, worker_id=process.row.id
        )
        announce(run.workspace_id, f"run:{run.id}", "runs")
    return run, execution


def _watch(run: Run, execution: Execution, workflow: Workflow, going: Going) -> Watch:
    newest: tuple[str, int] | None = None

    def step_began(namespace: str, task_id: str, node: str, number: int) -> None:
        nonlocal newest
        sibling, newest = newest == (namespace, number), (namespace, number)
        with transaction.atomic():
            if not moves.begin_step(run.id, run.fence, seconds=workflow.seconds_of(node), sibling=sibling):
                going.saver.lost.set()
                return
            Step.objects.get_or_create(
                execution=execution,
                namespace=namespace,
                task_id=task_id,
                defaults={"run": run, "node": node, "number": number},
            )
            announce(run.workspace_id, f"run:{run.id}")

    def step_ended(namespace: str, task_id: str, outcome: str, problem: str) -> None:
        if going.saver.lost.is_set():
            return
        moves.end_step(execution.id, namespace, task_id, StepOutcome(outcome), problem)
        announce(run.workspace_id, f"run:{run.id}")

    def step_said(namespace: str, words: str) -> None:
        if not going.saver.lost.is_set() and moves.step_said(execution.id, namespace, storable(words, 300)):
            announce(run.workspace_id, f"run:{run.id}")

    if run.mode == RunMode.EVIDENCE:
        return Watch(
            step_began,
            step_ended,
            step_said,
            lambda pause: pauses.recorded_answer(going.lineage.source_id, pause),
            answers_are_recorded=True,
        )
    again = selectors.asked_again(run.id)
    return Watch(
        step_began,
        step_ended,
        step_said,
        lambda pause: pauses.answer_of(run.id, pause),
        asked_again=again.__contains__,
    )


def settle(run: Run, ended: Ended) -> str:
    """Turn how the engine ended into the run's next status, under its row's lock, from the rows as they are then.

    Writes nothing when the run is no longer this execution's.
    """
    with transaction.atomic():
        locked = Run.objects.select_for_update().get(id=run.id)
        if (
            locked.fence != run.fence
            or locked.status != RunStatus.RUNNING
            or (ended.stopped and not locked.cancel_requested)
        ):
            return "fenced out"
        _note_pauses(locked, ended)
        _note_divergence(locked, ended)
        status, fields = _next(locked, ended)
        moves.settle(locked, status, **fields)
        if status == RunStatus.FAILED:
            _note_dropped(ended)
        moves.close_execution(run.id, run.fence, _outcome(ended), ended.problem)
        if status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
            close_obligations(locked, status)
        if status == RunStatus.QUEUED:
            waiting.ring(run)
        waiting.tell(run)
    return str(status)


def _next(run: Run, ended: Ended) -> tuple[RunStatus, dict[str, Any]]:
    if run.cancel_requested and not ended.finished:
        return RunStatus.CANCELLED, {"cancel_requested": False, "pause_requested": False}
    if ended.unrecorded is not None and run.mode == RunMode.EVIDENCE:
        return RunStatus.DIVERGED, {"failure_text": ended.problem[:4000], "failure_of": ended.of[:200]}
    if ended.failure is not None:
        return RunStatus.FAILED, {
            "failure": ended.failure,
            "failure_text": ended.problem[:4000],
            "failure_of": ended.of[:200],
            "failure_effect": ended.effect_id,
            "failed_on_answer": ended.failure == Failure.NODE_ERROR
            and selectors.raised_on_answer(run).exists(),
            "pause_requested": False,
        }
    if ended.finished:
        return RunStatus.COMPLETED, {"cancel_requested": False, "pause_requested": False}
    if run.pause_requested:
        return RunStatus.PAUSED, {
            "pause_requested": False,
            "failure_text": f"Paused by {run.stopped_by}." if run.stopped_by else "Paused.",
        }
    if ended.drained:
        return RunStatus.QUEUED, {"next_cause": Cause.HANDED_BACK}
    if run.mode == RunMode.EVIDENCE:
        at = ", ".join(sorted({pause.node for pause in ended.pauses}))
        return RunStatus.COMPLETED, {
            "failure_text": f"The recording ends here: {at} waits in the original too."
        }
    status = waiting.status_of_paused(run)
    if status == RunStatus.PAUSED:
        return status, {"failure_text": waiting.why_paused(run)}
    return status, {"next_cause": Cause.WAKE} if status == RunStatus.QUEUED else {}


def _outcome(ended: Ended) -> ExecutionOutcome:
    if ended.failure is not None:
        return ExecutionOutcome.FAILED
    if ended.finished:
        return ExecutionOutcome.FINISHED
    return ExecutionOutcome.DRAINED if ended.drained or ended.stopped else ExecutionOutcome.PAUSED


def _note_pauses(run: Run, ended: Ended) -> None:
    """Keep the pending pauses as rows, and see that what they ask is before people."""
    if ended.finished or run.cancel_requested or run.mode == RunMode.EVIDENCE:
        return
    checkpoint = Checkpoint.objects.filter(run=run, namespace="", engine_id=ended.checkpoint_id).first()
    # An expired request is asked again only where a person has asked for that.
    by_a_person = (Cause.CONTINUE, Cause.ASK_AGAIN)
    again = Execution.objects.filter(run=run, fence=run.fence, cause__in=by_a_person).exists()
    for pause in ended.pauses:
        requests = pauses.requests_of(run.id, pause)
        Pause.objects.get_or_create(
            run=run,
            fence=run.fence,
            interrupt_id=pause.interrupt_id,
            defaults={
                "namespace": pause.namespace,
                "task_id": pause.task_id,
                "node": pause.node,
                "kind": pause.kind,
                "value_hash": pause.value_hash,
                "effect_id": pause.effect_id,
                "position": pause.position,
                "actions": len(requests),
                "answered": pause.answered,
                "raised": pause.raised,
            },
        )
        if requests and not pause.answered:
            approvals.open_for(_as_asked(run, pause, checkpoint), requests, again=again)


def _note_dropped(ended: Ended) -> None:
    """A person says what becomes of what the node made and no longer asks for: until then no machine moves it."""
    for effect in Effect.objects.select_for_update().filter(id__in=ended.dropped).order_by("id"):
        effect_moves.open_review(
            effect,
            ReviewReason.NOT_ASKED_AGAIN,
            f"The node {ended.of} made it and, run again, did not ask for it.",
        )


def _note_divergence(run: Run, ended: Ended) -> None:
    """What a run that replays was refused: asked against recorded, for people to compare."""
    missing = ended.unrecorded
    if missing is None or Divergence.objects.filter(run=run).exists():
        return
    Divergence.objects.create(
        run=run,
        node=missing.node[:200],
        place=missing.place,
        kind=missing.kind,
        name=missing.name[:200],
        asked=seal_json(missing.asked, workspace=run.workspace_id, owner=run.id),
        recorded_id=missing.recorded_id or None,
        recorded_effect=missing.recorded_effect,
    )


def _as_asked(run: Run, pause: PendingPause, checkpoint: Checkpoint | None) -> approvals.Pause:
    return approvals.Pause(
        workspace_id=run.workspace_id,
        run_id=run.id,
        checkpoint_id=checkpoint.id if checkpoint else "",
        workflow=str(run.workflow),
        fingerprint=run.fingerprint,
        node=pause.node,
        interrupt_id=pause.interrupt_id,
        interrupt_hash=pause.value_hash,
        simulated_for=run.starter_id if run.mode == RunMode.SIMULATION else "",
    )


def close_obligations(run: Run, status: RunStatus) -> None:
    """The run has ended: what was never sent is cancelled, and what was asked leaves the inbox, in its transaction."""
    approvals.close_for_run(run.id, why=f"The run was {status.label.lower()}")
    effect_moves.cancel_unsent(run.id)
