"""Receivers that keep things, each with one broken promise; what they have is read in their own memory."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: How far the look-up of `Lags` is behind, in seconds: more than its contract says.
LAG_S = 3.0

Answer = tuple[int, dict[str, Any]]
Thing = dict[str, Any]


@dataclass
class Fair:
    """Keeps every promise: a key makes one thing for one body, an external id is taken once and found exactly."""

    things: list[Thing] = field(default_factory=list)
    keys: dict[str, tuple[bytes, Thing]] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)

    def create(self, key: str, body: bytes) -> Answer:
        known = self.keys.get(key)
        if known:
            return (201, known[1]) if known[0] == body else (422, {"error": "key_reused"})
        return self.make(key, body)

    def make(self, key: str, body: bytes) -> Answer:
        fields = json.loads(body)
        if any(one["external_id"] == fields["external_id"] for one in self.things):
            return 409, {"error": "external_id_taken"}
        return 201, self.keep(key, body)

    def keep(self, key: str, body: bytes) -> Thing:
        thing = {**json.loads(body), "id": f"thg_{len(self.things) + 1}"}
        self.things.append({**thing, "made": time.monotonic()})
        if key:
            self.keys[key] = (body, thing)
        return thing

    def put(self, name: str, body: bytes) -> Answer:
        """At an address that the sender chose, where there is nothing yet."""
        if self.find(name):
            return 412, {"error": "exists"}
        self.things.append({**json.loads(body), "external_id": name, "made": time.monotonic()})
        return 201, json.loads(body)

    def find(self, external_id: str) -> list[Thing]:
        return [one for one in self.things if one["external_id"] == external_id]


class Busy(Fair):
    """Asks to wait whenever it hears of a key for the first time."""

    heard: frozenset[str] = frozenset()

    def create(self, key: str, body: bytes) -> Answer:
        if key not in self.heard:
            self.heard |= {key}
            return 429, {"error": "wait"}
        return super().create(key, body)


class IgnoresKey(Fair):
    """The key is a header like any other to it."""

    def create(self, key: str, body: bytes) -> Answer:
        return 201, self.keep("", body)


class TakesChanges(Fair):
    """A known key gets the first answer, whatever else is asked for this time."""

    def create(self, key: str, body: bytes) -> Answer:
        return (201, self.keys[key][1]) if key in self.keys else self.make(key, body)


class Lags(Fair):
    """Its look-up is a search index that lags behind by more than its contract says."""

    def find(self, external_id: str) -> list[Thing]:
        return [one for one in super().find(external_id) if time.monotonic() - one["made"] > LAG_S]


class Overwrites(Fair):
    """An upsert: whoever comes second has written over the first."""

    def make(self, key: str, body: bytes) -> Answer:
        fields = json.loads(body)
        there = next((one for one in self.things if one["external_id"] == fields["external_id"]), None)
        if there is None:
            return 201, self.keep(key, body)
        there.update(fields)
        return 200, {name: value for name, value in there.items() if name != "made"}


class Doubles(Fair):
    """The external id is a field like any other to it."""

    def make(self, key: str, body: bytes) -> Answer:
        return 201, self.keep(key, body)


class ByPrefix(Fair):
    """Its search finds what begins like the text."""

    def find(self, external_id: str) -> list[Thing]:
        return [one for one in self.things if one["external_id"].startswith(external_id)]


class Refuses(Fair):
    """Takes nothing."""

    def create(self, key: str, body: bytes) -> Answer:
        return 422, {"error": "no_such_customer", "message": "there is no customer probe"}


KINDS: dict[str, type[Fair]] = {
    "fair": Fair,
    "busy": Busy,
    "ignores_key": IgnoresKey,
    "takes_changes": TakesChanges,
    "lags": Lags,
    "overwrites": Overwrites,
    "doubles": Doubles,
    "by_prefix": ByPrefix,
    "refuses": Refuses,
}


class Serving:
    """A keeper of things behind an address of its own."""

    def __init__(self, keeper: Fair) -> None:
        self.keeper = keeper
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    keeper.requests.append(body)
                    self._say(*keeper.create(self.headers.get("Idempotency-Key", ""), body))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["If-None-Match"] == "*"
                with lock:
                    keeper.requests.append(body)
                    self._say(*keeper.put(self.path.rpartition("/")[2], body))

            def do_GET(self) -> None:
                if self.path.startswith("/records/"):
                    with lock:
                        found = keeper.find(self.path.rpartition("/")[2])
                    self._say(200 if found else 404, found[0] if found else {"error": "not_found"})
                    return
                wanted = parse_qs(urlsplit(self.path).query)["external_id"][0]
                with lock:
                    self._say(200, {"data": keeper.find(wanted), "has_more": False})

            def _say(self, status: int, answer: dict[str, Any]) -> None:
                whole = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(whole)))
                self.end_headers()
                self.wfile.write(whole)

            def log_message(self, *_args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
