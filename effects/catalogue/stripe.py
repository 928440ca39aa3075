"""Stripe's API, version 1: customers, invoice items, payments and refunds.

Stripe's own libraries put a request together at the moment of sending and send it again by themselves. Here the form's
bytes are stored with the intent and go out through the HTTP receiver, the same at every attempt.

The receiver is named ``stripe``: base address ``https://api.stripe.com``, its secret a restricted key of the account.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from effects.contracts import Asking, Compensates, EffectContract, Fact, Payload
from effects.states import Dedup, Reversibility
from effects.wires import HttpListing, HttpWire, Progress

RECEIVER = "stripe"
#: Pinned, and stored with each request: the account's default may change between two attempts.
VERSION = "2025-03-31.basil"
_CHECKED = date(2026, 12, 1)

FACTS = (
    Fact(
        "A POST takes an Idempotency-Key of up to 255 characters.",
        "https://docs.stripe.com/api/idempotent_requests",
        _CHECKED,
    ),
    Fact(
        "A key may be removed once it is at least 24 hours old; used again after that, it makes a new request.",
        "https://docs.stripe.com/api/idempotent_requests",
        _CHECKED,
    ),
    Fact(
        "The first answer to a key is saved, whatever it was, and repeated: also a 500, also a 400. It is not saved "
        "where the endpoint did not begin to work: parameters that fail validation, a request that conflicts with "
        "another under way.",
        "https://docs.stripe.com/error-low-level",
        _CHECKED,
    ),
    Fact(
        "The same key with other parameters is an error of the type idempotency_error.",
        "https://docs.stripe.com/api/idempotent_requests",
        _CHECKED,
    ),
    Fact(
        "Search must not be used right after a write; the list endpoints are not subject to its delay.",
        "https://docs.stripe.com/search",
        _CHECKED,
    ),
    Fact(
        "Metadata: up to 50 keys of up to 40 characters, each value up to 500, kept as text.",
        "https://docs.stripe.com/api/metadata",
        _CHECKED,
    ),
    Fact(
        "Requests in quick succession may be answered with 429.",
        "https://docs.stripe.com/rate-limits",
        _CHECKED,
    ),
)
_REFUNDS = (
    Fact(
        "A payment can be refunded in parts until nothing of it is left; more is an error.",
        "https://docs.stripe.com/api/refunds/create",
        _CHECKED,
    ),
    Fact(
        "A refund is pending, requires_action, succeeded, failed or canceled.",
        "https://docs.stripe.com/api/refunds/object",
        _CHECKED,
    ),
    Fact(
        "A refund that fails comes back to the account's balance, also after it succeeded; the customer has to be paid "
        "in another way.",
        "https://docs.stripe.com/refunds#failed-refunds",
        _CHECKED,
    ),
    Fact(
        "Only a refund that requires_action can be canceled.",
        "https://docs.stripe.com/api/refunds/cancel",
        _CHECKED,
    ),
)
_PAYMENTS = (
    Fact(
        "A payment that is confirmed as it is created may come back as requires_action or processing; it is final "
        "when it has succeeded.",
        "https://docs.stripe.com/api/payment_intents/confirm",
        _CHECKED,
    ),
    Fact(
        "A payment that is canceled takes no further attempts, and that can't be undone. One whose attempt failed is "
        "requires_payment_method again, and may be tried again: that is not final.",
        "https://docs.stripe.com/payments/paymentintents/lifecycle",
        _CHECKED,
    ),
)

_AMOUNT = {"type": "integer", "minimum": 1, "maximum": 99_999_999, "title": "Amount in minor units"}
_CURRENCY = {"type": "string", "pattern": "^[a-z]{3}$", "title": "Currency, as in usd"}
#: One of the fifty is the effect's own.
_METADATA = {
    "type": "object",
    "title": "Metadata",
    "minProperties": 1,
    "maxProperties": 49,
    "propertyNames": {"pattern": r"^[^\[\]]{1,40}$", "not": {"const": "effect_id"}},
    "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 500},
}
_CUSTOMER = {"type": "string", "pattern": "^cus_", "title": "Customer at Stripe"}


def _wire(resource: str, **more: Any) -> HttpWire:
    made = HttpListing(
        f"/v1/{resource}?limit=100&created%5Bgte%5D={{since}}",
        items="data",
        matches="metadata.effect_id",
        time="unix",
        after="starting_after",
    )
    return HttpWire(
        method="POST",
        path=f"/v1/{resource}",
        encoding="form",
        headers={"Stripe-Version": VERSION},
        key_header="Idempotency-Key",
        external_id="metadata.effect_id",
        in_progress=frozenset({409}),
        errors_cached=True,
        # Nothing rests on it: without the header, a failure counts as kept all the same.
        replay=("Idempotent-Replayed", "true"),
        look_up=made,
        listing=made,
        **more,
    )


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, "metadata": _METADATA},
        "required": list(required),
        "additionalProperties": False,
    }


#: What all of them share. A 500 leaves open what was done, and what is listed may be deleted by others meanwhile: not
#: finding it proves nothing.
_SHARED: dict[str, Any] = {
    "receiver": RECEIVER,
    "dedup": Dedup.KEY,
    "retention": 24 * 3600,
    "deadline": 30,
    "settle": 60,
    "authoritative": False,
    "creates": True,
}


def _amount(payload: Payload) -> str:
    return f"{payload['amount']} {payload['currency'].upper()} (minor units) for {payload['customer']}"


create_customer = EffectContract(
    type="stripe.create_customer",
    version=1,
    title="Create a customer at Stripe",
    wire=_wire("customers", echoes=("email", "name")),
    recipient="email",
    mask=("email", "name"),
    reversibility=Reversibility.REVERSIBLE,
    schema=_object(
        ("email",),
        email={"type": "string", "format": "email", "maxLength": 512, "title": "Mail address"},
        name={"type": "string", "minLength": 1, "maxLength": 256, "title": "Name"},
        description={"type": "string", "minLength": 1, "title": "Description"},
    ),
    summary=lambda payload: f"Customer {payload.get('name', '')}".strip(),
    harmless=lambda text: {"email": f"{text}@example.com", "description": "Made by a probe"},
    double=lambda payload: {"id": "cus_simulated", **payload},
    facts=FACTS,
    **_SHARED,
)

create_invoice_item = EffectContract(
    type="stripe.create_invoice_item",
    version=1,
    title="Put an item on the next invoice at Stripe",
    wire=_wire("invoiceitems", echoes=("customer", "amount", "currency")),
    recipient="customer",
    customer="customer",
    reversibility=Reversibility.REVERSIBLE,
    schema=_object(
        ("customer", "amount", "currency", "description"),
        customer=_CUSTOMER,
        amount=_AMOUNT,
        currency=_CURRENCY,
        description={"type": "string", "minLength": 1, "title": "Text on the invoice"},
    ),
    summary=_amount,
    double=lambda payload: {"id": "ii_simulated", **payload},
    facts=FACTS,
    **_SHARED,
)

create_payment = EffectContract(
    type="stripe.create_payment",
    version=1,
    title="Charge a saved payment method at Stripe",
    wire=_wire(
        "payment_intents",
        always={"confirm": True, "off_session": True},
        echoes=("customer", "amount", "currency"),
        progress=Progress(
            "status", frozenset({"succeeded"}), frozenset({"canceled"}), reason="cancellation_reason"
        ),
    ),
    recipient="customer",
    customer="customer",
    reversibility=Reversibility.IRREVERSIBLE,
    schema=_object(
        ("customer", "payment_method", "amount", "currency"),
        customer=_CUSTOMER,
        payment_method={"type": "string", "pattern": "^pm_", "title": "Saved payment method"},
        amount=_AMOUNT,
        currency=_CURRENCY,
    ),
    asking=Asking(),
    summary=_amount,
    double=lambda payload: {"id": "pi_simulated", "status": "succeeded", **payload},
    facts=(*FACTS, *_PAYMENTS),
    **_SHARED,
)

refund = EffectContract(
    type="stripe.refund",
    version=1,
    title="Refund a payment at Stripe",
    wire=_wire(
        "refunds",
        echoes=("payment_intent", "amount"),
        progress=Progress(
            "status", frozenset({"succeeded"}), frozenset({"failed", "canceled"}), reason="failure_reason"
        ),
    ),
    recipient="payment_intent",
    reversibility=Reversibility.IRREVERSIBLE,
    schema=_object(
        ("payment_intent", "amount"),
        payment_intent={"type": "string", "pattern": "^pi_", "title": "Payment"},
        amount=_AMOUNT,
    ),
    asking=Asking(),
    compensates=Compensates("stripe.create_payment", amount="amount", original_amount="amount"),
    summary=lambda payload: f"{payload['amount']} (minor units) of {payload['payment_intent']}",
    double=lambda payload: {"id": "re_simulated", "status": "succeeded", **payload},
    facts=(*FACTS, *_REFUNDS),
    **_SHARED,
)

CONTRACTS = (create_customer, create_invoice_item, create_payment, refund)
