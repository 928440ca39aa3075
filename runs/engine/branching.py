"""The engine's part of Create branch: what an edited state leads to, first computed, then written to a run of its own.

LangGraph's update_state does the edit, as the output of the node that led to the checkpoint: that node's edges and
routers run again on the edited state. It is done in memory, on a copy that keeps the checkpoint's id, so that nothing
is written before a person has seen what comes of it, and no code of the workflow runs inside the command's
transaction. tests/engine/test_branch.py holds the pinned version to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from django.db import connection
from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.last_value import LastValue
from langgraph.checkpoint.base import ChannelVersions, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base import Checkpoint as Saved
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, Send, StateSnapshot, StateUpdate
from psycopg import Cursor
from psycopg.rows import DictRow, dict_row
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from console.kernel.canonical import JSONValue
from console.kernel.errors import AlreadyDone, Invalid
from runs.engine.copying import NothingToCopy
from runs.engine.guard import Graph
from runs.engine.registry import Workflow, workflows
from runs.engine.saver import SCHEMA, Saver, StateRefused, refuse_unreadable
from runs.models import Checkpoint, Run

#: Channels that are the engine's own and no part of the state.
_INTERNAL = ("__", "branch:to:", "join:")

Joins = Literal["", "messages", "reducer"]

#: What may be done to a field: how its new value comes about.
REPLACE, APPEND, EDIT, REMOVE = "replace", "append", "edit", "remove"
_WAYS: dict[Joins, frozenset[str]] = {
    "": frozenset({REPLACE}),
    "reducer": frozenset({REPLACE, APPEND}),
    "messages": frozenset({REPLACE, APPEND, EDIT, REMOVE}),
}

#: Field → way → value, as the form and the API give it.
Edit = Mapping[str, Mapping[str, JSONValue]]
#: A value as the engine keeps it: its kind and its bytes.
Kept = tuple[str, bytes]


#: The engine's own node that takes the input in: what the first checkpoint of a graph counts as the output of.
FIRST_NODE = START


class Drifted(AlreadyDone):
    """The version that the run was made with is not here: what an edit would lead to can't be known."""

    code = "version_mismatch"


@dataclass(frozen=True)
class StateField:
    """A field of the state that a branch may change. *joins*: how a node's output joins what is there already."""

    name: str
    joins: Joins = ""
    reducer: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def explained(self) -> str:
        """How a changed value is taken, in words."""
        if self.joins == "messages":
            return (
                "Messages are told apart by their ids: one with an id that is there takes that one's place, any other "
                "is appended. What is removed is gone for the branch alone."
            )
        if self.joins == "reducer":
            return (
                f"What nodes give joins what is there ({self.reducer}). Append does the same; "
                "replace sets the whole field, past the reducer."
            )
        return "The new value replaces the old one."


@dataclass(frozen=True)
class Edited:
    """What an edit leads to. Nothing of it is written yet; :func:`write_edited` writes it."""

    as_node: str
    next_nodes: list[str]
    next_before: list[str]
    #: The engine's ids of the tasks that come next, by which a test knows them again.
    task_ids: list[str]
    #: What the node itself decided to come next, without an edge: it stays as it was decided.
    held: list[str]
    before: dict[str, Kept]
    after: dict[str, Kept]
    checkpoint: Saved
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    writes: list[tuple[list[tuple[str, Any]], str]]


def workflow_of(run: Run) -> Workflow:
    """The code that the run was made with. Raises Drifted where this deployment holds another, or none."""
    workflow = workflows().get(str(run.workflow))
    if workflow is None:
        raise Drifted(
            f"This console does not hold {run.workflow}, so it can't compute what the edit leads to."
        )
    if workflow.fingerprint != run.fingerprint:
        raise Drifted(
            f"The code of {run.workflow} has changed since the run was made: its state may mean something else now."
        )
    return workflow


