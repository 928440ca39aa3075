"""What a process that replays apart may reach: its own database and broker, and what its mode allows beside them.

Installed once in a process, before any workflow's code runs in it, and never taken away: the hooks of Python's audit
(PEP 578) can't be. A refused request raises where it is made and is noted here, so that the run stops even if the
node catches it. C clients that open connections without Python's own sockets bypass this: only a network policy
around the process holds those (docs/replay.md).
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

#: What would start another program, in which no hook of ours is.
_PROGRAMS = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"}
)
_SENDS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVES = frozenset(
    {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"}
)


class RequestRefused(ConnectionRefusedError):
    """A request that this process may not make. Nothing left it."""


class _Policy:
    def __init__(self, mode: str, addresses: Iterable[str], database: str) -> None:
        self.mode = mode
        self.database = conninfo_to_dict(database)
        self.refused: list[str] = []
        self.names: set[str] = set()
        self.places: set[tuple[str, int]] = set()
        self.sockets: set[str] = set()
        for address in addresses:
            self._allow(address)

    def _allow(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme in ("unix", "redis+socket"):
            self.sockets.add(parts.path)
            return
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if not host:
            return  # a database on a socket of its own: libpq's connections are asked about in check_database
        self.names.add(host)
        for *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            self.places.add((str(where[0]), port))

    def refuse(self, what: str) -> RequestRefused:
        self.refused.append(what)
        return RequestRefused(f"a run in {self.mode} may not reach {what}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SENDS:
            self._check_address(arguments)
        elif event in _RESOLVES:
            self._check_name(arguments[0])
        elif event in _PROGRAMS:
            raise self.refuse(f"the program {_words(arguments[0])}")

    def _check_address(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1] if len(arguments) > 1 else None
        if address is None:
            return  # on a socket that is connected already: that was asked about when it connected
        if isinstance(address, (str, bytes)):
            path = address.decode("utf-8", "replace") if isinstance(address, bytes) else address
            if path not in self.sockets:
                raise self.refuse(f"the socket {path}")
        elif isinstance(address, tuple) and len(address) >= 2:
            host, port = str(address[0]), int(address[1])
            if (host, port) not in self.places:
                raise self.refuse(f"{host}:{port}")
        else:
            raise self.refuse(_words(address))

    def _check_name(self, name: object) -> None:
        host = _words(name)
        if host and host not in self.names and not _is_address(host):
            raise self.refuse(host)

    def check_database(self, conninfo: str, **more: Any) -> None:
        """libpq's connections are made in C, where no hook sees them."""
        asked = conninfo_to_dict(conninfo, **{key: value for key, value in more.items() if value is not None})
        if any(asked.get(part) != self.database.get(part) for part in ("host", "hostaddr", "port", "dbname")):
            raise self.refuse(
                f"the database {asked.get('dbname')} at {asked.get('host')}:{asked.get('port')}"
            )


_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
_installed: _Policy | None = None


def install(mode: str, *, allowed: Iterable[str], database: str) -> None:
    """Refuse this process from now on whatever is not one of *allowed* (addresses as URLs) or its own *database*.

    A second call in the same process is an error: a process serves one run.
    """
    global _installed
    if _installed is not None:
        raise RuntimeError(f"this process is bound to {_installed.mode} already")
    policy = _Policy(mode, allowed, database)
    _guard_psycopg(policy)
    _installed = policy
    sys.addaudithook(policy.audit)


def refused() -> list[str]:
    """What this process was refused so far. Empty without a policy."""
    return list(_installed.refused) if _installed is not None else []


def _guard_psycopg(policy: _Policy) -> None:
    connect: Callable[..., Any] = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]

    @functools.wraps(connect)
    def guarded(cls: type[Any], conninfo: str = "", **kwargs: Any) -> Any:
        parameters = {key: value for key, value in kwargs.items() if key in _PARAMETERS}
        policy.check_database(conninfo, **parameters)
        return connect(cls, conninfo, **kwargs)

    psycopg.Connection.connect = classmethod(guarded)  # type: ignore[assignment,arg-type,method-assign]
    # The module's own name was bound to the class's method when it was imported.
    psycopg.connect = psycopg.Connection.connect


_PARAMETERS = ("host", "hostaddr", "port", "dbname")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _words(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return " ".join(_words(one) for one in value)
    return "" if value is None else str(value)
