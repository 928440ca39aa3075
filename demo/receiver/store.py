"""The receiver's database, and the one transaction that holds an operation record together with its business mutation.

Everything belongs to an account, so that callers with different accounts never meet.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from demo.receiver.loopback import CannotStart

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS accounts (
    account TEXT PRIMARY KEY,
    first_seen TEXT NOT NULL
) STRICT;

-- Every request, written when it arrives: a process that dies while answering has still seen it.
-- answer is NULL while none was given, else a status code, 'dropped', or 'incomplete' (its body never came whole).
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    query TEXT NOT NULL,
    key TEXT,
    body_sha256 TEXT NOT NULL,
    body TEXT NOT NULL,
    headers TEXT NOT NULL,
    received_at TEXT NOT NULL,
    fault TEXT,
    answer TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS requests_of_account ON requests (account, seq);

CREATE TABLE IF NOT EXISTS sequences (
    account TEXT NOT NULL,
    resource TEXT NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (account, resource)
) STRICT;

CREATE TABLE IF NOT EXISTS objects (
    account TEXT NOT NULL,
    resource TEXT NOT NULL,
    id TEXT NOT NULL,
    external_id TEXT,
    document TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (account, resource, id),
    UNIQUE (account, resource, external_id)
) STRICT;

-- What a key has done. A key is forgotten only by a prune.
CREATE TABLE IF NOT EXISTS operations (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('accepted', 'completed', 'failed')),
    response_status INTEGER NOT NULL,
    response TEXT NOT NULL,
    resource TEXT NOT NULL,
    object_id TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (account, key)
) STRICT;

CREATE TABLE IF NOT EXISTS effects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    request_seq INTEGER NOT NULL REFERENCES requests (seq),
    action TEXT NOT NULL CHECK (action IN ('created', 'replaced')),
    resource TEXT NOT NULL,
    object_id TEXT NOT NULL,
    external_id TEXT,
    key TEXT,
    document TEXT NOT NULL,
    made_at TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS effects_of_account ON effects (account, seq);
CREATE INDEX IF NOT EXISTS effects_of_request ON effects (request_seq);

CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    match TEXT NOT NULL,
    options TEXT NOT NULL,
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT;
CREATE INDEX IF NOT EXISTS faults_pending ON faults (account, id) WHERE remaining > 0;

-- An accepted command's later end: the effect (if any) is made and the webhook sent when it is due.
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    request_seq INTEGER NOT NULL REFERENCES requests (seq),
    resource TEXT NOT NULL,
    options TEXT NOT NULL,
    due REAL NOT NULL,
    settled TEXT,
    outcome TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (due) WHERE outcome IS NULL;
"""


def now() -> str:
    return timestamp(datetime.now(UTC))


def timestamp(moment: datetime) -> str:
    """UTC, RFC 3339, always with microseconds: sorts as text. *moment* is aware."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Store:
    """One SQLite connection in WAL mode behind a lock; every write is one BEGIN IMMEDIATE transaction.

    ``synchronous=NORMAL``: a killed process loses nothing, a machine that loses power may lose the last moments.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and alone: the second of two same keys waits here and then finds the first one's record."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def create_tables(self, schema: str) -> None:
        with self._lock:
            self._db.executescript(schema)

    def close(self) -> None:
        with self._lock:
            self._db.close()


def open_store(folder: Path, name: str, schema: str) -> Store:
    """The store ``folder/name``, made with its tables where it is missing. Raises CannotStart in words."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(folder / name)
        store.create_tables(schema)
    except (OSError, sqlite3.Error) as error:
        raise CannotStart(
            f"the data folder {folder} can't be used: {error}. Give --data a folder you may write to."
        ) from None
    return store
