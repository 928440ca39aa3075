"""Two workers and one run, two sweeps, a worker that sleeps past its lease, a broker that forgets everything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection

from console import doorbell
from effects.models import Effect, EffectAttempt
from effects.states import Outcome
from runs import waiting
from runs.models import Checkpoint, Execution, Run
from runs.states import ExecutionOutcome
from tests.people import World
from tests.process.journeys import Receiver, begin, reaches
from tests.stack import Process, Stack, wait_for

pytestmark = pytest.mark.process

SLOW = ("tests.workflows.slow:workflow",)


@pytest.fixture
def second_worker(stack: Stack) -> Iterator[Process]:
    """One more worker that holds the same workflow as the stack's."""
    process = stack.worker("second", SLOW)
    yield process
    process.stop(signal_number=signal.SIGKILL if process.ended() else signal.SIGTERM)


def _ring(run: Run, times: int = 1) -> None:
    for _ in range(times):
        doorbell.ring(waiting.TASK, [run.id], queue=doorbell.queue_of(str(run.workflow)))


def test_two_workers_at_the_same_instant_make_one_execution(
    stack: Stack, live: World, second_worker: Process
) -> None:
    run = begin(live, "test_slow", seconds=1, subject="instant")
    ringers = [threading.Thread(target=_ring, args=[run, 5]) for _ in range(2)]
    for ringer in ringers:
        ringer.start()
    for ringer in ringers:
        ringer.join()

    reaches(run, "completed")

    assert Execution.objects.filter(run=run).count() == 1
    assert len(Receiver(stack, live.account).requests()) == 1


def test_a_second_worker_while_the_first_is_in_the_node_changes_nothing(
    stack: Stack, live: World, second_worker: Process
) -> None:
    run = begin(live, "test_slow", seconds=3, subject="staggered")
    reaches(run, "running")
    wait_for("the node to begin", lambda: run.steps.filter(node="work").exists())
    _ring(run, 6)

    reaches(run, "completed")

    assert Execution.objects.filter(run=run).count() == 1
    assert len(Receiver(stack, live.account).effects()) == 1


def test_a_second_sweep_stands_by(stack: Stack, live: World) -> None:
    second = stack.run("second sweep", "manage.py", "sweep")
    wait_for("the second sweep to stand by", lambda: second.says("standing by"))
    run = begin(live, "test_slow", seconds=0, subject="swept")
    reaches(run, "completed")
    assert not second.ended()
    second.stop()


def test_a_worker_paused_past_its_lease_writes_nothing_more(stack: Stack, live: World) -> None:
    """SIGSTOP in the node, the lease ends, another worker finishes the run, SIGCONT: no checkpoint, effect or state."""
    sleeper = stack.worker("sleeper", ("tests.workflows.sleeper:workflow",))
    run = begin(live, "test_sleeper", seconds=4, subject="sleeper")
    reaches(run, "running")
    wait_for("the node to begin", lambda: run.steps.filter(node="work").exists())
    os.kill(sleeper.pid, signal.SIGSTOP)
    heir = stack.worker("heir", ("tests.workflows.sleeper:workflow",))

    reaches(run, "completed")
    before = _everything(run)
    lost = Execution.objects.get(run=run, outcome=ExecutionOutcome.LOST)
    assert Execution.objects.filter(run=run, fence__gt=lost.fence, outcome="finished").count() == 1

    os.kill(sleeper.pid, signal.SIGCONT)
    wait_for("the sleeper to see that it is fenced out", lambda: sleeper.says(f"{run.id}: fenced out"))

    assert _everything(run) == before
    assert not Checkpoint.objects.filter(run=run, fence=lost.fence, number__gte=1).exists()
    assert len(Receiver(stack, live.account).effects()) == 1
    sleeper.stop()
    heir.stop()


def test_a_worker_paused_in_a_transaction_does_not_keep_its_run(stack: Stack, live: World) -> None:
    """It holds the run's row locked; the server ends its transaction with the lease, and the run is taken up."""
    sleeper = stack.worker("holder", ("tests.workflows.holding:workflow",))
    run = begin(live, "test_holding", seconds=2)
    mark = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], f"{run.id}.held")
    wait_for("the row to be held", mark.exists)
    os.kill(sleeper.pid, signal.SIGSTOP)
    heir = stack.worker("heir", ("tests.workflows.holding:workflow",))

    reaches(run, "completed")

    os.kill(sleeper.pid, signal.SIGCONT)
    wait_for("the sleeper to see that it is fenced out", lambda: sleeper.says(f"{run.id}: fenced out"))
    assert Execution.objects.filter(run=run).count() == 2
    sleeper.stop()
    heir.stop()


def _everything(run: Run) -> dict[str, Any]:
    """Every row that an execution of the run could write."""
    run.refresh_from_db()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM engine.checkpoint_writes WHERE thread_id = %s", [run.id])
        writes = cursor.fetchone()
    return {
        "run": (run.status, run.fence, run.version, run.worker_id, run.ended_at),
        "writes": writes,
        "checkpoints": list(run.checkpoints.order_by("id").values_list("id", "fence")),
        "steps": list(run.steps.order_by("id").values_list("id", "outcome", "ended_at")),
        "attempts": list(EffectAttempt.objects.filter(effect__run_id=run.id).values_list("n", "outcome")),
        "effects": list(
            Effect.objects.filter(run_id=run.id).values_list("id", "status", "fence", "updated_at")
        ),
    }


def test_a_killed_workers_run_is_taken_up_within_its_lease_and_ten_seconds(stack: Stack, live: World) -> None:
    """Whatever the broker's redelivery does: its message is taken away, so that only the sweep can find the run."""
    victim = stack.worker("victim", ("tests.workflows.sleeper:workflow",))
    run = begin(live, "test_sleeper", seconds=15, subject="taken up")
    wait_for("the node to begin", lambda: run.steps.filter(node="work").exists())
    heir = stack.worker("heir", ("tests.workflows.sleeper:workflow",))
    os.kill(victim.pid, signal.SIGKILL)
    redis.Redis.from_url(settings.REDIS_URL).flushall()

    within = settings.LEASE_SECONDS + 10
    taken_up: Callable[[], bool] = lambda: Execution.objects.filter(run=run, cause="recovery").exists()  # noqa: E731
    wait_for("the run to be taken up", taken_up, within=within)
    reaches(run, "completed")

    assert len(Receiver(stack, live.account).effects()) == 1
    heir.stop()


def test_a_node_past_its_deadline_fails_the_run_and_restarts_the_process(stack: Stack, live: World) -> None:
    """step_deadline is no loss; what the node would still do is not sent; the other run in the process goes on."""
    worker = stack.worker("overrun", ("tests.workflows.overrun:workflow",), keep=True)
    first_pid = worker.pid
    run = begin(live, "test_overrun", seconds=6, subject="overran")

    reaches(run, "failed")

    assert (run.failure, run.failure_of, run.losses) == ("step_deadline", "work", 0)
    wait_for("the process to have restarted", lambda: worker.pid != first_pid)
    assert Execution.objects.get(run=run).outcome == ExecutionOutcome.OVERRAN
    assert Receiver(stack, live.account).requests() == []
    assert not EffectAttempt.objects.filter(effect__run_id=run.id).exclude(outcome=Outcome.NOT_SENT).exists()
    worker.stop()
