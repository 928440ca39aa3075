"""What people may see of a run's data: the state of a checkpoint and recorded answers, as plain JSON, masked.

The engine's rows are read without the engine and without any workflow's code: the records in which it keeps objects
are unpacked to plain values that carry the type's name. Nothing is ever imported or called because of what a row
says, so a state can be read by a process that does not hold the workflow, and a hostile row can run nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import ormsgpack
import psycopg
from psycopg_pool import PoolTimeout

from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable, unseal_json
from console.kernel.masking import SECRET_MARK, is_masked, mask, mask_text_secrets, protected_texts
from console.kernel.words import MASKED
from runs.engine.saver import SCHEMA, pool
from runs.models import Checkpoint, Recording, Run, Step
from runs.selectors import input_of

logger = logging.getLogger(__name__)

#: Of one state so many bytes are read; the fields beyond are named with their size.
MAX_BYTES = 2_000_000
#: A difference is shown up to so many fields.
MAX_CHANGES = 200
MAX_DEPTH = 64
#: How much of a value stands in a line of the difference.
LINE = 200

_BRANCH = "branch:to:"
_JOIN = "join:"
_TASKS = "__pregel_tasks"
#: Channels of the engine itself: they say where the graph stands and are no part of the state.
_INTERNAL = ("__", _BRANCH, _JOIN)

#: The engine's records of objects: (module, name, value, …) under these codes.
_OBJECTS = range(6)
_ARRAY = 6
_SNAPSHOT = 7

_READ = f"""
    SELECT c.checkpoint, b.channel, b.type, octet_length(b.blob) AS size,
           CASE WHEN sum(octet_length(b.blob)) OVER (ORDER BY octet_length(b.blob), b.channel) <= %s
                THEN b.blob END AS blob
    FROM {SCHEMA}.checkpoints c
    LEFT JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v ON true
    LEFT JOIN {SCHEMA}.checkpoint_blobs b
      ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
     AND b.channel = v.key AND b.version = v.value
    WHERE c.thread_id = %s AND c.checkpoint_ns = %s AND c.checkpoint_id = %s
"""  # noqa: S608 - the schema's name is a constant


class Unreadable(Exception):
    """The engine's rows of a checkpoint can't be read; the text says why, for people."""


@dataclass(frozen=True)
class Change:
    """One field that differs from the checkpoint before; *kind* is changed, added or removed."""

    path: str
    before: str
    after: str
    kind: str


@dataclass(frozen=True)
class State:
    """A checkpoint's state as people may see it; markers of console.kernel.masking stand for protected values.

    *values* is None when nothing could be read; *problem* says why. *notes* name what is not shown whole.
    *changes* is None when there is no checkpoint before it, or that one can't be read.
    """

    values: dict[str, JSONValue] | None
    next_nodes: list[str]
    notes: list[str] = field(default_factory=list)
    changes: list[Change] | None = None
    more_changes: bool = False
    problem: str = ""


@dataclass(frozen=True)
class _Raw:
    """The state with protected values still in it: never leaves this module."""

    values: dict[str, JSONValue]
    next_nodes: list[str]
    notes: list[str]


def state_of(checkpoint: Checkpoint) -> State:
    """The state of a checkpoint, masked, with its difference from the one before. Never raises for what a row holds."""
    try:
        raw = _read(checkpoint)
    except Unreadable as why:
        return State(None, _ran_next(checkpoint), problem=str(why))
    masks = checkpoint.run.workflow.masks
    values = _masked(raw.values, masks)
    before = _before(checkpoint)
    changes: list[Change] | None = None
    if before is not None:
        old = _Side(before.values, _masked(before.values, masks))
        changes = _first(_changes(old, _Side(raw.values, values), ()))
    return State(
        values=values,
        next_nodes=raw.next_nodes or _ran_next(checkpoint),
        notes=raw.notes,
        changes=None if changes is None else changes[:MAX_CHANGES],
        more_changes=len(changes or ()) > MAX_CHANGES,
    )


def input_shown(run: Run) -> JSONValue:
    """The input as it was given, with the state's protected fields masked; None when it can't be opened."""
    try:
        return mask(_plain(input_of(run)), run.workflow.masks)
    except (Undecryptable, ValueError, TypeError):
        logger.exception("the input of %s can't be read", run.id)
        return None


@dataclass(frozen=True)
class Exchange:
    """What was asked and what came back, masked. None where it can't be opened."""

    request: JSONValue
    answer: JSONValue
    problem: str = ""


def exchange_of(recording: Recording, run: Run) -> Exchange:
    """A recorded request and answer, as people may see them.

    A recording has no schema of its own, so both ways of masking apply: fields that bear the name of a protected
    field of the state, also inside texts that are JSON; and every protected value of the input and of the newest
    state wherever it stands in a text.
    """
    open_ = partial(unseal_json, workspace=run.workspace_id, owner=run.id)
    try:
        request, answer = open_(recording.request), open_(recording.answer)
    except (Undecryptable, ValueError, TypeError):
        logger.exception("the recording %s can't be read", recording.id)
        return Exchange(None, None, "This recording can't be opened with the keys at hand.")
    masks, secrets = _anywhere(run.workflow.masks), _secrets(run)

    def shown(value: JSONValue) -> JSONValue:
        return _hidden(mask(_parsed(_plain(value)), masks), secrets)

    return Exchange(shown(request), shown(answer))


