"""What a checkpoint holds besides what its state says: sizes, the tasks that come next, the writes that wait beside it.

Read from the engine's rows as runs.inspection does, without the engine. Of a write its channel and its size are told,
and of a pause whether its answer is stored: never a value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from jsonschema import Draft202012Validator
from psycopg_pool import PoolTimeout

from console.kernel.canonical import JSONValue
from runs.engine.saver import SCHEMA, pool
from runs.inspection import (
    NextTask,
    is_field,
    shown_field,
    shown_plain_field,
    state_of,
    tasks_after,
)
from runs.models import Checkpoint, Run, Step
from runs.states import Failure

logger = logging.getLogger(__name__)

#: So many bytes of state are put into a download; the fields beyond are named in it with their size.
MAX_DOWNLOAD = 20_000_000
#: So many writes stand on a page.
MAX_WRITES = 200
#: So far back a state is looked for that can be read.
MAX_BACK = 25

_CHANNELS = f"""
    SELECT v.key AS channel, b.type, octet_length(b.blob) AS size
    FROM {SCHEMA}.checkpoints c
    CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
    JOIN {SCHEMA}.checkpoint_blobs b
      ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
     AND b.channel = v.key AND b.version = v.value
    WHERE c.thread_id = %s AND c.checkpoint_ns = %s AND c.checkpoint_id = %s AND b.type <> 'empty'
"""  # noqa: S608 - the schema's name is a constant
_PLAIN = f"""
    SELECT v.key AS channel, v.value AS value, octet_length(v.value::text) AS size
    FROM {SCHEMA}.checkpoints c
    CROSS JOIN LATERAL jsonb_each(coalesce(c.checkpoint -> 'channel_values', '{{}}')) AS v
    WHERE c.thread_id = %s AND c.checkpoint_ns = %s AND c.checkpoint_id = %s
"""  # noqa: S608
_BLOB = f"""
    SELECT b.type, b.blob FROM {SCHEMA}.checkpoints c
    JOIN {SCHEMA}.checkpoint_blobs b
      ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
     AND b.channel = %s AND b.version = c.checkpoint -> 'channel_versions' ->> b.channel
    WHERE c.thread_id = %s AND c.checkpoint_ns = %s AND c.checkpoint_id = %s
"""  # noqa: S608
_WRITES = f"""
    SELECT task_id, task_path, idx, channel, octet_length(blob) AS size
    FROM {SCHEMA}.checkpoint_writes
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s
    ORDER BY task_path, task_id, idx LIMIT %s
"""  # noqa: S608

_AWAY = (psycopg.Error, PoolTimeout)


@dataclass(frozen=True)
class Field:
    """One field of the state and the bytes that the engine keeps for it."""

    name: str
    size: int


@dataclass(frozen=True)
class Write:
    """One thing that a task has written: *what* in words, with the bytes that it takes."""

    what: str
    size: int


@dataclass(frozen=True)
class Writer:
    """A task that has written beside the checkpoint. *asks*: it stands, or stood, at a pause; *answered*: its answer is stored."""

    node: str
    writes: list[Write]
    asks: bool = False
    answered: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Anatomy:
    """*taken_into*: the checkpoint that holds what was written; without one the writes are still pending."""

    fields: list[Field] = field(default_factory=list)
    next_tasks: list[NextTask] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    more_writes: bool = False
    taken_into: Checkpoint | None = None
    problem: str = ""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.fields)


def anatomy_of(checkpoint: Checkpoint) -> Anatomy:
    """All of it. Never raises for what a row holds."""
    try:
        sizes = _sizes(checkpoint)
        writes = _rows(_WRITES, (*_key(checkpoint), MAX_WRITES + 1))
    except _AWAY as error:
        logger.warning("the rows of %s can't be read: %s", checkpoint.id, error)
        return Anatomy(problem="The engine's tables can't be reached now.")
    tasks = tasks_after(checkpoint)
    after = Checkpoint.objects.filter(
        run_id=checkpoint.run_id, namespace=checkpoint.namespace, parent_engine_id=checkpoint.engine_id
    )
    return Anatomy(
        fields=sorted(sizes, key=lambda one: (-one.size, one.name)),
        next_tasks=tasks,
        writers=_writers(checkpoint, writes[:MAX_WRITES], tasks),
        more_writes=len(writes) > MAX_WRITES,
        taken_into=after.order_by("engine_id").first(),
    )


def _key(checkpoint: Checkpoint) -> tuple[str, str, str]:
    return (checkpoint.run_id, checkpoint.namespace, checkpoint.engine_id)


def _rows(query: str, given: Sequence[Any]) -> list[dict[str, Any]]:
    with pool().connection(timeout=5) as connection:
        return connection.execute(query, given).fetchall()


def _sizes(checkpoint: Checkpoint) -> list[Field]:
    """Of the state's fields; what the engine keeps for itself is not counted."""
    rows = [*_rows(_CHANNELS, _key(checkpoint)), *_rows(_PLAIN, _key(checkpoint))]
    return [Field(row["channel"], int(row["size"] or 0)) for row in rows if is_field(row["channel"])]


