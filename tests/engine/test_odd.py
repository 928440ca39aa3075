"""What goes wrong beside a node: odd pauses, a database that goes away, texts that can't be stored, bells that ring on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db.models.functions import Now
from langgraph.types import interrupt

from console import doorbell
from effects.models import Effect
from effects.states import ApprovalStatus, Decision
from runs import execution, recovery
from runs.engine.saver import FencedSaver
from runs.models import Run
from runs.states import Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.recovering import take_back
from tests.engine.workflows import State, line, offer

ODD = {
    "not a number": {"amount": float("nan")},
    "beyond exact integers": 2**60,
    "a character that can't be stored": "what\x00is",
    "a lone surrogate": "\ud800",
    "half a tool approval": {"type": "tool_approval", "text": "go?"},
    "an inbox of text": [{"action_request": "send it"}],
    "no actions": {"action_requests": []},
    "actions that are none": {"action_requests": ["send"]},
    "bytes": b"raw",
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_pause_is_a_plain_question(engine: Engine, what: str) -> None:
    """Interrupt values are the author's: whatever one holds, it is put before a person and can be answered."""

    def asks(state: State) -> State:
        return {"log": [interrupt(ODD[what])]}

    run = engine.run(line(asks), {"log": []})
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "yes")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["yes"]


def test_a_database_that_goes_away_is_not_the_nodes_fault(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ends, the sweep takes the run up again, and the failed write is no failure of the run."""
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("ran")
        return {"log": ["done"]}

    original = FencedSaver._held
    broken = [True]

    def held(self: FencedSaver) -> Any:
        if broken and ran:
            broken.pop()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return original(self)

    monkeypatch.setattr(FencedSaver, "_held", held)
    run = engine.begin(line(node), {"log": []})
    assert execution.execute(run.id) == "taken up again"
    run.refresh_from_db()
    assert (run.status, run.failure) == (RunStatus.RUNNING, "")

    run = take_back(run)
    assert run.status == RunStatus.QUEUED
    assert engine.go(run).status == RunStatus.COMPLETED


@pytest.mark.parametrize("words", ["a\x00b", "a\ud800b"])
def test_an_error_in_words_that_cannot_be_stored_still_names_its_node(engine: Engine, words: str) -> None:
    def breaks(state: State) -> State:
        raise ValueError(words)

    run = engine.run(line(breaks), {"log": []})
    assert (run.status, run.failure, run.failure_of) == (RunStatus.FAILED, Failure.NODE_ERROR, "breaks")
    assert run.failure_text.startswith("ValueError: a")


def test_an_expired_request_is_asked_again_only_by_continue(engine: Engine) -> None:
    """One of two pauses expires, the other is answered: the visit that this makes asks nobody again."""

    def first(state: State) -> State:
        return {"log": [interrupt("first?")]}

    def second(state: State) -> State:
        return {"log": [interrupt("second?")]}

    run = engine.run(side_by_side(first, second), {"log": []})
    one, other = sorted(engine.asked(run), key=lambda approval: approval.title)
    type(one).objects.filter(id=one.id).update(expires_at=Now() - timedelta(seconds=1))
    recovery.expire_approvals()
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_APPROVAL

    engine.decide(other, Decision.RESPOND, answer="yes")
    run = engine.go(run)
    assert run.status == RunStatus.PAUSED
    assert [row.status for row in type(one).objects.filter(run_id=run.id, title="first?")] == [
        ApprovalStatus.EXPIRED
    ]

    run = engine.continue_(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    (again,) = engine.asked(run)
    assert (again.title, again.round) == ("first?", 2)


def side_by_side(*nodes: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
        graph.add_edge(node.__name__, END)
    return graph


def test_the_bell_is_rung_less_and_less_often(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stays queued fills no queue, and one whose version nobody holds is not rung for at all."""
    rung: list[str] = []
    run = engine.begin(line(lambda state: {}))
    holds(engine, engine.process.versions)
    monkeypatch.setattr(doorbell, "ring", bell(rung, answers=True))
    Run.objects.filter(id=run.id).update(status_since=Now() - timedelta(seconds=10), rung_at=None)
    for _ in range(5):
        recovery.ring_again()
    assert rung.count(run.id) == 1

    Run.objects.filter(id=run.id).update(rung_at=Now() - timedelta(seconds=6))
    recovery.ring_again()
    assert rung.count(run.id) == 2

    holds(engine, [])
    Run.objects.filter(id=run.id).update(rung_at=None)
    recovery.ring_again()
    assert rung.count(run.id) == 2
    Run.objects.filter(id=run.id).update(status=RunStatus.PAUSED)


def bell(heard: list[str], *, answers: bool) -> Any:
    def ring(_task: str, args: list[str], **_: Any) -> bool:
        heard.append(args[0])
        return answers

    return ring


def holds(engine: Engine, versions: list[str]) -> None:
    """What this process has said that it holds."""
    engine.process.row.versions = versions
    engine.process.row.save(update_fields=["versions"])


def test_a_broker_that_is_away_is_left_alone_until_the_next_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    runs = [engine.begin(line(lambda state: {})) for _ in range(3)]
    holds(engine, engine.process.versions)
    monkeypatch.setattr(doorbell, "ring", bell(tried, answers=False))
    Run.objects.filter(id__in=[run.id for run in runs]).update(status_since=Now() - timedelta(seconds=10))
    try:
        assert recovery.ring_again() == 0
        assert len(tried) == 1
        assert Run.objects.get(id=tried[0]).rung_at is None
    finally:
        Run.objects.filter(id__in=[run.id for run in runs]).update(status=RunStatus.PAUSED)


def test_what_an_ended_run_left_unsent_is_cancelled(engine: Engine) -> None:
    """Absence proven after the run had ended: nothing is left "ready" on a cancelled run."""

    def intends(state: State) -> State:
        return {"effect": offer().effect_id, "log": [interrupt("go on?")]}

    run = engine.run(line(intends), {"log": []})
    (effect,) = Effect.objects.filter(run_id=run.id)
    Run.objects.filter(id=run.id).update(status=RunStatus.CANCELLED, ended_at=Now())
    assert effect.status == "pending"

    recovery.cancel_left_over()

    effect.refresh_from_db()
    assert (effect.status, effect.sub_state) == ("failed", "cancelled")