class Veil:
    """Hides a run's protected values in free texts: errors, notes. What to hide is read when a text comes first."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _found(self) -> list[str]:
        return _secrets(self._run)

    def __call__(self, text: str) -> str:
        shown = mask_text_secrets(text, self._found) if text else ""
        return MASKED if shown.strip() == SECRET_MARK else shown


def _anywhere(masks: Sequence[str]) -> list[str]:
    """``offer.body`` also hides every ``body``, wherever it stands."""
    return [
        *masks,
        *(f"**.{path.rsplit('.', 1)[-1]}" for path in masks if "." in path),
        *(f"**.{path}" for path in masks),
    ]


def _secrets(run: Run) -> list[str]:
    masks = run.workflow.masks
    if not masks:
        return []
    newest = run.checkpoints.filter(namespace="").order_by("-engine_id").first()
    found = _protected(run, masks)
    if newest is not None:
        newest.run = run
        with suppress(Unreadable):
            found |= set(protected_texts(_read(newest).values, masks))
    return sorted((text for text in found if len(text) > 2), key=len, reverse=True)


def _protected(run: Run, masks: Sequence[str]) -> set[str]:
    try:
        return set(protected_texts(_plain(input_of(run)), masks))
    except (Undecryptable, ValueError, TypeError):
        return set()


def _hidden(value: JSONValue, secrets: Sequence[str]) -> JSONValue:
    """*value* with each secret replaced in every text of it."""
    if isinstance(value, str):
        return mask_text_secrets(value, secrets) if secrets else value
    if isinstance(value, dict):
        return value if is_masked(value) else {key: _hidden(part, secrets) for key, part in value.items()}
    return [_hidden(part, secrets) for part in value] if isinstance(value, list) else value


def _parsed(value: JSONValue) -> JSONValue:
    """*value* with the texts that are JSON objects or lists read as what they are."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return _parsed(_plain(inner)) if isinstance(inner, dict | list) else value
    if isinstance(value, dict):
        return {key: _parsed(part) for key, part in value.items()}
    return [_parsed(part) for part in value] if isinstance(value, list) else value


# -- reading the engine's rows ---------------------------------------------------------------------------------


def _read(checkpoint: Checkpoint) -> _Raw:
    """The channels of one checkpoint as plain values. Raises Unreadable."""
    try:
        with pool().connection(timeout=5) as connection:
            rows = connection.execute(
                _READ, (MAX_BYTES, checkpoint.run_id, checkpoint.namespace, checkpoint.engine_id)
            ).fetchall()
    except (psycopg.Error, PoolTimeout) as error:
        logger.warning("the state of %s can't be read: %s", checkpoint.id, error)
        raise Unreadable("The engine's tables can't be reached now.") from error
    if not rows:
        raise Unreadable("The engine has no state for this checkpoint any more.")
    return _assembled(rows)


def _assembled(rows: Sequence[Mapping[str, Any]]) -> _Raw:
    inline = rows[0]["checkpoint"].get("channel_values") or {}
    channels: dict[str, JSONValue] = {name: _plain(value) for name, value in inline.items()}
    notes: list[str] = []
    for row in rows:
        name, kind = row["channel"], row["type"]
        if name is None or kind == "empty":
            continue
        if row["blob"] is None:
            notes.append(f"{name} is {row['size']:,} bytes; a page does not hold it.")
            continue
        try:
            channels[name] = _decoded(kind, bytes(row["blob"]))
        except (ValueError, RecursionError, UnicodeDecodeError) as error:
            logger.warning("channel %s can't be read: %s", name, type(error).__name__)
            notes.append(f"{name} can't be read: it is damaged, or kept in a way that is not opened here.")
    values = {name: value for name, value in channels.items() if not name.startswith(_INTERNAL)}
    return _Raw(dict(sorted(values.items())), _next_nodes(channels), notes)


def _next_nodes(channels: Mapping[str, JSONValue]) -> list[str]:
    """The nodes whose channels are written and not yet read: what the engine recorded to come next."""
    nodes = {name.removeprefix(_BRANCH) for name in channels if name.startswith(_BRANCH)}
    sends = channels.get(_TASKS)
    for send in sends if isinstance(sends, list) else []:
        if isinstance(send, dict) and isinstance(send.get("node"), str):
            nodes.add(str(send["node"]))
    return sorted(nodes)


def _ran_next(checkpoint: Checkpoint) -> list[str]:
    """The nodes that did run after it, where the engine's rows do not say."""
    steps = Step.objects.filter(
        run=checkpoint.run_id, namespace=checkpoint.namespace, number=checkpoint.number + 1
    )
    return sorted(set(steps.values_list("node", flat=True)))


def _before(checkpoint: Checkpoint) -> _Raw | None:
    if not checkpoint.parent_engine_id:
        return None
    before = Checkpoint(
        run_id=checkpoint.run_id, namespace=checkpoint.namespace, engine_id=checkpoint.parent_engine_id
    )
    try:
        return _read(before)
    except Unreadable:
        return None


