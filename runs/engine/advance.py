"""Take a run as far as it goes: plan, stream, and say how it ended. Writes checkpoints only through the fenced saver."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import django.db
import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp, GraphDrained, GraphRecursionError
from langgraph.types import (
    Command,
    Send,
    StateSnapshot,
    _interrupt_id,  # not public; a test holds it to what the engine gives
)
from psycopg_pool import PoolTimeout

from console.kernel.canonical import canonicalise, request_hash, to_plain
from console.kernel.texts import storable
from effects.intents import Conflict
from effects.ledger import Blocked, Refused, Unreachable
from effects.origin import Unpermitted
from runs.engine.going import GOING, Going, ObligationDropped, PauseSwallowed, Stopped, Unrecorded
from runs.engine.guard import Graph
from runs.engine.registry import Workflow
from runs.engine.saver import FencedSaver, FenceLost, OursFailed, StateRefused
from runs.models import Asked
from runs.states import ANSWERED_BY_ENGINE, Failure, PauseKind

logger = logging.getLogger(__name__)

#: Marks the values of our own interrupts. They are woken and read the ledger; no answer goes through the engine.
OURS = "signalbox"

#: For a pause that nobody has decided about yet.
NO_ANSWER: Final = object()


@dataclass(frozen=True)
class PendingPause:
    """A pending interrupt of the newest checkpoint."""

    interrupt_id: str
    namespace: str
    task_id: str
    node: str
    kind: PauseKind
    value: Any
    value_hash: str
    effect_id: str = ""
    answered: bool = False
    raised: bool = False
    position: str = ""
    answers_before: int = 0
    response_schema: Any = None
    calls: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Ended:
    """How an execution of the engine ended. Settling turns it into a status, from the rows as they are then."""

    finished: bool = False
    drained: str = ""
    stopped: bool = False
    failure: Failure | None = None
    problem: str = ""
    of: str = ""
    effect_id: str = ""
    dropped: tuple[str, ...] = ()
    pauses: tuple[PendingPause, ...] = ()
    checkpoint_id: str = ""
    unrecorded: Unrecorded | None = None


@dataclass
class Watch:
    """What the caller wants to hear while the engine goes."""

    step_began: Callable[[str, str, str, int], None]
    step_ended: Callable[[str, str, str, str], None]
    step_said: Callable[[str, str], None] = field(default=lambda _namespace, _words: None)
    answer_for: Callable[[PendingPause], Any] = field(default=lambda _: NO_ANSWER)
    #: Whether a person wants this interrupt asked again, whose answer made its node fail.
    asked_again: Callable[[str], bool] = field(default=lambda _: False)
    #: Whether what people answered is all known beforehand, as in a recording: it goes on past each pause at once.
    answers_are_recorded: bool = False


def advance(
    workflow: Workflow,
    going: Going,
    *,
    given: dict[str, Any],
    watch: Watch,
    recursion_limit: int,
) -> Ended:
    """Run the workflow from where its newest checkpoint stands until it finishes, pauses, fails or is drained.

    Nothing that a node raises comes out of here; what does is a fault of ours or of the database.
    """
    graph = _with_saver(workflow, going)
    config: RunnableConfig = {
        "configurable": {"thread_id": going.run_id},
        "recursion_limit": recursion_limit,
        "metadata": {"console_run_id": going.run_id},
    }
    while True:
        ended = _go(workflow, graph, config, going, given, watch)
        if not (watch.answers_are_recorded and _answerable(ended, watch)):
            return ended


def _answerable(ended: Ended, watch: Watch) -> bool:
    """Whether it stands at a pause whose answer is there."""
    if ended.failure or ended.stopped or ended.drained or ended.finished:
        return False
    return any(watch.answer_for(pause) is not NO_ANSWER for pause in ended.pauses if _takes_answer(pause))


def _takes_answer(pause: PendingPause) -> bool:
    return not pause.answered and pause.kind in ANSWERED_BY_ENGINE


def _go(
    workflow: Workflow,
    graph: Graph,
    config: RunnableConfig,
    going: Going,
    given: dict[str, Any],
    watch: Watch,
) -> Ended:
    """From where the newest checkpoint stands to the next pause or the end."""
    try:
        snapshot = graph.get_state(config, subgraphs=True)
    except _DATABASE_FAULTS:
        raise
    except Exception as error:
        return _unreadable(error)
    if problem := _drift(graph, snapshot):
        return Ended(failure=Failure.VERSION_MISMATCH, problem=problem)
    if _forget_answers(graph, snapshot, going, watch):
        snapshot = graph.get_state(config, subgraphs=True)
    todo = _plan(graph, snapshot, workflow, given, watch, going)
    if todo is _NOTHING:
        return _ended_at(graph, config, Ended(finished=True), going)
    token = GOING.set(going)
    try:
        newest = {"": int((snapshot.metadata or {}).get("step", -2))}
        ended = _stream(graph, config, todo, going, _Listener(watch, newest))
    finally:
        GOING.reset(token)
    return ended if ended.stopped else _ended_at(graph, config, ended, going)


def _forget_answers(graph: Graph, snapshot: StateSnapshot, going: Going, watch: Watch) -> bool:
    """Take away every answer of a task of which one is to be asked again: the engine keeps them for ever.

    langgraph.md, Continue: the pauses come again, in their order, with the same ids and values.
    """
    forgotten = False
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot):
            forgotten |= _forget_answers(graph, task.state, going, watch)
        where = snapshot.config["configurable"]
        namespace = _namespace_of(snapshot, task)
        given = [_interrupt_id(namespace, index) for index in range(len(_answers(graph, snapshot, task)))]
        pending = [interrupt.id for interrupt in task.interrupts]
        if any(watch.asked_again(interrupt_id) for interrupt_id in {*given, *pending}):
            above = str(where.get("checkpoint_ns") or "")
            forgotten |= going.saver.forget_answers(above, task.id, within=namespace)
    return forgotten


_NOTHING = object()
#: Faults of ours, not of the run's state: they come out, the lease ends, and the sweep takes the run up again.
_DATABASE_FAULTS = (psycopg.Error, PoolTimeout, django.db.DatabaseError, django.db.InterfaceError)


def _unreadable(error: Exception) -> Ended:
    """The newest checkpoint can't be read back: the run fails and says so, instead of losing worker after worker."""
    return Ended(failure=Failure.STATE_INVALID, problem=f"Its saved state can't be read: {error}")


