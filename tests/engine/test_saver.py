"""The fenced saver: whose writes land, and which state may be saved at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ormsgpack
import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_POS_ARGS, EXT_CONSTRUCTOR_SINGLE_ARG
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from runs.engine.saver import FencedSaver, FenceLost, Saver, pool
from runs.models import Checkpoint, Execution, Run
from runs.states import Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import State, beside, line


def _raise_fence(run: Run | str) -> None:
    """What the sweep and the next claim do to an execution that is taken for lost."""
    run_id = run if isinstance(run, str) else run.id
    row = Run.objects.get(id=run_id)
    Run.objects.filter(id=run_id).update(fence=row.fence + 1)


# --- the fence -------------------------------------------------------------------------------------------------------


def test_fenced_out_in_a_node_no_further_node_runs_and_nothing_is_written(engine: Engine) -> None:
    """A refused put stops the engine; what it did is not in the run."""
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        _raise_fence(run)
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        return {"log": ["second"]}

    run = engine.begin(line(first, second))
    before = Checkpoint.objects.filter(run=run).count
    run = engine.go(run)

    assert ran == ["first"]
    assert "log" not in engine.state_of(run) or engine.state_of(run)["log"] == []
    assert before() == 2  # the input, and the state before the first node
    # The row belongs to whoever raised the fence: its status is theirs to set.
    assert (run.status, run.failure) == (RunStatus.RUNNING, "")


def test_a_refused_put_writes_stops_the_next_node_by_its_flag(engine: Engine) -> None:
    """langgraph.md, Continue: it happens in the background and stops nothing. The guard reads the flag it sets."""
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        _raise_fence(run)
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        return {}

    run = engine.begin(line(first, second))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FencedSaver, "put", _put_after_the_refusal)
        engine.go(run)

    assert ran == ["first"]


def _put_after_the_refusal(
    self: FencedSaver, config: Any, checkpoint: Any, metadata: Any, versions: Any
) -> Any:
    """A put that refuses nothing itself, and comes once the background's put_writes has been refused."""
    if metadata["step"] == 1:
        assert self.lost.wait(5)
    return PostgresSaver.put(self, config, checkpoint, metadata, versions)


def test_a_saver_that_lost_its_fence_once_never_writes_again(engine: Engine) -> None:
    saver = engine.saver()
    config: Any = {"configurable": {"thread_id": saver.run_id, "checkpoint_ns": "", "checkpoint_id": "x"}}
    _raise_fence(saver.run_id)
    with pytest.raises(FenceLost):
        saver.put_writes(config, [("log", ["late"])], "task")
    Run.objects.filter(id=saver.run_id).update(fence=saver.fence)

    with pytest.raises(FenceLost):
        saver.put_writes(config, [("log", ["late"])], "task")
    assert saver.lost.is_set()


def test_a_saver_writes_no_other_thread_than_its_runs(engine: Engine) -> None:
    """Thread = run. The mistake of a caller must not reach another run's checkpoints."""
    saver, other = engine.saver(), engine.saver()
    graph = line(_note).compile(checkpointer=saver)

    with pytest.raises(FenceLost, match=saver.run_id):
        graph.invoke({"log": []}, {"configurable": {"thread_id": other.run_id}}, durability="sync")
    assert other.get_tuple({"configurable": {"thread_id": other.run_id}}) is None


def _note(state: State) -> State:
    return {"log": ["noted"]}


def test_the_saver_of_pages_only_reads(engine: Engine) -> None:
    run = engine.run(line(_note))
    reading = Saver()
    config: Any = {"configurable": {"thread_id": run.id, "checkpoint_ns": ""}}
    newest = reading.get_tuple(config)

    assert newest is not None
    assert newest.checkpoint["channel_values"]["log"] == ["noted"]
    with pytest.raises(FenceLost):
        reading.put(newest.config, newest.checkpoint, newest.metadata, {})
    with pytest.raises(FenceLost):
        reading.put_writes(newest.config, [("log", ["late"])], "task")


