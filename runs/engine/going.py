"""What an execution carries while it goes: whose run it is, by which fence, and what each of its tasks has done."""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import RunControl

from console.kernel.canonical import JSONValue
from effects.intents import Why
from effects.ledger import Visit
from effects.models import Effect, WouldHave
from effects.origin import Inherited, OriginLost, Unpermitted
from effects.states import Stance
from runs import moves, selectors
from runs.engine.position import place_of, position_of
from runs.engine.saver import FencedSaver
from runs.models import Asked


class Stopped(GraphBubbleUp):
    """The execution must not go on: it was fenced out, or the run was cancelled. Never swallowed for good."""


class PauseSwallowed(GraphBubbleUp):
    """A node caught its own pause and returned as if nothing had been asked."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


class ObligationDropped(GraphBubbleUp):
    """A node that made an effect ran again and did not ask for it."""

    def __init__(self, node: str, effect_ids: list[str]) -> None:
        super().__init__(node)
        self.node = node
        self.effect_ids = effect_ids


class Unrecorded(GraphBubbleUp):
    """A run in evidence or simulation asked for what its recording does not hold. Nothing was called."""

    def __init__(
        self,
        message: str,
        *,
        node: str,
        place: dict[str, Any],
        kind: Asked,
        name: str,
        asked: JSONValue,
        recorded_id: str = "",
        recorded_effect: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.place = place
        self.kind = kind
        self.name = name
        self.asked = asked
        self.recorded_id = recorded_id
        self.recorded_effect = recorded_effect


@dataclass
class Going:
    """One execution, as the ledger's origin and as the guard sees it."""

    workspace_id: str
    run_id: str
    customer_ref: str
    conversation_id: str
    fence: int
    worker_id: str
    execution_id: str
    saver: FencedSaver
    effect_types: frozenset[str] = frozenset()
    stance: Stance = Stance.LIVE
    lineage: selectors.Lineage = field(default_factory=lambda: selectors.Lineage(""))
    models_asked: bool = True
    permitted_types: frozenset[str] = frozenset()
    #: The position of each task that paused in this execution, by its id.
    paused_at: dict[str, str] = field(default_factory=dict)
    #: The tasks that raised an error of their own in this execution, by their namespaces.
    raised: set[str] = field(default_factory=set)
    #: The files that its nodes wrote by paths of their own: (node, path).
    written: set[tuple[str, str]] = field(default_factory=set)
    thread: int = field(default_factory=threading.get_ident)
    control: RunControl = field(default_factory=RunControl)

    @property
    def name(self) -> str:
        return self.execution_id

    def hold(self) -> None:
        """Lock the run's row for this transaction; OriginLost when it is not ours any more or is being cancelled."""
        if not moves.hold_for_effect(self.run_id, self.fence):
            raise OriginLost(f"run {self.run_id} is not held by this execution any more")

    def earlier(self, position: str, effect_type: str, command_key: str) -> Effect | None:
        """The effect that the nearest earlier run made at the same place by the same command."""
        return selectors.effect_made_at(self.lineage, position, effect_type, command_key)

    def inherited(self, effect_id: str) -> Inherited | None:
        """What an effect id in the state is, where an earlier run of the lineage made it."""
        return selectors.inherited_effect(self.lineage, effect_id) if self.lineage.earlier else None

    def intended_before(self, would_have_id: str) -> WouldHave | None:
        """What an earlier simulation of the lineage would have sent under this id."""
        return selectors.intended_before(self.lineage, would_have_id) if self.lineage.earlier else None

    def check_permitted(self) -> None:
        """Whoever set this run going last must still be allowed to: permissions are those of now, not of then."""
        if refusal := selectors.lost_right_to_run(self.run_id):
            raise Unpermitted(refusal)

    def has_raised(self, namespace: str) -> bool:
        """Whether the task of this namespace raised in this execution, or one whose node called its graph."""
        return any(namespace == one or namespace.startswith(f"{one}|") for one in self.raised)

    def drain(self, reason: str) -> None:
        """Have the engine stop after the superstep that it is in. Any thread may call it, before the start too."""
        self.control.request_drain(reason)

    def check(self) -> None:
        """Before and after a node: go on only while nothing has refused our writes, or refused the node a request."""
        if self.saver.lost.is_set():
            raise Stopped("fenced out")


@dataclass
class Task:
    """One go at one node.

    A graph that the node calls by itself has tasks of its own, each with its own place and its own counts; *visit*,
    *pauses* and *stops* are the whole go's.
    """

    node: str
    going: Going
    config: RunnableConfig
    visit: Visit = field(default_factory=Visit)
    pauses: list[Any] = field(default_factory=list)
    stops: list[BaseException] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    proposed: set[str] = field(default_factory=set)
    last_recording: str = ""
    inner: dict[str, Task] = field(default_factory=dict)

    def stop(self, error: BaseException) -> BaseException:
        """Note an order to stop, for the guard to see even if the node catches it; to be raised."""
        self.stops.append(error)
        return error

    @cached_property
    def namespace(self) -> str:
        return str(self.config["metadata"]["langgraph_checkpoint_ns"])

    @property
    def task_id(self) -> str:
        """The engine's id of this task: the end of its namespace."""
        return self.namespace.rsplit("|", 1)[-1].rpartition(":")[2]

    @cached_property
    def place(self) -> dict[str, Any]:
        return place_of(self.config)

    @cached_property
    def position(self) -> str:
        return position_of(self.place)

    @property
    def all(self) -> list[Task]:
        """This task and those of the graphs that its node called."""
        return [self, *self.inner.values()]

    def at(self, config: RunnableConfig) -> Task:
        """The task that *config* belongs to: this one, or one of a graph that its node called."""
        namespace = str(config["metadata"]["langgraph_checkpoint_ns"])
        if namespace == self.namespace:
            return self
        node = str(config["metadata"]["langgraph_node"])
        made = Task(node, self.going, config, self.visit, self.pauses, self.stops)
        return self.inner.setdefault(namespace, made)

    def why(self, *, tool: str = "", tool_call_id: str = "", arguments: Any = None) -> Why:
        return Why(
            position=self.position,
            place=self.place,
            node=self.node,
            tool=tool,
            tool_call_id=tool_call_id,
            arguments=arguments,
            recording_id=self.last_recording,
        )


GOING: ContextVar[Going | None] = ContextVar("signalbox_going", default=None)
TASK: ContextVar[Task | None] = ContextVar("signalbox_task", default=None)


def current_task() -> Task:
    """The task that is running. RuntimeError outside a node of a run: effects belong to runs."""
    task = TASK.get()
    if task is None:
        raise RuntimeError("This may only be called inside a node of a workflow that a worker runs.")
    return task.at(get_config())
