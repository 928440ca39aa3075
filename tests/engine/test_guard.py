"""The node guard: what a node hides from the engine stops its run all the same, visibly and before anything is saved."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send, interrupt

from effects.models import Command, Effect
from effects.states import ApprovalStatus, Decision
from runs.authoring import ask_approval, perform, recorded_fact
from runs.commands import stop
from runs.engine.guard import guard_nodes
from runs.engine.saver import FencedSaver
from runs.models import Run, Step
from runs.states import Failure, RunStatus, StepOutcome
from tests.engine.conftest import Engine
from tests.engine.workflows import State, beside, line, offer
from tests.stack import wait_for

EVERY_ERROR = RetryPolicy(max_attempts=3, initial_interval=0, jitter=False, retry_on=Exception)


def failed(run: Run, failure: Failure, of: str) -> bool:
    return (run.status, run.failure, run.failure_of) == (RunStatus.FAILED, failure, of)


# --- a pause that a node swallows ------------------------------------------------------------------------------------


def test_a_swallowed_pause_fails_the_run_names_the_node_and_saves_nothing(engine: Engine) -> None:
    """langgraph.md, Continue: `except Exception` around an interrupt turned it into a refusal, and the run finished."""
    ran: list[str] = []

    def careless(state: State) -> State:
        ran.append("careless")
        try:
            return {"log": [interrupt("may I?")]}
        except Exception:
            return {"log": ["took it for granted"]}

    def after(state: State) -> State:
        ran.append("after")
        return {"log": ["after"]}

    run = engine.run(line(careless, after, retry_policy=EVERY_ERROR), {"log": []})

    assert failed(run, Failure.PAUSE_SWALLOWED, "careless"), run.failure_text
    assert "careless" in run.failure_text
    assert engine.state_of(run)["log"] == []
    assert ran == ["careless"], "a retry policy repeated it, or the next node ran"


def test_the_step_of_a_swallowed_pause_is_shown_as_failed(engine: Engine) -> None:
    """The journal must not say that the node is paused: nobody will be asked."""

    def careless(state: State) -> State:
        with suppress(Exception):
            interrupt("may I?")
        return {}

    run = engine.run(line(careless))

    assert [step.outcome for step in Step.objects.filter(run=run)] == [StepOutcome.FAILED]


def test_a_pause_swallowed_around_a_nested_graph_is_seen_too(engine: Engine) -> None:
    """The inner graph raises it in frames of its own; the outer node catches it."""

    def ask(state: State) -> State:
        return {"log": [interrupt("may I?")]}

    inner = line(ask).compile()

    def outer(state: State) -> State:
        try:
            return {"log": inner.invoke({"log": []})["log"]}
        except Exception:
            return {"log": ["went on without"]}

    run = engine.run(line(outer), {"log": []})

    assert failed(run, Failure.PAUSE_SWALLOWED, "outer"), (run.status, run.failure_text)
    assert engine.state_of(run)["log"] == []


def test_a_pause_turned_into_an_error_of_the_nodes_own_is_still_a_pause(engine: Engine) -> None:
    def turns(state: State) -> State:
        try:
            interrupt("may I?")
        except Exception as error:
            raise ValueError("refused") from error
        return {}

    run = engine.run(line(turns, retry_policy=EVERY_ERROR))

    assert failed(run, Failure.PAUSE_SWALLOWED, "turns"), run.failure_text


def test_a_swallowed_wait_for_an_approval_sends_nothing(engine: Engine) -> None:
    def careless(state: State) -> State:
        with suppress(Exception):
            ask_approval(offer(kind="test.asked_offer"))
        return {"log": ["approved, surely"]}

    run = engine.run(line(careless), {"log": []})

    assert failed(run, Failure.PAUSE_SWALLOWED, "careless")
    effect = Effect.objects.get(run_id=run.id)
    assert effect.tries == 0
    assert engine.made(effect) == []


def test_a_pause_in_a_subgraph_that_stands_as_a_node_is_a_pause_like_any_other(engine: Engine) -> None:
    """Its own nodes are guarded one by one; the pause and its stored answer belong to the inner task."""
    ran: list[str] = []

    def before(state: State) -> State:
        ran.append("before")
        return {"log": ["before"]}

    def ask(state: State) -> State:
        return {"log": [interrupt("may I?")]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", line(before, ask).compile())
    graph.add_edge(START, "sub")
    run = engine.run(graph, {"log": []})

    assert run.status == RunStatus.WAITING_APPROVAL
    assert run.pauses.get().namespace.startswith("sub:")
    run = engine.answer(run, "you may")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"][-1] == "you may"
    assert ran == ["before"]


def test_guarding_twice_wraps_once(engine: Engine) -> None:
    """A registered graph is compiled and guarded once; a second registration changes nothing."""

    def node(state: State) -> State:
        return {}

    run = engine.begin(line(node))
    graph = engine.process.held[str(run.workflow)].compiled
    guarded = graph.nodes["node"].bound
    guard_nodes(graph)

    assert graph.nodes["node"].bound is guarded


# --- an effect that is not asked for again --------------------------------------------------------------------------


def test_an_effect_that_is_not_asked_for_again_fails_the_run_and_keeps_the_effect(engine: Engine) -> None:
    """Such a node's run fails as obligation_dropped, and a person decides about the effect."""
    asked: list[str] = []

    def forgets(state: State) -> State:
        if not asked:
            asked.append(offer(kind="test.asked_offer").effect_id)
            ask_approval(asked[0])
        return {"log": ["nothing to do"]}

    run = engine.run(line(forgets), {"log": []})
    (approval,) = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)

    assert failed(run, Failure.OBLIGATION_DROPPED, "forgets"), run.failure_text
    assert asked[0] in run.failure_text
    assert engine.state_of(run)["log"] == []
    assert Effect.objects.get(id=asked[0]).tries == 0


