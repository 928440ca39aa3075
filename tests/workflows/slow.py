"""A node that takes as long as its input says, before and after an effect; asked to, it is stopped in the middle."""

from __future__ import annotations

import time

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from runs.authoring import Workflow, perform, propose


class State(TypedDict, total=False):
    seconds: float
    subject: str
    reference: str


def work(state: State) -> State:
    proposal = propose(
        "test.offer_by_key",
        command="offer",
        customer_id="cus_000002",
        subject=state["subject"],
        lines=[{"sku": "SEAT", "description": "Seat", "quantity": 1, "unit_minor": 700}],
        amount_minor=700,
        currency="GBP",
    )
    time.sleep(state["seconds"])
    return {"reference": perform(proposal).reference}


def after(state: State) -> State:
    return {"subject": state["subject"] + " (done)"}


graph = StateGraph(State)
graph.add_node("work", work)
graph.add_node("after", after)
graph.add_edge(START, "work")
graph.add_edge("work", "after")
graph.add_edge("after", END)

workflow = Workflow(
    name="test_slow",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test slow",
    input_schema={
        "type": "object",
        "properties": {"seconds": {"type": "number"}, "subject": {"type": "string"}},
        "required": ["seconds", "subject"],
        "additionalProperties": False,
    },
    effect_types=("test.offer_by_key",),
    step_seconds=20,
)
