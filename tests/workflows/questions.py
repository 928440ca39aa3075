"""Two nodes that pause at once, each with a question of its own; one of them is slow to take its answer."""

from __future__ import annotations

import operator
import time
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from runs.authoring import Workflow


class State(TypedDict, total=False):
    slow: float
    answers: Annotated[list[str], operator.add]


def _schema() -> dict[str, Any]:
    return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def first(state: State) -> State:
    answer = interrupt({"question": "Which colour?"}, response_schema=_schema())
    time.sleep(state.get("slow", 0))
    return {"answers": [f"first:{answer['text']}"]}


def second(state: State) -> State:
    answer = interrupt({"question": "Which size?"}, response_schema=_schema())
    return {"answers": [f"second:{answer['text']}"]}


graph = StateGraph(State)
graph.add_node("first", first)
graph.add_node("second", second)
graph.add_edge(START, "first")
graph.add_edge(START, "second")
graph.add_edge("first", END)
graph.add_edge("second", END)

workflow = Workflow(
    name="test_questions",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test questions",
    input_schema={
        "type": "object",
        "properties": {"slow": {"type": "number"}},
        "additionalProperties": False,
    },
)
