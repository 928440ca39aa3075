"""Records that live at an address which the sender chooses: the effect's id is their natural key.

``create_only`` is for services that heed If-None-Match; ``upsert`` for those that write over what is there. Both look
before anything is sent a second time, and do so only where the service promises that its look-up is never behind:
give *authoritative* with a fact that says where it is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from effects.contracts import EffectContract, Fact
from effects.states import Dedup
from effects.wires import HttpLookUp, HttpPreview, HttpWire

_CHECKED = date(2026, 12, 1)
_HTTP = "https://www.rfc-editor.org/rfc/rfc9110"

CREATE_FACTS = (
    Fact(
        "If-None-Match: * keeps a PUT from writing over what is there already; then the answer is 412.",
        f"{_HTTP}#section-13.1.2",
        _CHECKED,
    ),
    Fact("A PUT that made something is answered with 201.", f"{_HTTP}#section-9.3.4", _CHECKED),
)
UPSERT_FACTS = (
    Fact(
        "A PUT replaces what is there; several of the same have the effect of one.",
        f"{_HTTP}#section-9.2.2",
        _CHECKED,
    ),
    Fact("A GET there gives what it is now.", f"{_HTTP}#section-9.3.1", _CHECKED),
    Fact(
        "It replaces what others wrote there meanwhile, too: so it is sent again only after a look.",
        f"{_HTTP}#section-9.3.4",
        _CHECKED,
    ),
)
SALESFORCE_FACTS = (
    Fact(
        "A PATCH by an external id makes the record where there is none, and writes over the one that matches.",
        "https://developer.salesforce.com/docs/platform/api-rest/guide/dome-upsert.html",
        _CHECKED,
    ),
    Fact(
        "An id that several records bear is answered with 300, and nothing is written.",
        "https://developer.salesforce.com/docs/platform/api-rest/guide/dome-upsert.html",
        _CHECKED,
    ),
    Fact(
        "The body must not hold the external id itself.",
        "https://developer.salesforce.com/docs/atlas.en-us.238.0.api_rest.meta/api/resources_sobject_upsert_patch.htm",
        _CHECKED,
    ),
)


def create_only(
    type: str,
    *,
    version: int,
    title: str,
    receiver: str,
    path: str,
    schema: Mapping[str, Any],
    recipient: str,
    echoes: tuple[str, ...] = (),
    authoritative: bool = False,
    facts: tuple[Fact, ...] = (),
    **more: Any,
) -> EffectContract:
    """Make a record at *path*, which holds ``{effect_id}``; never write over one that is there."""
    return _at_address(
        path,
        echoes,
        create_only=True,
        type=type,
        version=version,
        title=title,
        receiver=receiver,
        recipient=recipient,
        schema=schema,
        authoritative=authoritative,
        facts=(*CREATE_FACTS, *facts),
        **more,
    )


def upsert(
    type: str,
    *,
    version: int,
    title: str,
    receiver: str,
    path: str,
    schema: Mapping[str, Any],
    recipient: str,
    echoes: tuple[str, ...] = (),
    authoritative: bool = False,
    facts: tuple[Fact, ...] = (),
    **more: Any,
) -> EffectContract:
    """Write a record at *path*, which holds ``{effect_id}``, whether or not there is one.

    Who decides sees what is there now: the address is the record's own.
    """
    return _at_address(
        path,
        echoes,
        create_only=False,
        type=type,
        version=version,
        title=title,
        receiver=receiver,
        recipient=recipient,
        schema=schema,
        authoritative=authoritative,
        facts=(*UPSERT_FACTS, *facts),
        **more,
    )


def _at_address(path: str, echoes: tuple[str, ...], *, create_only: bool, **contract: Any) -> EffectContract:
    if not create_only:
        contract.setdefault("preview", HttpPreview(replaces=True))
    return EffectContract(
        wire=HttpWire(
            method="PUT",
            path=path,
            create_only=create_only,
            reference="",
            echoes=echoes,
            exists=frozenset({409, 412}),
            look_up=HttpLookUp(),
        ),
        dedup=Dedup.NATURAL,
        **contract,
    )


def salesforce_upsert(
    type: str,
    *,
    version: int,
    title: str,
    record: str,
    field: str,
    schema: Mapping[str, Any],
    recipient: str,
    api: str = "v68.0",
    receiver: str = "salesforce",
    facts: tuple[Fact, ...] = (),
    **more: Any,
) -> EffectContract:
    """Write a *record* (``Account``) at Salesforce whose external id *field* (``Effect__c``) is the effect's id.

    The field has to be marked as external id and unique in the organisation, and belong to effects alone. Nothing is
    documented of how soon a record is found, so one that is not found is not sent again by itself.
    """
    path = f"/services/data/{api}/sobjects/{record}/{field}/{{effect_id}}"
    return EffectContract(
        type=type,
        version=version,
        title=title,
        receiver=receiver,
        wire=HttpWire(
            method="PATCH",
            path=path,
            exists=frozenset({300, 409}),
            look_up=HttpLookUp(matches=field, reference="Id"),
        ),
        preview=HttpPreview(),
        recipient=recipient,
        schema=schema,
        dedup=Dedup.NATURAL,
        facts=(*SALESFORCE_FACTS, *facts),
        **more,
    )
