"""What the engine leans on in LangGraph, seen on our own saver. An upgrade that changes one of these fails here.

The facts and where they are used: docs/langgraph.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp, GraphDrained, GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl, get_runtime
from langgraph.types import Command, RetryPolicy, Send, interrupt

from runs.engine.advance import pauses_of
from runs.engine.saver import FencedSaver, pool
from tests.engine.conftest import Engine
from tests.engine.workflows import State, beside, here, line


class Thread:
    """A graph driven directly, on the saver of a run that nobody else works on."""

    def __init__(self, graph: Any, saver: FencedSaver) -> None:
        self.saver = saver
        self.graph: Pregel[Any, Any, Any, Any] = graph.compile(checkpointer=saver)
        self.config: RunnableConfig = {"configurable": {"thread_id": saver.run_id}}

    def invoke(self, given: Any, **options: Any) -> Any:
        return self.graph.invoke(given, self.config, durability="sync", **options)

    @property
    def state(self) -> Any:
        return self.graph.get_state(self.config, subgraphs=True)

    @property
    def asks(self) -> dict[str, Any]:
        """The pending pauses: id by value."""
        return {pause.value: pause.id for pause in self.state.interrupts}

    def stored(self, channel: str) -> list[tuple[str, Any]]:
        """The newest checkpoint's pending writes to *channel*."""
        newest = self.saver.get_tuple(self.config)
        assert newest is not None
        return [(task, value) for task, name, value in newest.pending_writes or [] if name == channel]


Drive = Callable[[Any], Thread]


@pytest.fixture
def drive(engine: Engine) -> Drive:
    return lambda graph: Thread(graph, engine.saver())


# --- answers -----------------------------------------------------------------------------------------------------


def colour(state: State) -> State:
    return {"log": [f"colour:{interrupt('colour?')}"]}


def size(state: State) -> State:
    return {"log": [f"size:{interrupt('size?')}"]}


def test_answers_go_to_the_pauses_that_their_ids_name(drive: Drive) -> None:
    thread = drive(beside(colour, size))
    thread.invoke({"log": []})

    done = thread.invoke(Command(resume={thread.asks["size?"]: "L", thread.asks["colour?"]: "red"}))

    assert sorted(done["log"]) == ["colour:red", "size:L"]


def test_a_part_of_the_answers_leaves_the_others_asking_under_the_same_id(drive: Drive) -> None:
    """The unanswered sibling runs again from its start at each partial resume; the answered one does not."""
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        return colour(state)

    def second(state: State) -> State:
        ran.append("second")
        return size(state)

    thread = drive(beside(first, second))
    thread.invoke({"log": []})
    asked = thread.asks
    ran.clear()

    thread.invoke(Command(resume={asked["colour?"]: "red"}))
    assert thread.asks == {"size?": asked["size?"]}
    assert sorted(ran) == ["first", "second"]
    done = thread.invoke(Command(resume={asked["size?"]: "L"}))

    assert sorted(done["log"]) == ["colour:red", "size:L"]
    assert sorted(ran) == ["first", "second", "second"]


def test_an_answer_without_an_id_is_refused_where_several_ask(drive: Drive) -> None:
    """So answers always go by id."""
    thread = drive(beside(colour, size))
    thread.invoke({"log": []})

    with pytest.raises(RuntimeError, match="interrupt"):
        thread.invoke(Command(resume="red"))


def test_an_unknown_id_is_ignored_without_a_word(drive: Drive) -> None:
    """So the worker delivers only to ids that it has just found in the state."""
    thread = drive(line(colour))
    thread.invoke({"log": []})
    asked = thread.asks

    thread.invoke(Command(resume={"0" * 32: "red"}))

    assert thread.asks == asked
    assert thread.state.values["log"] == []


def test_nothing_wakes_an_unanswered_pause_any_number_of_times(drive: Drive) -> None:
    """How waits for effects work: woken by None, never answered; no answer is ever stored."""
    settled: list[bool] = []
    ran: list[str] = []

    def send(state: State) -> State:
        ran.append("send")
        while not settled:
            interrupt("settled?")
        return {"log": ["sent"]}

    thread = drive(line(send))
    thread.invoke({"log": []})
    asked = thread.asks
    for _ in range(3):
        thread.invoke(None)
        assert thread.asks == asked
        assert thread.stored("__resume__") == []
    settled.append(True)

    assert thread.invoke(None)["log"] == ["sent"]
    assert len(ran) == 5


