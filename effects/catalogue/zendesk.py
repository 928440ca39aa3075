"""Tickets at Zendesk, and at what speaks its Support API.

The receiver is named ``zendesk``: base address ``https://<subdomain>.zendesk.com``, its secret
``<mail address>/token:<API token>``.
"""

from __future__ import annotations

from datetime import date

from effects.contracts import EffectContract, Fact
from effects.states import Dedup
from effects.wires import HttpListing, HttpLookUp, HttpWire

RECEIVER = "zendesk"
_CHECKED = date(2026, 12, 1)
_INTRODUCTION = "https://developer.zendesk.com/api-reference/ticketing/introduction/#idempotency"
_TICKETS = "https://developer.zendesk.com/api-reference/ticketing/tickets/tickets/"

FACTS = (
    Fact(
        "Creating a ticket takes an Idempotency-Key; the same request under it makes no other ticket and gets the "
        "cached answer, with x-idempotency-lookup: hit (miss the first time).",
        _INTRODUCTION,
        _CHECKED,
    ),
    Fact(
        "Keys expire after two hours. Sent again two hours after the first, the request makes a new ticket.",
        _INTRODUCTION,
        _CHECKED,
    ),
    Fact("The same key with another body gets 400 IdempotentRequestError.", _INTRODUCTION, _CHECKED),
    Fact(
        "external_id links a ticket to a record elsewhere, and tickets can be listed by it. Nothing says that it is "
        "unique, or how soon a new ticket is listed: not finding one proves nothing.",
        _TICKETS,
        _CHECKED,
    ),
    Fact(
        "A comment whose public is false is an internal note.",
        "https://developer.zendesk.com/api-reference/ticketing/tickets/ticket_comments/",
        _CHECKED,
    ),
    Fact(
        "It may take a few minutes until a new ticket is indexed for search, which is why search is not used.",
        "https://developer.zendesk.com/api-reference/ticketing/ticket-management/search/",
        _CHECKED,
    ),
    Fact(
        "The incremental export gives all tickets that changed since a time, by cursor, without the last minute.",
        "https://developer.zendesk.com/api-reference/ticketing/ticket-management/incremental_exports/",
        _CHECKED,
    ),
)

create_ticket = EffectContract(
    type="zendesk.create_ticket",
    version=1,
    title="Open a ticket at Zendesk",
    receiver=RECEIVER,
    wire=HttpWire(
        method="POST",
        path="/api/v2/tickets",
        envelope="ticket",
        auth="basic",
        key_header="Idempotency-Key",
        external_id="external_id",
        echoes=("subject",),
        key_mismatch=frozenset({"IdempotentRequestError"}),
        replay=("x-idempotency-lookup", "hit"),
        look_up=HttpLookUp(
            "/api/v2/tickets?external_id={key}",
            items="tickets",
            matches="external_id",
            more="next_page",
        ),
        listing=HttpListing(
            "/api/v2/incremental/tickets/cursor?start_time={since}",
            items="tickets",
            matches="external_id",
            time="unix",
            following="after_url",
            end="end_of_stream",
        ),
    ),
    recipient="requester.email",
    mask=("requester.email", "requester.name", "comment.body"),
    schema={
        "type": "object",
        "properties": {
            "subject": {"type": "string", "minLength": 1, "title": "Subject"},
            "comment": {
                "type": "object",
                "title": "First comment",
                "properties": {
                    "body": {"type": "string", "minLength": 1, "title": "Text"},
                    "public": {"type": "boolean", "title": "The requester sees it"},
                },
                "required": ["body"],
                "additionalProperties": False,
            },
            "requester": {
                "type": "object",
                "title": "Requester",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "title": "Name"},
                    "email": {"type": "string", "format": "email", "title": "Mail address"},
                },
                "required": ["name", "email"],
                "additionalProperties": False,
            },
            "priority": {"enum": ["low", "normal", "high", "urgent"], "title": "Priority"},
            "tags": {"type": "array", "items": {"type": "string"}, "title": "Tags"},
        },
        "required": ["subject", "comment", "requester"],
        "additionalProperties": False,
    },
    # The requester is written to as soon as there is a ticket: closing it takes that back from nobody.
    dedup=Dedup.KEY,
    retention=2 * 3600,
    settle=60,
    deadline=20,
    creates=True,
    summary=lambda payload: str(payload["subject"]),
    # An internal note, of a requester whom no mail can reach (RFC 2606).
    harmless=lambda text: {
        "subject": f"A probe, to be ignored: {text}",
        "comment": {"body": "Nothing is to be done about this ticket. It can be solved.", "public": False},
        "requester": {"name": "Signalbox probe", "email": "probe@example.com"},
        "priority": "low",
        "tags": ["signalbox_probe"],
    },
    double=lambda payload: {"id": 1, **payload},
    facts=FACTS,
)

CONTRACTS = (create_ticket,)
