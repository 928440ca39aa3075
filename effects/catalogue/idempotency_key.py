"""Any service that takes JSON over HTTP with an Idempotency-Key, as the IETF's draft has it.

The draft leaves to each service how long it keeps a key. Without that, nothing is sent a second time: give *retention*
only where the service publishes it, and say where as a fact of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from effects.contracts import EffectContract, Fact
from effects.states import Dedup
from effects.wires import HttpListing, HttpLookUp, HttpWire

_CHECKED = date(2026, 12, 1)
_DRAFT = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07"

FACTS = (
    Fact("The header's value is a structured field's string: in quotes.", _DRAFT, _CHECKED),
    Fact("A service may let keys expire, and should publish when.", _DRAFT, _CHECKED),
    Fact(
        "A repeat gets the result of the first request, success or error; so an error says nothing new.",
        _DRAFT,
        _CHECKED,
    ),
    Fact("A repeat while the first is being worked on gets 409.", _DRAFT, _CHECKED),
    Fact(
        "The same key with another request gets 422; a key that is required and missing, 400.",
        _DRAFT,
        _CHECKED,
    ),
)


def by_key(
    type: str,
    *,
    version: int,
    title: str,
    receiver: str,
    path: str,
    schema: Mapping[str, Any],
    recipient: str,
    method: str = "POST",
    retention: float = 0,
    reference: str = "id",
    external_id: str = "",
    echoes: tuple[str, ...] = (),
    look_up: HttpLookUp | HttpListing | None = None,
    listing: HttpListing | None = None,
    quoted: bool = True,
    mismatch_statuses: frozenset[int] = frozenset({422}),
    key_mismatch: frozenset[str] = frozenset(),
    facts: tuple[Fact, ...] = (),
    **more: Any,
) -> EffectContract:
    """One effect type of such a service. *more* are EffectContract's own fields, and go to it as they are.

    A service that answers 422 for other reasons too must be told apart by its error codes: give *key_mismatch* and no
    *mismatch_statuses*, otherwise each of them waits for a person. *quoted*: off for the many that want the bare key.
    """
    return EffectContract(
        type=type,
        version=version,
        title=title,
        receiver=receiver,
        wire=HttpWire(
            method=method,
            path=path,
            key_header="Idempotency-Key",
            key_quoted=quoted,
            external_id=external_id,
            reference=reference,
            echoes=echoes,
            in_progress=frozenset({409}),
            mismatch_statuses=mismatch_statuses,
            key_mismatch=key_mismatch,
            errors_cached=True,
            look_up=look_up,
            listing=listing,
        ),
        recipient=recipient,
        schema=schema,
        dedup=Dedup.KEY,
        retention=retention,
        facts=(*FACTS, *facts),
        **more,
    )
