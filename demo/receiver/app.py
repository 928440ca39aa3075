"""Which address does what."""

from __future__ import annotations

import json
import threading
from typing import Any, Final

from demo.receiver import business, faults, pages, records
from demo.receiver.faults import ACCOUNT, BadOrder
from demo.receiver.loopback import Answer, Dropped, Reply, Request
from demo.receiver.plays import Scene, play
from demo.receiver.store import Store
from demo.receiver.webhooks import Deliverer

METHODS: Final = ("GET", "HEAD", "POST", "PUT")


class Receiver:
    """The application: the business under /v1, its records, its fault orders, a page for people."""

    def __init__(self, store: Store, stopping: threading.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._deliverer = Deliverer(store, stopping)
        self._deliverer.start()

    def __call__(self, request: Request) -> Reply:
        if request.path.startswith("/v1/"):
            return self._business(request)
        if not request.complete:
            return Dropped()
        match request.method, request.path:
            case (("GET" | "HEAD"), _):
                return self._show(request)
            case "POST", "/_faults":
                return self._order(request)
            case "DELETE", "/_faults":
                return self._clear(request.query.get("account", ""))
            case "POST", "/_prune":
                return self._prune(request)
        return Answer.error(404, "not_found", f"there is nothing at {request.method} {request.path}")

    def _show(self, request: Request) -> Answer:
        match request.path:
            case "/":
                return pages.home(self._store, request)
            case "/style.css":
                return pages.style_sheet()
            case "/health":
                return Answer.of(200, {"status": "ok"})
            case "/_faults":
                return Answer.of(200, {"faults": faults.pending(self._store, request.query.get("account"))})
        if request.path.startswith("/_records/"):
            return records.page_of(self._store, request.path.removeprefix("/_records/"), request.query)
        return Answer.error(404, "not_found", f"there is nothing at {request.path}")

    def _business(self, request: Request) -> Reply:
        """Record, do, note the answer, in this order: a process killed anywhere in between has still recorded."""
        account = account_of(request)
        request_seq, order = records.arrive(self._store, account, request)
        if not request.complete:
            records.answered(self._store, request_seq, None)
            return Dropped()
        try:
            reply = self._reply(account, request_seq, request, order)
        except Exception:
            if not self._stopping.is_set():
                records.answered(self._store, request_seq, Answer(500, b""))
            raise
        records.answered(self._store, request_seq, reply)
        return reply

    def _reply(
        self, account: str | None, request_seq: int, request: Request, order: faults.Order | None
    ) -> Reply:
        if account is None:
            return Answer.error(401, "unauthorized", "send Authorization: Bearer <account>:<secret>")
        if request.method not in METHODS:
            return Answer.error(405, "method_not_allowed", f"use one of {', '.join(METHODS)}")
        scene = Scene(
            store=self._store,
            deliverer=self._deliverer,
            stopping=self._stopping,
            account=account,
            request_seq=request_seq,
            request=request,
            options=order.options if order else {},
        )
        return play(order.kind if order else None, scene)

    def _order(self, request: Request) -> Answer:
        try:
            order = faults.parse(json_of(request))
        except BadOrder as problem:
            return Answer.error(422, "bad_order", str(problem), field=problem.field)
        return Answer.of(
            201, {"id": faults.place(self._store, order), "kind": order.kind, "remaining": order.times}
        )

    def _clear(self, account: str) -> Answer:
        if not ACCOUNT.fullmatch(account):
            return Answer.error(422, "bad_order", "say which: DELETE /_faults?account=…", field="account")
        return Answer.of(200, {"cleared": faults.clear(self._store, account)})

    def _prune(self, request: Request) -> Answer:
        document = json_of(request)
        account = document.get("account") if isinstance(document, dict) else None
        if not isinstance(account, str) or not ACCOUNT.fullmatch(account):
            return Answer.error(422, "bad_order", "say which account", field="account")
        return Answer.of(200, {"pruned": business.prune(self._store, account)})


def account_of(request: Request) -> str | None:
    """The account in ``Bearer <account>:<secret>``. None without one: the demo checks no secret, but wants one there."""
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    account, _, secret = token.strip().partition(":")
    return account if scheme.lower() == "bearer" and secret and ACCOUNT.fullmatch(account) else None


def json_of(request: Request) -> Any:
    """The body as JSON, None where it is none."""
    try:
        return json.loads(request.body)
    except ValueError:
        return None