def test_a_rejected_effect_is_no_obligation(engine: Engine) -> None:
    asked: list[str] = []

    def forgets(state: State) -> State:
        if not asked:
            asked.append(offer(kind="test.asked_offer").effect_id)
            ask_approval(asked[0])
        return {"log": ["done without"]}

    run = engine.run(line(forgets), {"log": []})
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.REJECT, reason="Not this customer")
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text


def test_an_effect_made_by_an_inner_graph_that_has_finished_is_no_dropped_obligation(engine: Engine) -> None:
    """A graph called within a node keeps its own place: its finished node does not run again, and owes nothing."""
    effects: list[str] = []

    def intends(state: State) -> State:
        effects.append(offer().effect_id)
        return {"effect": effects[-1]}

    def asks(state: State) -> State:
        return {"log": [interrupt("send it?")]}

    inner = line(intends, asks).compile()

    def outer(state: State) -> State:
        today = recorded_fact("today", lambda: "2031-05-04")
        done = inner.invoke({"log": []})
        return {"log": [today, *done["log"]], "effect": done["effect"]}

    def send(state: State) -> State:
        return {"log": [perform(state["effect"]).status]}

    run = engine.run(line(outer, send), {"log": []})
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "yes")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["2031-05-04", "yes", "completed"]
    assert len(set(effects)) == 1


# --- orders to stop --------------------------------------------------------------------------------------------------


def test_a_cancel_stops_the_effect_even_if_the_node_catches_it(engine: Engine) -> None:
    """The sender's hold on the run's row refuses; the node's `except` hides that from everybody but the guard."""
    ran: list[str] = []

    def sends(state: State) -> State:
        proposal = offer()
        stop.cancel(engine.world.actor(engine.world.operator), run.id, token="form")
        try:
            perform(proposal)
        except BaseException:
            ran.append("caught")
        return {"log": ["sent, surely"]}

    def after(state: State) -> State:
        ran.append("after")
        return {}

    run = engine.begin(line(sends, after, retry_policy=EVERY_ERROR), {"log": []})
    run = engine.go(run)

    assert run.status == RunStatus.CANCELLED
    assert ran == ["caught"]
    assert engine.state_of(run)["log"] == []
    effect = Effect.objects.get(run_id=run.id)
    assert (effect.status, effect.sub_state, effect.tries) == ("failed", "cancelled", 0)
    assert engine.made(effect) == []


