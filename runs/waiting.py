"""Where a run that no worker works on belongs, read from the rows. Settle, decide, expire and the sweep all ask here."""

from __future__ import annotations

from console import doorbell
from console.kernel.live import announce
from runs import moves, selectors
from runs.models import Run
from runs.states import APART, WAITING, Cause, RunStatus

#: The worker's task that takes a run as far as it goes.
TASK = "runs.advance"

NOBODY_DECIDED = "An approval expired before anybody decided. Continue asks again."


def status_of_paused(run: Run) -> RunStatus:
    """The status of a run whose graph stands at pauses: from decisions not delivered, effects settled, requests open."""
    if selectors.something_to_do(run):
        return RunStatus.QUEUED
    if selectors.asks_people(run):
        return RunStatus.WAITING_APPROVAL
    if selectors.expired_and_unanswered(run) or selectors.stops_in_the_way(run):
        return RunStatus.PAUSED
    return RunStatus.WAITING_EFFECT


def why_paused(run: Run) -> str:
    """Why a run that nobody paused is paused: a kill switch is on for what it would send, or nobody decided in time."""
    stops = selectors.stops_in_the_way(run)
    if not stops:
        return NOBODY_DECIDED
    by = stops[0].by.name if stops[0].by else "Signalbox itself"
    return f"Sending was stopped by {by} ({stops[0]}): {stops[0].reason} Once that is lifted, Continue sends."


def reconsider(run: Run) -> RunStatus:
    """Move a waiting run to where it belongs now. The caller holds its row. Other statuses are left as they are."""
    if run.status not in WAITING:
        return RunStatus(run.status)
    belongs = status_of_paused(run)
    if belongs == RunStatus.QUEUED:
        moves.queue(run.id, cause=Cause.WAKE)
        ring(run)
    elif belongs == RunStatus.PAUSED:
        moves.pause(run.id, leaving=WAITING, why=why_paused(run))
    else:
        moves.wait(run.id, belongs)
    tell(run)
    return belongs


def ring(run: Run) -> None:
    """Ring the workers that hold the run's version, once this transaction commits."""
    doorbell.ring_on_commit(TASK, [run.id], queue=queue_of(run))


def queue_of(run: Run) -> str:
    """Where the workers that may take it listen."""
    return doorbell.queue_of(str(run.workflow), apart=run.mode in APART)


def tell(run: Run) -> None:
    """Tell the open pages that show this run."""
    announce(run.workspace_id, f"run:{run.id}", "runs", "approvals", "home")