def fields_of(workflow: Workflow) -> dict[str, StateField]:
    """What of the state may be edited, by name."""
    properties = workflow.state_schema.get("properties", {})
    found = {}
    for name, channel in workflow.compiled.channels.items():
        if name.startswith(_INTERNAL):
            continue
        if isinstance(channel, BinaryOperatorAggregate):
            joins: Joins = "messages" if channel.operator is add_messages else "reducer"
            reducer = getattr(channel.operator, "__name__", type(channel.operator).__name__)
            found[name] = StateField(name, joins, reducer, properties.get(name, {}))
        elif isinstance(channel, LastValue):
            found[name] = StateField(name, schema=properties.get(name, {}))
    return found


def edited(
    workflow: Workflow, source: Checkpoint, edit: Edit, *, as_node: str, predecessors: Sequence[str]
) -> Edited:
    """Compute what *edit* leads to from the checkpoint, as the output of *as_node*, one of *predecessors*.

    *predecessors* are the nodes whose work led to the checkpoint: those beside *as_node* keep the way that they chose.
    Raises NothingToCopy, and Invalid that names the field: unknown, not of its type, not changed, not storable.
    """
    memory, stored = _in_memory(workflow, source)
    graph = workflow.compiled.copy({"checkpointer": memory})
    standing = graph.get_state(at(source))
    values = stored.checkpoint["channel_values"]
    if as_node == FIRST_NODE:
        _refuse_what_is_no_input(workflow, edit)
    update = {
        name: _update_of(graph, one, ways, values.get(name), f"{source.id}:{name}")
        for name, one, ways in _known(workflow, edit)
    }
    goto = _chosen_without_edges(workflow, source, standing, predecessors)
    given: Any = Command(update=update, goto=goto) if goto else update
    written = _updated(graph, source, given, as_node, predecessors)
    saved, _, new_versions = memory.puts[-1]
    _refuse_what_stays(memory, update, values, saved["channel_values"])
    try:
        refuse_unreadable(reading(workflow), saved, new_versions)
    except StateRefused as refused:
        raise Invalid(f"{str(refused)[:1].upper()}{str(refused)[1:]}.") from refused
    held = sorted({one.node if isinstance(one, Send) else one for one in goto})
    return told_by(memory, graph.get_state(written), standing, before=values, as_node=as_node, held=held)


def told_by(
    memory: Memory,
    after: StateSnapshot,
    standing: StateSnapshot,
    *,
    before: Mapping[str, Any],
    as_node: str,
    held: Sequence[str] = (),
) -> Edited:
    """What an update of the copy in *memory* came to: *standing* is where it stood before, *after* where it does now."""
    saved, metadata, new_versions = memory.puts[-1]
    return Edited(
        as_node=as_node,
        next_nodes=_names(after),
        next_before=_names(standing),
        task_ids=sorted(task.id for task in after.tasks),
        held=list(held),
        before=_kept(memory, before),
        after=_kept(memory, saved["channel_values"]),
        checkpoint=saved,
        metadata=metadata,
        new_versions=new_versions,
        writes=memory.later_writes,
    )


def write_edited(edit: Edited, source: Checkpoint, run: Run) -> Checkpoint:
    """Write the edited checkpoint after the copy of *source* in *run*'s thread. Inside the command's transaction.

    Runs no code of the workflow. Returns our index row; fence 0 says that no execution of the run wrote it.
    """
    saver = _InTransaction()
    config: RunnableConfig = {
        "configurable": {"thread_id": run.id, "checkpoint_ns": "", "checkpoint_id": source.engine_id}
    }
    metadata: Any = {**edit.metadata, "console_run_id": run.id}
    written = saver.put(config, edit.checkpoint, metadata, edit.new_versions)
    for writes, task_id in edit.writes:
        saver.put_writes(written, writes, task_id)
    values = edit.checkpoint["channel_values"]
    return Checkpoint.objects.create(
        run=run,
        namespace="",
        engine_id=edit.checkpoint["id"],
        parent_engine_id=source.engine_id,
        fence=0,
        number=edit.metadata["step"],
        source="update",
        nodes=sorted(name for name in edit.checkpoint["versions_seen"] if not name.startswith("__")),
        size=sum(
            len(saver.serde.dumps_typed(values[name])[1]) for name in edit.new_versions if name in values
        ),
    )


