"""Whether this database is the one that the ledger was written in, as far as it had come. If not, sending is frozen.

A database that was restored from a back-up, or that took over from another, may lack effects that were sent; what it
holds as *ready* may be there already. Two things tell: which database this is (the server's system identifier, its
timeline and the database's oid, against the row LedgerMark), and how far it had come (a high-water mark that the sweep
keeps outside of Postgres). The first finds a promoted standby, a restore to a point in time and a dump in another
database; only the second finds a disk that was put back and a dump in the same database. docs/restore.md is for people.

initdb draws a system identifier for each cluster, and a server that ends a recovery, as a promoted standby does, goes
on in a new timeline (postgresql.org/docs/18: functions-info, "Control Data Functions"; continuous-archiving,
"Timelines"). Any role may read them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Greatest, Now

from console import audit
from console.kernel.live import announce
from console.models import AuditEvent, Workspace
from effects.models import EffectAttempt, LedgerMark, Stop
from effects.states import StopScope

logger = logging.getLogger(__name__)

#: A process that sends reads the marks outside on each new connection, and again when this is over, in seconds.
READ_AGAIN = 5.0
#: Redis is asked with a short patience: without it the other marks still count.
PATIENCE = 0.5
#: The file is written when something was sent or recorded, or when this is over, in seconds.
WRITE_AGAIN = 60.0

_SYSTEM = "(SELECT system_identifier::text FROM pg_control_system())"
# A WAL file's name begins with the timeline that is written to. The control file may be one checkpoint behind.
_TIMELINE = "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint"
_DATABASE = "(SELECT oid::bigint FROM pg_database WHERE datname = current_database())"


@dataclass(frozen=True)
class Place:
    """Which database a ledger is in."""

    system: str
    timeline: int
    database: int


@dataclass(frozen=True)
class HighWater:
    """How far a ledger had come at a moment, by its database's clock. *wal*: bytes of its log that are on disk."""

    place: Place
    at: datetime
    attempt: int = 0
    event: str = ""
    wal: int = 0

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "at": self.at.isoformat()})

    @classmethod
    def of_json(cls, text: str) -> HighWater:
        """Raises ValueError for what is no mark."""
        try:
            given = json.loads(text)
            return cls(
                place=Place(**given["place"]),
                at=datetime.fromisoformat(given["at"]),
                attempt=int(given["attempt"]),
                event=str(given["event"]),
                wal=int(given["wal"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"no high-water mark: {error}") from error


class _OfThread(threading.local):
    """The connection of this thread that was checked last."""

    checked: weakref.ref[Any] | None = None


class _OfProcess:
    """What this process knows by itself: when it read the marks, and how far it has seen the ledger come."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at = -float("inf")
        self.place: Place | None = None
        self.seen: HighWater | None = None


_thread = _OfThread()
_process = _OfProcess()


def ensure() -> int:
    """Before a claim, outside its transaction: check a connection that is new to this thread, or long unchecked.

    Returns the number of the newest attempt that this process has seen: the next one must be above it.
    """
    checked = _thread.checked and _thread.checked()
    fresh = time.monotonic() - _process.read_at <= READ_AGAIN
    if not fresh or checked is None or checked is not connection.connection:
        check()
    return _process.seen.attempt if _process.seen else 0


def trusted() -> bool:
    """Whether the row LedgerMark names this very database. In the claim's own transaction: nothing is remembered."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM effects_ledgermark WHERE id = 1 AND system_identifier = {_SYSTEM} "  # noqa: S608  (constants)
            f"AND timeline = {_TIMELINE} AND database_oid = {_DATABASE}"
        )
        if cursor.fetchone() is not None:
            return True
    _thread.checked = None
    return False


def remember(attempt: EffectAttempt) -> None:
    """This process has seen *attempt* committed: a database without it is an older one."""
    with _process.lock:
        seen = _process.seen
        if _process.place is not None and (seen is None or attempt.id > seen.attempt):
            _process.seen = HighWater(_process.place, attempt.started_at, attempt.id)


def check() -> HighWater:
    """Compare this database with the marks, and freeze every workspace when it is not what they say.

    Returns how far the ledger has come. Raises what the database raises: nothing may be sent then either.
    """
    # First the marks: what is read of the database afterwards is at least as new.
    marks = _marks()
    here = _here()
    row = _row()
    if _differs(here, row, marks):
        _freeze(marks)
        row = _row()
    elif row is None:
        _write_row(here.place, here.at)
    with _process.lock:
        _process.place, _process.read_at = here.place, time.monotonic()
        if row is not None and _process.seen is not None and _process.seen.at <= row.checked_at:
            _process.seen = None
    _thread.checked = weakref.ref(connection.connection)
    return here


def keep_mark() -> None:
    """The sweep's duty: check, then note outside of Postgres how far the ledger has come."""
    _write_marks(check())


def _row() -> LedgerMark | None:
    return LedgerMark.objects.filter(id=1).first()


def _here() -> HighWater:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_SYSTEM}, {_TIMELINE}, {_DATABASE}, now(), "  # noqa: S608  (constants)
            "(SELECT max(id) FROM effects_effectattempt), (SELECT max(id) FROM console_auditevent), "
            "pg_current_wal_flush_lsn() - '0/0'::pg_lsn"
        )
        system, timeline, database, at, attempt, event, wal = cursor.fetchone()
    return HighWater(Place(system, timeline, database), at, attempt or 0, event or "", int(wal))


