"""Every change of where a run stands: one conditional UPDATE each, naming the states it may leave.

Each answers whether it landed. False means that somebody else moved the row first, or that the move is not allowed
from where it stands. Only the database's clock decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from runs.models import Execution, Recording, Run, Step, WorkflowVersion
from runs.states import FINAL, WAITING, Cause, ExecutionOutcome, RunStatus, StepOutcome


def _to(status: RunStatus, **fields: Any) -> dict[str, Any]:
    """The columns that every change of status sets."""
    return {
        "status": status,
        "status_since": Now(),
        "version": F("version") + 1,
        "lease_until": None,
        "step_deadline": None,
        "worker_id": "",
        "rung_at": None,
        **fields,
    }


_NO_FAILURE = {
    "failure": "",
    "failure_text": "",
    "failure_of": "",
    "failure_effect": "",
    "failed_on_answer": False,
}


def claim(
    run_id: str, *, holds: list[str], worker_id: str, lease: timedelta, apart: bool = False
) -> Run | None:
    """queued → running for a worker that holds the run's version: fence + 1, lease. None: somebody else's, or not due.

    *holds*: ``name@version#fingerprint`` of each version that the worker has. *apart*: the worker is a replayer, which
    takes runs in evidence and simulation and no others; a worker without it takes live ones alone.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_run SET status = 'running', status_since = now(), version = version + 1,
                fence = fence + 1, worker_id = %s, lease_until = now() + make_interval(secs => %s),
                step_deadline = NULL,
                started_at = COALESCE(started_at, now())
            WHERE id = %s AND status = 'queued' AND NOT cancel_requested AND NOT pause_requested
              AND (mode <> 'live') = %s
              AND EXISTS (SELECT 1 FROM runs_workflowversion w WHERE w.id = runs_run.workflow_id
                          AND w.name || '@' || w.version || '#' || runs_run.fingerprint = ANY(%s))
            """,
            [worker_id, lease.total_seconds(), run_id, apart, holds],
        )
        if cursor.rowcount != 1:
            return None
    return Run.objects.select_related("workflow", "workspace").get(id=run_id)


def hold_for_effect(run_id: str, fence: int) -> bool:
    """Lock the run's row FOR SHARE: still running by this fence, and no cancel asked for. Inside a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM runs_run WHERE id = %s AND fence = %s AND status = 'running' "
            "AND NOT cancel_requested FOR SHARE",
            [run_id, fence],
        )
        return cursor.fetchone() is not None


def begin_step(run_id: str, fence: int, *, seconds: float, sibling: bool) -> bool:
    """A node begins: its step's deadline is set, or with *sibling* (another node of the same superstep) put off.

    False: the run is no longer ours.
    """
    deadline: Any = Now() + timedelta(seconds=seconds)
    return bool(
        Run.objects.filter(id=run_id, fence=fence, status=RunStatus.RUNNING).update(
            step_deadline=Greatest(F("step_deadline"), deadline) if sibling else deadline,
            version=F("version") + 1,
        )
    )


@dataclass(frozen=True)
class Flags:
    """What people have asked of a run that is running."""

    cancel_requested: bool
    pause_requested: bool


def ring_due(run_id: str) -> bool:
    """Note that the sweep rings for a queued run, less and less often: after 2 s, then by half its age, at most 60 s.

    False: it was rung for lately, or is no longer queued.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_run SET rung_at = now() WHERE id = %s AND status = 'queued'
            AND (rung_at IS NULL OR rung_at < now()
                 - GREATEST(interval '2 s', LEAST(interval '60 s', (now() - status_since) / 2)))
            """,
            [run_id],
        )
        return bool(cursor.rowcount == 1)


def not_rung(run_id: str) -> bool:
    """The broker did not answer: the run is due for the bell again."""
    return bool(Run.objects.filter(id=run_id, status=RunStatus.QUEUED).update(rung_at=None))


def renew(run_id: str, fence: int, *, lease: timedelta) -> Flags | None:
    """Extend the lease, never past the step's own deadline. None: fenced out, or the deadline has passed."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_run SET lease_until = LEAST(now() + make_interval(secs => %s), step_deadline)
            WHERE id = %s AND fence = %s AND status = 'running' AND (step_deadline IS NULL OR step_deadline > now())
            RETURNING cancel_requested, pause_requested
            """,
            [lease.total_seconds(), run_id, fence],
        )
        row = cursor.fetchone()
    return Flags(*row) if row else None


def past_its_deadline(run_id: str, fence: int) -> bool:
    """Whether this execution ran past a step's deadline: it still does, or it was failed for it."""
    return (
        Run.objects.filter(id=run_id, fence=fence)
        .filter(
            Q(status=RunStatus.RUNNING, step_deadline__lte=Now())
            | Q(executions__fence=fence, executions__outcome=ExecutionOutcome.OVERRAN)
        )
        .exists()
    )


def settle(run: Run, status: RunStatus, **fields: Any) -> bool:
    """running → *status*, by the execution that holds the fence. The caller holds the row."""
    ended = {"ended_at": Now()} if status in FINAL else {}
    return bool(
        Run.objects.filter(id=run.id, fence=run.fence, status=RunStatus.RUNNING).update(
            **_to(status, **{**_NO_FAILURE, **ended, **fields})
        )
    )


def queue(run_id: str, *, cause: Cause, leaving: tuple[RunStatus, ...] = WAITING) -> bool:
    """A waiting run has something to do: → queued."""
    return bool(
        Run.objects.filter(id=run_id, status__in=leaving).update(
            **_to(RunStatus.QUEUED, next_cause=cause, **_NO_FAILURE)
        )
    )


