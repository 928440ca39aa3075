"""What is refused at start, naming it, because it would fail silently later; and what makes a version that version."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from demo.contracts import create_offer, send_mail
from effects.contracts import ContractError, contracts
from effects.states import Dedup
from effects.wires import HttpWire
from runs import execution
from runs.authoring import LedgerMiddleware, Workflow
from runs.engine.registry import WorkflowRefused, workflows
from runs.execution import FingerprintChanged
from runs.models import WorkflowVersion
from runs.states import RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import Scripted, State, line, workflow_of

Register = Callable[..., Any]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module, which the settings can name."""
    module = ModuleType("engine_samples")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def register(samples: ModuleType, settings: Any) -> Register:
    """Read workflows as a start does, from what the settings name; *several* become importable first."""

    def read(*names: str, **several: Any) -> Any:
        for name, value in several.items():
            setattr(samples, name, value)
        settings.WORKFLOWS = list(names) or [f"engine_samples:{name}" for name in several]
        return workflows.__wrapped__()

    return read


@pytest.fixture
def promise(samples: ModuleType, settings: Any) -> Register:
    """Read contracts as a start does."""

    def read(*several: Any, names: tuple[str, ...] = ("engine_samples:CONTRACTS",)) -> Any:
        samples.CONTRACTS = several  # type: ignore[attr-defined]
        settings.CONTRACTS = list(names)
        return contracts.__wrapped__()

    return read


def node(state: State) -> State:
    return {"log": ["node"]}


def untyped(state: Any) -> Any:
    """A node that takes the schema of whatever graph it stands in."""
    return {"log": ["node"]}


# --- workflows ---------------------------------------------------------------------------------------------------------


def test_a_workflow_that_does_not_import_is_named(register: Register) -> None:
    with pytest.raises(WorkflowRefused, match=r"engine_nowhere:workflow can't be imported"):
        register("engine_nowhere:workflow")
    with pytest.raises(WorkflowRefused, match=r"engine_samples:missing can't be imported"):
        register("engine_samples:missing")


def test_a_name_that_is_no_workflow_is_named(register: Register) -> None:
    with pytest.raises(WorkflowRefused, match=r"engine_samples:graph is not a workflow but a StateGraph"):
        register(graph=line(node))


def test_two_of_the_same_name_and_version_are_refused(register: Register) -> None:
    with pytest.raises(WorkflowRefused, match=r"sample@7 stands twice; the second is engine_samples:second"):
        register(
            first=workflow_of(line(node), name="sample", version="7"),
            second=workflow_of(line(node), name="sample", version="7"),
        )


def test_two_versions_of_one_name_stand_beside_each_other(register: Register) -> None:
    found = register(
        first=workflow_of(line(node), name="sample", version="7"),
        second=workflow_of(line(node), name="sample", version="8"),
    )

    assert list(found) == ["sample@7", "sample@8"]


def test_a_graph_that_does_not_compile_is_named(register: Register) -> None:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge("node", "nowhere")

    with pytest.raises(WorkflowRefused, match="engine_samples:sample"):
        register(sample=workflow_of(graph))


def test_a_checkpointer_of_its_own_is_refused(register: Register) -> None:
    """Its checkpoints would not be fenced."""
    graph = line(node).compile(checkpointer=InMemorySaver())

    with pytest.raises(WorkflowRefused, match=r"sample@1 brings a checkpointer of its own"):
        register(sample=workflow_of(graph, name="sample", version="1"))


@pytest.mark.parametrize("checkpointer", [True, InMemorySaver()], ids=["true", "own"])
@pytest.mark.parametrize("how", ["node", "called"])
def test_a_subgraph_that_keeps_its_own_checkpoints_is_refused(
    register: Register, checkpointer: Any, how: str
) -> None:
    """langgraph.md, Continue: with checkpointer=True it returns stale state after a crash and a continue."""
    inner = line(node).compile(checkpointer=checkpointer)

    def calling(state: State) -> State:
        inner.invoke({"log": []})
        return {}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", inner if how == "node" else calling)
    graph.add_edge(START, "sub")
    with pytest.raises(WorkflowRefused, match="checkpointer"):
        register(sample=workflow_of(graph))