def test_a_node_that_raises_on_its_answer_keeps_it(drive: Drive) -> None:
    """Delivered is therefore read from the checkpoint: the pause still stands in the state, with its old id."""
    taken: list[str] = []

    def ask(state: State) -> State:
        taken.append(interrupt("number?"))
        raise ValueError(taken[-1])

    thread = drive(line(ask))
    thread.invoke({"log": []})
    asked = thread.asks["number?"]
    with pytest.raises(ValueError, match="seven"):
        thread.invoke(Command(resume={asked: "seven"}))

    assert thread.asks == {"number?": asked}
    assert [value for _, value in thread.stored("__resume__")] == [["seven"]]
    (pause,) = pauses_of(thread.graph, thread.state)
    assert pause.answered
    with pytest.raises(ValueError, match="seven"):
        thread.invoke(None)
    assert taken == ["seven", "seven"]


def test_forgetting_an_answer_asks_again_under_the_same_id(drive: Drive) -> None:
    """So decisions are keyed by run, interrupt id and round."""
    bad = [True]

    def ask(state: State) -> State:
        answer = interrupt("number?")
        if bad:
            bad.pop()
            raise ValueError(answer)
        return {"log": [answer]}

    thread = drive(line(ask))
    thread.invoke({"log": []})
    asked = thread.asks["number?"]
    with pytest.raises(ValueError, match="seven"):
        thread.invoke(Command(resume={asked: "seven"}))
    (task,) = thread.state.tasks

    with pool().connection() as connection:
        taken_back = connection.execute(
            "DELETE FROM checkpoint_writes WHERE task_id = %s AND channel = '__resume__'", (task.id,)
        )
    assert taken_back.rowcount == 1
    thread.invoke(None)
    assert thread.asks == {"number?": asked}
    assert thread.invoke(Command(resume={asked: 7}))["log"] == [7]


def twice(state: State) -> State:
    first = interrupt("pay?")
    second = interrupt("delete all?")
    return {"log": [first, second]}


def test_a_second_pause_of_a_task_has_another_id_and_the_first_answer_stored(drive: Drive) -> None:
    """The id counts the answers that the task has. It has a stored answer while it asks the second time."""
    thread = drive(line(twice))
    thread.invoke({"log": []})
    first = thread.asks["pay?"]
    thread.invoke(Command(resume={first: "yes"}))

    second = thread.asks["delete all?"]
    assert second != first
    assert [value for _, value in thread.stored("__resume__")] == [["yes"]]
    assert thread.invoke(Command(resume={second: "no"}))["log"] == ["yes", "no"]


def test_a_stale_id_answers_a_later_pause_of_its_task(drive: Drive) -> None:
    """Why an answer is delivered only to an id that the state lists, with the value that people saw."""
    thread = drive(line(twice))
    thread.invoke({"log": []})
    first = thread.asks["pay?"]
    thread.invoke(Command(resume={first: "yes"}))

    assert thread.invoke(Command(resume={first: "yes"}))["log"] == ["yes", "yes"]


def test_new_input_to_a_paused_thread_throws_its_pause_away(drive: Drive) -> None:
    """So the worker hands over input only where there is no checkpoint yet."""
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        return {"log": ["first"]}

    thread = drive(line(first, colour))
    thread.invoke({"log": []})
    thread.invoke({"log": []})

    assert ran == ["first", "first"]
    assert thread.state.values["log"] == ["first", "first"]


def test_a_finished_thread_answers_with_its_last_values(drive: Drive) -> None:
    """No error and no work: whether there is something to do must be read from the state first."""
    ran: list[str] = []

    def only(state: State) -> State:
        ran.append("only")
        return {"log": ["only"]}

    thread = drive(line(only))
    thread.invoke({"log": []})

    assert thread.state.next == ()
    assert thread.invoke(None)["log"] == ["only"]
    assert ran == ["only"]


# --- failures and siblings ------------------------------------------------------------------------------------------


