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
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import ormsgpack
import psycopg
from psycopg_pool import PoolTimeout

from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable, unseal_json
from console.kernel.masking import SECRET_MARK, is_masked, mask, mask_text_secrets, protected_texts
from console.kernel.words import MASKED
from effects.models import EffectRevision
from runs.engine.saver import SCHEMA, pool
from runs.models import Checkpoint, Divergence, Recording, Run, Step
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

_PRINTS = f"""
    WITH saved AS (
        SELECT checkpoint_ns, checkpoint_id, checkpoint FROM {SCHEMA}.checkpoints
        WHERE thread_id = %(run)s AND checkpoint_id = ANY(%(ids)s)
    ), named AS (
        SELECT s.checkpoint_ns, s.checkpoint_id, v.key AS channel, v.value AS version
        FROM saved s CROSS JOIN LATERAL jsonb_each_text(s.checkpoint -> 'channel_versions') AS v
    ), kept AS (
        SELECT checkpoint_ns, channel, version, octet_length(blob) AS size,
               type || ' ' || encode(sha256(blob), 'hex') AS print
        FROM {SCHEMA}.checkpoint_blobs
        WHERE thread_id = %(run)s AND type <> 'empty' AND blob IS NOT NULL
          AND (checkpoint_ns, channel, version) IN (SELECT checkpoint_ns, channel, version FROM named)
    ), prints AS (
        SELECT checkpoint_ns, checkpoint_id, jsonb_object_agg(channel, print) AS fields, sum(size) AS size
        FROM named JOIN kept USING (checkpoint_ns, channel, version) GROUP BY checkpoint_ns, checkpoint_id
    )
    SELECT s.checkpoint_ns AS namespace, s.checkpoint_id AS engine_id,
           coalesce(s.checkpoint -> 'channel_values', '{{}}') AS plain,
           coalesce(p.fields, '{{}}') AS kept, coalesce(p.size, 0) AS size
    FROM saved s LEFT JOIN prints p USING (checkpoint_ns, checkpoint_id)
"""  # noqa: S608


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
class Difference:
    """Where the states of two checkpoints differ, masked. *problem* says why it can't be told, for people."""

    changes: list[Change]
    more_changes: bool = False
    problem: str = ""


@dataclass(frozen=True)
class State:
    """A checkpoint's state as people may see it; markers of console.kernel.masking stand for protected values.

    *values* is None when nothing could be read; *problem* says why. *notes* name what is not shown whole.
    *changes* is None when there is no checkpoint before it, or that one can't be read. *bad_fields* are those that are
    damaged: not those that are only too large for a page.
    """

    values: dict[str, JSONValue] | None
    next_nodes: list[str]
    notes: list[str] = field(default_factory=list)
    changes: list[Change] | None = None
    more_changes: bool = False
    problem: str = ""
    bad_fields: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Raw:
    """The state with protected values still in it: never leaves this module."""

    values: dict[str, JSONValue]
    channels: dict[str, JSONValue]
    notes: list[str]
    bad_fields: list[str]

    @property
    def next_nodes(self) -> list[str]:
        return sorted({task.node for task in _next_tasks(self.channels)})


@dataclass(frozen=True)
class NextTask:
    """What the engine recorded to come next. *argument*: what a Send hands it; None where it gets the state.

    *argument* is masked where it comes from tasks_after, and as it is elsewhere.
    """

    node: str
    argument: JSONValue = None
    is_sent: bool = False


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
        bad_fields=raw.bad_fields,
        changes=None if changes is None else changes[:MAX_CHANGES],
        more_changes=len(changes or ()) > MAX_CHANGES,
    )


def difference_of_kept(
    before: Mapping[str, tuple[str, bytes]], after: Mapping[str, tuple[str, bytes]], masks: Sequence[str]
) -> tuple[list[Change], bool]:
    """What differs between two states that are given as the engine keeps them, masked; and whether there is more."""
    old, new = ({name: _decoded(*kept) for name, kept in sorted(state.items())} for state in (before, after))
    changes = _first(_changes(_Side(old, _masked(old, masks)), _Side(new, _masked(new, masks)), ()))
    return changes[:MAX_CHANGES], len(changes) > MAX_CHANGES


@dataclass(frozen=True)
class Print:
    """What a state is told by without reading it: for each field its plain value or the hash of its bytes.

    Equal prints are equal states; unequal ones may still say the same, written in another order. Never shown.
    """

    fields: dict[str, object]
    size: int