def test_no_intent_is_saved_once_a_cancel_was_asked_for(engine: Engine) -> None:
    """effects.md, Moves: none made once a cancel was requested."""

    def proposes(state: State) -> State:
        stop.cancel(engine.world.actor(engine.world.operator), run.id, token="form")
        offer()
        return {}

    run = engine.begin(line(proposes))
    run = engine.go(run)

    assert run.status == RunStatus.CANCELLED
    assert not Command.objects.filter(run_id=run.id).exists()


def test_a_pause_asked_for_during_a_node_takes_effect_after_it(engine: Engine) -> None:
    """At the next safe point: the node's work is saved, the next one waits for Continue."""

    def first(state: State) -> State:
        stop.pause(engine.world.actor(engine.world.operator), run.id, token="form")
        (underway,) = engine.process.underway.values()
        underway.going.drain("pause")  # what the pulse does within a second
        return {"log": ["first"]}

    def second(state: State) -> State:
        return {"log": ["second"]}

    run = engine.begin(line(first, second), {"log": []})
    run = engine.go(run)

    assert (run.status, run.pause_requested) == (RunStatus.PAUSED, False)
    assert engine.state_of(run)["log"] == ["first"]
    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED
    assert engine.state_of(run)["log"] == ["first", "second"]


def test_a_warm_shutdown_hands_the_run_back(engine: Engine) -> None:
    """Not a loss, not a pause: queued again for whichever worker comes."""

    def first(state: State) -> State:
        (underway,) = engine.process.underway.values()
        underway.going.drain("shutdown")
        return {"log": ["first"]}

    def second(state: State) -> State:
        return {"log": ["second"]}

    run = engine.run(line(first, second), {"log": []})

    assert (run.status, run.next_cause, run.losses) == (RunStatus.QUEUED, "handed_back", 0)
    assert engine.go(run).status == RunStatus.COMPLETED


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_nodes_error_fails_the_run_with_its_last_line_and_its_node(engine: Engine) -> None:
    """Continue runs the failed node again, and nothing that has finished."""
    ran: list[str] = []
    broken = [True]

    def first(state: State) -> State:
        ran.append("first")
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        if broken:
            broken.pop()
            raise LookupError("The CRM has no such customer.")
        return {"log": ["second"]}

    run = engine.run(line(first, second), {"log": []})
    assert failed(run, Failure.NODE_ERROR, "second")
    assert run.failure_text == "LookupError: The CRM has no such customer."
    assert Step.objects.get(run=run, node="second").outcome == StepOutcome.FAILED

    run = engine.continue_(run)
    assert (run.status, run.failure, run.failure_text) == (RunStatus.COMPLETED, "", "")
    assert engine.state_of(run)["log"] == ["first", "second"]
    assert ran == ["first", "second", "second"]


def test_an_error_in_a_subgraph_names_the_node_that_raised_it(engine: Engine) -> None:
    """The note nearest to the error is the inner node's."""

    def inner(state: State) -> State:
        raise LookupError("Not there.")

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", line(inner).compile())
    graph.add_edge(START, "sub")
    run = engine.run(graph)

    assert failed(run, Failure.NODE_ERROR, "inner"), run.failure_of


def test_an_endless_loop_fails_at_its_limit(engine: Engine, settings: Any) -> None:
    """langgraph.md, Streaming: the engine's own default is 10007 steps."""
    settings.RECURSION_LIMIT = 5
    ran: list[str] = []

    def again(state: State) -> State:
        ran.append("again")
        return {}

    graph = line(again)
    graph.add_conditional_edges("again", lambda state: "again", ["again"])
    run = engine.run(graph)

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.LIMIT)
    assert len(ran) == 5


