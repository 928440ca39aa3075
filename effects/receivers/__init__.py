"""The only code that speaks to the outside: deliver an effect once, or ask about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from console.kernel.canonical import JSONValue
from console.kernel.masking import protected_texts
from effects.contracts import SKEW, EffectContract
from effects.models import Effect, EffectRevision, Receiver
from effects.receivers import commands, http, looking, reading, smtp
from effects.receivers.answers import Answer, Finding
from effects.receivers.looking import Listing, Page, Place
from effects.receivers.secrets import SecretMissing
from effects.receivers.secrets import secret as secret_named
from effects.selectors import payload_of, revision_of
from effects.states import EffectStatus, Outcome
from effects.wires import HttpWire

__all__ = [
    "Answer",
    "Finding",
    "Listing",
    "Page",
    "deliver",
    "judge",
    "list_made",
    "list_page",
    "look_up",
    "made_by",
    "preview",
    "read_hook",
]

#: A part shorter than this, an account's name perhaps, is no secret by itself.
SHORTEST_SECRET = 4
#: A person waits for a preview, and decides without it when the receiver does not answer in this time, in seconds.
PREVIEW_WITHIN = 3.0


def deliver(contract: EffectContract, effect: Effect, request: bytes, *, send_by: float) -> Answer:
    """Send *request* once to the effect's receiver. Never raises for what the network does: that is in the Answer.

    *send_by*: seconds from now after which not even the first byte may leave.
    """
    receiver = effect.receiver
    try:
        secret = secret_named(receiver.secret_name)
    except SecretMissing as missing:
        return Answer(Outcome.NOT_SENT, problem=str(missing))
    if isinstance(contract.wire, HttpWire):
        answer = http.deliver(
            contract,
            contract.wire,
            base_url=receiver.base_url,
            hosts=receiver.hosts,
            secret=secret,
            request=request,
            key=effect.key,
            send_by=send_by,
        )
    else:
        answer = smtp.deliver(
            contract,
            base_url=receiver.base_url,
            hosts=receiver.hosts,
            secret=secret,
            request=request,
            send_by=send_by,
        )
    return answer.fit_to_keep(_hidden(contract, effect, secret))


def look_up(contract: EffectContract, effect: Effect, revision: EffectRevision, request: bytes) -> Finding:
    """Ask the effect's receiver whether it has it; of an accepted one, how far it is.

    *revision* is the one whose bytes were sent.
    """
    if not isinstance(contract.wire, HttpWire):
        return Finding("unclear", sentence="Mail can't be looked up.")
    try:
        secret = secret_named(effect.receiver.secret_name)
    except SecretMissing as missing:
        return Finding("unclear", sentence=str(missing))
    assert revision.effect_id == effect.id
    place = Place(effect.receiver.base_url, effect.receiver.hosts, secret)
    if effect.status == EffectStatus.ACCEPTED and contract.wire.poll:
        finding = looking.poll(
            contract,
            contract.wire,
            contract.wire.poll,
            place,
            request=request,
            key=effect.key,
            reference=effect.provider_reference,
        )
    else:
        finding = looking.look_up(
            contract,
            contract.wire,
            place,
            request=request,
            key=effect.key,
            since=(effect.first_sent_at or effect.created_at) - SKEW,
        )
    return finding.fit_to_keep(_hidden(contract, effect, secret))


def preview(contract: EffectContract, effect: Effect, payload: Mapping[str, Any], request: bytes) -> Finding:
    """What the effect's receiver has now of what *request*, made of *payload*, would change. See effects.commands.preview.

    Found with the record as its body, absent, or unclear with the reason; within PREVIEW_WITHIN seconds.
    """
    wire = contract.wire
    if not isinstance(wire, HttpWire) or contract.preview is None:
        return Finding("unclear", sentence="This type has no preview.")
    try:
        secret = secret_named(effect.receiver.secret_name)
    except SecretMissing as missing:
        return Finding("unclear", sentence=f"{missing}.")
    finding = looking.preview(
        contract,
        wire,
        contract.preview,
        Place(effect.receiver.base_url, effect.receiver.hosts, secret),
        request=request,
        payload=payload,
        key=effect.key,
        within=PREVIEW_WITHIN,
    )
    return finding.fit_to_keep(_hidden(contract, effect, secret))


def read_hook(contract: EffectContract, effect: Effect, request: bytes, message: JSONValue) -> Finding:
    """What a proven *message* of the effect's receiver says of it. *request*: the bytes that were sent.

    The message names the effect where the contract's reading says so: the caller has found the effect by it.
    """
    wire = contract.wire
    assert isinstance(wire, HttpWire)
    assert wire.hook is not None
    finding = commands.of_command(
        contract,
        wire,
        wire.hook.progress,
        message if isinstance(message, dict) else {},
        sent=json.loads(request)["echoes"],
        key=effect.key,
        object_at=wire.hook.object,
    )
    if finding.found == "under_way":
        # What stands in the number's place in a message is the message's own.
        finding = replace(finding, reference="")
    return finding.fit_to_keep(_hidden(contract, effect, ""))


def made_by(contract: EffectContract, message: JSONValue) -> str:
    """The receiver's own id of the object that a *message* says is made; empty where it says none."""
    wire = contract.wire
    if not isinstance(wire, HttpWire) or wire.hook is None or wire.hook.progress.of(message) != "completed":
        return ""
    one = wire.hook.object_in(message)
    return reading.reference_of(wire, one, "") if isinstance(one, dict) else ""