def prints_of(run: Run, checkpoints: Sequence[Checkpoint]) -> dict[str, Print]:
    """The print of each of the run's checkpoints that the engine still has, by its id. Raises Unreadable."""
    ids = {(one.namespace, one.engine_id): one.id for one in checkpoints}
    given = {"run": run.id, "ids": sorted({engine_id for _, engine_id in ids})}
    try:
        with pool().connection(timeout=5) as connection:
            rows = connection.execute(_PRINTS, given).fetchall()
    except (psycopg.Error, PoolTimeout) as error:
        logger.warning("the states of %s can't be read: %s", run.id, error)
        raise Unreadable(_AWAY) from error
    found = {}
    for row in rows:
        fields = {**row["plain"], **row["kept"]}
        state = {name: value for name, value in fields.items() if not name.startswith(_INTERNAL)}
        if (key := (row["namespace"], row["engine_id"])) in ids:
            found[ids[key]] = Print(state, int(row["size"]))
    return found


_AWAY = "The engine's tables can't be reached now."

#: What stands beside the mask where two protected values are not the same. Never what they are.
PROTECTED_DIFFERS = "protected, differs"


def tasks_after(checkpoint: Checkpoint) -> list[NextTask]:
    """What comes next, each with what it is handed, masked as a recording is. Empty where that can't be read."""
    try:
        found = _next_tasks(_read(checkpoint).channels)
    except Unreadable:
        return []
    veils = (Veil(checkpoint.run),)
    return [replace(task, argument=_veiled(_parsed(task.argument), veils)) for task in found]


def shown_field(checkpoint: Checkpoint, name: str, kind: str, blob: bytes) -> JSONValue:
    """One field of a state as people may see it. ValueError for what can't be read."""
    try:
        value = _decoded(kind, blob)
    except RecursionError as error:
        raise ValueError("too deep") from error
    return _masked({name: value}, checkpoint.run.workflow.masks).get(name)


def shown_plain_field(checkpoint: Checkpoint, name: str, value: object) -> JSONValue:
    """As shown_field, of a value that the engine keeps as JSON in its own row."""
    return _masked({name: _plain(value)}, checkpoint.run.workflow.masks).get(name)


def is_field(channel: str) -> bool:
    """Whether a channel is part of the state; the others are the engine's own."""
    return not channel.startswith(_INTERNAL)


def states_apart(one: Checkpoint, other: Checkpoint) -> Difference:
    """Where *other*'s state differs from *one*'s, field by field. They may be of two runs, of two workflows.

    What either workflow protects is masked on both sides, so that no value is told by way of the other. Never raises
    for what a row holds.
    """
    try:
        first, second = _read(one), _read(other)
    except Unreadable as why:
        return Difference([], problem=str(why))
    masks = sorted({*one.run.workflow.masks, *other.run.workflow.masks})
    before = _Side(first.values, _masked(first.values, masks))
    after = _Side(second.values, _masked(second.values, masks))
    found = [_said_if_protected(change) for change in _first(_changes(before, after, ()))]
    unread = sorted({*first.notes, *second.notes})
    return Difference(found[:MAX_CHANGES], len(found) > MAX_CHANGES, " ".join(unread))


def _said_if_protected(change: Change) -> Change:
    hidden = change.kind == "changed" and change.before == change.after
    return replace(change, after=PROTECTED_DIFFERS) if hidden else change


def payload_difference(one: tuple[JSONValue, JSONValue], other: tuple[JSONValue, JSONValue]) -> Difference:
    """Where two payloads differ, each given as what it is and as it may be shown. Says nothing but what may be shown."""
    before, after = (_Side(value, shown) for value, shown in (one, other))
    found = [_said_if_protected(change) for change in _first(_changes(before, after, ()))]
    return Difference(found[:MAX_CHANGES], len(found) > MAX_CHANGES)


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
    try:
        request, answer = _opened(recording, recording.request), _opened(recording, recording.answer)
    except (Undecryptable, ValueError, TypeError):
        logger.exception("the recording %s can't be read", recording.id)
        return Exchange(None, None, NOT_OPENED)
    veils = (Veil(run),)
    return Exchange(_veiled(request, veils), _veiled(answer, veils))


#: Said of a recording that is sealed with a key that is gone.
NOT_OPENED = "This recording can't be opened with the keys at hand."


@dataclass(frozen=True)
class Apart:
    """One field in which two answers differ: what may be seen of it. *path* is empty where the answer is one value.

    None where the field is not there. *protected*: they differ in something that is not shown.
    """

    path: str
    one: str | None
    other: str | None
    protected: bool = False