# -- what waits beside it ------------------------------------------------------------------------------------------


def _writers(
    checkpoint: Checkpoint, writes: Sequence[Mapping[str, Any]], tasks: Sequence[NextTask]
) -> list[Writer]:
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for write in writes:
        by_task.setdefault(write["task_id"], []).append(write)
    ran = Step.objects.filter(run_id=checkpoint.run_id, namespace=checkpoint.namespace, task_id__in=by_task)
    nodes = dict(ran.values_list("task_id", "node"))
    sends = [task.node for task in tasks if task.is_sent]
    return [_writer(nodes.get(task_id, ""), rows, sends) for task_id, rows in by_task.items()]


def _writer(node: str, rows: Sequence[Mapping[str, Any]], sends: Sequence[str]) -> Writer:
    channels = {row["channel"] for row in rows}
    return Writer(
        node=node or _node_of(str(rows[0]["task_path"]), sends),
        writes=[Write(_what(row["channel"]), int(row["size"] or 0)) for row in rows],
        asks="__interrupt__" in channels,
        answered="__resume__" in channels,
        failed="__error__" in channels,
    )


def _node_of(path: str, sends: Sequence[str]) -> str:
    """From the engine's path of a task: ``~__pregel_pull, node``, or ``~__pregel_push, n, …`` for the n-th Send."""
    kind, _, rest = path.lstrip("~").partition(", ")
    if kind == "__pregel_pull":
        return "the input" if rest == "__start__" else rest
    number = rest.partition(",")[0]
    return sends[int(number)] if number.isdigit() and int(number) < len(sends) else "the graph itself"


_ENGINES_OWN = {
    "__interrupt__": "a pause: what it asks",
    "__resume__": "the answer to its pause",
    "__error__": "an error",
    "__pregel_tasks": "a Send",
    "__no_writes__": "that it is done",
    "__return__": "its result",
}


def _what(channel: str) -> str:
    """What was written, in words."""
    if channel.startswith("branch:to:"):
        return f"next comes {channel.removeprefix('branch:to:')}"
    if channel.startswith("join:"):
        return f"arrived at {channel.rpartition(':')[2]}"
    return _ENGINES_OWN.get(channel) or (channel if is_field(channel) else "the engine's own mark")


# -- a state that can't be read ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A newest checkpoint that can't be read, or breaks its schema: which *fields*, and the last one that is whole."""

    checkpoint: Checkpoint
    fields: list[str]
    text: str
    last_valid: Checkpoint | None


def broken_end(run: Run) -> Broken | None:
    """What is wrong with the newest state of the run's outermost graph; None where nothing is.

    Whether it breaks its schema is asked only of a run that failed because its state is not valid: others read it.
    """
    newest = _outermost(run).first()
    if newest is None:
        return None
    return broken(newest, run)


def broken(checkpoint: Checkpoint, run: Run) -> Broken | None:
    """As broken_end, of one checkpoint."""
    checkpoint.run = run
    fields, text = _fault(checkpoint, run)
    if not text:
        return None
    earlier = _outermost(run).filter(engine_id__lt=checkpoint.engine_id)[:MAX_BACK]
    return Broken(checkpoint, fields, text, next((one for one in earlier if _is_whole(one, run)), None))


