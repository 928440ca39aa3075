"""Contracts that ask a person, with what the pages must be careful of: protected fields, and no way back."""

from __future__ import annotations

from dataclasses import replace

from demo.contracts import create_offer, credit_offer, open_ticket, send_mail
from effects.catalogue import natural_key
from effects.contracts import Asking, Compensates, EffectContract
from effects.states import Dedup
from effects.wires import HttpWire

asked_mail = replace(send_mail, type="test.asked_mail", asking=Asking(group="Sales approvers"))
free_text = replace(
    open_ticket,
    type="test.free_text",
    title="File a note",
    schema={"type": "object", "properties": {"customer_id": {"type": "string"}}, "required": ["customer_id"]},
    asking=Asking(),
    summary=None,
)

assert isinstance(open_ticket.wire, HttpWire)

#: By key, and nobody has to approve it.
offer = replace(create_offer, type="test.offer", asking=None)
#: Nothing tells its repeats apart, and it can be asked for what it has.
queried = replace(open_ticket, type="test.queried", dedup=Dedup.QUERY, authoritative=False)
#: What it takes back is a mail: the address is protected in both, and goes from one to the other unseen.
apology = EffectContract(
    type="test.apology",
    version=1,
    title="Send an apology",
    receiver="mail",
    wire=send_mail.wire,
    recipient="to",
    schema={
        "type": "object",
        "properties": {
            "to": {"type": "string", "title": "To"},
            "subject": {"type": "string", "title": "Subject", "maxLength": 20},
            "body": {"type": "string", "title": "Text"},
        },
        "required": ["to", "subject", "body"],
        "additionalProperties": False,
    },
    mask=("to",),
    compensates=Compensates("mail.send"),
)

#: Written over what is at its address; the address of the person in it is protected, and what is there can be seen.
customer = natural_key.upsert(
    "test.customer",
    version=1,
    title="Write a customer",
    receiver="crm",
    path="/v1/customers/{effect_id}",
    recipient="name",
    schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name"},
            "email": {"type": "string", "title": "Mail address"},
            "phone": {"type": "string", "title": "Telephone"},
        },
        "required": ["name", "email"],
        "additionalProperties": False,
    },
    mask=("email",),
    asking=Asking(group="Sales approvers"),
)

CONTRACTS = (
    create_offer,
    credit_offer,
    open_ticket,
    send_mail,
    asked_mail,
    free_text,
    offer,
    queried,
    apology,
    customer,
)
