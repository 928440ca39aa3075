"""Identifiers: prefix + UUIDv7 for what happens once, a hash for effects.

Every id but an effect's is ``prefix_`` + 26 lower-case characters of Crockford base32 over a UUIDv7 (RFC 9562),
so sorting the text sorts by time. Ids of one process are strictly increasing; ids that different processes make
within one millisecond come in any order. 74 bits beside the millisecond are random or a randomly seeded counter,
so a clash needs two processes to draw the same 73 random bits in the same millisecond.

An effect's id is a hash of what the effect *is*, so that it comes out the same after a crash, a continuation or a
re-run of its node. It is 160 bits of SHA-256: with 2^40 (10^12) effects the chance of any clash is about 2^-81,
and the ledger's unique constraint would refuse the second one. Its 36 characters fit the shortest limit known for
an idempotency key (ECS ``ClientToken``, 36; Square, 45) and it holds nothing secret.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta

#: What each prefix of a time-sorted id stands for.
PREFIXES: dict[str, str] = {
    "conv": "conversation",
    "run": "run",
    "cp": "checkpoint",
    "cmd": "command",
    "apr": "approval",
    "evt": "event",
    "exe": "execution",
    "stp": "step",
    "rec": "recording",
    "rcv": "receiver",
    "msg": "message",
    "rev": "review",
    "obs": "observation",
    "wrk": "worker",
    "tok": "token",
    "grp": "group",
    "usr": "user",
    "ord": "order",
    "sto": "stop",
    "rcy": "recovery",
    "blk": "bulk Continue",
    "prb": "probe",
    "hook": "webhook source",
    "scan": "orphan scan",
    "wld": "would-have",
    "prm": "permit",
    "att": "attachment",
    "mig": "migration",
}
EFFECT_PREFIX = "eff"

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIMED_PATTERN = rf"(?:{'|'.join(PREFIXES)})_[0-7][{_ALPHABET}]{{25}}"
_EFFECT_PATTERN = rf"{EFFECT_PREFIX}_[0-9a-v]{{32}}"
#: The stored spelling of any id, without anchors: for URL converters, check constraints and ``re.fullmatch``.
ID_PATTERN = rf"(?:{_TIMED_PATTERN}|{_EFFECT_PATTERN})"

_STORED = re.compile(ID_PATTERN)
# Crockford: what a person may read or type for 1 and 0. U is not a digit and not an alias.
_LENIENT = str.maketrans({"i": "1", "l": "1", "o": "0"})

_COUNTER_BITS = 42
_TAIL_BITS = 32
_MAX_MILLISECONDS = 2**48 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Sequence:
    """The process's last id: millisecond and counter, moved under a lock.

    RFC 9562 section 6.2, method 1: the 42 bits after the time are a counter that is seeded at random in every new
    millisecond (top bit clear, so that it has room to count) and the last 32 bits are fresh in every id. A clock
    that steps back keeps the last millisecond and counts on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = -1
        self._counter = 0

    def next(self, now: int) -> tuple[int, int]:
        """(millisecond, counter), greater than every pair before."""
        with self._lock:
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, _random_bits(_COUNTER_BITS - 1)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._milliseconds += 1
                    self._counter = _random_bits(_COUNTER_BITS - 1)
            return self._milliseconds, self._counter


_sequence = _Sequence()


def _start_afresh() -> None:
    """A forked child has the parent's counter and perhaps a lock that nobody in it will ever release."""
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_start_afresh)


