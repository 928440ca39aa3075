"""Webhooks in: what a receiver tells about an effect, proven by its signature, becomes one observation and at most one move.

Signed as Standard Webhooks has it (console.kernel.webhooks). Nothing of a message that is refused is kept: neither a
row nor, in a log, its body. How a message names the effect and its end is the contract's to say (wires.HookReading).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F, OuterRef, QuerySet, Subquery

from console.kernel import webhooks
from console.kernel.canonical import JSONValue, Uncanonical, parse_json
from console.kernel.errors import BadRequest, NotFound, Refusal
from console.kernel.ids import EFFECT_PREFIX, normal_id
from console.kernel.live import announce
from console.kernel.texts import storable
from console.kernel.webhooks import Proven
from effects import moves, receivers
from effects.contracts import EffectContract, UnknownType, contract, contracts
from effects.evidence import settle
from effects.models import Effect, HookMessage, HookSource, Observation, Review
from effects.moves import evidence
from effects.receivers import Finding
from effects.receivers.secrets import SecretMissing
from effects.receivers.secrets import secret as secret_named
from effects.selectors import request_of, revision_of
from effects.states import EffectStatus, SubState
from effects.wires import HookReading, HttpWire, at

logger = logging.getLogger(__name__)

#: The largest message that is read. Standard Webhooks asks senders to stay below 20 kB.
LARGEST_MESSAGE = 256 * 1024
#: As long as its column.
LONGEST_KIND = 120
#: No more effects are settled by what was told in one turn of the sweep.
A_TURN = 200
#: The kind of the observations that are made here.
WEBHOOK = "webhook"
TOLD = "A webhook of the receiver answered it."


class Taken(StrEnum):
    """What was done with a message. Each is an answer of 2xx: the sender need not send it again."""

    NEW = "taken"
    KNOWN = "known"
    IGNORED = "ignored"


class Unready(Refusal):
    """The message can't be checked or read here yet, and that is ours to mend: the sender may come again."""

    code = "not_ready"
    status = 503


@dataclass(frozen=True)
class _Message:
    """A message whose signature holds."""

    id: str
    sent_at: datetime
    body_hash: str
    document: JSONValue


def take(hook_id: str, headers: Mapping[str, str], body: bytes) -> Taken:
    """Check one message that came to /hooks/<hook_id>, and settle with it what it settles.

    The same message id again is the same message: answered, and nothing is done. IGNORED is one that bears no id of
    an effect, or an end of one that the ledger never had (which opens the review of an orphan where there is an
    object).

    Raises NotFound (no such address, it is closed, or the effect is not of its workspace and receiver), BadSignature,
    BadRequest, and Unready where a secret or a contract is missing here.
    """
    source = _source(hook_id)
    proven = _proven(source, headers, body)
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    message = _Message(proven.message_id, proven.sent_at, digest, _document(body))
    key = _key_of(source, message.document)
    if key is None:
        return Taken.IGNORED
    effect = Effect.objects.filter(id=key).first()
    try:
        with transaction.atomic():
            return _about(source, message, effect) if effect else _orphan(source, message, key)
    except IntegrityError as clash:
        # The same message at the same moment, and the other came first.
        if "hook_message_once" not in str(clash):
            raise
        return Taken.KNOWN


def _source(hook_id: str) -> HookSource:
    open_ones = HookSource.objects.select_related("receiver").filter(closed_at=None)
    found = open_ones.filter(id=hook_id).first() if normal_id(hook_id) == hook_id else None
    if found is None:
        raise NotFound("No webhooks are taken at this address.")
    return found


def _proven(source: HookSource, headers: Mapping[str, str], body: bytes) -> Proven:
    try:
        secrets = webhooks.secrets_in(secret_named(source.secret_name))
        return webhooks.verify(secrets, headers, body, _database_now())
    except (SecretMissing, webhooks.UnusableSecret) as problem:
        logger.error("webhooks at %s can't be checked: %s", source.id, problem)
        raise Unready("The secret to check this webhook with is not set up here.") from None


def _database_now() -> datetime:
    """The one clock that decides whether a message is old, in every process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    now = row[0]
    assert isinstance(now, datetime)
    return now


def _document(body: bytes) -> JSONValue:
    """The message, strictly read: a key that is there twice could be read in two ways."""
    try:
        document = parse_json(body)
    except Uncanonical as unclear:
        raise BadRequest(str(unclear)) from None
    if not isinstance(document, dict):
        raise BadRequest("The message is not a JSON object.")
    return document


def _reading(promise: EffectContract) -> HookReading | None:
    return promise.wire.hook if isinstance(promise.wire, HttpWire) else None


def _readings(source: HookSource) -> list[HookReading]:
    """How messages of this receiver name effects: as the contracts of the types that it takes say, each once."""
    found = (
        _reading(promise) for promise in contracts().values() if promise.receiver == source.receiver.name
    )
    return list(dict.fromkeys(reading for reading in found if reading))


def _key_of(source: HookSource, document: JSONValue) -> str | None:
    """The one effect's key that the message bears; None when it bears none: it is about something else of the receiver."""
    said = {at(document, reading.key) for reading in _readings(source) if _is_key(at(document, reading.key))}
    if len(said) > 1:
        raise BadRequest("The message names more than one effect.")
    return next(iter(said), None)


def _is_key(value: Any) -> bool:
    """An effect's id exactly as it is stored, which is the key that a receiver gets."""
    return isinstance(value, str) and value.startswith(f"{EFFECT_PREFIX}_") and normal_id(value) == value