# -- the copy in memory -------------------------------------------------------------------------------------------


class Memory(InMemorySaver):
    """Notes what update_state writes, before it is made bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[tuple[Saved, CheckpointMetadata, ChannelVersions]] = []
        self.later_writes: list[tuple[list[tuple[str, Any]], str]] = []

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Saved,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self.puts.append((checkpoint, metadata, new_versions))
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        # Those at the copied checkpoint, the edit as its task's result, are left out: a copy has no pending write.
        if (
            self.puts
            and config["configurable"]["checkpoint_id"] == self.puts[-1][0]["id"] != self.puts[0][0]["id"]
        ):
            self.later_writes.append((list(writes), task_id))
        super().put_writes(config, writes, task_id, task_path)


class _InTransaction(PostgresSaver):
    """LangGraph's Postgres saver on Django's own connection: what it writes is part of the command's transaction."""

    UPSERT_CHECKPOINT_BLOBS_SQL = PostgresSaver.UPSERT_CHECKPOINT_BLOBS_SQL.replace(
        "INTO checkpoint", f"INTO {SCHEMA}.checkpoint"
    )
    UPSERT_CHECKPOINTS_SQL = PostgresSaver.UPSERT_CHECKPOINTS_SQL.replace(
        "INTO checkpoint", f"INTO {SCHEMA}.checkpoint"
    )
    UPSERT_CHECKPOINT_WRITES_SQL = PostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL.replace(
        "INTO checkpoint", f"INTO {SCHEMA}.checkpoint"
    )
    INSERT_CHECKPOINT_WRITES_SQL = PostgresSaver.INSERT_CHECKPOINT_WRITES_SQL.replace(
        "INTO checkpoint", f"INTO {SCHEMA}.checkpoint"
    )

    def __init__(self) -> None:
        assert connection.in_atomic_block, "it writes in the transaction of the command"
        super().__init__(connection.connection)

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:  # noqa: ARG002 - the parent's signature
        with connection.connection.cursor(row_factory=dict_row) as cursor:
            yield cursor


def at(source: Checkpoint) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": source.run_id,
            "checkpoint_ns": "",
            "checkpoint_id": source.engine_id,
        }
    }


def reading(workflow: Workflow) -> PostgresSaver:
    """Reads what the workflow's state may hold, as a worker reads it."""
    saver = Saver()
    allowed = getattr(workflow.compiled, "_serde_allowlist", None)
    copied = saver.with_allowlist(allowed) if allowed else saver
    assert isinstance(copied, PostgresSaver)
    return copied


def _in_memory(workflow: Workflow, source: Checkpoint) -> tuple[Memory, CheckpointTuple]:
    """The checkpoint under its own id, with no pending write: what comes next is executed anew in a branch."""
    stored = reading(workflow).get_tuple(at(source))
    if stored is None:
        raise NothingToCopy("The engine has no state for this checkpoint any more.")
    return in_memory_of(workflow, source, stored.checkpoint, stored.metadata), stored


def in_memory_of(
    workflow: Workflow, source: Checkpoint, checkpoint: Saved, metadata: CheckpointMetadata
) -> Memory:
    """A saver that holds this one checkpoint in *source*'s place, to be updated without a row being touched."""
    memory = Memory()
    allowed = getattr(workflow.compiled, "_serde_allowlist", None)
    if allowed:
        copied = memory.with_allowlist(allowed)
        assert isinstance(copied, Memory)
        memory = copied
    memory.put(
        {"configurable": {"thread_id": source.run_id, "checkpoint_ns": ""}},
        checkpoint,
        metadata,
        checkpoint["channel_versions"],
    )
    return memory


