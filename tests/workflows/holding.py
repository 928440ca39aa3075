"""A node that is in the middle of a transaction, with its run's row locked, for as long as its input says."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.db import transaction
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from runs.authoring import Workflow
from runs.engine.going import current_task


class State(TypedDict, total=False):
    seconds: float
    done: bool


def hold(state: State) -> State:
    going = current_task().going
    mark = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], f"{going.run_id}.held")
    with transaction.atomic():
        going.hold()
        if not mark.exists():
            mark.touch()
            time.sleep(state["seconds"])
    return {"done": True}


graph = StateGraph(State)
graph.add_node("hold", hold)
graph.add_edge(START, "hold")
graph.add_edge("hold", END)

workflow = Workflow(
    name="test_holding",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test holding",
    input_schema={"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
)