def _with_saver(workflow: Workflow, going: Going) -> Graph:
    allowed = getattr(workflow.compiled, "_serde_allowlist", None)
    if allowed:
        copied = going.saver.with_allowlist(allowed)
        assert isinstance(copied, FencedSaver)
        going.saver = copied
    return workflow.compiled.copy({"checkpointer": going.saver})


def _drift(graph: Graph, snapshot: StateSnapshot) -> str:
    """In words, what of the checkpoint the graph no longer has.

    It is read from what is stored: what comes next is computed from the graph as it is now, so that a step which was
    taken out simply does not come, and the engine would call the run finished.
    """
    stored = _saver(graph).get_tuple(snapshot.config)
    if stored is None:
        return ""
    values = stored.checkpoint["channel_values"]
    triggered = {name.removeprefix(_BRANCH) for name in values if name.startswith(_BRANCH)}
    sent = {send.node for send in values.get("__pregel_tasks", ()) if isinstance(send, Send)}
    missing = sorted((triggered | sent | set(snapshot.next)) - set(graph.nodes))
    if missing:
        return f"The next step is {', '.join(missing)}, which this version of the workflow does not have."
    return ""


_BRANCH = "branch:to:"


def _plan(
    graph: Graph,
    snapshot: StateSnapshot,
    workflow: Workflow,
    given: dict[str, Any],
    watch: Watch,
    going: Going,
) -> Any:
    """What to hand to the engine: the input, answers by interrupt id, None to go on, or nothing to do at all."""
    if snapshot.created_at is None:
        return workflow.to_state(given)
    if not _left(snapshot):
        return _NOTHING
    answers = {}
    for pause in _pauses(graph, snapshot, going):
        if not _takes_answer(pause):
            continue
        answer = watch.answer_for(pause)
        if answer is not NO_ANSWER:
            answers[pause.interrupt_id] = answer
    return Command(resume=answers) if answers else None


def _left(snapshot: StateSnapshot) -> bool:
    """Whether the graph has anything left to do.

    Not ``snapshot.next``: that leaves out tasks whose writes are saved. Where a worker was lost between a step's last
    write and its checkpoint it is empty, and all that the graph has still to do comes after it.
    """
    return bool(snapshot.tasks)


def _stream(graph: Graph, config: RunnableConfig, todo: Any, going: Going, listener: _Listener) -> Ended:
    try:
        for part in graph.stream(
            todo,
            config,
            stream_mode=["tasks", "checkpoints", "custom"],
            subgraphs=True,
            version="v2",
            durability="sync",
            control=going.control,
        ):
            _hear(listener, part)
    except GraphDrained as drained:
        return Ended(drained=drained.reason)
    except (Stopped, FenceLost):
        return Ended(stopped=True)
    except OursFailed:
        raise
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return _failed(error)
    return Ended(finished=True)


def _hear(listener: _Listener, part: Mapping[str, Any]) -> None:
    try:
        listener.hear(part)
    except (django.db.DatabaseError, django.db.InterfaceError) as error:
        raise OursFailed(str(error)) from error