def wait(run_id: str, status: RunStatus) -> bool:
    """A waiting run waits for something else now."""
    return bool(
        Run.objects.filter(id=run_id, status__in=WAITING).exclude(status=status).update(**_to(status))
    )


def pause(run_id: str, *, leaving: tuple[RunStatus, ...], why: str, by: str = "") -> bool:
    """→ paused, from a status on which no worker works."""
    return bool(
        Run.objects.filter(id=run_id, status__in=leaving).update(
            **_to(RunStatus.PAUSED, pause_requested=False, failure_text=why, stopped_by=by)
        )
    )


def request_pause(run_id: str, *, by: str) -> bool:
    """Ask the worker to stop at the next safe point. False: no worker is on it."""
    return bool(
        Run.objects.filter(id=run_id, status=RunStatus.RUNNING, cancel_requested=False).update(
            pause_requested=True, stopped_by=by, version=F("version") + 1
        )
    )


def request_cancel(run_id: str, *, by: str) -> bool:
    """Ask the worker to stop for good at the next safe point. False: no worker is on it."""
    return bool(
        Run.objects.filter(id=run_id, status=RunStatus.RUNNING).update(
            cancel_requested=True, stopped_by=by, version=F("version") + 1
        )
    )


def cancel(run_id: str, *, by: str) -> bool:
    """→ cancelled, from a status on which no worker works and that is not final."""
    return bool(
        Run.objects.filter(id=run_id)
        .exclude(status__in=[*FINAL, RunStatus.RUNNING])
        .update(
            **_to(
                RunStatus.CANCELLED,
                ended_at=Now(),
                stopped_by=by,
                cancel_requested=False,
                pause_requested=False,
                **_NO_FAILURE,
            )
        )
    )


def continue_(run_id: str, *, cause: Cause = Cause.CONTINUE) -> bool:
    """paused, failed → queued, for a person's *cause*; its losses count from nothing. False: not from where it stands."""
    return bool(
        Run.objects.filter(id=run_id, status__in=[RunStatus.PAUSED, RunStatus.FAILED]).update(
            **_to(
                RunStatus.QUEUED,
                next_cause=cause,
                losses=0,
                loss_marker="",
                pause_requested=False,
                stopped_by="",
                **_NO_FAILURE,
            )
        )
    )


def take_to_version(run: Run, target: WorkflowVersion) -> bool:
    """A run that stands still is another version's from now on: → paused, for Continue. The caller holds the row."""
    return bool(
        Run.objects.filter(
            id=run.id, status__in=[RunStatus.PAUSED, RunStatus.FAILED], workflow=run.workflow
        ).update(
            **_to(
                RunStatus.PAUSED,
                workflow=target,
                fingerprint=target.fingerprint,
                **{**_NO_FAILURE, "failure_text": f"Its state was migrated to {target}. Continue goes on."},
            )
        )
    )


def take_from_lost_worker(run: Run, status: RunStatus, **fields: Any) -> bool:
    """running → *status*, because the lease or the step's deadline is over. The caller holds the row."""
    ended = {"ended_at": Now()} if status in FINAL else {}
    return bool(
        Run.objects.filter(id=run.id, fence=run.fence, status=RunStatus.RUNNING)
        .filter(Q(lease_until__lt=Now()) | Q(step_deadline__lt=Now()))
        .update(**_to(status, **{**ended, **fields}))
    )


#: What a step that its execution left open has come to. A stop by the guard ends a task without a word of the engine.
_LEFT_OPEN = {
    ExecutionOutcome.LOST: StepOutcome.LOST,
    ExecutionOutcome.OVERRAN: StepOutcome.LOST,
    ExecutionOutcome.FAILED: StepOutcome.FAILED,
}


def close_execution(run_id: str, fence: int, outcome: ExecutionOutcome, note: str = "") -> bool:
    """End the execution and the steps that it left open."""
    Step.objects.filter(execution__run_id=run_id, execution__fence=fence, outcome=StepOutcome.RUNNING).update(
        outcome=_LEFT_OPEN.get(outcome, StepOutcome.PAUSED), ended_at=Now()
    )
    return bool(
        Execution.objects.filter(run_id=run_id, fence=fence, ended_at=None).update(
            ended_at=Now(), outcome=outcome, note=note
        )
    )


def end_step(
    execution_id: str, namespace: str, task_id: str, outcome: StepOutcome, problem: str = ""
) -> bool:
    return bool(
        Step.objects.filter(
            execution_id=execution_id, namespace=namespace, task_id=task_id, outcome=StepOutcome.RUNNING
        ).update(outcome=outcome, ended_at=Now(), problem=problem)
    )


def step_said(execution_id: str, namespace: str, words: str) -> bool:
    """The newest words of the namespace's newest step that is running: the stream does not tell which sibling spoke."""
    running = Step.objects.filter(
        execution_id=execution_id, namespace=namespace, outcome=StepOutcome.RUNNING
    ).order_by("-started_at", "-id")
    return bool(Step.objects.filter(id__in=running.values("id")[:1]).update(said=words[:300]))


def drop_recordings(run_id: str, positions: list[str]) -> int:
    """The task asks anew when it runs again; what it was told stays as evidence."""
    return Recording.objects.filter(run_id=run_id, position__in=positions, dropped_at=None).update(
        dropped_at=Now()
    )
