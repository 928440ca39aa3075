"""The contracts of the demo's effect types. The facts are those of the test receiver and the mail catcher."""

from __future__ import annotations

from typing import Any

from effects.contracts import Asking, EffectContract, HttpLookUp, HttpWire, SmtpWire
from effects.states import Dedup, Reversibility

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
        look_up=HttpLookUp("/v1/offers?external_id={key}", items="data", matches="external_id"),
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
    asking=Asking(group="Sales approvers"),
    summary=lambda payload: f"{amount(payload)} for {payload['customer_id']}",
    facts="The test receiver keeps keys until they are pruned by order, and answers 422 to the same key with another body.",
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
    summary=lambda payload: str(payload["subject"]),
    facts="SMTP tells nobody repeats apart; one Message-ID an effect lets a reader see them.",
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
    summary=lambda payload: f"{payload['subject']} ({payload['priority']})",
    facts="The desk refuses a second ticket with the same external_id and finds one by it at once.",
)

CONTRACTS = (create_offer, send_mail, open_ticket)