def _promise_for(effect: Effect, message: _Message) -> EffectContract:
    try:
        promise = contract(effect.effect_type)
    except UnknownType as unknown:
        logger.error("a webhook about %s can't be read: %s", effect.id, unknown)
        raise Unready("The contract of this effect is not known here.") from None
    reading = _reading(promise)
    if reading is None or at(message.document, reading.key) != effect.key:
        raise BadRequest(f"The message does not name the effect as messages about {promise.type} do.")
    return promise


def _about(source: HookSource, message: _Message, effect: Effect) -> Taken:
    """One new message: the observation, what follows from it, and the message's own row, or nothing of them."""
    if (effect.workspace_id, effect.receiver_id) != (source.workspace_id, source.receiver_id):
        raise NotFound("There is no such effect here.")
    promise = _promise_for(effect, message)
    effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect.id)
    if HookMessage.objects.filter(source=source, message_id=message.id).exists():
        return Taken.KNOWN
    finding = receivers.read_hook(promise, effect, request_of(effect, revision_of(effect)), message.document)
    moves.observe(
        effect,
        WEBHOOK,
        finding.found,
        finding.sentence,
        reference=finding.reference,
        message=message.id,
    )
    asked_before = _open_reviews(effect)
    settle(effect, promise, finding, why=TOLD)
    if finding.found == "unclear":
        # It says that something ended and not what: the receiver is asked, as soon as may be.
        evidence.look_soon(effect.id)
    _keep(source, message, promise, effect, _came_of_it(effect, finding, asked_before))
    _tell(effect)
    return Taken.NEW


def _open_reviews(effect: Effect) -> set[str]:
    return set(Review.objects.filter(effect=effect, closed_at=None).values_list("id", flat=True))


def _came_of_it(before: Effect, finding: Finding, asked_before: set[str]) -> str:
    """What the message did, in words, for those who read what came."""
    after = Effect.objects.get(id=before.id)
    was, is_now = _standing(before), _standing(after)
    moved = f"{was} → {is_now}." if was != is_now else f"Nothing moved: {is_now.lower()}."
    asked = Review.objects.filter(effect=before, closed_at=None).exclude(id__in=asked_before)
    return " ".join([finding.sentence, moved, *(f"A person is asked: {one.sentence}" for one in asked)])


def _standing(effect: Effect) -> str:
    return effect.get_sub_state_display() if effect.sub_state else effect.get_status_display()


def _keep(
    source: HookSource, message: _Message, promise: EffectContract, effect: Effect | None, came_of_it: str
) -> None:
    reading = _reading(promise)
    kind = at(message.document, reading.kind) if reading and reading.kind else ""
    HookMessage.objects.create(
        source=source,
        message_id=message.id,
        signed_at=message.sent_at,
        kind=storable(kind, LONGEST_KIND) if isinstance(kind, str) else "",
        body_hash=message.body_hash,
        effect=effect,
        came_of_it=came_of_it,
    )


def _orphan(source: HookSource, message: _Message, key: str) -> Taken:
    """An id of ours that no row has: with an object it is an orphan, for people to look at; without, there is nothing."""
    for promise in contracts().values():
        reading = _reading(promise) if promise.receiver == source.receiver.name else None
        if reading is None or at(message.document, reading.key) != key:
            continue
        reference = receivers.made_by(promise, message.document)
        if reference and _review_orphan(source, message, promise, key, reference):
            return Taken.NEW
    return Taken.IGNORED


def _review_orphan(
    source: HookSource, message: _Message, promise: EffectContract, key: str, reference: str
) -> bool:
    sentence = (
        f"{source.receiver.name} says in a webhook that it made {reference} for {key}, "
        "which the ledger does not have."
    )
    if not evidence.open_orphan_review(source.receiver, reference=reference, ids=[key], sentence=sentence):
        return False
    _keep(source, message, promise, None, f"A person is asked: {sentence}")
    announce(source.workspace_id, "reviews", "home")
    return True


def settle_what_was_told() -> int:
    """Ends that came while the sender had the effect in flight: known now that it is accepted, or uncertain.

    A message that says "completed" completes at once, also in flight; one that says "failed" waits for the sender.
    """
    return sum(
        _settled(effect_id) for effect_id in list(_told_the_end().values_list("id", flat=True)[:A_TURN])
    )


def _told_the_end() -> QuerySet[Effect]:
    """Those of which the newest message since the last sending says "failed". No others: they would never get a turn."""
    newest = Observation.objects.filter(effect=OuterRef("pk"), kind=WEBHOOK).order_by("-at", "-id")
    return (
        evidence.answerable()
        .annotate(told=Subquery(newest.values("found")[:1]), told_at=Subquery(newest.values("at")[:1]))
        .filter(told="failed", told_at__gte=F("last_sent_at"), effect_type__in=list(contracts()))
        .order_by("told_at", "id")
    )


def _settled(effect_id: str) -> bool:
    """One that can't be settled holds up no other."""
    try:
        return _settle_told(effect_id)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("what was told of %s could not be settled", effect_id)
        return False


def _settle_told(effect_id: str) -> bool:
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        still_open = effect.status == EffectStatus.ACCEPTED or effect.sub_state == SubState.UNCERTAIN
        newest = effect.observations.filter(kind=WEBHOOK).order_by("-at", "-id").first()
        if not still_open or newest is None or newest.found != "failed":
            return False
        settle(effect, contract(effect.effect_type), Finding("failed", sentence=newest.sentence), why=TOLD)
        _tell(effect)
    return True


def _tell(effect: Effect) -> None:
    """Tell the open pages that show it."""
    announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects", "reviews", "home")
