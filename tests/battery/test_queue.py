"""Many workers, a broker that forgets and repeats, people who are faster than the machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.db import connection, transaction

from console.models import Worker
from effects.models import Effect, Observation
from effects.origin import Result
from runs import execution
from runs.authoring import ask_approval, perform, propose
from runs.commands.stop import cancel
from runs.models import Execution, Run
from runs.states import ExecutionOutcome, RunStatus
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.battery.sending import sends
from tests.battery.test_killed import killed
from tests.battery.workers import Nursery
from tests.effects.book import at_once
from tests.engine.conftest import Engine
from tests.engine.workflows import State, beside, workflow_of
from tests.process.journeys import begin, reaches
from tests.stack import Stack, wait_for
from tests.workflows import ready


@row(
    "27",
    "Ten workers perform one effect at once: one attempt",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_27(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("slow", seconds=0.5)
    answers = at_once(10, lambda _: bench.perform(proposal.effect_id))
    assert not [one for one in answers if isinstance(one, Exception)]
    assert sum(isinstance(one, Result) for one in answers) >= 1


@contextmanager
def stopped(bench: Bench, nursery: Nursery, what: str, point: str) -> Iterator[Run]:
    """A run whose worker is stopped (SIGSTOP) at *point*; afterwards it is let go on, to its end."""
    run = begin(bench.world, "test_offers", makes=[what], kill=f"stop_{point}", subject="stopped")
    bench.logs.append(nursery.log)
    pid = nursery.start("execute", run.id)
    try:
        wait_for("the worker to be stopped", lambda: _state_of(pid) == "T")
        yield run
    finally:
        os.kill(pid, signal.SIGCONT)
        assert nursery.ended() == 0


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@row(
    "29",
    "Paused after the send past its lease, N: the successor only looks; the late answer is an observation",
    rx=((1, 1), (1, 1)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown",
)
def test_29(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    with stopped(bench, nursery, "ticket", "after_receiver_commits") as run:
        bench.halfway()
        run = bench.goes_on(run, engine.go)
        assert run.status == RunStatus.COMPLETED
        assert len(bench.witness.requests("GET")) == 1
    seen = Observation.objects.filter(effect__run_id=run.id).order_by("id")
    assert [(one.kind, one.found) for one in seen] == [("look_up", "found"), ("late_answer", "found")]


@row(
    "30",
    "A visibility timeout of 5 s and a node of 20 s, three deliveries: one execution, one request",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
@row(
    "C30",
    "Long tasks are redelivered after the visibility timeout: one execution and one request",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_30(bench: Bench, stack: Stack, lengthy: Run) -> None:
    log = stack.processes["lengthy"].log
    reaches(lengthy, "completed")
    wait_for("two more deliveries", lambda: log.read_text().count(f"run {lengthy.id}: not due") >= 2)
    execution = Execution.objects.get(run=lengthy)
    assert execution.ended_at is not None
    assert (execution.ended_at - execution.started_at).total_seconds() >= 20
    assert settings.VISIBILITY_SECONDS == 5


@pytest.mark.usefixtures("lengthy_begun")
@row(
    "31",
    "Warm shutdown in the middle of a node: handed back at the next safe point, no loss, sent once",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_31(bench: Bench, stack: Stack, engine: Engine) -> None:
    leaving = stack.worker("leaving", ("tests.workflows.sleeper:workflow",))
    bench.logs.append(leaving.log)
    run = begin(bench.world, "test_sleeper", seconds=1, subject="handed back")
    wait_for("the node to begin", lambda: run.steps.filter(node="work").exists())
    leaving.stop(signal_number=signal.SIGTERM)
    run.refresh_from_db()
    assert (run.status, run.losses) == (RunStatus.QUEUED, 0)
    assert Execution.objects.get(run=run).outcome == ExecutionOutcome.DRAINED
    assert Worker.objects.filter(pid=leaving.pid, stopped_at__isnull=False).exists()
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "32",
    "Redis FLUSHALL with 50 ready and 5 in flight: nothing is lost, each is sent once",
    rx=((0, 5), (55, 55)),
    stands=("5 × pending/in_flight; 50 × pending/ready", "55 × completed"),
    attempts="55 × completed",
)
def test_32(bench: Bench, stack: Stack, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_back = [_handed_back(bench, engine, monkeypatch, number) for number in range(50)]
    assert {run.status for run in handed_back} == {RunStatus.QUEUED}
    bench.witness.order("slow", seconds=2, times=5)
    under_way = [begin(bench.world, "test_in_flight", subject=f"flight {number}") for number in range(5)]
    wait_for("five requests at the receiver", lambda: len(bench.witness.requests()) == 5)

    redis.Redis.from_url(settings.REDIS_URL).flushall()

    bench.halfway()
    late = stack.worker("late", ("tests.workflows.ready:ready",))
    bench.logs += [late.log, stack.processes["crashing"].log]
    for run in (*under_way, *handed_back):
        reaches(run, "completed")
    late.stop()


def _handed_back(bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int) -> Run:
    """A run whose effect is ready and whose worker was shut down before it came to send it."""

    def shut_down() -> None:
        for one in engine.process.underway.values():
            one.going.drain(execution.SHUTDOWN)

    with monkeypatch.context() as patch:
        patch.setattr(ready, "between", [shut_down])
        return engine.go(begin(bench.world, "test_ready", subject=f"ready {number}"))


@row(
    "34",
    "A doorbell before the commit: the worker finds no run, and after the commit does it once",
    rx=((0, 0), (1, 1)),
    stands=("no row", "completed"),
    attempts="completed",
)
def test_34(bench: Bench, engine: Engine) -> None:
    said: list[str] = []

    def visit(run_id: str) -> None:
        said.append(execution.execute(run_id))
        connection.close()

    with transaction.atomic():
        run = engine.begin(sends(bench, "battery.offer"), {"log": []})
        early = threading.Thread(target=visit, args=[run.id])
        early.start()
        early.join(10)
    assert said == ["not due"]
    bench.halfway()
    assert engine.go(run).status == RunStatus.COMPLETED
    assert engine.go(run).status == RunStatus.COMPLETED, "rung once more"
    assert Execution.objects.filter(run=run).count() == 1


@row(
    "34b",
    "The worker dies after the intent and the operator cancels: nothing is sent",
    rx=((0, 0), (0, 0)),
    stands=("pending/ready", "failed/cancelled"),
    attempts="",
)
def test_34b(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "after_intent_commits")
    bench.halfway()
    cancel(bench.world.actor(bench.world.operator), run.id, token="cancel")
    assert bench.goes_on(run, engine.go).status == RunStatus.CANCELLED


@row(
    "34c",
    "An approval is answered while the run is still executing another answer: both are delivered",
    rx=(2, 2),
    stands="2 × completed",
    attempts="2 × completed",
)
def test_34c(bench: Bench, engine: Engine) -> None:
    def one(state: State) -> State:
        proposal = propose("battery.asked_offer", command="one", **bench.usual("battery.asked_offer"))
        ask_approval(proposal)
        for other in engine.asked(run):
            engine.decide(other)
        return {"log": [perform(proposal).status]}

    def two(state: State) -> State:
        proposal = propose("battery.asked_offer", command="two", **bench.usual("battery.asked_offer"))
        ask_approval(proposal)
        return {"log": [perform(proposal).status]}

    graph = workflow_of(beside(one, two), effect_types=("battery.asked_offer",))
    run = engine.run(graph, {"log": []})
    first = Effect.objects.get(run_id=run.id, command__command_key="one")
    [approval] = [asked for asked in engine.asked(run) if asked.effect_id == first.id]
    engine.decide(approval)
    assert engine.go(run).status == RunStatus.QUEUED
    assert engine.go(run).status == RunStatus.COMPLETED