def _updated(
    graph: Graph, source: Checkpoint, given: Any, as_node: str, predecessors: Sequence[str]
) -> RunnableConfig:
    beside = [StateUpdate({}, one) for one in predecessors if one != as_node]
    try:
        return graph.bulk_update_state(at(source), [[StateUpdate(given, as_node), *beside]])
    except Exception as error:
        # A router or reducer of the workflow may raise anything; its words may hold what is protected.
        raise Invalid(
            "What comes next can't be computed from the edited state: a reducer or a choice of the workflow raised "
            f"{type(error).__name__}.",
            field="edit",
        ) from error


def _chosen_without_edges(
    workflow: Workflow, source: Checkpoint, standing: StateSnapshot, predecessors: Sequence[str]
) -> list[str | Send]:
    """What comes next because a node returned it, not because an edge or a router says so.

    update_state runs edges and routers again, not the node: without being told, it would forget this, and the graph
    would end here.
    """
    memory, stored = _in_memory(workflow, source)
    graph = workflow.compiled.copy({"checkpointer": memory})
    unedited = graph.get_state(_updated(graph, source, {}, predecessors[0], predecessors))
    here, there = (Counter(task.name for task in one.tasks) for one in (standing, unedited))
    if there - here:
        # A router of parallel nodes sees by now what the others did: it chooses anew, and the preview shows what.
        return []
    lost = here - there
    sends = [
        send for send in stored.checkpoint["channel_values"].get("__pregel_tasks", ()) if send.node in lost
    ]
    sent = Counter(send.node for send in sends)
    return [*sends, *(name for name in lost if not sent[name])]


def _names(snapshot: StateSnapshot) -> list[str]:
    return sorted(task.name for task in snapshot.tasks)


def _kept(memory: Memory, values: Mapping[str, Any]) -> dict[str, Kept]:
    return {
        name: _kept_one(memory, value) for name, value in values.items() if not name.startswith(_INTERNAL)
    }


def _kept_one(memory: Memory, value: Any) -> Kept:
    """As the engine keeps it: plain values as JSON, whose whole numbers have no limit, anything else as its record."""
    if value is None or isinstance(value, str | bool | int | float):
        return "json", json.dumps(value).encode()
    kind, kept = memory.serde.dumps_typed(value)
    return kind, kept


# -- from what was typed to what the channel takes ---------------------------------------------------------------


def _known(workflow: Workflow, edit: Edit) -> list[tuple[str, StateField, Mapping[str, JSONValue]]]:
    """Each edited field with what may be done to it. Raises Invalid that names every one that is not so."""
    fields = fields_of(workflow)
    errors = [(name, problem) for name, ways in edit.items() if (problem := _problem(fields.get(name), ways))]
    if errors:
        raise Invalid("; ".join(f"{name}: {problem}" for name, problem in errors), errors=errors)
    if not edit:
        raise Invalid("The edit changes nothing.", field="edit")
    return [(name, fields[name], ways) for name, ways in edit.items()]


def _refuse_what_is_no_input(workflow: Workflow, edit: Edit) -> None:
    """Before the first node only the input's fields can be written: the engine drops any other without a word."""
    builder = workflow.compiled.builder
    takes = builder.schemas[builder.input_schema]
    if errors := [
        (name, "nothing has written it yet; branch from a later checkpoint.")
        for name in edit
        if name not in takes
    ]:
        raise Invalid("; ".join(": ".join(one) for one in errors), errors=errors)


def _problem(one: StateField | None, ways: Mapping[str, JSONValue]) -> str:
    if one is None:
        return "the state has no such field, or none that can be edited."
    if not ways or (REPLACE in ways and len(ways) > 1):
        return "say one thing to do to it: replace it, or change what is there."
    if unknown := sorted(set(ways) - _WAYS[one.joins]):
        return f"{unknown[0]} can't be done to it; {', '.join(sorted(_WAYS[one.joins]))} can."
    return ""