def _outermost(run: Run) -> Any:
    return run.checkpoints.filter(namespace="").order_by("-engine_id", "-id")


def _is_whole(checkpoint: Checkpoint, run: Run) -> bool:
    checkpoint.run = run
    return not _fault(checkpoint, run)[1]


def _fault(checkpoint: Checkpoint, run: Run) -> tuple[list[str], str]:
    """The bad fields and what is wrong, in words; no words where nothing is."""
    state = state_of(checkpoint)
    if state.problem:
        return [], state.problem
    if state.bad_fields:
        return (
            state.bad_fields,
            f"{_listed(state.bad_fields)} can't be read: damaged, or kept in a way that is not opened here.",
        )
    if run.failure != Failure.STATE_INVALID:
        return [], ""
    unfit = _unfit(state.values or {}, run.workflow.state_schema)
    return unfit, f"{_listed(unfit)} does not fit the schema of the state." if unfit else ""


def _unfit(values: Mapping[str, JSONValue], schema: object) -> list[str]:
    """The fields whose value is none of the types that the schema gives them. What is masked is not judged."""
    rules = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(rules, dict):
        return []
    return [
        name
        for name, value in values.items()
        if (types := _types(rules.get(name))) and not _is_mask(value) and not _one_of(value, types)
    ]


def _types(rule: object) -> list[str]:
    """The plain types that a rule allows; empty where it says more than that."""
    if not isinstance(rule, dict):
        return []
    if isinstance(rule.get("type"), str):
        return [rule["type"]]
    several = [_types(one) for one in rule.get("anyOf") or []]
    return [one for types in several for one in types] if all(several) else []


def _is_mask(value: JSONValue) -> bool:
    return isinstance(value, dict) and "__masked__" in value


def _one_of(value: JSONValue, types: list[str]) -> bool:
    return bool(Draft202012Validator({"type": types}).is_valid(value))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


# -- the whole, as a file ------------------------------------------------------------------------------------------


def as_file(checkpoint: Checkpoint) -> Iterator[bytes]:
    """The state as JSON, piece by piece, masked as on the page; one field at a time is held in memory.

    What is left out (damaged, or beyond MAX_DOWNLOAD bytes) stands at its end under ``left_out``, with why.
    """
    head = {"run": checkpoint.run_id, "checkpoint": checkpoint.id, "step": checkpoint.number}
    yield json.dumps(head)[:-1].encode() + b', "protected": "masked", "state": {'
    left_out: dict[str, str] = {}
    first = True
    for name, value in _fields(checkpoint, left_out):
        yield (
            (b"" if first else b",")
            + b"\n"
            + f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=True)}".encode()
        )
        first = False
    yield b'\n}, "left_out": ' + json.dumps(left_out).encode() + b"}\n"


def _fields(checkpoint: Checkpoint, left_out: dict[str, str]) -> Iterator[tuple[str, JSONValue]]:
    """The smallest first, so that one huge field does not keep out the others."""
    try:
        rows = [*_rows(_PLAIN, _key(checkpoint)), *_rows(_CHANNELS, _key(checkpoint))]
    except _AWAY:
        left_out["everything"] = "The engine's tables can't be reached now."
        return
    left = MAX_DOWNLOAD
    for row in sorted((row for row in rows if is_field(row["channel"])), key=lambda row: row["size"] or 0):
        name, size = row["channel"], int(row["size"] or 0)
        left -= size
        if left < 0:
            left_out[name] = f"{size:,} bytes: a file holds {MAX_DOWNLOAD:,} in all."
            continue
        try:
            yield name, _value(checkpoint, row)
        except (ValueError, *_AWAY):
            left_out[name] = "It can't be read: damaged, or kept in a way that is not opened here."


def _value(checkpoint: Checkpoint, row: Mapping[str, Any]) -> JSONValue:
    name = str(row["channel"])
    if "value" in row:
        return shown_plain_field(checkpoint, name, row["value"])
    kept = _rows(_BLOB, (name, *_key(checkpoint)))
    if not kept:
        raise ValueError("it is gone")
    return shown_field(checkpoint, name, kept[0]["type"], bytes(kept[0]["blob"] or b""))