@dataclass(frozen=True)
class AnswersApart:
    """Where two recorded answers differ; nothing in *fields* and no *problem*: nowhere."""

    fields: list[Apart]
    problem: str = ""


def answers_apart(one: Recording, other: Recording, veils: Sequence[Veil]) -> AnswersApart:
    """Where two recorded answers differ, with what any of *veils* hides hidden on both sides.

    A message is compared by what it says and calls. Its id is another each time a model is asked, so ids are left out.
    """
    try:
        first, second = (_without_ids(_opened(each, each.answer)) for each in (one, other))
    except (Undecryptable, ValueError, TypeError):
        logger.exception("the recordings %s and %s can't be read", one.id, other.id)
        return AnswersApart([], NOT_OPENED)
    before, after = _Side(first, _veiled(first, veils)), _Side(second, _veiled(second, veils))
    found = islice(_differing(before, after, ()), MAX_CHANGES)
    return AnswersApart([_apart(path, was, is_) for path, was, is_ in found])


def _apart(path: tuple[str | int, ...], was: Any, is_: Any) -> Apart:
    one, other = _text(was), _text(is_)
    return Apart(_path_text(path), one, other, protected=one is not None and one == other)


def _opened(recording: Recording, sealed: bytes | memoryview) -> JSONValue:
    value = unseal_json(sealed, workspace=recording.run.workspace_id, owner=recording.run_id)
    return _parsed(_plain(value))


def _without_ids(value: JSONValue) -> JSONValue:
    """Messages as role, content and calls; what LangChain keeps around them says nothing to people."""
    if isinstance(value, list):
        return [_without_ids(part) for part in value]
    if not isinstance(value, dict):
        return value
    kwargs = value.get("kwargs")
    if value.get("type") == "constructor" and isinstance(kwargs, dict) and "content" in kwargs:
        said = _plain({**_message(kwargs), "id": ""})
        assert isinstance(said, dict)
        calls = said.get("tool_calls")
        bare = (
            [{**call, "id": ""} if isinstance(call, dict) else call for call in calls]
            if isinstance(calls, list)
            else []
        )
        return {
            name: part for name, part in {**said, "tool_calls": bare}.items() if part or name == "content"
        }
    return {name: _without_ids(part) for name, part in value.items()}


@dataclass(frozen=True)
class Compared:
    """What was recorded and what was asked instead, masked. *recorded* is None where nothing was.

    *changes* is field by field; None where one side is not there or can't be opened. Values are compared as they are,
    and shown masked: two protected ones that differ are both shown as masked.
    """

    recorded: JSONValue
    asked: JSONValue
    changes: list[Change] | None
    problem: str = ""


def compared(divergence: Divergence) -> Compared:
    """Recorded against asked, at the call where a run left its recording."""
    run = divergence.run
    masks, secrets = _anywhere(run.workflow.masks), _secrets(run)
    if divergence.recorded is not None:
        secrets = sorted({*secrets, *_secrets(divergence.recorded.run)}, key=len, reverse=True)

    def side(value: Any) -> _Side:
        plain = _parsed(_plain(value))
        return _Side(plain, _hidden(mask(plain, masks), secrets))

    try:
        asked = side(unseal_json(divergence.asked, workspace=run.workspace_id, owner=run.id))
        recorded = _recorded_for(divergence)
    except (Undecryptable, ValueError, TypeError):
        logger.exception("the divergence of %s can't be read", run.id)
        return Compared(None, None, None, "What was asked can't be opened with the keys at hand.")
    if recorded is None:
        return Compared(None, asked.masked, None)
    before = side(recorded)
    return Compared(before.masked, asked.masked, _first(_changes(before, asked, ()))[:MAX_CHANGES])


def _recorded_for(divergence: Divergence) -> Any:
    """The request that was recorded at this place, or the payload of the effect: that as it is shown to everybody."""
    if (recording := divergence.recorded) is not None:
        return unseal_json(recording.request, workspace=recording.run.workspace_id, owner=recording.run_id)
    if not divergence.recorded_effect:
        return None
    revision = (
        EffectRevision.objects.filter(effect_id=divergence.recorded_effect, by=None).order_by("-n").first()
    )
    return revision.shown if revision else None


def differences(before: JSONValue, after: JSONValue) -> list[Change]:
    """Field by field, of two values that are masked already."""
    return _first(_changes(_Side(before, before), _Side(after, after), ()))[:MAX_CHANGES]


