"""A small threaded HTTP/1.1 server for the demo's own processes, bound to 127.0.0.1 and to nothing else.

Why not a web framework: the demo's faults live below HTTP. A reply here may also be *no* reply (the socket closes), or an
answer that drips out byte by byte, and frameworks turn both into a 500. One thread a connection, so that a hanging
request holds up nobody but its own client.
"""

from __future__ import annotations

import json
import signal
import socket
import socketserver
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl, unquote, urlsplit

HOST = "127.0.0.1"
BODY_LIMIT = 4 * 1024 * 1024
#: A connection that says nothing for this long is closed: keep-alive clients come back within seconds.
IDLE_SECONDS = 75


@dataclass(frozen=True)
class Request:
    """One request, read whole. ``complete`` is False when the client left in the middle of its body."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())


@dataclass(frozen=True)
class Answer:
    """An ordinary answer; its length is always declared, so a client can tell a whole one from a cut one."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: int, document: object, headers: Mapping[str, str] | None = None) -> Answer:
        """An answer with *document* as JSON."""
        body = json.dumps(document, ensure_ascii=False).encode()
        return cls(status, body, {"Content-Type": "application/json", **(headers or {})})

    @classmethod
    def error(cls, status: int, code: str, message: str, **more: object) -> Answer:
        """A refusal: ``{"error": code, "message": words, …}``."""
        return cls.of(status, {"error": code, "message": message, **more})


@dataclass(frozen=True)
class Dropped:
    """No answer: the connection closes, politely (FIN) or with a reset (RST)."""

    reset: bool = False


@dataclass(frozen=True)
class Dripped:
    """A whole answer, sent one byte at a time: each read of the client succeeds, the answer takes for ever."""

    answer: Answer
    interval: float


@dataclass(frozen=True)
class Streamed:
    """An answer of unknown length, sent chunk by chunk (server-sent events)."""

    chunks: Iterator[bytes]
    headers: Mapping[str, str]
    status: int = 200


Reply = Answer | Dropped | Dripped | Streamed
Application = Callable[[Request], Reply]


class Handler(BaseHTTPRequestHandler):
    """Reads one request, asks the server's application, writes its reply."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    server: LoopbackServer

    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def serve(self) -> None:
        try:
            request = self.read_request()
        except ValueError as problem:
            self.close_connection = True
            self.send(Answer.error(400, "bad_request", str(problem)))
            return
        reply = self.server.reply_to(request)
        try:
            self.send(reply)
        except OSError:  # the client has gone; what was done stays done
            self.close_connection = True

    def read_request(self) -> Request:
        """The request, read whole. Raises ValueError for one whose target or body makes no sense."""
        target = urlsplit(self.path)
        body, complete = self.read_body()
        return Request(
            method=self.command,
            path=unquote(target.path),
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            complete=complete,
        )

    def read_body(self) -> tuple[bytes, bool]:
        """The body and whether it is whole. Raises ValueError for one that is too long or badly framed."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self.read_chunks()
        declared = self.headers.get("Content-Length", "0")
        if not declared.isascii() or not declared.isdigit():
            raise ValueError("Content-Length is not a number")
        length = int(declared)
        if length > BODY_LIMIT:
            raise ValueError(f"a body may have at most {BODY_LIMIT} bytes")
        body = self.read_exactly(length)
        return body, len(body) == length

    def read_chunks(self) -> tuple[bytes, bool]:
        body = b""
        while line := self.rfile.readline(1024):
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise ValueError("a chunk's size is not a number") from None
            if size < 0 or len(body) + size > BODY_LIMIT:
                raise ValueError(f"a body may have at most {BODY_LIMIT} bytes")
            if size == 0:
                self.skip_trailers()
                return body, True
            body += self.read_exactly(size)
            if self.read_exactly(2) != b"\r\n":
                break
        return body, False

    def skip_trailers(self) -> None:
        while self.rfile.readline(65537).strip():
            pass

    def read_exactly(self, length: int) -> bytes:
        try:
            return self.rfile.read(length)
        except (
            OSError
        ):  # reset in mid-body: what came is lost with the buffer, that it was not whole is what counts
            return b""

    def send(self, reply: Reply) -> None:
        match reply:
            case Answer():
                self.wfile.write(
                    self.head(reply.status, reply.headers, len(reply.body)) + self.visible(reply.body)
                )
            case Dripped():
                self.drip(reply)
            case Streamed():
                self.stream(reply)
            case Dropped():
                self.drop(reply)

    def visible(self, body: bytes) -> bytes:
        return b"" if self.command == "HEAD" else body

    def head(self, status: int, headers: Mapping[str, str], length: int | None) -> bytes:
        """Status line and headers. Without a length the end of the connection is the end of the body."""
        if length is None:
            self.close_connection = True
        phrase = HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""
        lines = [f"HTTP/1.1 {status} {phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        if self.close_connection:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def drip(self, reply: Dripped) -> None:
        self.close_connection = True
        answer = reply.answer
        for byte in self.head(answer.status, answer.headers, len(answer.body)) + answer.body:
            self.wfile.write(bytes([byte]))
            if self.server.stopping.wait(reply.interval):
                return

    def stream(self, reply: Streamed) -> None:
        self.wfile.write(self.head(reply.status, reply.headers, None))
        for chunk in reply.chunks:
            self.wfile.write(chunk)

    def drop(self, reply: Dropped) -> None:
        self.close_connection = True
        if reply.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: what came is in the process's own records, not on its terminal."""


class LoopbackServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens from the moment it is made. Raises OSError when the port is taken."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, application: Application, port: int, stopping: threading.Event) -> None:
        self.application = application
        self.stopping = stopping
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def reply_to(self, request: Request) -> Reply:
        """The application's reply; one that breaks is a 500 with its trace on stderr, unless we are stopping."""
        try:
            return self.application(request)
        except Exception:
            if self.stopping.is_set():
                return Dropped()
            traceback.print_exc()
            return Answer.error(500, "internal", "this process has a defect; its trace is on stderr")

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  (the base's signature)
        """A client that breaks off is everyday here; anything else keeps its trace."""
        if not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc()


class CannotStart(SystemExit):
    """The process ends with one line on stderr that says what is wrong and what to do."""


def listen(application: Application, port: int, stopping: threading.Event) -> LoopbackServer:
    """A bound server, or CannotStart in words."""
    try:
        return LoopbackServer(application, port, stopping)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotStart(
            f"port {port} of {HOST} can't be used: {reason}. Choose another, or 0 for a free one."
        ) from None


def hold_signals() -> None:
    """Keep SIGTERM and SIGINT for ``run_until_told``. Call it before the first thread starts: threads inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})


def run_until_told(server: LoopbackServer) -> None:
    """Serve, say ``ready http://…`` once, and return when SIGTERM or SIGINT comes; hanging requests are let go."""
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    sys.stdout.write(f"ready {server.address}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stopping.set()
    server.shutdown()
    server.server_close()
