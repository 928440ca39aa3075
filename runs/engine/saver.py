"""LangGraph's Postgres saver, fenced: each write checks in its own transaction that the run is still ours."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import psycopg
from django.conf import settings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from psycopg import Cursor
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from console.kernel.ids import new_id

#: LangGraph's tables live in a schema of their own; ours are reached by their qualified names.
SCHEMA = "engine"
_SESSION = f"{settings.SESSION} -c search_path={SCHEMA} -c synchronous_commit=on"

_HOLDS = """
    SELECT 1 FROM public.runs_run WHERE id = %s AND fence = %s AND status = 'running' FOR SHARE
"""
_INDEX = """
    INSERT INTO public.runs_checkpoint
        (id, run_id, namespace, engine_id, parent_engine_id, fence, number, source, nodes, size)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (run_id, namespace, engine_id) DO NOTHING
"""


class FenceLost(Exception):
    """This execution is no longer the newest of its run, or the run was taken from it. Nothing was written."""


class OursFailed(Exception):
    """A write of ours failed: the database went away. Not the node's fault: the lease ends and the run is taken up."""


class StateRefused(Exception):
    """The state can't be saved as it is: the message names the channel and the type or value."""


def create_schema(owner_url: str) -> None:
    """Create or upgrade LangGraph's tables in their schema, as the owner. Idempotent."""
    with psycopg.connect(owner_url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.execute(f"SET search_path TO {SCHEMA}")
        PostgresSaver(connection).setup()


@cache
def pool() -> ConnectionPool[psycopg.Connection[DictRow]]:
    """The process's connections for checkpoints, made at first use (after any fork), each checked before use."""
    return ConnectionPool(
        settings.DATABASE_URL,
        min_size=0,
        max_size=20,
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "options": _SESSION,
        },
        check=ConnectionPool.check_connection,
        open=True,
    )


class Saver(PostgresSaver):
    """Reads only: for pages and previews."""

    def __init__(self) -> None:
        super().__init__(pool())

    def put(self, *_args: Any, **_kwargs: Any) -> RunnableConfig:
        raise FenceLost("this saver only reads")

    def put_writes(self, *_args: Any, **_kwargs: Any) -> None:
        raise FenceLost("this saver only reads")


