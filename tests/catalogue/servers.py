"""Local servers that behave as a provider's documentation says, and keep what came: bytes, headers, order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: What a server writes for itself or for others to itself.
READS = ("GET", "HEAD")


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One answer. *lost*: everything is done, and the connection closes without it."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()


class LocalServer:
    """An HTTP server on a free port of this machine. ``seen`` is the witness."""

    def __init__(self, respond: Callable[[Seen], Reply]) -> None:
        self.seen: list[Seen] = []
        #: Replies given instead, to the next requests that bear effects: the server does nothing for them.
        self.instead: list[Reply] = []
        #: How many of the next answers to requests that bear effects are lost, all being done.
        self.lose = 0
        self._respond = respond
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.command, self.path, headers, self.rfile.read(length))
                reply = server.answer(seen)
                self.close_connection = True
                if reply.lost:
                    return
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(reply.content)

            do_GET = do_POST = do_PUT = do_PATCH = _handle

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            if seen.method in READS:
                return self._respond(seen)
            if self.instead:
                return self.instead.pop(0)
            reply = self._respond(seen)
            if self.lose:
                self.lose -= 1
                return Reply(lost=True)
            return reply

    @property
    def writes(self) -> list[Seen]:
        return [one for one in self.seen if one.method not in READS]

    @property
    def reads(self) -> list[Seen]:
        return [one for one in self.seen if one.method in READS]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
