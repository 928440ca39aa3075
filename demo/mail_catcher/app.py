"""The HTTP side: what came, fault orders, and an inbox for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from demo.mail_catcher import mailbox
from demo.mail_catcher.faults import BadOrder, Faults, parse
from demo.receiver import pages
from demo.receiver.loopback import Answer, Reply, Request
from demo.receiver.store import Store

HEADS: Final = ("Time (UTC)", "From", "To (envelope)", "Subject and text", "Message-ID", "Fault played")


class MailCatcher:
    """The application."""

    def __init__(self, store: Store, faults: Faults, smtp_port: int) -> None:
        self._store = store
        self._faults = faults
        self._smtp_port = smtp_port

    def __call__(self, request: Request) -> Reply:
        method = "GET" if request.method == "HEAD" else request.method
        match method, request.path:
            case "GET", "/":
                return inbox(self._store, self._faults, self._smtp_port)
            case "GET", "/style.css":
                return pages.style_sheet()
            case "GET", "/health":
                return Answer.of(200, {"status": "ok", "smtp_port": self._smtp_port})
            case "GET", "/_records/messages":
                return self._messages(request.query)
            case "GET", "/_faults":
                return Answer.of(200, {"faults": self._faults.pending()})
            case "POST", "/_faults":
                return self._order(request)
            case "DELETE", "/_faults":
                return Answer.of(200, {"cleared": self._faults.clear()})
        return Answer.error(404, "not_found", f"there is nothing at {request.method} {request.path}")

    def _messages(self, query: Mapping[str, str]) -> Answer:
        try:
            found = mailbox.find(self._store, query)
        except mailbox.BadQuery as problem:
            return Answer.error(400, "unknown_filter", str(problem))
        return Answer.of(200, {"messages": found, "count": len(found)})

    def _order(self, request: Request) -> Answer:
        try:
            fault = parse(json.loads(request.body))
        except BadOrder as problem:
            return Answer.error(422, "bad_order", str(problem))
        except ValueError:
            return Answer.error(422, "bad_order", "an order is JSON")
        self._faults.place(fault)
        return Answer.of(201, {"kind": fault.kind, "remaining": fault.remaining})


def inbox(store: Store, faults: Faults, smtp_port: int) -> Answer:
    """A page for people: every message that came, newest first, and what is still ordered to go wrong."""
    messages = mailbox.newest(store, pages.SHOWN)
    orders = [
        (
            pages.cell(order["kind"]),
            pages.cell(order["to"] or "anybody"),
            pages.cell(order["at"]),
            pages.cell(order["remaining"], "number"),
        )
        for order in faults.pending()
    ]
    body = pages.table("Messages", HEADS, map(row, messages), "No message has come yet.") + pages.table(
        "Ordered to go wrong",
        ("Fault", "For", "At", "Times left"),
        orders,
        "Nothing: every message is taken.",
    )
    lead = f"A real SMTP server on port {smtp_port} that delivers nothing: every message that reached it is below, each delivery once."
    return pages.frame("Mail catcher", lead, body)


def row(message: dict[str, Any]) -> tuple[str, ...]:
    return (
        pages.when(message["received_at"]),
        pages.cell(message["from"]),
        pages.cell(", ".join(message["envelope"]["rcpt_tos"])),
        pages.folded(message["subject"] or "(no subject)", message["text"]),
        f"<td><code>{escape(message['message_id'] or 'none')}</code></td>",
        pages.cell(message["fault"] or ""),
    )
