"""Sealing of protected payloads, and the digests and tokens that stand beside them.

A sealed value is bound to its workspace and its owner (the effect, recording or row it belongs to): copied into
another workspace or row it does not open. Format, all of it authenticated:

    1 byte   version (1)
    1 byte   length of the key id, then the key id in ASCII
    12 bytes nonce, random
    n bytes  ciphertext with the 16-byte tag (AES-256-GCM)

``settings.SIGNALBOX_KEYS`` maps key ids to keys of 32 bytes; the first one seals, all of them open. To rotate, put
a new key in front, seal again what :func:`needs_resealing` says, then take the old key away. A key seals at most
2^32 values (NIST SP 800-38D, random nonces): rotate long before.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from console.kernel.canonical import JSONValue

TOKEN_PREFIX = "sbx_"  # noqa: S105 - the public mark by which leaked tokens are found, not a secret

_VERSION = 1
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32


class Undecryptable(Exception):
    """A sealed value does not open: unknown or wrong key, another workspace or owner, or changed bytes.

    Carries ``key_id`` (None when even that cannot be read) and nothing of the content. Which of the causes it was
    cannot be told: that is what authenticated encryption promises.
    """

    def __init__(self, problem: str, *, key_id: str | None = None) -> None:
        super().__init__(problem)
        self.key_id = key_id


def seal(plain: bytes, *, workspace: str, owner: str) -> bytes:
    """Encrypts for this workspace and owner under the first key. Twice the same input gives different bytes.

    Raises ValueError for an empty workspace or owner, ImproperlyConfigured when the keys are missing or malformed.
    """
    key_id = current_key_id()
    header = _header(key_id)
    nonce = os.urandom(_NONCE_BYTES)
    cipher = AESGCM(_keys()[key_id])
    return header + nonce + cipher.encrypt(nonce, plain, _associated(header, workspace, owner))


def unseal(sealed: bytes | memoryview, *, workspace: str, owner: str) -> bytes:
    """The bytes that were sealed for exactly this workspace and owner. Raises :class:`Undecryptable`."""
    header, nonce, ciphertext = _split(bytes(sealed))
    key_id = header[2:].decode("ascii")
    key = _keys().get(key_id)
    if key is None:
        raise Undecryptable(
            f"the value is sealed with key {key_id!r}, which is not configured", key_id=key_id
        )
    try:
        return AESGCM(key).decrypt(nonce, ciphertext, _associated(header, workspace, owner))
    except InvalidTag:
        raise Undecryptable(
            f"the value, sealed with key {key_id!r}, does not open: another key, workspace or owner, or changed bytes",
            key_id=key_id,
        ) from None


def seal_json(value: JSONValue, *, workspace: str, owner: str) -> bytes:
    """Seals a JSON value as it is: no normal form, text and key order kept. NaN and other types raise."""
    return seal(
        json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii"),
        workspace=workspace,
        owner=owner,
    )


def unseal_json(sealed: bytes | memoryview, *, workspace: str, owner: str) -> JSONValue:
    """The value given to :func:`seal_json`. Raises :class:`Undecryptable`."""
    value: JSONValue = json.loads(unseal(sealed, workspace=workspace, owner=owner))
    return value


def key_id_of(sealed: bytes | memoryview) -> str:
    """The id of the key a value is sealed with, read without opening it (so: not yet authenticated)."""
    return _split(bytes(sealed))[0][2:].decode("ascii")


def current_key_id() -> str:
    """The id of the key that seals now."""
    return next(iter(_keys()))


def needs_resealing(sealed: bytes | memoryview) -> bool:
    """Whether the value is sealed with another key than the one that seals now."""
    return key_id_of(sealed) != current_key_id()


def digest(value: bytes | str) -> str:
    """SHA-256 as 64 hex digits; text as UTF-8. For content addresses, not for guessable secrets."""
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def new_token() -> str:
    """A new API token: 128 random bits behind a prefix that secret scanners can look for. Shown once."""
    return TOKEN_PREFIX + secrets.token_urlsafe(16)


def hash_token(token: str) -> str:
    """What is stored and looked up in the token's place.

    A plain SHA-256 is enough because a token has 128 random bits: there is nothing to guess offline.
    """
    return digest(token)


def _keys() -> dict[str, bytes]:
    keys: dict[str, bytes] = settings.SIGNALBOX_KEYS
    if not keys:
        raise ImproperlyConfigured("SIGNALBOX_KEYS holds no key")
    for key_id, key in keys.items():
        if not (key_id.isascii() and key_id.isprintable() and 1 <= len(key_id) <= 255):
            raise ImproperlyConfigured(
                "a key id in SIGNALBOX_KEYS is not 1 to 255 printable ASCII characters"
            )
        if len(key) != _KEY_BYTES:
            raise ImproperlyConfigured(f"key {key_id!r} in SIGNALBOX_KEYS has not {_KEY_BYTES} bytes")
    return keys


def _header(key_id: str) -> bytes:
    return bytes((_VERSION, len(key_id))) + key_id.encode("ascii")


def _split(sealed: bytes) -> tuple[bytes, bytes, bytes]:
    """(header, nonce, ciphertext); Undecryptable when the bytes cannot be a sealed value."""
    end = 2 + sealed[1] if len(sealed) > 1 else 0
    well_formed = end > 2 and sealed[0] == _VERSION and sealed[2:end].isascii()
    if not well_formed or len(sealed) < end + _NONCE_BYTES + _TAG_BYTES:
        raise Undecryptable("the bytes are not a sealed value of a version known here")
    return sealed[:end], sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]


def _associated(header: bytes, workspace: str, owner: str) -> bytes:
    """Length-prefixed, so that no other pair of workspace and owner gives the same bytes."""
    if not workspace or not owner:
        raise ValueError("a sealed value belongs to a workspace and an owner")
    parts = (header, workspace.encode(), owner.encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
