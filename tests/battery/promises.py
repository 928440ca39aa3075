"""The battery's contracts: those of the ledger's tests, each with a protected field that nobody may find anywhere."""

from __future__ import annotations

from dataclasses import replace

from effects.contracts import Compensates, EffectContract
from effects.states import Dedup, Reversibility
from effects.wires import HttpLookUp, HttpWire
from tests.effects import asynchronous, promises

_asked, _blind = promises.ticket.wire, promises.blind_ticket.wire
assert isinstance(_asked, HttpWire)
assert isinstance(_blind, HttpWire)
_listed = _asked.listing
assert _listed is not None

offer = replace(promises.offer, type="battery.offer", mask=("subject",))
asked_offer = replace(promises.asked_offer, type="battery.asked_offer", mask=("subject",))
#: A total deadline that a test can wait for.
quick_offer = replace(offer, type="battery.quick_offer", deadline=1)
#: By key, and nobody can be asked.
unasked_offer = replace(promises.unasked_key, type="battery.unasked_offer", mask=("subject",))
#: The provider publishes no retention.
no_window = replace(promises.no_window, type="battery.no_window", mask=("subject",))

ticket = replace(promises.ticket, type="battery.ticket", mask=("description",))
quick_ticket = replace(ticket, type="battery.quick_ticket", deadline=1)
#: The receiver keeps failures under the key, and a look proves absence.
proving_offer = replace(asynchronous.proving_offer, type="battery.proving_offer", mask=("subject",))
#: Accepted first; only a webhook tells its end.
seats = replace(asynchronous.told_seats, type="battery.seats", mask=("until",))

#: Its natural key is the customer: the look-up finds whatever the customer has, whoever made it.
customer_ticket = replace(
    ticket,
    type="battery.customer_ticket",
    wire=replace(_asked, look_up=HttpLookUp("/v1/tickets?customer_id=cus_000001", items="data", matches="")),
)
#: Nothing tells its repeats apart and nobody can be asked.
blind_ticket = replace(promises.blind_ticket, type="battery.blind_ticket", mask=("description",))

#: The same, but what is made bears the effect's id in its text, and the receiver lists what it has.
marked_ticket = replace(
    blind_ticket,
    type="battery.marked_ticket",
    wire=replace(_blind, marker="description", listing=replace(_listed, matches="")),
)
#: By key, and not to be taken back.
payment = replace(offer, type="battery.payment", reversibility=Reversibility.IRREVERSIBLE)

#: Takes an offer back, in part or whole: an invoice of the same amount, by a key of its own.
credit = EffectContract(
    type="battery.credit",
    version=1,
    title="Credit an offer",
    receiver="crm",
    wire=HttpWire(
        method="POST", path="/v1/invoices", key_header="Idempotency-Key", external_id="external_id"
    ),
    recipient="customer_id",
    schema={
        "type": "object",
        "properties": {
            "customer_id": {"type": "string"},
            "amount_minor": {"type": "integer", "minimum": 1},
            "reason": {"type": "string"},
        },
        "required": ["customer_id", "amount_minor", "reason"],
        "additionalProperties": False,
    },
    mask=("reason",),
    dedup=Dedup.KEY,
    retention=7 * 24 * 3600,
    compensates=Compensates("battery.offer", amount="amount_minor"),
)
#: Takes a ticket back as a whole, and so once.
withdrawal = replace(
    credit, type="battery.withdrawal", title="Withdraw a ticket", compensates=Compensates("battery.ticket")
)

mail = replace(promises.mail, type="battery.mail")

CONTRACTS: tuple[EffectContract, ...] = (
    offer,
    asked_offer,
    quick_offer,
    unasked_offer,
    no_window,
    proving_offer,
    seats,
    ticket,
    quick_ticket,
    customer_ticket,
    blind_ticket,
    marked_ticket,
    payment,
    credit,
    withdrawal,
    mail,
)