def test_a_delta_channel_is_refused(register: Register) -> None:
    """langgraph.md, Continue: it copies to an empty value."""

    class Deltas(TypedDict, total=False):
        log: Annotated[list[str], DeltaChannel(lambda before, new: [*before, *new])]

    with pytest.raises(WorkflowRefused, match="DeltaChannel for log"):
        register(sample=workflow_of(line(untyped, schema=Deltas)))


@tool
def open_ticket(subject: str, priority: Literal["low", "high"]) -> str:
    """Open a ticket."""
    return subject


class Later(AgentMiddleware):
    """A middleware that looks at what the model said."""

    def after_model(self, state: Any, runtime: Any) -> None:
        return None


def agent(*middleware: Any) -> Any:
    return create_agent(Scripted(), tools=[open_ticket], middleware=middleware)


@pytest.mark.parametrize(
    "after", [Later(), HumanInTheLoopMiddleware(interrupt_on={"open_ticket": True})], ids=["later", "hitl"]
)
def test_a_middleware_after_the_ledgers_is_refused(register: Register, after: Any) -> None:
    """langgraph.md, LangChain: only the last one proposes first, and sees the call as people leave it."""
    ledger = LedgerMiddleware(tools={"open_ticket": "test.ticket"})

    with pytest.raises(WorkflowRefused, match="LedgerMiddleware must be the last"):
        register(sample=workflow_of(agent(ledger, after)))
    assert register(sample=workflow_of(agent(after, ledger)))


def test_an_effect_type_without_a_contract_is_refused(register: Register) -> None:
    with pytest.raises(WorkflowRefused, match=r"engine_samples:sample .*'moon\.land'"):
        register(sample=workflow_of(line(node), effect_types=("moon.land",)))


assert isinstance(create_offer.wire, HttpWire)
KEYLESS = replace(create_offer.wire, key_header="")


# --- contracts ---------------------------------------------------------------------------------------------------------


def test_contracts_that_do_not_import_are_named(promise: Register) -> None:
    with pytest.raises(ContractError, match="engine_nowhere:CONTRACTS"):
        promise(names=("engine_nowhere:CONTRACTS",))


def test_a_contract_without_a_receiver_is_refused(promise: Register) -> None:
    with pytest.raises(ContractError, match=r"crm\.create_offer .*names no receiver"):
        promise(replace(create_offer, receiver=""))


def test_a_contract_that_stands_twice_is_refused(promise: Register) -> None:
    with pytest.raises(ContractError, match=r"crm\.create_offer stands twice"):
        promise(create_offer, replace(create_offer, version=2))


@pytest.mark.parametrize("wire", [KEYLESS, send_mail.wire])
def test_a_key_that_is_never_sent_is_no_key(promise: Register, wire: Any) -> None:
    """Dedup K sends the same key again after an unknown outcome: without the header that would be a second effect."""
    with pytest.raises(ContractError, match=r"crm\.create_offer says dedup K"):
        promise(replace(create_offer, wire=wire, dedup=Dedup.KEY))


def test_a_mask_that_cannot_be_read_is_refused(promise: Register) -> None:
    """A protected field that is not found would be shown."""
    with pytest.raises(ContractError, match=r"mail\.send has a mask"):
        promise(replace(send_mail, mask=("to..name",)))


def test_a_schema_that_is_none_is_refused_by_name(promise: Register) -> None:
    with pytest.raises(ContractError, match=r"mail\.send"):
        promise(replace(send_mail, schema={"type": "not a type"}))


# --- fingerprints ------------------------------------------------------------------------------------------------------


