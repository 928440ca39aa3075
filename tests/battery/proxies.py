"""What may stand between a sender and its receiver, and do what nobody asked for."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.effects.odd import Play


def doubling(target: str) -> Play:
    """Sends each request that changes something twice, and gives back the second answer."""

    def play(request: bytes, client: socket.socket) -> None:
        times = 1 if request.startswith(b"GET ") else 2
        answers = [passed_on(target, request) for _ in range(times)]
        client.sendall(answers[-1])

    return play


def passed_on(target: str, request: bytes) -> bytes:
    """The whole answer of *target* to *request*."""
    where = urlsplit(target)
    with socket.create_connection((where.hostname, where.port), timeout=10) as server:
        server.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        answer = b""
        while chunk := server.recv(65536):
            answer += chunk
    return answer
