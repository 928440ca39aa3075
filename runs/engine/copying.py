"""Copying a checkpoint into a thread of its own, from which another run goes on. The thread it comes from is only read.

LangGraph's Postgres saver copies nothing, and its other ways lose something: a new checkpoint id makes other task ids,
an update on a fresh thread loses joins and Sends, a replay inside the old thread moves that thread's head. Rows that
keep their checkpoint id keep what comes next, its tasks and values; tests/engine/test_copying.py holds the pinned
version to that.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

from runs.engine.saver import SCHEMA
from runs.models import Checkpoint, Run

_PARENTS = f"""
    SELECT metadata -> 'parents' FROM {SCHEMA}.checkpoints
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s
"""  # noqa: S608 - the schema's name is a constant

#: The earlier checkpoint stays behind: here history begins. The metadata names the run that goes on from it.
_COPY = f"""
    INSERT INTO {SCHEMA}.checkpoints
        (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
    SELECT %(to)s, checkpoint_ns, checkpoint_id, NULL, type, checkpoint, metadata || %(told)s
    FROM {SCHEMA}.checkpoints
    WHERE thread_id = %(from)s AND checkpoint_ns = %(namespace)s AND checkpoint_id = %(checkpoint)s
"""  # noqa: S608
_COPY_VALUES = f"""
    INSERT INTO {SCHEMA}.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT %(to)s, b.checkpoint_ns, b.channel, b.version, b.type, b.blob
    FROM {SCHEMA}.checkpoints c
    CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
    JOIN {SCHEMA}.checkpoint_blobs b
      ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
     AND b.channel = v.key AND b.version = v.value
    WHERE c.thread_id = %(from)s AND c.checkpoint_ns = %(namespace)s AND c.checkpoint_id = %(checkpoint)s
"""  # noqa: S608


class NothingToCopy(Exception):
    """The engine no longer has the checkpoint. Nothing was written."""


def copy_checkpoint(source: Checkpoint, run: Run) -> Checkpoint:
    """Copy *source*, and the checkpoints around it where it is a subgraph's, to *run*'s thread. Inside a transaction.

    No pending write comes along: what comes next is executed anew, and people's earlier answers answer nothing in it.
    Returns the copy's index row (the outermost one). Raises NothingToCopy.
    """
    copied = None
    for namespace, engine_id in _with_those_around(source):
        _copy(source.run_id, run.id, namespace, engine_id)
        row = _copy_index_row(source.run_id, run, namespace, engine_id)
        copied = row if namespace == "" else copied
    assert copied is not None
    return copied


def _with_those_around(source: Checkpoint) -> list[tuple[str, str]]:
    """The outermost graph's checkpoint first, then inwards to *source*."""
    with connection.cursor() as cursor:
        cursor.execute(_PARENTS, [source.run_id, source.namespace, source.engine_id])
        row = cursor.fetchone()
    if row is None:
        raise NothingToCopy("The engine has no state for this checkpoint any more.")
    around = {**_mapping(row[0]), source.namespace: source.engine_id}
    return sorted(around.items(), key=lambda item: len(item[0]))


def _mapping(value: object) -> dict[str, str]:
    if isinstance(value, str | bytes):
        value = json.loads(value)
    return {str(key): str(one) for key, one in value.items()} if isinstance(value, dict) else {}


def _copy(source_id: str, to: str, namespace: str, engine_id: str) -> None:
    fields: dict[str, Any] = {
        "from": source_id,
        "to": to,
        "namespace": namespace,
        "checkpoint": engine_id,
        "told": Jsonb({"console_run_id": to}),
    }
    with connection.cursor() as cursor:
        cursor.execute(_COPY, fields)
        if cursor.rowcount != 1:
            raise NothingToCopy("The engine has no state for the graph around this checkpoint any more.")
        cursor.execute(_COPY_VALUES, fields)


def _copy_index_row(source_id: str, run: Run, namespace: str, engine_id: str) -> Checkpoint:
    """Ours: fence 0 says that no execution of this run wrote it."""
    original = Checkpoint.objects.get(run_id=source_id, namespace=namespace, engine_id=engine_id)
    return Checkpoint.objects.create(
        run=run,
        namespace=namespace,
        engine_id=engine_id,
        fence=0,
        number=original.number,
        source=original.source,
        nodes=original.nodes,
        size=original.size,
    )