@dataclass
class _Listener:
    """Turns the engine's stream into steps. A task's superstep is one past its namespace's newest checkpoint."""

    watch: Watch
    newest: dict[str, int] = field(default_factory=dict)

    def hear(self, part: Mapping[str, Any]) -> None:
        namespace = "|".join(part["ns"])
        data = part["data"]
        if part["type"] == "checkpoints":
            self.newest[namespace] = int(data["metadata"].get("step", -1))
        elif part["type"] == "tasks" and "triggers" in data:
            self.watch.step_began(namespace, data["id"], data["name"], self.newest.get(namespace, -1) + 1)
        elif part["type"] == "custom":
            self.watch.step_said(namespace, data if isinstance(data, str) else json.dumps(data, default=str))
        elif part["type"] == "tasks":
            self.watch.step_ended(namespace, data["id"], *_outcome_of(data))


def _outcome_of(data: Mapping[str, Any]) -> tuple[str, str]:
    error = data.get("error")
    if error is not None:
        words = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        return "failed", storable(words, LONGEST_PROBLEM)
    return ("paused", "") if data.get("interrupts") else ("done", "")


def _failed(error: BaseException) -> Ended:
    """The failure code of what a node raised, and the node or receiver it names."""
    cause = _innermost(error)
    problem = storable(f"{type(cause).__name__}: {cause}", LONGEST_PROBLEM)
    if isinstance(cause, PauseSwallowed):
        return Ended(
            failure=Failure.PAUSE_SWALLOWED,
            problem=f"The node {cause.node} caught its own pause and went on. Nothing of it was saved.",
            of=cause.node,
        )
    if isinstance(cause, ObligationDropped):
        return Ended(
            failure=Failure.OBLIGATION_DROPPED,
            problem=f"The node {cause.node} made {', '.join(cause.effect_ids)} and no longer asks for it.",
            of=cause.node,
            dropped=tuple(cause.effect_ids),
        )
    if isinstance(cause, Unrecorded):
        code = Failure.STRAY_REQUEST if cause.kind == Asked.REQUEST else Failure.NOT_RECORDED
        return Ended(failure=code, problem=cause.message, of=cause.node, unrecorded=cause)
    if isinstance(cause, GraphBubbleUp):
        return Ended(failure=Failure.NODE_ERROR, problem=problem)
    if isinstance(cause, StateRefused):
        return Ended(failure=Failure.STATE_INVALID, problem=str(cause))
    if isinstance(cause, GraphRecursionError):
        return Ended(failure=Failure.LIMIT, problem="It took more steps than it may.")
    if refused := _refusal_in(cause):
        code = _FAILED_BY.get(type(refused), Failure.EFFECT_REFUSED)
        return Ended(failure=code, problem=refused.message, of=refused.receiver, effect_id=refused.effect_id)
    if isinstance(cause, Unpermitted):
        return Ended(failure=Failure.NOT_PERMITTED, problem=cause.message)
    if isinstance(cause, Conflict):
        return Ended(failure=Failure.EFFECT_CONFLICT, problem=cause.message)
    return Ended(failure=Failure.NODE_ERROR, problem=problem, of=_node_of(error))


_FAILED_BY = {Unreachable: Failure.RECEIVER_UNREACHABLE, Blocked: Failure.EFFECT_BLOCKED}


def _refusal_in(error: BaseException) -> Refused | None:
    """The receiver's refusal that the error is, or that a node wrapped in an error of its own."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, Refused):
            return at
        at = at.__cause__
    return None


def _innermost(error: BaseException) -> BaseException:
    """Several siblings' errors may come in a group; the first one names the failure."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _node_of(error: BaseException) -> str:
    """LangGraph notes the task's name on what a node raised."""
    for note in getattr(error, "__notes__", []):
        if note.startswith("During task with name '"):
            return str(note.split("'")[1])
    return ""


def _ended_at(graph: Graph, config: RunnableConfig, ended: Ended, going: Going) -> Ended:
    """Fold in what the newest checkpoint says: a stream that ended with something next has paused."""
    try:
        snapshot = graph.get_state(config, subgraphs=True)
    except _DATABASE_FAULTS:
        raise
    except Exception as error:
        return ended if ended.failure else _unreadable(error)
    checkpoint = (snapshot.config.get("configurable") or {}).get("checkpoint_id", "")
    return replace(
        ended,
        finished=ended.finished and not _left(snapshot),
        pauses=tuple(_pauses(graph, snapshot, going)),
        checkpoint_id=str(checkpoint),
    )


def _pauses(graph: Graph, snapshot: StateSnapshot, going: Going) -> list[PendingPause]:
    """The pending interrupts, each with the place of its task where it paused in this execution."""
    return [
        replace(
            pause,
            position=going.paused_at.get(pause.task_id, ""),
            raised=going.has_raised(_below(pause.namespace, pause.node, pause.task_id)),
        )
        for pause in pauses_of(graph, snapshot)
    ]


