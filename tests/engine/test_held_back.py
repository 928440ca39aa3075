"""A run whose effect is held back: it waits, costs nothing while it does, and goes on by itself."""

from __future__ import annotations

from typing import Any

from effects.models import Effect
from runs import recovery
from runs.authoring import perform
from runs.models import Execution, Run
from runs.states import RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, offer


def sends_for_good(state: State) -> State:
    return {"log": [perform(offer(kind="test.final_offer")).reference]}


def executions(run: Run) -> int:
    return Execution.objects.filter(run=run).count()


def test_while_the_database_may_forget_the_run_waits_and_nobody_visits_it(
    engine: Engine, settings: Any
) -> None:
    """The tests' server has no fsync, and is judged here as in production."""
    settings.DURABLE_ONLY = True
    run = engine.run(line(sends_for_good), {"log": []})
    assert run.status == RunStatus.WAITING_EFFECT
    effect = Effect.objects.get(run_id=run.id)
    assert "Postgres may lose what it has confirmed" in effect.problem
    for _ in range(3):
        recovery.wake()
        assert engine.go(run).status == RunStatus.WAITING_EFFECT
    assert executions(run) == 1
    assert engine.made(effect) == []

    settings.DURABLE_ONLY = False
    recovery.wake()
    assert engine.go(run).status == RunStatus.COMPLETED
    assert len(engine.made(effect)) == 1
