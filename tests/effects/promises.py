"""Contracts of the ledger's tests: the demo's, each with one thing changed."""

from __future__ import annotations

from dataclasses import replace

from demo.contracts import create_offer, open_ticket, send_mail
from effects.contracts import Asking, Compensates, EffectContract
from effects.states import Dedup, Reversibility
from effects.wires import HttpLookUp, HttpPreview, HttpWire

assert isinstance(create_offer.wire, HttpWire)
assert isinstance(open_ticket.wire, HttpWire)

offer = replace(create_offer, type="ledger.offer", asking=None)
asked_offer = replace(create_offer, type="ledger.asked_offer", asking=Asking(group="Sales approvers"))
#: Several may change one and the same object.
shared_offer = replace(offer, type="ledger.shared_offer", creates=False)
#: A total deadline that a test can wait for.
quick_offer = replace(offer, type="ledger.quick_offer", deadline=1)
#: Gives up after two tries.
two_tries = replace(offer, type="ledger.two_tries", tries=2)
#: The same, and its order may try again after that.
offer_again = replace(two_tries, type="ledger.offer_again")
#: The provider publishes no retention: the key protects no second send.
no_window = replace(offer, type="ledger.no_window", retention=0)
#: By key, and nobody can be asked.
unasked_key = replace(offer, type="ledger.unasked_key", wire=replace(create_offer.wire, look_up=None))
#: The same, and a person is asked.
asked_unasked_key = replace(
    unasked_key, type="ledger.asked_unasked_key", asking=Asking(group="Sales approvers")
)
#: What it echoes is protected.
masked_offer = replace(offer, type="ledger.masked_offer", mask=("amount_minor", "subject"))

ticket = replace(open_ticket, type="ledger.ticket")
#: Its "not found" proves nothing: a search index that lags behind.
searched_ticket = replace(ticket, type="ledger.searched_ticket", authoritative=False)
#: The receiver finds by the customer, so that others' objects come back too.
broad_ticket = replace(
    ticket,
    type="ledger.broad_ticket",
    wire=replace(
        open_ticket.wire,
        look_up=HttpLookUp("/v1/tickets?customer_id=cus_000001", items="data", matches="external_id"),
    ),
)
#: Asked for by a list of all that was made.
listed_ticket = replace(
    ticket,
    type="ledger.listed_ticket",
    authoritative=False,
    wire=replace(open_ticket.wire, look_up=open_ticket.wire.listing),
)
#: No external id and no key: a look-up only, by what the mask shows.
queried_ticket = replace(ticket, type="ledger.queried_ticket", dedup=Dedup.QUERY, authoritative=False)
#: Nothing tells its repeats apart and nobody can be asked.
blind_ticket = replace(
    ticket,
    type="ledger.blind_ticket",
    dedup=Dedup.NONE,
    authoritative=False,
    reversibility=Reversibility.IRREVERSIBLE,
    wire=replace(open_ticket.wire, external_id="", look_up=None, listing=None),
)

mail = replace(send_mail, type="ledger.mail", deadline=4)
quick_mail = replace(send_mail, type="ledger.quick_mail", deadline=1)

#: A path made of the payload, and numbers that an editor may change.
customer_note = EffectContract(
    type="ledger.customer_note",
    version=1,
    title="Replace a customer",
    receiver="crm",
    wire=HttpWire(method="PUT", path="/v1/customers/{customer_id}"),
    preview=HttpPreview(called={"customer_id": "id"}, replaces=True),
    recipient="customer_id",
    customer="customer_id",
    schema={
        "type": "object",
        "properties": {
            "customer_id": {"type": "string"},
            "name": {"type": "string"},
            "discount": {"type": "number"},
            "newsletter": {"type": "boolean"},
            "tags": {"type": "array"},
            "seen_at": {},
        },
        "required": ["customer_id"],
        "additionalProperties": False,
    },
    asking=Asking(group="Sales approvers"),
)

#: Its names are protected, and it is looked at elsewhere than it is sent to.
masked_note = replace(
    customer_note,
    type="ledger.masked_note",
    mask=("name",),
    preview=HttpPreview(path="/v1/customers/{customer_id}", called={"customer_id": "id"}, replaces=True),
)
#: What is not sent stays.
patched_note = replace(
    customer_note, type="ledger.patched_note", preview=HttpPreview(called={"customer_id": "id"})
)

_CREDIT = {
    "type": "object",
    "properties": {
        "customer_id": {"type": "string"},
        "amount_minor": {"type": "integer"},
        "currency": {"type": "string"},
    },
    "required": ["customer_id", "amount_minor", "currency"],
    "additionalProperties": False,
}
#: Takes a part of an offer back.
credit = replace(
    offer,
    type="ledger.credit",
    title="Credit an offer",
    schema=_CREDIT,
    wire=replace(
        create_offer.wire, path="/v1/invoices", look_up=HttpLookUp("/v1/invoices?external_id={key}", "data")
    ),
    compensates=Compensates("ledger.offer", "amount_minor"),
)
#: Takes a part of an offer back for good.
final_credit = replace(
    credit,
    type="ledger.final_credit",
    reversibility=Reversibility.IRREVERSIBLE,
    compensates=Compensates("ledger.asked_offer", "amount_minor"),
)
#: Takes a ticket back as a whole.
close_ticket = replace(
    credit, type="ledger.close_ticket", title="Close a ticket", compensates=Compensates("ledger.ticket")
)

CONTRACTS: tuple[EffectContract, ...] = (
    offer,
    asked_offer,
    shared_offer,
    quick_offer,
    two_tries,
    offer_again,
    no_window,
    unasked_key,
    asked_unasked_key,
    masked_offer,
    ticket,
    searched_ticket,
    broad_ticket,
    listed_ticket,
    queried_ticket,
    blind_ticket,
    mail,
    quick_mail,
    customer_note,
    masked_note,
    patched_note,
    credit,
    final_credit,
    close_ticket,
)