# -- from the engine's records to plain values ------------------------------------------------------------------


def _decoded(kind: str, blob: bytes) -> JSONValue:
    """One stored value as plain JSON. ValueError for a kind that is not opened here, pickle first of all."""
    if kind == "msgpack":
        return _plain(ormsgpack.unpackb(blob, ext_hook=_record, option=ormsgpack.OPT_NON_STR_KEYS))
    if kind == "json":
        return _plain(json.loads(blob))
    if kind == "null":
        return None
    if kind in ("bytes", "bytearray"):
        return f"{len(blob):,} bytes"
    raise ValueError(f"values of kind {kind} are not opened")


def _record(code: int, data: bytes) -> object:
    """An object that the engine kept: a message as role and content, anything else as its fields with its type."""
    parts = ormsgpack.unpackb(data, ext_hook=_record, option=ormsgpack.OPT_NON_STR_KEYS)
    if code == _SNAPSHOT:
        return parts
    if code == _ARRAY or code not in _OBJECTS or not isinstance(parts, list | tuple) or len(parts) < 3:
        return {"type": "array" if code == _ARRAY else f"record {code}"}
    module, name, value = str(parts[0]), str(parts[1]), parts[2]
    if module.startswith("langchain_core.messages") and isinstance(value, dict):
        return _message(value)
    if name == "Send" and isinstance(value, list | tuple) and len(value) == 2:
        return {"node": value[0], "argument": value[1]}
    if isinstance(value, dict):
        return {"type": name, **value}
    if module in _PLAIN_MODULES and isinstance(value, str | int | float):
        return value
    return {"type": name, "value": value}


#: Their own text says what they are: a date, a decimal number, a UUID.
_PLAIN_MODULES = ("datetime", "uuid", "decimal", "ipaddress", "pathlib", "zoneinfo")

_ROLES = {"human": "user", "ai": "assistant"}


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message as people read it. Empty parts are left out."""
    kind = str(fields.get("type", ""))
    shown = {
        "role": _ROLES.get(kind, kind),
        "name": fields.get("name"),
        "content": fields.get("content"),
        "tool_calls": [
            {"name": call.get("name"), "args": call.get("args"), "id": call.get("id")}
            for call in fields.get("tool_calls") or []
            if isinstance(call, Mapping)
        ],
        "tool_call_id": fields.get("tool_call_id"),
        "id": fields.get("id"),
    }
    return {name: value for name, value in shown.items() if value or name == "content"}


def _plain(value: object, depth: int = 0) -> JSONValue:
    """Any decoded value as JSON: keys as texts, bytes as their size, numbers that JSON lacks as texts."""
    if depth > MAX_DEPTH:
        return "deeper than is shown"
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part, depth + 1) for part in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value):,} bytes"
    return str(value)


# -- masks and differences ---------------------------------------------------------------------------------------


def _masked(values: dict[str, JSONValue], masks: Sequence[str]) -> dict[str, JSONValue]:
    copy = mask(values, masks)
    return copy if isinstance(copy, dict) and not is_masked(copy) else {}


def _words(value: JSONValue) -> JSONValue:
    """Markers of masked values as the words that stand in their place."""
    if isinstance(value, dict):
        return MASKED if is_masked(value) else {key: _words(part) for key, part in value.items()}
    return [_words(part) for part in value] if isinstance(value, list) else value


def _first(changes: Iterator[Change]) -> list[Change]:
    """So many that it is known whether there are more than are shown."""
    return [change for _, change in zip(range(MAX_CHANGES + 1), changes, strict=False)]


_ABSENT = object()


@dataclass(frozen=True)
class _Side:
    """A value and the copy of it that people may see."""

    value: Any
    masked: Any

    def at(self, step: str | int) -> _Side:
        return _Side(_at(self.value, step), _at(self.masked, step))


def _changes(before: _Side, after: _Side, path: tuple[str | int, ...]) -> Iterator[Change]:
    """Field by field, outermost difference first. What is compared is the value; what is shown is its masked copy."""
    old, new = before.value, after.value
    if type(old) is type(new) and old == new:
        return
    steps: Sequence[str | int] = ()
    if not is_masked(before.masked) and not is_masked(after.masked):
        if isinstance(old, dict) and isinstance(new, dict):
            steps = sorted({*old, *new})
        elif isinstance(old, list) and isinstance(new, list):
            steps = range(max(len(old), len(new)))
    if not steps:
        yield _change(before.masked, after.masked, path)
    for step in steps:
        yield from _changes(before.at(step), after.at(step), (*path, step))


def _at(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step, _ABSENT)
    return value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else _ABSENT


def _change(before: Any, after: Any, path: tuple[str | int, ...]) -> Change:
    kind = "added" if before is _ABSENT else "removed" if after is _ABSENT else "changed"
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return Change(text, _line(before), _line(after), kind)


def _line(value: Any) -> str:
    if value is _ABSENT:
        return ""
    shown = _words(value)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= LINE else f"{text[:LINE]}…"