class Veil:
    """Hides a run's protected values in free texts: errors, notes. What to hide is read when a text comes first."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _found(self) -> list[str]:
        return _secrets(self._run)

    @property
    def masks(self) -> list[str]:
        """The protected fields of the run's workflow, wherever they stand in a value."""
        return _anywhere(self._run.workflow.masks)

    @property
    def secrets(self) -> list[str]:
        """The protected texts of the run's input and newest state."""
        return self._found

    def __call__(self, text: str) -> str:
        shown = mask_text_secrets(text, self._found) if text else ""
        return MASKED if shown.strip() == SECRET_MARK else shown


def _veiled(value: JSONValue, veils: Sequence[Veil]) -> JSONValue:
    """What people may see of it, with what any of *veils* hides hidden."""
    shown = mask(value, [path for veil in veils for path in veil.masks])
    return _hidden(shown, sorted({text for veil in veils for text in veil.secrets}, key=len, reverse=True))


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
        raise Unreadable(_AWAY) from error
    if not rows:
        raise Unreadable("The engine has no state for this checkpoint any more.")
    return _assembled(rows)


def _assembled(rows: Sequence[Mapping[str, Any]]) -> _Raw:
    inline = rows[0]["checkpoint"].get("channel_values") or {}
    channels: dict[str, JSONValue] = {name: _plain(value) for name, value in inline.items()}
    notes: list[str] = []
    bad: list[str] = []
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
            bad.append(name)
            notes.append(f"{name} can't be read: it is damaged, or kept in a way that is not opened here.")
    values = {name: value for name, value in channels.items() if not name.startswith(_INTERNAL)}
    return _Raw(dict(sorted(values.items())), channels, notes, sorted(bad))


def _next_tasks(channels: Mapping[str, JSONValue]) -> list[NextTask]:
    """The nodes whose channels are written and not yet read, the joins that have all they wait for, and the Sends."""
    found = [NextTask(name.removeprefix(_BRANCH)) for name in sorted(channels) if name.startswith(_BRANCH)]
    found += [NextTask(node) for name in sorted(channels) if (node := _joined(name, channels[name]))]
    sends = channels.get(_TASKS)
    for send in sends if isinstance(sends, list) else []:
        if isinstance(send, dict) and isinstance(send.get("node"), str):
            found.append(NextTask(str(send["node"]), send.get("argument"), is_sent=True))
    return found


def _joined(channel: str, arrived: JSONValue) -> str:
    """The node of a join at which all have arrived, else nothing. The channel's name says who and where."""
    _, _, rest = channel.partition(_JOIN)
    waited_for, _, node = rest.rpartition(":")
    if not channel.startswith(_JOIN) or not isinstance(arrived, dict):
        return ""
    names = arrived.get("value")
    return node if isinstance(names, list) and {*map(str, names)} == {*waited_for.split("+")} else ""


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
    return list(islice(changes, MAX_CHANGES + 1))


_ABSENT = object()


@dataclass(frozen=True)
class _Side:
    """A value and the copy of it that people may see."""

    value: Any
    masked: Any

    def at(self, step: str | int) -> _Side:
        return _Side(_at(self.value, step), _at(self.masked, step))


def _changes(before: _Side, after: _Side, path: tuple[str | int, ...]) -> Iterator[Change]:
    """Field by field, outermost difference first."""
    for where, old, new in _differing(before, after, path):
        yield _change(old, new, where)


def _differing(
    before: _Side, after: _Side, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Each field that differs, with its masked copies. What is compared is the value; what is shown is its masked copy."""
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
        yield path, before.masked, after.masked
    for step in steps:
        yield from _differing(before.at(step), after.at(step), (*path, step))


def _at(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step, _ABSENT)
    return value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else _ABSENT


def _change(before: Any, after: Any, path: tuple[str | int, ...]) -> Change:
    kind = "added" if before is _ABSENT else "removed" if after is _ABSENT else "changed"
    old, new = _text(before) or "", _text(after) or ""
    begin = _first_difference(old, new) if len(old) > LINE and len(new) > LINE else 0
    return Change(_path_text(path), _line(old, begin), _line(new, begin), kind)


def _path_text(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _text(value: Any) -> str | None:
    """A masked copy as people read it; None where there is nothing."""
    if value is _ABSENT:
        return None
    shown = _words(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _first_difference(one: str, other: str) -> int:
    """A little before the place at which two long texts begin to differ, so that a line shows it."""
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    return max(0, same - LINE // 4)


def _line(text: str, begin: int = 0) -> str:
    end = begin + LINE
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if len(text) > end else ''}"