def test_after_an_error_only_the_failed_task_runs_again(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished siblings keep their writes. Continue leans on it."""
    ran: list[str] = []
    finished = threading.Event()
    broken = [True]

    def good(state: State) -> State:
        ran.append("good")
        return {"log": ["good"]}

    def bad(state: State) -> State:
        ran.append("bad")
        finished.wait(5)
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": ["bad"]}

    put_writes = FencedSaver.put_writes

    def noting(self: FencedSaver, config: Any, writes: Any, *more: Any) -> None:
        put_writes(self, config, writes, *more)
        if any(channel == "log" for channel, _ in writes):
            finished.set()

    monkeypatch.setattr(FencedSaver, "put_writes", noting)
    thread = drive(beside(good, bad))
    with pytest.raises(ValueError, match="boom") as raised:
        thread.invoke({"log": []})

    assert any(note.startswith("During task with name 'bad'") for note in raised.value.__notes__)
    assert sorted(thread.invoke(None)["log"]) == ["bad", "good"]
    assert sorted(ran) == ["bad", "bad", "good"]


def test_a_retry_policy_repeats_errors_but_no_bubble(drive: Drive) -> None:
    """What the guard raises is a GraphBubbleUp, so that no node runs again because of it."""
    ran: list[str] = []

    class Stop(GraphBubbleUp):
        pass

    def stops(state: State) -> State:
        ran.append("stops")
        raise Stop

    def fails(state: State) -> State:
        ran.append("fails")
        raise ValueError("boom")

    every = RetryPolicy(max_attempts=3, initial_interval=0, jitter=False, retry_on=Exception)
    with pytest.raises(Stop):
        drive(line(stops, retry_policy=every)).invoke({"log": []})
    with pytest.raises(ValueError, match="boom"):
        drive(line(fails, retry_policy=every)).invoke({"log": []})

    assert ran == ["stops", "fails", "fails", "fails"]


def test_the_recursion_limit_is_an_error_of_its_own_type(drive: Drive) -> None:
    def again(state: State) -> State:
        return {"log": ["again"]}

    graph = line(again)
    graph.add_conditional_edges("again", lambda state: "again", ["again"])
    thread = drive(graph)
    thread.config["recursion_limit"] = 3

    with pytest.raises(GraphRecursionError):
        thread.invoke({"log": []})


# --- where a task stands -------------------------------------------------------------------------------------------


class Places:
    """What a node saw of its place each time it ran."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.positions: list[str] = []

    def see(self, config: RunnableConfig) -> None:
        info = get_runtime().execution_info
        assert info is not None
        self.tasks.append(str(info.task_id))
        self.positions.append(here(config))


def test_a_task_keeps_its_id_and_position_however_often_it_runs(drive: Drive) -> None:
    """Under a node's own retry, an error and going on, and a pause: the identity of effects leans on it."""
    places = Places()
    broken = [2]

    def work(state: State, config: RunnableConfig) -> State:
        places.see(config)
        if broken[0]:
            broken[0] -= 1
            raise ValueError("boom")
        return {"log": [interrupt("ok?")]}

    policy = RetryPolicy(max_attempts=2, initial_interval=0, jitter=False, retry_on=ValueError)
    thread = drive(line(work, retry_policy=policy))
    with pytest.raises(ValueError, match="boom"):
        thread.invoke({"log": []})
    thread.invoke(None)
    thread.invoke(None)
    thread.invoke(Command(resume={thread.asks["ok?"]: "yes"}))

    assert len(places.tasks) == 5
    assert len(set(places.tasks)) == 1
    assert len(set(places.positions)) == 1


def test_siblings_of_a_send_and_passes_of_a_loop_stand_at_different_places(drive: Drive) -> None:
    seen: dict[str, Places] = {"item": Places(), "loop": Places()}

    def loop(state: State, config: RunnableConfig) -> State:
        seen["loop"].see(config)
        return {"log": ["pass"]}

    def item(state: State, config: RunnableConfig) -> State:
        seen["item"].see(config)
        return {}

    def route(state: State) -> Any:
        return "loop" if len(state["log"]) < 3 else [Send("item", {"value": one}) for one in range(4)]

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("loop", loop)
    graph.add_node("item", item)
    graph.add_edge(START, "loop")
    graph.add_conditional_edges("loop", route, ["loop", "item"])
    drive(graph).invoke({"log": []})

    assert len(set(seen["loop"].positions)) == 3
    assert len(set(seen["item"].positions)) == 4


def test_a_subgraphs_node_stands_at_a_place_of_its_own_in_each_pass_of_its_parent(drive: Drive) -> None:
    """The position holds no random id, and yet tells the passes apart: the parent's step is in it."""
    places = Places()

    def inner(state: State, config: RunnableConfig) -> State:
        places.see(config)
        return {"log": ["inner"]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", line(inner).compile())
    graph.add_edge(START, "sub")
    graph.add_conditional_edges("sub", lambda state: "sub" if len(state["log"]) < 3 else END, ["sub", END])
    drive(graph).invoke({"log": []})

    assert len(places.positions) >= 2
    assert len(set(places.positions)) == len(places.positions)


# --- stopping, and what stops ----------------------------------------------------------------------------------------


def test_a_drain_ends_after_the_superstep_and_goes_on_from_there(drive: Drive) -> None:
    ran: list[str] = []
    control = RunControl()

    def first(state: State) -> State:
        ran.append("first")
        asking = threading.Thread(target=control.request_drain, args=["pause"])
        asking.start()
        asking.join()
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        return {"log": ["second"]}

    thread = drive(line(first, second))
    with pytest.raises(GraphDrained) as drained:
        thread.invoke({"log": []}, control=control)

    assert drained.value.reason == "pause"
    assert (thread.state.next, thread.state.values["log"]) == (("second",), ["first"])
    assert thread.invoke(None)["log"] == ["first", "second"]
    assert ran == ["first", "second"]


def test_a_refused_put_stops_the_engine(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sync durability: the next node does not run. That is what the fence of a checkpoint leans on."""
    ran: list[str] = []
    put = FencedSaver.put

    def refusing(self: FencedSaver, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if metadata["step"] >= 1:
            raise PermissionError("refused")
        return put(self, config, checkpoint, metadata, versions)

    thread = drive(line(*_three(ran)))
    monkeypatch.setattr(FencedSaver, "put", refusing)
    with pytest.raises(PermissionError):
        thread.invoke({"log": []})

    assert ran == ["first"]


def test_a_refused_put_writes_does_not_stop_the_engine(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in the background: the next node runs all the same. Hence the saver's flag and the node guard."""
    ran: list[str] = []

    def refusing(*args: Any, **more: Any) -> None:
        raise PermissionError("refused")

    thread = drive(line(*_three(ran)))
    monkeypatch.setattr(FencedSaver, "put_writes", refusing)
    with pytest.raises(PermissionError):
        thread.invoke({"log": []})

    assert len(ran) > 1


def _three(ran: list[str]) -> list[Callable[[State], State]]:
    def first(state: State) -> State:
        ran.append("first")
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        return {"log": ["second"]}

    def third(state: State) -> State:
        ran.append("third")
        return {"log": ["third"]}

    return [first, second, third]


def test_the_stream_says_what_began_how_it_ended_and_what_was_saved(drive: Drive) -> None:
    """Steps and checkpoints are made of these parts: an error is an exception object, a pause has interrupts."""

    def fails(state: State) -> State:
        raise ValueError("boom")

    thread = drive(line(colour, fails))

    def parts(given: Any) -> list[tuple[str, Any]]:
        heard: list[tuple[str, Any]] = []
        try:
            for part in thread.graph.stream(
                given,
                thread.config,
                stream_mode=["tasks", "checkpoints"],
                subgraphs=True,
                version="v2",
                durability="sync",
            ):
                assert part["ns"] == ()
                heard.append((part["type"], part["data"]))
        except ValueError:
            pass
        return heard

    paused = parts({"log": []})
    began = [data["name"] for kind, data in paused if kind == "tasks" and "triggers" in data]
    ended = [data for kind, data in paused if kind == "tasks" and "triggers" not in data]
    assert began == ["colour"]
    assert [one["interrupts"][0]["value"] for one in ended] == ["colour?"]
    assert [data["metadata"]["step"] for kind, data in paused if kind == "checkpoints"] == [-1, 0]

    failed = parts(Command(resume={thread.asks["colour?"]: "red"}))
    errors = [data["error"] for kind, data in failed if kind == "tasks" and data.get("error")]
    assert [type(error) for error in errors] == [ValueError]
