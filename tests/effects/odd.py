"""Receivers that answer with whatever bytes a test gives them: what no well-made server would say."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

#: (the whole request, the connection) → it may send what it likes; the connection closes afterwards.
Play = Callable[[bytes, socket.socket], None]


def says(status: str, body: bytes = b"", *headers: str) -> Play:
    """One answer of these bytes."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    whole = "\r\n".join(head).encode() + b"\r\n\r\n" + body

    def play(_request: bytes, connection: socket.socket) -> None:
        connection.sendall(whole)

    return play


@dataclass
class OddServer:
    """Counts the requests that came and plays its part for each."""

    play: Play
    requests: list[bytes] = field(default_factory=list)
    url: str = ""
    _server: socketserver.ThreadingTCPServer | None = None

    def start(self) -> OddServer:
        odd = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                whole = read_request(self.request)
                if whole:
                    odd.requests.append(whole)
                    odd.play(whole, self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    @property
    def effect_bearing(self) -> int:
        return sum(not request.startswith(b"GET ") for request in self.requests)

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def read_request(connection: socket.socket) -> bytes:
    """Head and body of one request."""
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = connection.recv(65536)
        if not chunk:
            return got
        got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


class OddMailServer:
    """Speaks just enough SMTP; what it answers to a command is *replies*, by the command's first word."""

    def __init__(self, **replies: str) -> None:
        self.replies = {"HELO": "250 odd", "EHLO": "250 odd", "MAIL": "250 ok", "RCPT": "250 ok", **replies}
        self.commands: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"smtp://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as lines:
                self._talk(lines)

    def _talk(self, lines: object) -> None:
        stream = lines
        stream.write(b"220 odd\r\n")  # type: ignore[attr-defined]
        stream.flush()  # type: ignore[attr-defined]
        for line in stream:  # type: ignore[attr-defined]
            command = line.decode(errors="replace").strip()
            self.commands.append(command)
            if command.upper() == "DATA" and self.replies.get("DATA", "").startswith("354"):
                stream.write(b"354 go on\r\n")  # type: ignore[attr-defined]
                stream.flush()  # type: ignore[attr-defined]
                while stream.readline() not in (b".\r\n", b""):  # type: ignore[attr-defined]
                    pass
                command = "."  # the end of the message is answered like a command of its own
            reply = self.replies.get(command.split(" ")[0].upper(), "502 what?").format(command=command)
            stream.write(reply.encode("latin-1", "replace") + b"\r\n")  # type: ignore[attr-defined]
            stream.flush()  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._listening.close()