def test_another_process_finds_the_same_fingerprints(another_process: dict[str, Any]) -> None:
    """A worker claims only runs made with its own: an order that a set's hashing decides would part the workers."""
    assert another_process["fingerprints"] == {name: one.fingerprint for name, one in workflows().items()}


def fingerprint(graph: Any, **fields: Any) -> str:
    return workflow_of(graph, name="sample", version="1", **fields).fingerprint


def test_the_same_code_has_the_same_fingerprint() -> None:
    assert fingerprint(line(node)) == fingerprint(line(node))
    assert fingerprint(line(node)) == fingerprint(line(node).compile())


def _changed(state: State) -> State:
    return {"log": ["changed"]}


_changed.__name__ = "node"


def _inner(body: Callable[[State], State]) -> Any:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("sub", line(body).compile())
    graph.add_edge(START, "sub")
    return graph


def _part(body: Callable[[State], State]) -> Any:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("node", functools.partial(body))
    graph.add_edge(START, "node")
    return graph


def longest(before: list[str], new: list[str]) -> list[str]:
    return max(before, new, key=len)


def _schema(log: Any) -> Any:
    """One name for all: the field's type and reducer are all that differs."""
    return TypedDict("Sample", {"log": log}, total=False)  # type: ignore[operator]


def _of(log: Any) -> Any:
    return line(untyped, schema=_schema(log))


ADDED = Annotated[list[str], operator.add]


def other(state: State) -> State:
    return {}


@pytest.mark.parametrize(
    ("was", "now"),
    [
        pytest.param(lambda: line(node), lambda: line(_changed), id="node-source"),
        pytest.param(lambda: _inner(node), lambda: _inner(_changed), id="source-in-a-subgraph"),
        pytest.param(lambda: _part(node), lambda: _part(_changed), id="source-of-a-partial"),
        pytest.param(lambda: line(node), lambda: line(node, other), id="a-node-more"),
        pytest.param(lambda: line(node, other), lambda: line(other, node), id="order"),
        pytest.param(lambda: _of(list[str]), lambda: _of(list[int]), id="type-of-a-field"),
        pytest.param(lambda: _of(ADDED), lambda: _of(list[str]), id="a-reducer-less"),
        pytest.param(lambda: _of(ADDED), lambda: _of(Annotated[list[str], longest]), id="another-reducer"),
    ],
)
def test_other_code_has_another_fingerprint(was: Callable[[], Any], now: Callable[[], Any]) -> None:
    """langgraph.md, Code drift: each of these goes wrong without an exception when a run meets it."""
    assert fingerprint(was()) != fingerprint(now())


def test_another_input_schema_has_another_fingerprint() -> None:
    workflow = workflow_of(line(node), name="sample", version="1")

    assert (
        workflow.fingerprint
        != replace(workflow, input_schema={"type": "object", "required": ["x"]}).fingerprint
    )


def _twice(engine: Engine) -> tuple[Workflow, Workflow]:
    first = workflow_of(line(node))
    engine.hold(first)
    return first, workflow_of(line(_changed), version=first.version)


def test_in_production_changed_code_under_the_same_version_is_refused(engine: Engine, settings: Any) -> None:
    settings.PRODUCTION = True
    first, second = _twice(engine)

    with pytest.raises(FingerprintChanged, match=first.id):
        engine.hold(second)
    assert (
        WorkflowVersion.objects.get(name=first.name, version=first.version).fingerprint == first.fingerprint
    )


def test_in_development_runs_of_the_old_code_stay_with_it(engine: Engine) -> None:
    """The version's row follows the code; a worker with the new code does not take a run of the old."""
    first, second = _twice(engine)
    run = engine.begin(first)
    engine.hold(second)

    assert execution.execute(run.id) == "not due"
    assert engine.run(second).status == RunStatus.COMPLETED
    engine.process.held[first.id] = first
    assert engine.go(run).status == RunStatus.COMPLETED
