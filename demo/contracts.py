"""The contracts of the demo's effect types. The facts are those of the test receiver and the mail catcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

from console.kernel.canonical import JSONValue
from effects.contracts import Asking, Compensates, EffectContract, Fact
from effects.states import Dedup, Reversibility
from effects.wires import HookReading, HttpListing, HttpLookUp, HttpWire, Progress, SmtpWire

_LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "description": {"type": "string"},
        "quantity": {"type": "integer", "minimum": 1},
        "unit_minor": {"type": "integer"},
    },
    "required": ["sku", "description", "quantity", "unit_minor"],
    "additionalProperties": False,
}

_MINOR_DIGITS = {"JPY": 0}


def _documented(says: str) -> Fact:
    return Fact(says, "docs/demo.md", date(2026, 12, 1))


def _made_in(resource: str) -> HttpListing:
    return HttpListing(
        f"/v1/{resource}?created_since={{since}}", items="data", matches="external_id", after="after"
    )


def _simulated(prefix: str) -> Callable[[dict[str, Any]], JSONValue]:
    """What the receiver would answer to a payload that it takes, under a number that nobody takes for one of its own."""
    return lambda payload: {"id": f"{prefix}_simulated", **payload}


def amount(payload: dict[str, Any]) -> str:
    """Minor units as people write them: 1234500 EUR is 12,345.00 EUR."""
    digits = _MINOR_DIGITS.get(payload["currency"], 2)
    return f"{payload['amount_minor'] / 10**digits:,.{digits}f} {payload['currency']}"


create_offer = EffectContract(
    type="crm.create_offer",
    version=1,
    title="Create an offer",
    receiver="crm",
    wire=HttpWire(
        method="POST",
        path="/v1/offers",
        key_header="Idempotency-Key",
        external_id="external_id",
        echoes=("customer_id", "amount_minor", "currency"),
        unprocessed=frozenset({429, 503}),
        replay=("Idempotent-Replay", "true"),
        look_up=HttpLookUp("/v1/offers?external_id={key}", items="data", matches="external_id"),
        listing=_made_in("offers"),
    ),
    recipient="customer_id",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "customer_id": {"type": "string", "title": "Customer"},
            "subject": {"type": "string", "title": "Subject"},
            "lines": {"type": "array", "items": _LINE, "title": "Lines"},
            "amount_minor": {"type": "integer", "minimum": 1, "title": "Amount in minor units"},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "title": "Currency"},
        },
        "required": ["customer_id", "subject", "lines", "amount_minor", "currency"],
        "additionalProperties": False,
    },
    reversibility=Reversibility.REVERSIBLE,
    dedup=Dedup.KEY,
    retention=7 * 24 * 3600,
    deadline=4,
    creates=True,
    asking=Asking(group="Sales approvers"),
    harmless=lambda text: {
        "customer_id": "probe",
        "subject": f"A probe, to be ignored: {text}",
        "lines": [{"sku": "PROBE", "description": text, "quantity": 1, "unit_minor": 1}],
        "amount_minor": 1,
        "currency": "EUR",
    },
    double=_simulated("off"),
    summary=lambda payload: f"{amount(payload)} for {payload['customer_id']}",
    facts=(
        _documented("The same key, path and body get the stored answer, with Idempotent-Replay: true."),
        _documented("The same key with anything else gets 422 key_reused."),
        _documented("Keys are kept until somebody orders them pruned; seven days are relied on."),
        _documented("A list by external_id holds exact matches."),
    ),
)

credit_offer = EffectContract(
    type="crm.credit_offer",
    version=1,
    title="Credit an offer",
    receiver="crm",
    wire=HttpWire(
        method="POST",
        path="/v1/credits",
        key_header="Idempotency-Key",
        external_id="external_id",
        echoes=("offer_id", "customer_id", "amount_minor", "currency"),
        unprocessed=frozenset({429, 503}),
        replay=("Idempotent-Replay", "true"),
        look_up=HttpLookUp("/v1/credits?external_id={key}", items="data", matches="external_id"),
        listing=_made_in("credits"),
    ),
    recipient="customer_id",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "offer_id": {"type": "string", "title": "Offer"},
            "customer_id": {"type": "string", "title": "Customer"},
            "amount_minor": {"type": "integer", "minimum": 1, "title": "Amount in minor units"},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "title": "Currency"},
            "note": {"type": "string", "maxLength": 200, "title": "Note to the customer"},
        },
        "required": ["offer_id", "customer_id", "amount_minor", "currency"],
        "additionalProperties": False,
    },
    reversibility=Reversibility.IRREVERSIBLE,
    dedup=Dedup.KEY,
    retention=7 * 24 * 3600,
    deadline=4,
    creates=True,
    asking=Asking(group="Sales approvers"),
    compensates=Compensates("crm.create_offer", amount="amount_minor", reference="offer_id"),
    harmless=lambda text: {
        "offer_id": "probe",
        "customer_id": "probe",
        "amount_minor": 1,
        "currency": "EUR",
        "note": f"A probe, to be ignored: {text}"[:200],
    },
    double=_simulated("crd"),
    summary=lambda payload: f"{amount(payload)} of {payload['offer_id']} for {payload['customer_id']}",
    facts=create_offer.facts,
)

send_mail = EffectContract(
    type="mail.send",
    version=1,
    title="Send a mail",
    receiver="mail",
    wire=SmtpWire(sender="offers@signalbox.example", domain="signalbox.example"),
    recipient="to",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "to": {"type": "string", "format": "email", "title": "To"},
            "subject": {"type": "string", "title": "Subject"},
            "body": {"type": "string", "title": "Text"},
            "customer_id": {"type": "string", "title": "Customer"},
        },
        "required": ["to", "subject", "body", "customer_id"],
        "additionalProperties": False,
    },
    reversibility=Reversibility.IRREVERSIBLE,
    dedup=Dedup.NONE,
    mask=("to", "body"),
    deadline=20,
    harmless=lambda text: {
        "to": "probe@signalbox.example",
        "subject": f"A probe, to be ignored: {text}",
        "body": "Nothing is to be done about this mail.",
        "customer_id": "probe",
    },
    double=lambda _: {"id": "mail_simulated", "reply": "not sent: a simulation"},
    summary=lambda payload: str(payload["subject"]),
    facts=(_documented("The mail catcher keeps every mail, also one that it had before."),),
)

open_ticket = EffectContract(
    type="desk.open_ticket",
    version=1,
    title="Open a ticket",
    receiver="desk",
    wire=HttpWire(
        method="POST",
        path="/v1/tickets",
        external_id="external_id",
        echoes=("subject", "priority"),
        unprocessed=frozenset({429, 503}),
        look_up=HttpLookUp("/v1/tickets?external_id={key}", items="data", matches="external_id"),
        listing=_made_in("tickets"),
    ),
    recipient="customer_id",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "customer_id": {"type": "string", "title": "Customer"},
            "subject": {"type": "string", "title": "Subject"},
            "description": {"type": "string", "title": "Description"},
            "priority": {"enum": ["low", "normal", "high"], "title": "Priority"},
        },
        "required": ["customer_id", "subject", "description", "priority"],
        "additionalProperties": False,
    },
    reversibility=Reversibility.REVERSIBLE,
    dedup=Dedup.NATURAL,
    authoritative=True,
    settle=1,
    deadline=4,
    creates=True,
    harmless=lambda text: {
        "customer_id": "probe",
        "subject": f"A probe, to be ignored: {text}",
        "description": "Nothing is to be done about this ticket.",
        "priority": "low",
    },
    double=_simulated("tic"),
    summary=lambda payload: f"{payload['subject']} ({payload['priority']})",
    facts=(
        _documented("A second ticket with the same external_id gets 409 external_id_taken."),
        _documented("A list by external_id holds exact matches, from the moment of the commit on."),
    ),
)

_OPERATION = Progress("status", frozenset({"completed"}), frozenset({"failed"}), reason="reason")

reserve_seats = EffectContract(
    type="crm.reserve_seats",
    version=1,
    title="Reserve seats",
    receiver="crm",
    wire=HttpWire(
        method="POST",
        path="/v1/reservations",
        key_header="Idempotency-Key",
        external_id="external_id",
        echoes=("customer_id", "seats"),
        progress=Progress("status", frozenset({"created"}), frozenset({"failed"}), reason="reason"),
        unprocessed=frozenset({429, 503}),
        replay=("Idempotent-Replay", "true"),
        look_up=HttpLookUp("/v1/operations/{key}", matches="key", object="object", progress=_OPERATION),
        hook=HookReading(
            key="data.key",
            object="data.object",
            progress=replace(_OPERATION, field="data.status", reason="data.reason"),
        ),
        listing=_made_in("reservations"),
    ),
    recipient="customer_id",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "customer_id": {"type": "string", "title": "Customer"},
            "seats": {"type": "integer", "minimum": 1, "maximum": 10_000, "title": "Seats"},
            "until": {"type": "string", "format": "date", "title": "Reserved until"},
        },
        "required": ["customer_id", "seats", "until"],
        "additionalProperties": False,
    },
    reversibility=Reversibility.REVERSIBLE,
    dedup=Dedup.KEY,
    retention=7 * 24 * 3600,
    settle=1,
    deadline=4,
    synchronous=False,
    final_within=3600,
    creates=True,
    double=_simulated("res"),
    summary=lambda payload: f"{payload['seats']} seats for {payload['customer_id']}",
    facts=(
        _documented(
            "A reservation may be accepted with 202 first; how it ended stands at /v1/operations/{key}."
        ),
        _documented(
            "A command that failed is never carried out later, and the same key gets the same end again."
        ),
        _documented("Keys are kept until somebody orders them pruned; seven days are relied on."),
        _documented("A webhook, signed as Standard Webhooks has it, says the end too: completed or failed."),
    ),
)

CONTRACTS = (create_offer, credit_offer, send_mail, open_ticket, reserve_seats)
