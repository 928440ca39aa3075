"""The contracts of the model: one for each way in which a receiver may tell repeats apart, with short times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from effects.contracts import Asking, Compensates, EffectContract
from effects.states import Dedup, Reversibility
from effects.wires import HookReading, HttpLookUp, HttpWire, Progress

RECEIVER = "model"
HOUR = 3600.0


#: Where an object, or the command that is to make it, says how far it is.
PROGRESS = Progress("status", frozenset({"done"}), frozenset({"failed"}), reason="why")


def _wire(
    name: str, *, key: bool = False, external_id: bool = True, look_up: bool = True, **more: Any
) -> HttpWire:
    return HttpWire(
        method="POST",
        path=f"/{name}",
        key_header="Idempotency-Key" if key else "",
        external_id="external_id" if external_id else "",
        echoes=("amount_minor",),
        unprocessed=frozenset({429, 503}),
        look_up=HttpLookUp(f"/{name}?external_id={{key}}", items="data", matches="external_id")
        if look_up
        else None,
        **more,
    )


def _contract(name: str, dedup: Dedup, wire: HttpWire, **promised: Any) -> EffectContract:
    return EffectContract(
        type=f"model.{name}",
        version=1,
        title=name.replace("_", " ").capitalize(),
        receiver=RECEIVER,
        wire=wire,
        recipient="customer_id",
        customer="customer_id",
        schema={
            "type": "object",
            "properties": {
                "customer_id": {"type": "string"},
                "amount_minor": {"type": "integer", "minimum": 1},
            },
            "required": ["customer_id", "amount_minor"],
            "additionalProperties": False,
        },
        dedup=dedup,
        **{
            "deadline": 10,
            "settle": 5,
            "tries": 4,
            "give_up": 600,
            "final_within": HOUR,
            "reversibility": Reversibility.REVERSIBLE,
            **promised,
        },
    )


_ASKING = Asking(group="Sales approvers", expires=2 * HOUR, grant=HOUR)

key = _contract("key", Dedup.KEY, _wire("key", key=True), retention=24 * HOUR, creates=True)
#: So short a retention that the time in which a key protects a repeat ends within an example; and it keeps its errors.
short_key = _contract(
    "short_key",
    Dedup.KEY,
    _wire("short_key", key=True, errors_cached=True),
    retention=200,
    authoritative=True,
    looks=2,
)
#: By key, and nobody can be asked; a repeated answer is marked as one.
blind_key = _contract(
    "blind_key",
    Dedup.KEY,
    _wire("blind_key", key=True, external_id=False, look_up=False, replay=("Idempotent-Replay", "true")),
    retention=400,
)
#: Takes commands to do them later, and says how they end: when it is asked, and by webhooks.
promised = _contract(
    "promised",
    Dedup.KEY,
    _wire(
        "promised",
        key=True,
        progress=PROGRESS,
        hook=HookReading(
            "data.external_id", replace(PROGRESS, field="data.status", reason="data.why"), "data"
        ),
    ),
    retention=24 * HOUR,
    synchronous=False,
)
natural = _contract("natural", Dedup.NATURAL, _wire("natural"), authoritative=True, creates=True)
twice_looked = _contract("twice_looked", Dedup.NATURAL, _wire("twice_looked"), authoritative=True, looks=2)
#: Its "not found" proves nothing.
searched = _contract("searched", Dedup.NATURAL, _wire("searched"))
query = _contract("query", Dedup.QUERY, _wire("query"))
none = _contract(
    "none",
    Dedup.NONE,
    _wire("none", external_id=False, look_up=False),
    reversibility=Reversibility.IRREVERSIBLE,
)
#: Takes back what "key" made.
refund = _contract(
    "refund",
    Dedup.KEY,
    _wire("refund", key=True),
    retention=24 * HOUR,
    compensates=Compensates("model.key", amount="amount_minor", original_amount="amount_minor"),
)
asked_key = _contract(
    "asked_key", Dedup.KEY, _wire("asked_key", key=True), retention=24 * HOUR, asking=_ASKING
)
asked_natural = _contract(
    "asked_natural", Dedup.NATURAL, _wire("asked_natural"), authoritative=True, asking=_ASKING
)
asked_none = replace(
    none, type="model.asked_none", wire=_wire("asked_none", external_id=False, look_up=False), asking=_ASKING
)

CONTRACTS: tuple[EffectContract, ...] = (
    key,
    short_key,
    blind_key,
    promised,
    natural,
    twice_looked,
    searched,
    query,
    none,
    refund,
    asked_key,
    asked_natural,
    asked_none,
)
BY_PATH = {one.wire.path: one for one in CONTRACTS if isinstance(one.wire, HttpWire)}