def test_each_checkpoint_of_the_engine_has_its_index_row(engine: Engine) -> None:
    """The same transaction writes both, subgraphs' too."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", line(_note).compile())
    graph.add_node("after", _note)
    graph.add_edge(START, "sub")
    graph.add_edge("sub", "after")
    run = engine.run(graph)

    listed = list(Saver().list({"configurable": {"thread_id": run.id}}))
    indexed = Checkpoint.objects.filter(run=run)
    assert {(one.namespace, one.engine_id) for one in indexed} == {
        (one.config["configurable"]["checkpoint_ns"], one.checkpoint["id"]) for one in listed
    }
    assert {one.namespace.split(":")[0] for one in indexed} == {"", "sub"}
    assert {one.fence for one in indexed} == {run.fence}


# --- what a state may hold -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Price:
    amount: int


class Customer(BaseModel):
    name: str


class Declared(TypedDict, total=False):
    price: Price
    customer: Customer
    log: list[Any]


def _hold(value: Any) -> Callable[[State], State]:
    def node(state: State) -> State:
        return {"value": value}

    return node


def _state_invalid(engine: Engine, value: Any) -> Run:
    run = engine.run(line(_hold(value)))
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.STATE_INVALID), run.failure_text
    assert "value" in run.failure_text
    return run


@pytest.mark.parametrize(
    ("value", "names"),
    [
        pytest.param(Price(700), "Price", id="dataclass"),
        pytest.param(Customer(name="Ada"), "Customer", id="pydantic"),
        pytest.param({"one": Price(700)}, "Price", id="dataclass-in-dict"),
        pytest.param([Customer(name="Ada")], "Customer", id="pydantic-in-list"),
        pytest.param({"deep": [{"er": Customer(name="Ada")}]}, "Customer", id="pydantic-deep"),
    ],
)
def test_a_type_that_the_schema_does_not_declare_is_refused_by_name(
    engine: Engine, value: Any, names: str
) -> None:
    """langgraph.md, Safety: under strict reading such a value silently comes back as a dict."""
    assert names in _state_invalid(engine, value).failure_text


def test_a_value_that_cannot_be_saved_at_all_is_refused_in_words(engine: Engine) -> None:
    """Not an error of the serializer's that names no field."""
    assert "object" in _state_invalid(engine, {"one": object()}).failure_text


def test_a_question_that_holds_an_undeclared_type_fails_by_name(engine: Engine) -> None:
    """A pause is saved like state. Refused in the background, it must not leave a run that waits for nobody."""

    def asks(state: State) -> State:
        return {"log": [interrupt({"price": Price(700)})]}

    run = engine.run(line(asks), {"log": []})

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.STATE_INVALID), run.status
    assert "Price" in run.failure_text


def test_continuing_after_a_refused_type_does_not_let_it_in_as_a_dict(engine: Engine) -> None:
    """The task's writes must not have been saved: read back, they would be the dict that was refused."""
    run = _state_invalid(engine, Price(700))

    run = engine.continue_(run)

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.STATE_INVALID), engine.state_of(run)


def test_a_type_that_the_schema_declares_comes_back_as_it_is(engine: Engine) -> None:
    seen: list[Any] = []

    def make(state: Declared) -> Declared:
        return {"price": Price(700), "customer": Customer(name="Ada")}

    def read(state: Declared) -> Declared:
        seen.extend([state["price"], state["customer"]])
        return {}

    run = engine.begin(line(make, pause, read, schema=Declared))
    engine.go(run)
    run = engine.answer(run, "yes")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert seen == [Price(700), Customer(name="Ada")]