def _differs(here: HighWater, row: LedgerMark | None, marks: list[HighWater]) -> str:
    """How this is not the database that the ledger was written in last, in words; empty when it is.

    A mark counts only when it is newer than the row: what is older was answered when the row was written. A database
    that was put back has an older row with it, so what it lacks is in a mark that is newer.
    """
    if row is not None:
        was = Place(row.system_identifier, row.timeline, row.database_oid)
        if how := _other_place(was, here.place):
            return how
    for mark in marks:
        if row is not None and mark.at <= row.checked_at:
            continue
        if how := _other_place(mark.place, here.place) or _behind(here, mark):
            return how
    return ""


def _other_place(was: Place, now: Place) -> str:
    if was.system != now.system:
        return "the ledger was written on another database server"
    if was.timeline != now.timeline:
        return (
            f"its server went from timeline {was.timeline} to {now.timeline}, "
            "as when a standby takes over or after a restore to a point in time"
        )
    if was.database != now.database:
        return "the ledger was written in another database of this server"
    return ""


def _behind(here: HighWater, mark: HighWater) -> str:
    by = f"by {_told(mark.at)}"
    if mark.attempt > here.attempt:
        return f"attempt {mark.attempt} was made {by}, and the newest one here is {here.attempt}"
    if mark.event > here.event:
        return f"the event {mark.event} was recorded {by}, and it is not here"
    if mark.wal > here.wal:
        return f"its log had come further {by} than it has now"
    return ""