def pauses_of(graph: Graph, snapshot: StateSnapshot) -> list[PendingPause]:
    """The pending interrupts, each with the task that raised it and whether its answer is stored already."""
    found = []
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot) and any(inner.interrupts for inner in task.state.tasks):
            # The task is a subgraph: the pause, and its stored answer, belong to a task in its namespace.
            found.extend(pauses_of(graph, task.state))
        else:
            found.extend(_pause(graph, snapshot, task, interrupt) for interrupt in task.interrupts)
    return found


def _pause(graph: Graph, snapshot: StateSnapshot, task: Any, interrupt: Any) -> PendingPause:
    value: Any = to_plain(_plain(interrupt.value))
    kind = kind_of_pause(value)
    where = snapshot.config["configurable"]
    return PendingPause(
        interrupt_id=interrupt.id,
        namespace=str(where.get("checkpoint_ns", "")),
        task_id=task.id,
        node=task.name,
        kind=kind,
        value=value,
        value_hash=request_hash(canonicalise(value)),
        effect_id=value["effect_id"] if kind in (PauseKind.EFFECT_WAIT, PauseKind.EFFECT_APPROVAL) else "",
        answered=_answered(graph, snapshot, task, interrupt.id),
        answers_before=len(_answers(graph, snapshot, task)),
        response_schema=interrupt.response_schema,
        calls=_tool_calls(snapshot.values) if kind == PauseKind.ACTIONS else (),
    )


def kind_of_pause(value: Any) -> PauseKind:
    if isinstance(value, dict):
        if value.get(OURS) == "wait":
            return PauseKind.EFFECT_WAIT
        if value.get(OURS) == "approval":
            return PauseKind.EFFECT_APPROVAL
        if _are_actions(value.get("action_requests")) or (
            value.get("type") == "tool_approval" and _are_actions([value])
        ):
            return PauseKind.ACTIONS
    inbox = value if isinstance(value, list) else [value]
    if inbox and all(isinstance(one, dict) and isinstance(one.get("action_request"), dict) for one in inbox):
        return PauseKind.ACTIONS
    return PauseKind.QUESTION


def _are_actions(value: Any) -> bool:
    """A list of LangChain's action requests: each with a name and arguments. Anything else is a plain question."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("args"), dict)
            for one in value
        )
    )


def _plain(value: Any, depth: int = 0) -> Any:
    """Interrupt values are the author's: what JSON lacks, or can't carry exactly, is shown as its text."""
    if depth < DEEPEST and isinstance(value, Mapping):
        return {storable(str(key), 200): _plain(one, depth + 1) for key, one in value.items()}
    if depth < DEEPEST and isinstance(value, (list, tuple)):
        return [_plain(one, depth + 1) for one in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) <= EXACT:
        return value
    return storable(str(value), 1_000_000)


LONGEST_PROBLEM = 4000
#: Deeper, and larger, than anything that is put before a person.
DEEPEST = 40
EXACT = 2**53 - 1


def _answered(graph: Graph, snapshot: StateSnapshot, task: Any, interrupt_id: str) -> bool:
    """Whether this pause's answer is stored: it is delivered, whatever became of the task.

    An interrupt's id is made of its task's namespace and of how many answers the task had by then.
    """
    namespace = _namespace_of(snapshot, task)
    answers = _answers(graph, snapshot, task)
    return any(interrupt_id == _interrupt_id(namespace, index) for index in range(len(answers)))


def _namespace_of(snapshot: StateSnapshot, task: Any) -> str:
    """The task's own namespace: its checkpoint's, then its name and id."""
    above = str(snapshot.config["configurable"].get("checkpoint_ns") or "")
    return _below(above, task.name, task.id)


def _below(namespace: str, node: str, task_id: str) -> str:
    return f"{namespace}|{node}:{task_id}" if namespace else f"{node}:{task_id}"


def _answers(graph: Graph, snapshot: StateSnapshot, task: Any) -> list[Any]:
    """The answers that are stored for a task, in the order of its pauses."""
    stored = _saver(graph).get_tuple(snapshot.config)
    writes = stored.pending_writes or [] if stored else []
    return next((value for by, channel, value in writes if channel == "__resume__" and by == task.id), [])


def _saver(graph: Graph) -> BaseCheckpointSaver[Any]:
    assert isinstance(graph.checkpointer, BaseCheckpointSaver)
    return graph.checkpointer


def _tool_calls(values: Any) -> tuple[dict[str, Any], ...]:
    """The tool calls of the newest message: what an agent's pause is about."""
    messages = values.get("messages", []) if isinstance(values, Mapping) else []
    return tuple(getattr(messages[-1], "tool_calls", ()) or ()) if messages else ()