def pause(state: Any) -> Any:
    """Ends the execution, so that the next one reads the state from the database."""
    interrupt("go on?")
    return {}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        pytest.param("a\x00b", "U+0000", id="nul"),
        pytest.param(float("nan"), "NaN", id="nan"),
        pytest.param(float("inf"), "", id="infinity"),
        pytest.param(float("-inf"), "", id="minus-infinity"),
    ],
)
def test_a_value_that_the_database_cannot_keep_is_refused_in_words(
    engine: Engine, value: Any, names: str
) -> None:
    """Top-level strings and numbers lie in clear JSONB, which has no U+0000 and no NaN."""
    assert names in _state_invalid(engine, value).failure_text


def test_an_input_that_the_database_cannot_keep_is_refused_before_anything_runs(engine: Engine) -> None:
    """The input is a checkpoint as well."""
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("node")
        return {}

    run = engine.run(line(node), {"value": "x"}, to_state=lambda given: {"value": "a\x00b"})

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.STATE_INVALID)
    assert ran == []


def test_tuples_come_back_as_lists(engine: Engine) -> None:
    """So no rule may tell them apart; the saver does not refuse them."""
    seen: list[Any] = []

    def make(state: State) -> State:
        return {"value": (1, (2, 3))}

    def read(state: State) -> State:
        seen.append(state["value"])
        return {}

    run = engine.begin(line(make, pause, read))
    engine.go(run)
    engine.answer(run, "yes")

    assert seen == [[1, [2, 3]]]


def test_the_database_itself_refuses_what_the_saver_refuses(engine: Engine) -> None:
    """The fact behind it: without our check the run would fail with a database error that names no field."""
    run = engine.begin(line(_note))
    saver = PostgresSaver(engine.saver().conn)
    for value in ("a\x00b", float("nan"), float("inf")):
        graph = line(_hold(value)).compile(checkpointer=saver)
        with pytest.raises(psycopg.Error):
            graph.invoke(
                {"log": []}, {"configurable": {"thread_id": f"{run.id}-{value!r}"}}, durability="sync"
            )


# --- strict reading ----------------------------------------------------------------------------------------------


def test_a_row_of_the_checkpoint_tables_cannot_call_a_function(engine: Engine, tmp_path: Any) -> None:
    """The default serializer would import and call any module.name that an EXT record names."""
    marker = tmp_path / "called"
    one = ormsgpack.packb(
        ormsgpack.Ext(EXT_CONSTRUCTOR_SINGLE_ARG, ormsgpack.packb(("os", "system", f"touch {marker}")))
    )
    several = ormsgpack.packb(
        ormsgpack.Ext(EXT_CONSTRUCTOR_POS_ARGS, ormsgpack.packb(("os", "system", [f"touch {marker}"])))
    )
    run = engine.run(line(_note))
    for evil in (one, several):
        with pool().connection() as connection:
            connection.execute(
                "UPDATE checkpoint_blobs SET type = 'msgpack', blob = %s WHERE thread_id = %s AND channel = 'log'",
                (evil, run.id),
            )
        engine.state_of(run)
        Saver().get_tuple({"configurable": {"thread_id": run.id}})

    assert not marker.exists()


def test_strict_reading_is_on_in_a_worker(another_process: dict[str, Any]) -> None:
    """LangGraph reads the switch once, at its first import, wherever that is. `runs.tasks` is a worker's first."""
    assert another_process["strict"] is True


def test_strict_reading_turns_an_undeclared_type_into_a_dict_without_a_word(engine: Engine) -> None:
    """The fact that makes refusing necessary."""
    serde = engine.saver().serde
    back = serde.loads_typed(serde.dumps_typed({"one": Customer(name="Ada")}))

    assert back == {"one": {"name": "Ada"}}


def test_executions_that_lost_their_fence_leave_the_others_row_alone(engine: Engine) -> None:
    """Settling writes nothing when the run is no longer this execution's."""

    def node(state: State) -> State:
        _raise_fence(run)
        return {}

    run = engine.begin(beside(node, _note))
    engine.go(run)

    execution = Execution.objects.get(run=run)
    assert (execution.outcome, execution.ended_at) == ("", None)
