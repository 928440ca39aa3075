"""Contracts to be probed: the demo's with short times, and the same promises made for receivers that break them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from demo.contracts import create_offer, open_ticket, send_mail
from effects.catalogue.natural_key import create_only
from effects.contracts import EffectContract
from effects.states import Dedup
from effects.wires import HttpLookUp, HttpWire

assert isinstance(create_offer.wire, HttpWire)
assert isinstance(open_ticket.wire, HttpWire)

#: Short, but not for a busy machine.
DEADLINE_S = 3.0
SETTLE_S = 0.5


def _short(contract: EffectContract, name: str, **changes: Any) -> EffectContract:
    return replace(contract, type=f"probed.{name}", **{"deadline": DEADLINE_S, "settle": SETTLE_S, **changes})


# The receiver is as good as each of these promises.

offer = _short(create_offer, "offer")
#: Its answer is all there is: nobody can be asked.
unasked_offer = _short(create_offer, "unasked_offer", wire=replace(create_offer.wire, look_up=None))
#: The provider publishes no retention, so that its key repeats nothing.
no_window = _short(create_offer, "no_window", retention=0)
ticket = _short(open_ticket, "ticket")
#: It can be asked, and no more is known of it.
queried_ticket = _short(open_ticket, "queried_ticket", dedup=Dedup.QUERY, authoritative=False)
mail = _short(send_mail, "mail")

HONEST = (offer, unasked_offer, no_window, ticket, queried_ticket, mail)

# Each goes to a server of tests.probe.servers of the receiver's name.

_keyed = replace(
    create_offer.wire,
    path="/things",
    look_up=HttpLookUp("/things?external_id={key}", items="data", matches="external_id"),
)
_named = replace(open_ticket.wire, path="/things", look_up=_keyed.look_up)

fair_key = _short(create_offer, "fair_key", receiver="fair", wire=_keyed)
fair_id = _short(open_ticket, "fair_id", receiver="fair", wire=_named)
ignores_key = _short(create_offer, "ignores_key", receiver="ignores_key", wire=_keyed)
takes_changes = _short(create_offer, "takes_changes", receiver="takes_changes", wire=_keyed)
lags = _short(open_ticket, "lags", receiver="lags", wire=_named)
overwrites = _short(open_ticket, "overwrites", receiver="overwrites", wire=_named)
doubles = _short(open_ticket, "doubles", receiver="doubles", wire=_named)
refuses = _short(open_ticket, "refuses", receiver="refuses", wire=_named)
#: It takes the receiver's word for what is found.
by_prefix = _short(
    open_ticket,
    "by_prefix",
    receiver="by_prefix",
    wire=replace(_named, look_up=HttpLookUp("/things?external_id={key}", items="data")),
)

busy = _short(create_offer, "busy", receiver="busy", wire=_keyed)
#: At an address of its own, and known by nothing but that.
record = create_only(
    "probed.record",
    version=1,
    title="Make a record",
    receiver="fair",
    path="/records/{effect_id}",
    schema=open_ticket.schema,
    recipient="customer_id",
    echoes=("subject",),
    authoritative=True,
    deadline=DEADLINE_S,
    settle=SETTLE_S,
    harmless=open_ticket.harmless,
)
FAIR = (fair_key, fair_id, busy, record)
#: The one that lags comes first: it has caught up when it is judged at last, so that one case alone fails.
DISHONEST = (lags, ignores_key, takes_changes, overwrites, doubles, by_prefix, refuses)

CONTRACTS = (*HONEST, *FAIR, *DISHONEST)

# None of these may be touched.

harmful = _short(create_offer, "harmful", harmless=None)
misfit = _short(create_offer, "misfit", harmless=lambda text: {"subject": text})
broken = _short(create_offer, "broken", harmless=lambda text: {"subject": text[1000]})
always_the_same = _short(create_offer, "always_the_same", harmless=lambda _text: offer.harmless("same"))  # type: ignore[misc]
homeless = _short(create_offer, "homeless", receiver="nowhere")

UNTOUCHED = (harmful, misfit, broken, always_the_same, homeless)