def _told(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _freeze(marks: list[HighWater]) -> None:
    """Stop every workspace until its receivers were scanned for orphans, and write the marks anew; in one transaction.

    Who comes second finds the row written, and does nothing.
    """
    with transaction.atomic():
        row = LedgerMark.objects.select_for_update().filter(id=1).first()
        here = _here()
        how = _differs(here, row, marks)
        if not how:
            return
        logger.error("sending is frozen in every workspace: %s", how)
        reason = _reason(how)
        for workspace in Workspace.objects.order_by("id"):
            _stop(workspace, reason)
        _write_row(here.place, max([here.at, *(mark.at for mark in marks)]))
    _write_marks(here)


def _reason(how: str) -> str:
    newest = AuditEvent.objects.order_by("-id").values_list("at", flat=True).first()
    lacks = f" What was sent after {_told(newest)} may be missing here." if newest else ""
    return (
        f"This database was restored from a back-up, or took over from another: {how}.{lacks} Nothing is sent until "
        "every receiver that can list was scanned for orphans and a releaser lifts this stop."
    )


def _stop(workspace: Workspace, reason: str) -> None:
    standing = Stop.objects.filter(workspace=workspace, scope=StopScope.WORKSPACE, lifted_at=None).first()
    if standing is not None:
        # One stands at most, and the scans that lift the new one count from its own moment.
        Stop.objects.filter(id=standing.id).update(
            lifted_at=Now(), lifted_why="Replaced by the stop after a restore, which goes further."
        )
        reason = f"{reason} It was stopped before: {standing.reason}"
    stop = Stop.objects.create(
        workspace=workspace, scope=StopScope.WORKSPACE, reason=reason, needs_scan=True, by=None
    )
    audit.record(
        workspace_id=workspace.id,
        actor="system:restore",
        verb="stop.set",
        subject=stop.id,
        sentence=f"Sending stopped: {reason}",
        reason=reason,
        scope=stop.scope,
        target=stop.target,
        replaces=standing.id if standing else "",
    )
    announce(workspace.id, "stops", "home", "effects", "runs")


def _write_row(place: Place, at: datetime) -> None:
    """Say that the ledger is here from now on. Not older than *at*: the marks up to then are answered with it."""
    LedgerMark.objects.update_or_create(
        id=1,
        defaults={
            "system_identifier": place.system,
            "timeline": place.timeline,
            "database_oid": place.database,
            "checked_at": Greatest(Now(), Value(at)),
        },
    )


def _marks() -> list[HighWater]:
    """Every mark outside of Postgres: in Redis, in the file if there is one, and what this process remembers."""
    found = [_read(_of_redis()), _read(_of_file()), _process.seen]
    return [mark for mark in found if mark is not None]


def _read(text: str) -> HighWater | None:
    if not text:
        return None
    try:
        return HighWater.of_json(text)
    except ValueError:
        logger.exception("a high-water mark can't be read; it is taken for none")
        return None


def _write_marks(here: HighWater) -> None:
    """Note *here*, outside. What can't be written now is written at the next turn of the sweep."""
    try:
        _client().set(_key(), here.as_json())
    except redis.RedisError as error:
        logger.warning("the high-water mark was not kept in Redis (%s)", type(error).__name__)
    file = settings.HIGH_WATER_FILE
    if file and _is_worth_writing(here, _read(_of_file())):
        try:
            _replace(Path(file), here.as_json())
        except OSError:
            logger.exception("the high-water mark was not kept in %s", file)


def _is_worth_writing(here: HighWater, kept: HighWater | None) -> bool:
    return (
        kept is None
        or (here.place, here.attempt, here.event) != (kept.place, kept.attempt, kept.event)
        or (here.at - kept.at).total_seconds() > WRITE_AGAIN
    )


def _replace(file: Path, text: str) -> None:
    """In one step: a crash leaves the old one or the new one."""
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    with new.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


def _of_redis() -> str:
    try:
        kept: Any = _client().get(_key())
    except redis.RedisError as error:
        logger.warning("no high-water mark was read from Redis (%s)", type(error).__name__)
        return ""
    return kept.decode("utf-8", "replace") if kept else ""


def _of_file() -> str:
    if not settings.HIGH_WATER_FILE:
        return ""
    try:
        return Path(settings.HIGH_WATER_FILE).read_text()
    except FileNotFoundError:
        return ""
    except OSError:
        logger.exception("no high-water mark was read from %s", settings.HIGH_WATER_FILE)
        return ""


def file_problem() -> str:
    """Why the mark can't be kept in the file that the settings name; empty when it can, or none is named."""
    file = settings.HIGH_WATER_FILE
    if not file or (
        os.access(Path(file).parent, os.W_OK) and (not Path(file).exists() or os.access(file, os.R_OK))
    ):
        return ""
    return f"SIGNALBOX_HIGH_WATER names {file}, which this process can't read or replace"


def _key() -> str:
    """By the database's name: a restored one mostly keeps it, and copies of other names share no mark with it."""
    return f"signalbox:high-water:{connection.settings_dict['NAME']}"


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE, retry_on_timeout=False
    )