def new_id(kind: str, at: datetime | None = None) -> str:
    """A new id of this kind (a key of :data:`PREFIXES`), greater than every id this process made before.

    With ``at`` the id carries that time instead of now (imports, sample data) and stands outside the increasing
    sequence: two ids with the same ``at`` come in any order.

    Raises ValueError for an unknown kind, ``eff`` (see :func:`effect_id`), a naive ``at`` or one before 1970.
    """
    if kind not in PREFIXES:
        raise ValueError(f"no ids of kind {kind!r} are made here; known: {', '.join(PREFIXES)}")
    if at is None:
        milliseconds, counter = _sequence.next(time.time_ns() // 1_000_000)
    else:
        milliseconds, counter = _milliseconds_of(at), _random_bits(_COUNTER_BITS)
    return f"{kind}_{_crockford(_uuid7(milliseconds, counter, _random_bits(_TAIL_BITS)))}"


def time_of(identifier: str) -> datetime:
    """The UTC time, to the millisecond, that a time-sorted id carries. ValueError for anything else."""
    normal = normal_id(identifier)
    if normal is None or normal.startswith(f"{EFFECT_PREFIX}_"):
        raise ValueError("only ids that sort by time carry one")
    number = 0
    for character in normal.partition("_")[2]:
        number = number << 5 | _ALPHABET.index(character)
    return _EPOCH + timedelta(milliseconds=number >> 80)


def effect_id(*, workspace: str, run_id: str, position: str, effect_type: str, command_key: str) -> str:
    """The id of the effect that this command at this position of this run asks for.

    Depends on nothing but the five parts: no secret, no clock, no random bit. It is computed once, when the
    command row is made, and carried from then on: a migration of the state shifts positions.

    Raises ValueError when a part is empty or holds a lone surrogate.
    """
    parts = (workspace, run_id, position, effect_type, command_key)
    if not all(parts):
        raise ValueError("an effect id needs workspace, run, position, effect type and command key")
    return _effect_id("signalbox effect 1", *parts)


def successor_effect_id(original: str, number: int) -> str:
    """The id of the ``number``-th (from 1) effect that people send anew in the place of ``original``.

    Raises ValueError when ``original`` is not an effect id in its stored spelling or the number is below 1.
    """
    if re.fullmatch(_EFFECT_PATTERN, original) is None or number < 1:
        raise ValueError("a successor needs an effect id and a number from 1")
    return _effect_id("signalbox effect again 1", original, str(number))


def is_effect_id(text: str) -> bool:
    """Whether *text* is, to the letter, what an effect's id looks like. Says nothing about whether there is one."""
    return re.fullmatch(_EFFECT_PATTERN, text) is not None


def position_hash(position: str) -> str:
    """SHA-256 of a position as 64 hex digits: what recordings are matched and indexed by."""
    return hashlib.sha256(position.encode()).hexdigest()


def kind_of(text: str) -> str | None:
    """The prefix (``run``, ``eff`` …) when ``text`` is an id as a person may type it, else None.

    Says nothing about whether the thing exists. See :func:`normal_id` for what is forgiven.
    """
    normal = normal_id(text)
    return None if normal is None else normal.partition("_")[0]


def normal_id(text: str) -> str | None:
    """The stored spelling of an id as typed, or None when it is not an id.

    Forgives surrounding white space and upper case, and in time-sorted ids the letters I and L for 1 and O for 0
    (Crockford's rule). Effect ids use the letters I, L and O themselves.
    """
    prefix, _, body = text.strip().lower().partition("_")
    if prefix != EFFECT_PREFIX:
        body = body.translate(_LENIENT)
    normal = f"{prefix}_{body}"
    return normal if _STORED.fullmatch(normal) else None


def _effect_id(*parts: str) -> str:
    digest = hashlib.sha256(_length_prefixed(parts)).digest()
    return f"{EFFECT_PREFIX}_{base64.b32hexencode(digest[:20]).decode().lower()}"


def _length_prefixed(parts: tuple[str, ...]) -> bytes:
    """Bytes from which the parts can be read back: no two lists of parts give the same bytes."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def _uuid7(milliseconds: int, counter: int, tail: int) -> int:
    """48 bits time, 4 version, 12 counter, 2 variant, 30 counter, 32 random."""
    return (
        milliseconds << 80
        | 0x7 << 76
        | (counter >> 30) << 64
        | 0b10 << 62
        | (counter & 0x3FFF_FFFF) << _TAIL_BITS
        | tail
    )


def _crockford(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def _milliseconds_of(at: datetime) -> int:
    if at.utcoffset() is None:
        raise ValueError("the time of an id needs a time zone")
    milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= milliseconds <= _MAX_MILLISECONDS:
        raise ValueError("the time of an id lies outside what a UUIDv7 can hold")
    return milliseconds


def _random_bits(bits: int) -> int:
    return int.from_bytes(os.urandom((bits + 7) // 8), "big") & ((1 << bits) - 1)
