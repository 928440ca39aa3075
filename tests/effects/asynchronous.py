"""Contracts whose receiver accepts first and says later how it ended: the demo's, each with one thing changed."""

from __future__ import annotations

from dataclasses import replace

from demo.contracts import reserve_seats
from effects.contracts import EffectContract
from effects.states import Dedup, Reversibility
from effects.wires import HookReading, HttpLookUp, HttpWire, Progress
from tests.effects import promises

assert isinstance(reserve_seats.wire, HttpWire)
assert reserve_seats.wire.hook is not None

seats = replace(reserve_seats, type="ledger.seats", settle=0, final_within=600)
#: A total deadline that a test can wait for.
quick_seats = replace(seats, type="ledger.quick_seats", deadline=1)
#: Only a webhook tells the end.
told_seats = replace(
    seats, type="ledger.told_seats", wire=replace(reserve_seats.wire, look_up=None, listing=None)
)
#: What it echoes is protected.
masked_seats = replace(seats, type="ledger.masked_seats", mask=("seats",))
#: No key goes with it: a webhook names it by the receiver's field for others' ids.
blind_seats = replace(
    seats,
    type="ledger.blind_seats",
    dedup=Dedup.NONE,
    reversibility=Reversibility.IRREVERSIBLE,
    wire=replace(
        reserve_seats.wire,
        key_header="",
        look_up=None,
        listing=None,
        hook=replace(reserve_seats.wire.hook, key="data.external_id"),
    ),
)
#: A 2xx is never the end, and the object does not say how far it is.
plain_seats = replace(
    seats,
    type="ledger.plain_seats",
    wire=replace(
        reserve_seats.wire,
        progress=None,
        look_up=HttpLookUp("/v1/reservations?external_id={key}", items="data", matches="external_id"),
        hook=None,
    ),
)
#: The receiver gives the command a number of its own, and is asked by it.
numbered_seats = replace(
    seats,
    type="ledger.numbered_seats",
    wire=replace(
        reserve_seats.wire,
        command="job",
        look_up=None,
        listing=None,
        poll=HttpLookUp(
            "/v1/jobs/{reference}",
            object="result",
            progress=Progress("state", frozenset({"done"}), frozenset({"dead"}), reason="error"),
        ),
        hook=HookReading(
            key="effect",
            object="",
            progress=Progress("state", frozenset({"done"}), frozenset({"dead"})),
            kind="",
        ),
    ),
)
#: The receiver says where it is to be asked.
located_seats = replace(
    numbered_seats,
    type="ledger.located_seats",
    wire=replace(
        reserve_seats.wire,
        look_up=None,
        listing=None,
        hook=None,
        poll=HttpLookUp(
            "{location}",
            object="result",
            progress=Progress("state", frozenset({"done"}), frozenset({"dead"}), reason="error"),
        ),
    ),
)
#: Two looks in a row prove that it is not there.
twice_looked_ticket = replace(promises.ticket, type="ledger.twice_looked_ticket", looks=2, settle=0)
#: The same, with a time between them.
slowly_settled_ticket = replace(twice_looked_ticket, type="ledger.slowly_settled_ticket", settle=30)
#: By key, and a look proves absence. The receiver keeps failures under the key.
proving_offer = replace(
    promises.offer,
    type="ledger.proving_offer",
    authoritative=True,
    settle=0,
    wire=replace(promises.offer.wire, errors_cached=True),  # type: ignore[arg-type]  # an HttpWire
)
#: The same, where nobody can be asked.
unasked_offer = replace(
    proving_offer,
    type="ledger.unasked_offer",
    authoritative=False,
    wire=replace(proving_offer.wire, look_up=None, listing=None),  # type: ignore[arg-type]
)
#: Each makes an object of its own.
own_offer = replace(proving_offer, type="ledger.own_offer", creates=True)

CONTRACTS: tuple[EffectContract, ...] = (
    seats,
    quick_seats,
    told_seats,
    masked_seats,
    blind_seats,
    plain_seats,
    numbered_seats,
    located_seats,
    twice_looked_ticket,
    slowly_settled_ticket,
    proving_offer,
    unasked_offer,
    own_offer,
)
