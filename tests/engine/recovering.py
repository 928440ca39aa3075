"""A worker's death in this process, and the sweep that comes after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs import execution, moves, recovery
from runs.engine.saver import FencedSaver
from runs.models import Run
from runs.states import RunStatus, StepOutcome
from tests.engine.conftest import Engine
from tests.stack import wait_for


class Killed(SystemExit):
    """Ends an execution as a kill does: no line of the product runs for it any more."""


def die(engine: Engine, run: Run) -> Run:
    """Take the run along to where its node ends this worker. The rows stay as a dead worker leaves them."""
    end_step, put_writes = moves.end_step, FencedSaver.put_writes

    def end_step_alive(execution_id: str, namespace: str, task: str, outcome: Any, problem: str = "") -> bool:
        return outcome != StepOutcome.FAILED and end_step(execution_id, namespace, task, outcome, problem)

    def put_writes_alive(self: FencedSaver, config: Any, writes: Any, *more: Any) -> None:
        if not any(channel == "__error__" for channel, _ in writes):
            put_writes(self, config, writes, *more)

    with pytest.MonkeyPatch.context() as patch:
        # LangGraph still notes the exit as an error of the task; the dead would not.
        patch.setattr(moves, "end_step", end_step_alive)
        patch.setattr(FencedSaver, "put_writes", put_writes_alive)
        with pytest.raises(SystemExit):
            execution.execute(run.id)
    run.refresh_from_db()
    assert run.status == RunStatus.RUNNING
    return run


def lease_over(run: Run) -> None:
    Run.objects.filter(id=run.id).update(lease_until=Now() - timedelta(seconds=1))


def take_back(run: Run) -> Run:
    """Its lease ends, and the sweep looks. (Another sweep of the same database may be first: the rows are the same.)"""
    lease_over(run)

    def taken() -> bool:
        recovery.recover_lost()
        run.refresh_from_db()
        return run.status != RunStatus.RUNNING

    wait_for("the run to be taken from its lost worker", taken)
    return run


def die_and_take_back(engine: Engine, run: Run) -> Run:
    return take_back(die(engine, run))
