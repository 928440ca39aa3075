"""The node guard: wraps every node of a registered graph once.

Before the node: the fence. After it: a pause that the node swallowed, an effect that it made before and no longer
asks for, an order to stop that it caught. The stop is a GraphBubbleUp, so no retry policy repeats it, nothing of the
task is saved, and the graph stays where it is.
"""

from __future__ import annotations

import threading
from typing import Any

from django.db import connection
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.pregel import Pregel

from effects.origin import OriginLost
from runs import moves, selectors
from runs.engine import policy
from runs.engine.going import GOING, TASK, ObligationDropped, PauseSwallowed, Stopped, Task, Unrecorded
from runs.models import Asked

#: A compiled graph, whatever its author typed its state and context as.
Graph = Pregel[Any, Any, Any, Any]

_init = GraphInterrupt.__init__


def _noting(self: GraphInterrupt, *args: Any, **kwargs: Any) -> None:
    """Note each pause that is raised, nested frames' too: a node's `except Exception` hides it from everybody else.

    LangGraph has no hook for this. The patch only notes, and only inside a guarded task.
    """
    task = TASK.get()
    if task is not None:
        task.pauses.append(self)
    _init(self, *args, **kwargs)


GraphInterrupt.__init__ = _noting  # type: ignore[method-assign]  # there is no hook: see above


def guard_nodes(graph: Graph) -> None:
    """Wrap every node of *graph* and of the subgraphs that stand in it as nodes. Idempotent."""
    subgraphs = dict(graph.get_subgraphs())
    for name, node in graph.nodes.items():
        if name.startswith("__"):
            continue
        if name in subgraphs and isinstance(node.bound, Pregel):
            guard_nodes(node.bound)
        elif not getattr(node.bound, "signalbox_guarded", False):
            node.bound = _guarded(name, node.bound)


def _guarded(name: str, bound: Runnable[Any, Any]) -> Runnable[Any, Any]:
    def invoke(value: Any, config: RunnableConfig) -> Any:
        going = GOING.get()
        if going is None:
            raise RuntimeError(f"node {name} runs only under a worker of Signalbox")
        going.check()
        task = Task(node=name, going=going, config=config)
        token = TASK.set(task)
        try:
            result = bound.invoke(value, config)
            _nothing_swallowed(task)
        except GraphInterrupt:
            _honour_stop(task)
            task.going.paused_at[task.task_id] = task.position
            raise
        except GraphBubbleUp:
            raise
        except OriginLost as lost:
            raise Stopped(str(lost)) from lost
        except Exception:
            _forget_answers(task)
            task.going.raised.add(task.namespace)
            raise
        finally:
            TASK.reset(token)
            if threading.get_ident() != going.thread:
                # A sibling's thread of the engine's pool: its connection would stay open with it.
                connection.close()
        return result

    runnable = RunnableLambda(invoke, name=name)
    object.__setattr__(runnable, "signalbox_guarded", True)
    return runnable


def _nothing_swallowed(task: Task) -> None:
    _honour_stop(task)
    if task.pauses:
        raise PauseSwallowed(task.node)
    for one in task.all:
        if dropped := selectors.effects_not_asked_again(one.going.run_id, one.position, one.proposed):
            raise ObligationDropped(one.node, dropped)


def _honour_stop(task: Task) -> None:
    if task.stops:
        raise task.stops[0]
    if refused := policy.refused():
        raise Unrecorded(
            f"The node {task.node} made a request of its own to {refused[0]}. It was refused.",
            node=task.node,
            place=task.place,
            kind=Asked.REQUEST,
            name=refused[0],
            asked=list(refused),
        )


def _forget_answers(task: Task) -> None:
    """A task that raised and never had a command or a pause asks anew; its old answers stay as evidence."""
    _honour_stop(task)
    if task.pauses:
        # The node turned its pause into an error of its own: the pause is the truth.
        raise PauseSwallowed(task.node)
    run_id, positions = task.going.run_id, [one.position for one in task.all]
    bound = selectors.has_command(run_id, positions, task.place["namespaces"]) or selectors.has_paused(
        run_id, task.task_id, task.namespace
    )
    if not bound:
        moves.drop_recordings(run_id, positions)
