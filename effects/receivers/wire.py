"""A network backend that keeps one total deadline, knows whether a byte left, and goes only where it may.

Client libraries count their time-outs per read, so a receiver that drips a byte a second never runs into one. Here
every operation gets what is left of the total.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
from django.conf import settings
from httpcore import SOCKET_OPTION


class Refused(Exception):
    """The address may not be spoken to. Nothing was sent."""


class Late(Exception):
    """The moment to send had passed before the first byte. Nothing was sent."""


class Deadline:
    """A total deadline and a send-by, on the monotonic clock, in seconds from now."""

    def __init__(self, total: float, send_by: float | None = None) -> None:
        now = time.monotonic()
        self.ends = now + total
        self.send_by = now + (total if send_by is None else send_by)
        self.sent = False

    def left(self) -> float:
        return max(self.ends - time.monotonic(), 0.001)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.ends

    def first_byte(self) -> None:
        """Called just before anything of the request leaves. Raises Late when the lease could end meanwhile."""
        if not self.sent and time.monotonic() > self.send_by:
            raise Late("the time to send had passed")
        self.sent = True


def check_address(host: str, port: int) -> str:
    """Resolve *host* once and return the address to connect to; Refused for private ranges in production."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(f"{host} can't be resolved: {error}") from error
    address = str(found[0][4][0])
    ip = ipaddress.ip_address(address)
    if settings.PRODUCTION and not ip.is_global:
        raise Refused(f"{host} leads to {ip}, which is not a public address")
    return address


class DeadlineStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline, *, secured: bool) -> None:
        self._inner = inner
        self._deadline = deadline
        self._secured = secured

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        if self._deadline.passed:
            raise httpcore.ReadTimeout("the total deadline has passed")
        return self._inner.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._deadline.first_byte()
        self._inner.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left())
        return DeadlineStream(inner, self._deadline, secured=True)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class DeadlineBackend(httpcore.NetworkBackend):
    """Connects only to *hosts*, within the deadline."""

    def __init__(self, deadline: Deadline, hosts: Iterable[str]) -> None:
        self._deadline = deadline
        self._hosts = frozenset(hosts)
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        if host not in self._hosts:
            raise Refused(f"{host} is not among the receiver's hosts")
        stream = self._inner.connect_tcp(
            check_address(host, port), port, self._deadline.left(), local_address, socket_options
        )
        return DeadlineStream(stream, self._deadline, secured=False)
