"""The slow workflow under a name that no worker of the stack holds: the tests start and stop its workers.

A run sleeps the first time only. So the first worker can be given all the time that a test needs to stop it in its sleep, and who
takes the run over needs none.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from langgraph.graph import END, START, StateGraph

from runs.engine.going import current_task
from tests.workflows import slow


def work(state: slow.State) -> slow.State:
    slept = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], f"{current_task().going.run_id}.slept")
    if slept.exists():
        state = {**state, "seconds": 0}
    slept.touch()
    return slow.work(state)


graph = StateGraph(slow.State)
graph.add_node("work", work)
graph.add_node("after", slow.after)
graph.add_edge(START, "work")
graph.add_edge("work", "after")
graph.add_edge("after", END)

workflow = replace(slow.workflow, name="test_sleeper", graph=graph)
