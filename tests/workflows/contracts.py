"""Contracts with short times, for tests that wait for leases and look-ups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from demo.contracts import create_offer, open_ticket, reserve_seats, send_mail
from effects.contracts import EffectContract
from effects.states import Dedup, Reversibility
from effects.wires import HttpListing, HttpWire


def _short(contract: EffectContract, name: str, **changes: Any) -> EffectContract:
    return replace(contract, type=name, deadline=1.5, settle=0.5, **changes)


offer_by_key = _short(create_offer, "test.offer_by_key", asking=None)
asked_offer = _short(create_offer, "test.asked_offer")
final_offer = _short(create_offer, "test.final_offer", asking=None, reversibility=Reversibility.IRREVERSIBLE)
ticket = _short(open_ticket, "test.ticket")
#: No key and nothing unique: the id stands in its text, and is found by listing what was made.
marked_ticket = _short(
    open_ticket,
    "test.marked_ticket",
    dedup=Dedup.QUERY,
    authoritative=False,
    wire=HttpWire(
        method="POST",
        path="/v1/tickets",
        marker="description",
        echoes=("subject", "priority"),
        unprocessed=frozenset({429, 503}),
        look_up=HttpListing("/v1/tickets?created_since={since}", items="data", after="after"),
    ),
)
mail = _short(send_mail, "test.mail")
assert isinstance(reserve_seats.wire, HttpWire)
#: Only a webhook tells its end.
seats = _short(reserve_seats, "test.seats", wire=replace(reserve_seats.wire, look_up=None, listing=None))

#: Long enough for a receiver that takes its time.
slow_offer = replace(create_offer, type="test.slow_offer", asking=None, deadline=12)

CONTRACTS = (offer_by_key, asked_offer, final_offer, ticket, marked_ticket, mail, seats, slow_offer)