class FencedSaver(PostgresSaver):
    """The saver of one execution. Every put and put_writes is one transaction that holds the run's row.

    A refused put stops the engine. A refused put_writes does not (the engine writes those in the background), so
    it sets *lost*, which the node guard reads before it runs anything. What can't come back as it is is refused by
    both: kept as a task's write it would come in as a dict when the run is continued.
    """

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__(pool())
        self.run_id = run_id
        self.fence = fence
        self.lost = threading.Event()
        self._writing = threading.local()

    @contextmanager
    def _transaction(self) -> Iterator[Cursor[DictRow]]:
        """One transaction that holds the run's row; what the parent class writes inside it joins it."""
        if self.lost.is_set():
            raise FenceLost(self.run_id)
        try:
            with self._held() as cursor:
                yield cursor
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise OursFailed(str(error)) from error

    @contextmanager
    def _held(self) -> Iterator[Cursor[DictRow]]:
        with (
            pool().connection() as connection,
            connection.transaction(),
            connection.cursor(binary=True, row_factory=dict_row) as cursor,
        ):
            cursor.execute(_HOLDS, (self.run_id, self.fence))
            if cursor.fetchone() is None:
                self.lost.set()
                raise FenceLost(self.run_id)
            self._writing.cursor = cursor
            try:
                yield cursor
            finally:
                self._writing.cursor = None

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:
        joined = getattr(self._writing, "cursor", None)
        if joined is not None:
            yield joined
        else:
            with super()._cursor(pipeline=pipeline) as cursor:
                yield cursor

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._check(config)
        refuse_unreadable(self, checkpoint, new_versions)
        with self._transaction() as cursor:
            written = super().put(config, checkpoint, metadata, new_versions)
            where = config["configurable"]
            cursor.execute(
                _INDEX,
                (
                    new_id("cp"),
                    self.run_id,
                    where.get("checkpoint_ns", ""),
                    checkpoint["id"],
                    where.get("checkpoint_id") or "",
                    self.fence,
                    metadata.get("step", -1),
                    metadata.get("source", ""),
                    psycopg.types.json.Jsonb(_nodes_of(checkpoint)),
                    self._size(checkpoint, new_versions),
                ),
            )
        return written

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._check(config)
        for channel, value in writes:
            if channel != "__error__":
                _refuse(self, channel, value)
        with self._transaction():
            super().put_writes(config, writes, task_id, task_path)

    def forget_answers(self, namespace: str, task_id: str, *, within: str) -> bool:
        """Delete the answers that are stored for a task of *namespace*, and below *within*, its own. False: there are none.

        The fence is held as for a write: a node's answer is never taken away from an execution that goes on with it.
        """
        with self._transaction() as cursor:
            cursor.execute(
                """
                DELETE FROM checkpoint_writes WHERE thread_id = %s AND channel = '__resume__'
                AND ((checkpoint_ns = %s AND task_id = %s) OR checkpoint_ns = %s OR starts_with(checkpoint_ns, %s))
                """,
                (self.run_id, namespace, task_id, within, f"{within}|"),
            )
            return cursor.rowcount > 0

    def _check(self, config: RunnableConfig) -> None:
        if config["configurable"]["thread_id"] != self.run_id:
            raise FenceLost(f"the saver of {self.run_id} was asked to write another thread")

    def _size(self, checkpoint: Checkpoint, new_versions: ChannelVersions) -> int:
        values = checkpoint["channel_values"]
        return sum(len(self.serde.dumps_typed(values[name])[1]) for name in new_versions if name in values)


def _nodes_of(checkpoint: Checkpoint) -> list[str]:
    """The nodes whose work is in this checkpoint: what the versions seen tell."""
    return sorted(name for name in checkpoint.get("versions_seen", {}) if not name.startswith("__"))


def refuse_unreadable(saver: PostgresSaver, checkpoint: Checkpoint, new_versions: ChannelVersions) -> None:
    """Raise StateRefused for a value that would not come back as it is: strict reading turns types into dicts."""
    for name in new_versions:
        if name in checkpoint["channel_values"]:
            _refuse(saver, name, checkpoint["channel_values"][name])


def _refuse(saver: PostgresSaver, name: str, value: Any) -> None:
    # Top-level primitives are kept as JSONB, which lacks these; inside other values they are kept as bytes.
    if isinstance(value, str) and "\x00" in value:
        raise StateRefused(f"the state's {name} holds the character U+0000, which can't be stored")
    if isinstance(value, float) and not math.isfinite(value):
        what = "NaN" if math.isnan(value) else str(value)
        raise StateRefused(f"the state's {name} is {what}, which can't be stored")
    if value is None or isinstance(value, (str, bool, int, float)):
        return
    blocked: list[str] = []
    token = _BLOCKED.set(blocked)
    try:
        saver.serde.loads_typed(saver.serde.dumps_typed(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise StateRefused(f"the state's {name} can't be stored: {error}") from error
    finally:
        _BLOCKED.reset(token)
    if blocked:
        raise StateRefused(
            f"the state's {name} holds a {blocked[0]}, which is not declared in the state's schema "
            "and would not come back as it is"
        )


#: The types that reading back in this context has blocked. LangGraph tells them to listeners, which see every thread.
_BLOCKED: ContextVar[list[str] | None] = ContextVar("signalbox_blocked", default=None)


def _note_blocked(event: SerdeEvent) -> None:
    blocked = _BLOCKED.get()
    if blocked is not None and event["kind"] != "msgpack_unregistered_allowed":
        blocked.append(f"{event['module']}.{event['name']}")


register_serde_event_listener(_note_blocked)
