"""An intent and its sending in two nodes, under several names: which worker holds which is a test's choice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from runs.authoring import Workflow, perform, propose

#: What a test has happen in this process between the intent's node and the sending.
between: list[Callable[[], None]] = []


class State(TypedDict, total=False):
    subject: str
    seconds: float
    effect: str
    reference: str


def intend(state: State) -> State:
    proposal = propose(
        "test.slow_offer",
        command="offer",
        customer_id="cus_000003",
        subject=state["subject"],
        lines=[{"sku": "SEAT", "description": "Seat", "quantity": 1, "unit_minor": 900}],
        amount_minor=900,
        currency="EUR",
    )
    for happens in between:
        happens()
    return {"effect": proposal.effect_id}


def send(state: State) -> State:
    time.sleep(state.get("seconds", 0))
    return {"reference": perform(state["effect"]).reference}


graph = StateGraph(State)
graph.add_node("intend", intend)
graph.add_node("send", send)
graph.add_edge(START, "intend")
graph.add_edge("intend", "send")
graph.add_edge("send", END)

#: Held by a worker of the stack.
in_flight = Workflow(
    name="test_in_flight",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test in flight",
    input_schema={
        "type": "object",
        "properties": {"subject": {"type": "string"}, "seconds": {"type": "number"}},
        "required": ["subject"],
        "additionalProperties": False,
    },
    effect_types=("test.slow_offer",),
)
ready = replace(in_flight, name="test_ready", title="Test ready")
lengthy = replace(in_flight, name="test_lengthy", title="Test lengthy", step_seconds=90)