def _update_of(graph: Graph, one: StateField, ways: Mapping[str, JSONValue], now: Any, place: str) -> Any:
    """What update_state is given for a field."""
    if one.joins == "messages":
        return _messages(one.name, ways, list(now or ()), place)
    channel: Any = graph.channels[one.name]
    (way, value), *_ = ways.items()
    typed = _typed(one.name, channel.ValueType, value, now)
    return Overwrite(typed) if way == REPLACE and one.joins else typed


def _typed(name: str, kind: Any, value: JSONValue, now: Any) -> Any:
    """The value as the state's schema types it. Raises Invalid that names the place in it that does not fit."""
    adapter = _adapter(kind)
    if adapter is None:
        if _holds_objects(now):
            raise Invalid(
                f"{name} holds objects that can't be typed as JSON; it can't be edited.", field=name
            )
        return value
    try:
        typed = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        errors = [(_path(name, one["loc"]), f"{one['msg']}.") for one in error.errors(include_url=False)]
        raise Invalid("; ".join(": ".join(one) for one in errors), field=name, errors=errors) from None
    if dropped := _dropped(value, typed, name):
        raise Invalid(
            f"{dropped}: the state's schema has no such field.",
            field=name,
            errors=[(dropped, "the state's schema has no such field.")],
        )
    if flattened := _flattened(now, typed, name):
        raise Invalid(
            f"{flattened} holds an object that can't be typed as JSON; it can only be taken out, or set to null.",
            field=name,
        )
    return typed


def _adapter(kind: Any) -> TypeAdapter[Any] | None:
    """None where the schema does not say the type in a way that can be checked."""
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, NameError):
        return None


def _holds_objects(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_objects(part) for part in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_objects(part) for part in value)
    return _is_object(value)


def _flattened(now: Any, typed: Any, path: str) -> str:
    """Where an object of the state would become the plain text or fields that stand for it on a page."""
    if isinstance(now, Mapping) and isinstance(typed, Mapping):
        inner = [(now[key], typed[key], f"{path}.{key}") for key in now if key in typed]
    elif isinstance(now, list | tuple) and isinstance(typed, list | tuple):
        inner = [(*pair, f"{path}[{n}]") for n, pair in enumerate(zip(now, typed, strict=False))]
    else:
        return path if typed is not None and _is_object(now) and not _is_object(typed) else ""
    return next((found for one in inner if (found := _flattened(*one))), "")


def _is_object(value: Any) -> bool:
    plain = value is None or isinstance(value, str | bool | int | float | Mapping | list | tuple)
    return not plain


def _path(name: str, steps: tuple[int | str, ...]) -> str:
    return name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _dropped(given: JSONValue, typed: Any, path: str) -> str:
    """Where *typed* has lost a key that was given: schemas of dicts and dataclasses ignore what they do not know."""
    if isinstance(given, dict):
        has: Callable[[str], bool] = (
            typed.__contains__ if isinstance(typed, Mapping) else lambda key: hasattr(typed, key)
        )
        for key, part in given.items():
            if not has(key):
                return f"{path}.{key}"
            inner = typed[key] if isinstance(typed, Mapping) else getattr(typed, key)
            if dropped := _dropped(part, inner, f"{path}.{key}"):
                return dropped
    if isinstance(given, list) and isinstance(typed, list | tuple):
        for index, (part, inner) in enumerate(zip(given, typed, strict=False)):
            if dropped := _dropped(part, inner, f"{path}[{index}]"):
                return dropped
    return ""


# -- messages ----------------------------------------------------------------------------------------------------