def list_made(
    contract: EffectContract,
    receiver: Receiver,
    *,
    since: datetime,
    pages: int = 100,
    within: timedelta = timedelta(seconds=60),
) -> Listing:
    """Everything of the contract's kind that *receiver* says was made since *since*, whoever made it.

    At most *pages* pages in at most *within*. Where it is not all, ``Listing.cut`` says why: what is not in it may be
    there. Never raises for what the network does.
    """
    wire = contract.wire
    if not isinstance(wire, HttpWire) or wire.listing is None:
        return Listing((), "This receiver can't list what it has.")
    try:
        secret = secret_named(receiver.secret_name)
    except SecretMissing as missing:
        return Listing((), f"{missing}.")
    place = Place(receiver.base_url, receiver.hosts, secret)
    listing = looking.list_since(
        contract,
        wire,
        wire.listing,
        place,
        since=since,
        pages=pages,
        within=within.total_seconds(),
    )
    return listing.fit_to_keep(_parts(secret))


def list_page(contract: EffectContract, receiver: Receiver, *, since: datetime, address: str = "") -> Page:
    """The same page by page, for lists of any length: the first, or the one at the *address* that a page named."""
    wire = contract.wire
    if not isinstance(wire, HttpWire) or wire.listing is None:
        return Page(cut="This receiver can't list what it has.")
    try:
        secret = secret_named(receiver.secret_name)
    except SecretMissing as missing:
        return Page(cut=f"{missing}.")
    place = Place(receiver.base_url, receiver.hosts, secret)
    page = looking.read_page(contract, wire, wire.listing, place, since=since, address=address)
    return page.fit_to_keep(_parts(secret))


def judge(contract: EffectContract, effect: Effect, request: bytes, found: dict[str, Any]) -> Finding:
    """What an object that bears exactly the effect's key says about it. Asks nobody."""
    if not isinstance(contract.wire, HttpWire):
        return Finding("unclear", sentence="Mail can't be looked up.")
    finding = looking.judge(contract, contract.wire, request=request, key=effect.key, found=found)
    return finding.fit_to_keep(_hidden(contract, effect, ""))


def _hidden(contract: EffectContract, effect: Effect, secret: str) -> list[str]:
    """What must not stand in words that are kept: the secret and its parts, and the payload's protected values."""
    return [*_parts(secret), *protected_texts(payload_of(effect, revision_of(effect)), contract.mask)]


def _parts(secret: str) -> list[str]:
    """The secret, and each of several or of an account and its password."""
    whole = [secret, *secret.split(":"), *secret.split()]
    return [part for part in dict.fromkeys(whole) if len(part) >= SHORTEST_SECRET]
