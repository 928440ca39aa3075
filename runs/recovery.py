"""What the sweep does for runs: lost workers, passed deadlines, queued rows that nobody took, waits that are over."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from console import audit, doorbell
from effects import approvals
from effects import moves as effect_moves
from effects.models import Approval, Effect
from effects.selectors import stopped_query, unsent_effects, worth_a_visit_query
from effects.states import ApprovalStatus
from runs import moves, selectors, waiting
from runs.models import Pause, Run
from runs.states import ANSWERED_BY_ENGINE, WAITING, Cause, ExecutionOutcome, Failure, RunStatus

logger = logging.getLogger(__name__)

#: A queued row that no worker has taken for this long is rung for again.
RING_AGAIN = timedelta(seconds=2)


def recover_lost() -> int:
    """Runs whose worker has not renewed its lease, or whose step ran past its deadline. Returns how many."""
    overdue = Run.objects.filter(status=RunStatus.RUNNING).filter(
        Q(lease_until__lt=Now()) | Q(step_deadline__lt=Now())
    )
    moved = 0
    for run_id in list(overdue.values_list("id", flat=True)[:200]):
        with transaction.atomic():
            run = (
                Run.objects.select_for_update(of=("self",), skip_locked=True)
                .select_related("workflow")
                .filter(id=run_id, status=RunStatus.RUNNING)
                .filter(Q(lease_until__lt=Now()) | Q(step_deadline__lt=Now()))
                .annotate(overran=Q(step_deadline__lt=Now()))
                .first()
            )
            if run is not None:
                _take_back(run, overran=bool(run.overran))
                moved += 1
    return moved


def _take_back(run: Run, *, overran: bool) -> None:
    node = (
        run.steps.filter(execution__fence=run.fence, ended_at=None).values_list("node", flat=True).first()
        or ""
    )
    if run.cancel_requested:
        status, outcome = RunStatus.CANCELLED, ExecutionOutcome.LOST
        moves.take_from_lost_worker(run, status, cancel_requested=False, pause_requested=False)
        approvals.close_for_run(run.id, why="The run was cancelled")
        effect_moves.cancel_unsent(run.id)
    elif overran:
        status, outcome = RunStatus.FAILED, ExecutionOutcome.OVERRAN
        moves.take_from_lost_worker(
            run,
            status,
            failure=Failure.STEP_DEADLINE,
            failure_text=f"The node {node or '?'} ran longer than it may.",
            failure_of=node,
            pause_requested=False,
        )
    else:
        status, outcome = _after_loss(run, node), ExecutionOutcome.LOST
    moves.close_execution(run.id, run.fence, outcome, f"Lost while in {node}." if node else "")
    audit.record(
        workspace_id=run.workspace_id,
        actor="system:sweep",
        verb=f"run.{outcome}",
        subject=run.id,
        run_id=run.id,
        sentence=f"The worker of {run.title} was lost"
        if outcome == ExecutionOutcome.LOST
        else f"A step of {run.title} ran past its deadline",
        node=node,
        fence=run.fence,
    )
    if status == RunStatus.QUEUED:
        waiting.ring(run)
    waiting.tell(run)


def _after_loss(run: Run, node: str) -> RunStatus:
    """Taken up again; failed at the third loss with neither a new checkpoint nor a settled effect in between."""
    marker = selectors.progress_marker(run)
    losses = run.losses + 1 if run.loss_marker == marker else 1
    if losses >= settings.LOSSES_ALLOWED:
        moves.take_from_lost_worker(
            run,
            RunStatus.FAILED,
            losses=losses,
            loss_marker=marker,
            failure=Failure.WORKER_LOST,
            failure_text=f"Its worker was lost {losses} times in the node {node or '?'} without getting any further.",
            failure_of=node,
            pause_requested=False,
        )
        return RunStatus.FAILED
    status = RunStatus.PAUSED if run.pause_requested else RunStatus.QUEUED
    moves.take_from_lost_worker(
        run, status, losses=losses, loss_marker=marker, next_cause=Cause.RECOVERY, pause_requested=False
    )
    return status


def ring_again() -> int:
    """Queued rows that nobody took: the bell was lost, or every worker was busy.

    Only for versions that a living worker holds, each less and less often; a broker that does not answer is left
    alone until the next turn, so that it holds up none of the other duties.
    """
    due = (
        Run.objects.filter(status=RunStatus.QUEUED, status_since__lt=Now() - RING_AGAIN)
        .filter(workflow__in=selectors.workflows_held())
        .select_related("workflow")
        .order_by(F("rung_at").asc(nulls_first=True), "status_since")[:200]
    )
    rung = 0
    for run in due:
        if not moves.ring_due(run.id):
            continue
        if not doorbell.ring(waiting.TASK, [run.id], queue=waiting.queue_of(run)):
            moves.not_rung(run.id)
            break
        rung += 1
    return rung


def honour_requests() -> int:
    """A queued run that was asked to stop before any worker took it."""
    moved = 0
    asked = Run.objects.filter(status=RunStatus.QUEUED).filter(
        Q(cancel_requested=True) | Q(pause_requested=True)
    )
    for run in asked[:200]:
        with transaction.atomic():
            if run.cancel_requested and moves.cancel(run.id, by=run.stopped_by):
                approvals.close_for_run(run.id, why="The run was cancelled")
                effect_moves.cancel_unsent(run.id)
            elif run.pause_requested:
                moves.pause(
                    run.id, leaving=(RunStatus.QUEUED,), why=f"Paused by {run.stopped_by}.", by=run.stopped_by
                )
            waiting.tell(run)
            moved += 1
    return moved


def cancel_left_over() -> int:
    """What an ended run left unsent, because its absence was proven only later: cancelled as it would have been then."""
    ended = Run.objects.filter(
        status__in=[RunStatus.COMPLETED, RunStatus.CANCELLED],
        id__in=unsent_effects().values("run_id"),
    )
    cancelled = 0
    for run in ended.order_by("id")[:200]:
        with transaction.atomic():
            cancelled += effect_moves.cancel_unsent(run.id)
            waiting.tell(run)
    return cancelled


def wake() -> int:
    """Waiting runs for which an effect is settled, ready or due, or is stopped. The same question that settle asks."""
    changed = worth_a_visit_query().values("id").union(Effect.objects.filter(stopped_query()).values("id"))
    worth = Pause.objects.filter(
        run__status__in=WAITING, fence=F("run__fence"), effect_id__in=changed
    ).exclude(kind__in=ANSWERED_BY_ENGINE)
    return sum(_reconsider(run_id) for run_id in set(worth.values_list("run_id", flat=True)[:500]))


def _reconsider(run_id: str) -> bool:
    with transaction.atomic():
        run = (
            Run.objects.select_for_update(of=("self",), skip_locked=True)
            .select_related("workflow")
            .filter(id=run_id, status__in=WAITING)
            .first()
        )
        return run is not None and waiting.reconsider(run) == RunStatus.QUEUED


def expire_approvals() -> int:
    """Requests that nobody answered in time; their runs pause and say so."""
    due = Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__lte=Now())
    expired = 0
    for approval in due.order_by("expires_at")[:200]:
        with transaction.atomic():
            run = (
                Run.objects.select_for_update(of=("self",))
                .select_related("workflow")
                .filter(id=approval.run_id)
                .first()
            )
            if run is not None and approvals.expire(approval.id):
                waiting.reconsider(run)
                waiting.tell(run)
                expired += 1
    return expired