def _messages(name: str, ways: Mapping[str, JSONValue], now: list[BaseMessage], place: str) -> Any:
    """Edits, removals and new messages for add_messages; a whole new list past it."""
    by_id = {message.id: message for message in now if message.id}
    if REPLACE in ways:
        given = _a(list, ways[REPLACE], name, "a list of messages")
        return Overwrite([_message(name, one, by_id, f"{place}:{n}") for n, one in enumerate(given)])
    changes: list[BaseMessage] = []
    for message_id, content in _a(
        dict, ways.get(EDIT, {}), name, "an object of contents by message id"
    ).items():
        changes.append(_with(name, _there(name, by_id, message_id), content))
    for message_id in _a(list, ways.get(REMOVE, []), name, "a list of message ids"):
        changes.append(RemoveMessage(id=str(_there(name, by_id, message_id).id)))
    for n, one in enumerate(_a(list, ways.get(APPEND, []), name, "a list of messages")):
        changes.append(_message(name, one, {}, f"{place}:{len(now)}:{n}"))
        if changes[-1].id in by_id:
            raise Invalid(
                f"{name}: a message {changes[-1].id} is there already; edit it instead.", field=name
            )
    return changes


def _a(kind: type[Any], value: JSONValue, name: str, what: str) -> Any:
    if not isinstance(value, kind):
        raise Invalid(f"{name}: give {what}.", field=name)
    return value


def _there(name: str, by_id: Mapping[str, BaseMessage], message_id: Any) -> BaseMessage:
    if not isinstance(message_id, str) or message_id not in by_id:
        raise Invalid(f"{name}: there is no message {message_id}.", field=name)
    return by_id[message_id]


def _with(name: str, message: BaseMessage, content: JSONValue) -> BaseMessage:
    """The message with another content; its calls, its author and its id stay."""
    if not isinstance(content, str | list):
        raise Invalid(f"{name}: the content of a message is text, or a list of parts.", field=name)
    return message.model_copy(update={"content": content})


_ROLES = {"user": "human", "assistant": "ai"}
_SAYS = frozenset({"role", "content", "name", "id", "tool_calls", "tool_call_id"})


def _message(name: str, given: JSONValue, by_id: Mapping[str, BaseMessage], place: str) -> BaseMessage:
    """A message as it was typed: role, content, and what belongs to its role. One that is there keeps what it is."""
    one = _a(dict, given, name, "each message as an object with role and content")
    if unknown := sorted(set(one) - _SAYS):
        raise Invalid(f"{name}: a message has no {unknown[0]}.", field=name)
    there = by_id.get(str(one.get("id", "")))
    role = str(one.get("role", ""))
    if there is not None and there.type == _ROLES.get(role, role) and not _calls_differ(one, there):
        return there if there.content == one.get("content") else _with(name, there, one.get("content"))
    # The id is made of the place and the text, so that what was shown and what is made are the same.
    made = {"id": str(uuid5(NAMESPACE_URL, f"{place}:{json.dumps(given, sort_keys=True)}")), **one}
    try:
        (message,) = convert_to_messages([made])
    except (ValueError, NotImplementedError, TypeError, KeyError) as error:
        raise Invalid(
            f"{name}: a message needs a role (user, assistant, system or tool) and a content; a tool's also the "
            "tool_call_id that it answers.",
            field=name,
        ) from error
    return message


def _calls_differ(given: Mapping[str, JSONValue], there: BaseMessage) -> bool:
    had = [
        {key: call.get(key) for key in ("name", "args", "id")} for call in getattr(there, "tool_calls", [])
    ]
    return bool((given.get("tool_calls") or []) != had) or any(
        (given.get(key) or None) != (getattr(there, key, None) or None) for key in ("name", "tool_call_id")
    )


def _refuse_what_stays(
    memory: Memory, update: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """An edit that changes nothing makes no branch; one that the graph would drop silently neither."""
    same = [
        name
        for name in update
        if (name in before) == (name in after)
        and _kept_one(memory, before.get(name)) == _kept_one(memory, after.get(name))
    ]
    if len(same) == len(update):
        raise Invalid("The edit changes nothing.", field="edit")
    if same:
        errors = [(name, "it would stay as it is.") for name in same]
        raise Invalid("; ".join(": ".join(one) for one in errors), errors=errors)