def test_with_one_sibling_paused_and_one_failed_the_decision_waits_for_continue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """langgraph.md, Streaming: delivering it would run the failed sibling again. Stored, it does not queue the run."""
    ran: list[str] = []
    paused = threading.Event()
    broken = [True]
    put_writes = FencedSaver.put_writes

    def noting(self: FencedSaver, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        put_writes(self, config, writes, task_id, task_path)
        if any(channel == "__interrupt__" for channel, _ in writes):
            paused.set()

    monkeypatch.setattr(FencedSaver, "put_writes", noting)

    def asks(state: State) -> State:
        ran.append("asks")
        return {"log": [f"colour:{interrupt('colour?')}"]}

    def fails(state: State) -> State:
        ran.append("fails")
        assert paused.wait(5)
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": ["fails"]}

    run = engine.run(beside(asks, fails), {"log": []})
    assert failed(run, Failure.NODE_ERROR, "fails"), run.failure_text
    ran.clear()

    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.RESPOND, answer="red")
    run.refresh_from_db()
    assert failed(run, Failure.NODE_ERROR, "fails")
    assert engine.go(run).status == RunStatus.FAILED
    assert ran == []

    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert sorted(engine.state_of(run)["log"]) == ["colour:red", "fails"]
    assert run.executions.count() == 2
    approval.refresh_from_db()
    assert approval.status == ApprovalStatus.DECIDED


def test_what_a_node_may_do_it_may_do_only_in_a_run() -> None:
    """Effects belong to runs: outside a worker's task the authors' functions refuse to work."""
    with pytest.raises(RuntimeError, match="inside a node"):
        offer()
    with pytest.raises(RuntimeError, match="inside a node"):
        recorded_fact("today", lambda: "2031-05-04")


def test_siblings_of_a_send_make_one_effect_each_under_one_command_name(engine: Engine) -> None:
    """The position tells the siblings apart, so their equal commands are not one effect."""

    def fan(state: State) -> Any:
        return [Send("item", {"value": one}) for one in range(3)]

    def item(state: State) -> State:
        return {"log": [perform(offer(amount=100 + state["value"])).reference]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("item", item)
    graph.add_conditional_edges(START, fan, ["item"])
    run = engine.run(graph, {"log": []})

    assert run.status == RunStatus.COMPLETED, run.failure_text
    effects = list(Effect.objects.filter(run_id=run.id))
    assert len(effects) == 3
    assert [len(engine.made(effect)) for effect in effects] == [1, 1, 1]
    assert len(set(engine.state_of(run)["log"])) == 3


def test_a_nodes_database_connection_ends_with_it(engine: Engine) -> None:
    """langgraph.md, Streaming: nodes run in threads of the engine's pool, whose connections nobody else would close."""
    used: set[int] = set()

    def node(state: State) -> State:
        connection.ensure_connection()
        used.add(connection.connection.info.backend_pid)
        return {}

    def other(state: State) -> State:
        return node(state)

    engine.run(beside(node, other))
    used.discard(connection.connection.info.backend_pid)

    def open_still() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [list(used)])
            return bool(cursor.fetchone()[0])

    assert used
    wait_for("the nodes' connections to be closed", lambda: not open_still(), within=5)


# --- the custom stream -----------------------------------------------------------------------------------------------


def test_what_a_node_says_on_the_custom_stream_stands_with_its_step(engine: Engine) -> None:
    def chatty(state: State) -> State:
        writer = get_stream_writer()
        writer("reading page 1")
        writer({"page": 2})
        return {"log": ["read"]}

    run = engine.run(line(chatty), {"log": []})

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert [step.said for step in Step.objects.filter(run=run)] == ['{"page": 2}']
