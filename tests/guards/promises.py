"""The contracts of the guards' tests: few, since a scan goes through each type that can be listed."""

from __future__ import annotations

from dataclasses import replace

from effects.states import Dedup, Reversibility
from effects.wires import HttpListing, HttpWire
from tests.effects.promises import asked_offer, blind_ticket, mail, offer, quick_offer, ticket

assert isinstance(ticket.wire, HttpWire)

#: Told by a marker in its text, and listed page by page as the Link header says. Who uses it makes its receiver.
linked = replace(
    ticket,
    type="guards.linked",
    receiver="board",
    dedup=Dedup.NONE,
    authoritative=False,
    wire=replace(
        ticket.wire,
        external_id="",
        marker="description",
        look_up=None,
        listing=HttpListing("/v1/tickets?created_since={since}"),
    ),
)
#: By key, and not to be taken back.
payment = replace(offer, type="guards.payment", reversibility=Reversibility.IRREVERSIBLE)

CONTRACTS = (offer, asked_offer, quick_offer, ticket, blind_ticket, linked, payment, mail)
