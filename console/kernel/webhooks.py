"""Signed webhooks, both ways, as Standard Webhooks 1.0.0 has them.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (read 2026-12-01). What is
signed is ``{webhook-id}.{webhook-timestamp}.{body}``, with HMAC-SHA256, the body byte for byte as it travels. Only
the symmetric scheme, ``v1``: a sender's ``v1a`` signatures beside it are left alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from console.kernel.errors import Refusal

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"

TOLERANCE = timedelta(seconds=300)
#: A secret's length in bytes, by the specification.
SHORTEST_SECRET, LONGEST_SECRET = 24, 64
LONGEST_ID = 200

_PREFIX = "whsec_"
_VERSION = "v1"
#: No full stop in an id: with one, where the id ends and the timestamp begins could be read in two ways.
_MESSAGE_ID = re.compile(rf"[!-\-/-~]{{1,{LONGEST_ID}}}")
_SECONDS = re.compile(r"[0-9]{1,11}")


class UnusableSecret(Exception):
    """A configured secret is none of this scheme. The message says what is wrong with it and holds nothing of it."""


class BadSignature(Refusal):
    """An incoming webhook is not proven to come from its sender. Nothing of it may be used.

    ``reason`` says which check it failed: header_missing, id_unreadable, timestamp_unreadable, too_old, too_new,
    no_v1_signature or no_match.
    """

    code = "bad_signature"
    status = 401

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Proven:
    """Of a webhook whose signature holds: its id, the same in every delivery of it, and when this one was sent."""

    message_id: str
    sent_at: datetime


def secrets_in(setting: str) -> list[str]:
    """The secrets of one setting, separated by white space: two while one takes the place of the other."""
    return setting.split()


def sign(secret: str, message_id: str, timestamp: datetime, body: bytes) -> str:
    """The signature to send with *body*, ``v1,…``. Raises UnusableSecret, and ValueError for an id or time that can't be signed."""
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError(f"{message_id!r} can't be a webhook's id")
    return f"{_VERSION},{base64.b64encode(_mac(secret, message_id, _seconds(timestamp), body)).decode()}"


def signed_headers(
    secrets: Sequence[str], message_id: str, timestamp: datetime, body: bytes
) -> dict[str, str]:
    """The three headers of a delivery, signed with each of *secrets* so that the receiver may hold either."""
    if not secrets:
        raise UnusableSecret("There is no secret to sign with")
    return {
        ID: message_id,
        TIMESTAMP: _seconds(timestamp),
        SIGNATURE: " ".join(sign(secret, message_id, timestamp, body) for secret in secrets),
    }


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> Proven:
    """Whether *body*, as it was received, comes from a holder of one of *secrets*, and not too long ago.

    Raises BadSignature with the reason. UnusableSecret for a secret that is none, or for no secret at all: a
    deployment without one must refuse everything, never let everything pass.
    """
    if not secrets:
        raise UnusableSecret("There is no secret to check webhooks with")
    given = {name.lower(): value for name, value in headers.items()}
    for name in (ID, TIMESTAMP, SIGNATURE):
        if not given.get(name):
            raise BadSignature("header_missing", f"The webhook has no {name} header.")
    message_id, seconds = given[ID], given[TIMESTAMP]
    if not _MESSAGE_ID.fullmatch(message_id):
        raise BadSignature(
            "id_unreadable",
            f"The webhook's {ID} is longer than {LONGEST_ID} characters, or has one that no id may have.",
        )
    sent_at = _sent_at(seconds, now, tolerance)
    _check(secrets, given[SIGNATURE], message_id, seconds, body)
    return Proven(message_id, sent_at)


def _sent_at(seconds: str, now: datetime, tolerance: timedelta) -> datetime:
    if not _SECONDS.fullmatch(seconds):
        raise BadSignature("timestamp_unreadable", f"The webhook's {TIMESTAMP} is no number of seconds.")
    sent_at = datetime.fromtimestamp(int(seconds), UTC)
    allowed = f"more than the {tolerance.total_seconds():.0f} seconds that are allowed"
    if sent_at < now - tolerance:
        raise BadSignature(
            "too_old", f"The webhook was sent {(now - sent_at).total_seconds():.0f} seconds ago, {allowed}."
        )
    if sent_at > now + tolerance:
        raise BadSignature(
            "too_new",
            f"The webhook says it was sent {(sent_at - now).total_seconds():.0f} seconds from now, {allowed}.",
        )
    return sent_at


def _check(secrets: Sequence[str], header: str, message_id: str, seconds: str, body: bytes) -> None:
    signatures = _signatures(header)
    if not signatures:
        raise BadSignature("no_v1_signature", f"The webhook's {SIGNATURE} has no {_VERSION} signature.")
    expected = [_mac(secret, message_id, seconds, body) for secret in secrets]
    # All of them are compared, whichever fits: how long it takes says nothing of which one or how nearly.
    fits = [hmac.compare_digest(one, other) for one in expected for other in signatures]
    if not any(fits):
        raise BadSignature(
            "no_match",
            "The webhook's signature does not fit: it was made with another secret, or the body was changed on its way.",
        )


def _signatures(header: str) -> list[bytes]:
    """The ``v1`` signatures of the header that can be read."""
    found = []
    for entry in header.split():
        version, _, text = entry.partition(",")
        if version == _VERSION and (signature := _decoded(text)):
            found.append(signature)
    return found


def _mac(secret: str, message_id: str, seconds: str, body: bytes) -> bytes:
    return hmac.digest(
        _key(secret), b"%s.%s.%s" % (message_id.encode(), seconds.encode(), body), hashlib.sha256
    )


def _key(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        raise UnusableSecret(f"A webhook's secret begins with {_PREFIX}; this one does not")
    text = secret.removeprefix(_PREFIX)
    key = _decoded(text + "=" * (-len(text) % 4))
    if key is None:
        raise UnusableSecret(f"What follows {_PREFIX} in the webhook's secret is not base64")
    if not SHORTEST_SECRET <= len(key) <= LONGEST_SECRET:
        raise UnusableSecret(
            f"The webhook's secret is {len(key)} bytes long, not {SHORTEST_SECRET} to {LONGEST_SECRET}"
        )
    return key


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _seconds(timestamp: datetime) -> str:
    if timestamp.tzinfo is None:
        raise ValueError("a time without a zone can't be signed")
    return str(int(timestamp.timestamp()))
