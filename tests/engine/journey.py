"""A graph with everything in it that a copy could lose: a loop, a join, Send ×4, a subgraph, two pauses, effects."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from runs.authoring import (
    Workflow,
    ask_approval,
    ask_model,
    perform,
    recorded_fact,
    recorded_tool,
)
from tests.engine.recovering import Killed
from tests.engine.workflows import Scripted, offer, said, workflow_of


class Journey(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    rounds: int
    item: str
    answers: Annotated[list[str], operator.add]
    offer: str
    second: str


class Inner(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    answers: Annotated[list[str], operator.add]


class Outside:
    """What lies outside of the graph; each call is counted. *crashes*: the worker is killed there once."""

    def __init__(self, *, crashes: bool = True) -> None:
        self.model = Scripted()
        self.calls = itertools.count(1)
        self.asked = 0
        self.crashes = [True] if crashes else []

    def read(self) -> str:
        self.asked += 1
        return f"reading {next(self.calls)}"

    @property
    def times(self) -> int:
        return self.asked + self.model.times


def journey(outside: Outside) -> Workflow:
    """The workflow; what it asks is asked of *outside*."""

    def loop(state: Journey) -> dict[str, Any]:
        rounds = state.get("rounds", 0) + 1
        return {"rounds": rounds, "log": [ask_model(outside.model, said("The same each time.")).text]}

    def left(state: Journey) -> dict[str, Any]:
        return {"log": [str(recorded_fact("time", outside.read))]}

    def right(state: Journey) -> dict[str, Any]:
        if outside.crashes:
            outside.crashes.pop()
            raise Killed
        return {"log": [str(recorded_tool("search", {"for": "it"}, outside.read))]}

    def fork(state: Journey) -> dict[str, Any]:
        return {"log": ["forked"]}

    def join(state: Journey) -> dict[str, Any]:
        return {"log": ["joined"]}

    def spread(state: Journey) -> list[Send]:
        return [Send("each", {"item": item}) for item in "abcd"]

    def each(state: Journey) -> dict[str, Any]:
        return {"log": [f"{state['item']}: {ask_model(outside.model, said('An item.')).text}"]}

    def asks(state: Journey) -> dict[str, Any]:
        return {"answers": [f"first {interrupt('May it go on?')}"]}

    def inner_a(state: Inner) -> dict[str, Any]:
        return {"log": [f"inner {ask_model(outside.model, said('Within.')).text}"]}

    def inner_b(state: Inner) -> dict[str, Any]:
        return {"answers": [f"second {interrupt('And within?')}"]}

    def inner_c(state: Inner) -> dict[str, Any]:
        return {"log": ["inner c"]}

    def proposes(state: Journey) -> dict[str, Any]:
        proposal = offer("asked", kind="test.asked_offer")
        decided = ask_approval(proposal)
        return {"offer": proposal.effect_id, "log": [f"approved: {decided.approved}"]}

    def sends(state: Journey) -> dict[str, Any]:
        return {"log": [f"offer {perform(state['offer']).status}"]}

    def sends_final(state: Journey) -> dict[str, Any]:
        return {"log": [f"final {perform(offer('final', kind='test.final_offer', amount=900)).status}"]}

    inner: StateGraph[Any, Any, Any, Any] = StateGraph(Inner)
    for node in (inner_a, inner_b, inner_c):
        inner.add_node(node.__name__, node)
    inner.add_edge(START, "inner_a")
    inner.add_edge("inner_a", "inner_b")
    inner.add_edge("inner_b", "inner_c")
    inner.add_edge("inner_c", END)

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Journey)
    for one in (loop, fork, left, right, join, each, asks, proposes, sends, sends_final):
        graph.add_node(one.__name__, one)
    graph.add_node("within", inner.compile())
    graph.add_edge(START, "loop")
    graph.add_conditional_edges("loop", lambda s: "loop" if s["rounds"] < 3 else "fork", ["loop", "fork"])
    graph.add_edge("fork", "left")
    graph.add_edge("fork", "right")
    graph.add_edge(["left", "right"], "join")
    graph.add_conditional_edges("join", spread, ["each"])
    graph.add_edge("each", "asks")
    graph.add_edge("asks", "within")
    graph.add_edge("within", "proposes")
    graph.add_edge("proposes", "sends")
    graph.add_edge("sends", "sends_final")
    graph.add_edge("sends_final", END)
    return workflow_of(graph, effect_types=("test.asked_offer", "test.final_offer"))
