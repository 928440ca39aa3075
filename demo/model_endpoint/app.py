"""Which address does what: the wire format under /v1, the record of calls, fault orders, a page that says what this is."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from demo.model_endpoint import script, wire
from demo.model_endpoint.agent import Call
from demo.model_endpoint.reading import BadRequest, Conversation, read
from demo.receiver import pages
from demo.receiver.loopback import Answer, Dropped, Reply, Request, Streamed

MODEL: Final = "scripted-1"
KEPT: Final = 5000
FAULTS: Final = ("500", "429", "hang", "slow")
DEFAULTS: Final[Mapping[str, float]] = {"hang": 30, "slow": 3}


@dataclass
class Fault:
    kind: str
    remaining: int
    contains: str
    seconds: float
    retry_after: int


class BadOrder(ValueError):
    """A fault order that can't be taken."""


def parse_fault(document: object) -> Fault:
    """``{"kind", "times"?, "match": {"contains"?}, "seconds"?, "retry_after"?}``. Raises BadOrder."""
    if not isinstance(document, dict):
        raise BadOrder("an order is a JSON object")
    known = {"kind", "times", "match", "seconds", "retry_after"}
    if unknown := sorted(set(document) - known):
        raise BadOrder(f"an order has {', '.join(sorted(known))}, not {', '.join(unknown)}")
    kind = str(document.get("kind"))
    if kind not in FAULTS:
        raise BadOrder(f"kind must be one of {', '.join(FAULTS)}")
    match = document.get("match", {})
    if not isinstance(match, dict) or set(match) - {"contains"}:
        raise BadOrder("match may have contains")
    times, seconds = document.get("times", 1), document.get("seconds", DEFAULTS.get(kind, 0))
    retry_after = document.get("retry_after", 1)
    if not isinstance(times, int) or not 1 <= times <= 1000:
        raise BadOrder("times must be a whole number from 1 to 1000")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= 3600 or not isinstance(retry_after, int):
        raise BadOrder("seconds must be a number up to 3600, retry_after a whole number")
    return Fault(kind, times, str(match.get("contains", "")), float(seconds), retry_after)


class ModelEndpoint:
    """The application. It keeps the last calls and the pending faults in memory: a restart forgets them."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._calls: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._numbers = itertools.count(1)
        self._faults: list[Fault] = []

    def __call__(self, request: Request) -> Reply:
        if not request.complete:
            return Dropped()
        method = "GET" if request.method == "HEAD" else request.method
        match method, request.path:
            case "POST", "/v1/chat/completions":
                return self._complete(request)
            case "GET", "/v1/models":
                model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "demo-script"}
                return Answer.of(200, {"object": "list", "data": [model]})
            case "GET", "/_records/calls":
                calls = self.calls()
                return Answer.of(200, {"calls": calls, "count": len(calls)})
            case "GET", "/health":
                return Answer.of(200, {"status": "ok"})
            case "GET", "/style.css":
                return pages.style_sheet()
            case "GET", "/":
                return page(self.calls())
            case _, "/_faults":
                return self._order(method, request)
        return wire.error(
            404, "invalid_request_error", f"there is nothing at {request.method} {request.path}"
        )

    def calls(self) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(call) for call in self._calls]

    def _complete(self, request: Request) -> Reply:
        record = self._record(request)
        try:
            talk = read(json.loads(request.body))
        except BadRequest as problem:
            record["status"] = 400
            return wire.error(400, "invalid_request_error", str(problem), field=problem.field)
        except (ValueError, RecursionError):
            record["status"] = 400
            return wire.error(400, "invalid_request_error", "the body is not JSON")
        fault = self._take_fault(request)
        record |= {"kind": script.kind_of(talk), "model": talk.model, "stream": talk.stream}
        record["fault"] = fault.kind if fault else None
        reply = (fault and self._fail(fault)) or self._answer(talk, record)
        record["status"] = "dropped" if isinstance(reply, Dropped) else getattr(reply, "status", None)
        return reply

    def _record(self, request: Request) -> dict[str, Any]:
        """A record of the call, kept from its arrival on and filled in as it goes; status None while unanswered."""
        record: dict[str, Any] = {
            "seq": next(self._numbers),
            "time": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "kind": None,
            "model": None,
            "stream": False,
            "request_sha256": hashlib.sha256(request.body).hexdigest(),
            "tool_call": None,
            "usage": None,
            "fault": None,
            "status": None,
        }
        with self._lock:
            self._calls.append(record)
        return record

    def _answer(self, talk: Conversation, record: dict[str, Any]) -> Reply:
        turn = script.turn(talk)
        record["usage"] = wire.usage(talk, turn)
        record["tool_call"] = turn.name if isinstance(turn, Call) else None
        if talk.stream:
            headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
            return Streamed(wire.events(talk, turn), headers)
        return Answer.of(200, wire.completion(talk, turn))

    def _take_fault(self, request: Request) -> Fault | None:
        text = request.body.decode(errors="replace")
        with self._lock:
            for fault in self._faults:
                if fault.contains in text:
                    fault.remaining -= 1
                    self._faults = [other for other in self._faults if other.remaining > 0]
                    return fault
        return None

    def _fail(self, fault: Fault) -> Reply | None:
        """The fault's reply; None for one that only takes its time."""
        if fault.kind in ("hang", "slow"):
            self._stopping.wait(fault.seconds)
            return Dropped() if fault.kind == "hang" else None
        if fault.kind == "429":
            return wire.error(429, "rate_limit_error", "rate limit reached", retry_after=fault.retry_after)
        return wire.error(500, "server_error", "the server had an error while processing your request")

    def _order(self, method: str, request: Request) -> Answer:
        with self._lock:
            if method == "GET":
                return Answer.of(200, {"faults": [vars(fault) for fault in self._faults]})
            if method == "DELETE":
                cleared, self._faults = len(self._faults), []
                return Answer.of(200, {"cleared": cleared})
        try:
            fault = parse_fault(json.loads(request.body))
        except ValueError as problem:
            return Answer.error(422, "bad_order", str(problem))
        with self._lock:
            self._faults.append(fault)
        return Answer.of(201, {"kind": fault.kind, "remaining": fault.remaining})


def page(calls: list[dict[str, Any]]) -> Answer:
    """A page for people: what this is, and the last calls."""
    rows = [
        (
            pages.when(call["time"]),
            pages.cell(call["kind"] or "not understood"),
            pages.cell(call["model"] or ""),
            pages.cell(
                f"calls {call['tool_call']}"
                if call["tool_call"]
                else "answers in words"
                if call["usage"]
                else ""
            ),
            pages.cell(call["usage"]["total_tokens"] if call["usage"] else "", "number"),
            pages.cell(call["fault"] or ""),
            pages.answer_cell(call["status"]),
            pages.code(call["request_sha256"][:16] + "…"),
        )
        for call in reversed(calls[-pages.SHOWN :])
    ]
    heads = (
        "Time (UTC)",
        "Taken for",
        "Model asked for",
        "Said",
        "Tokens",
        "Fault played",
        "Answered",
        "Request sha256",
    )
    return pages.frame(
        "Scripted model endpoint",
        "There is no model here. A script answers in the wire format of a model provider, so that the demo runs without a"
        " key; any OpenAI-compatible address can take its place.",
        pages.table("Calls", heads, rows, "No call has come yet."),
    )
