"""What the receiver itself says of an effect: how many objects bear its id, and whether other ids find any."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import cast

from console.kernel.ids import successor_effect_id
from effects import receivers
from effects.contracts import EffectContract, Payload
from effects.models import Effect
from effects.receivers import Finding
from effects.selectors import payload_of, request_of, revision_of

#: Between two looks, in seconds.
LOOK_EVERY_S = 0.2
#: What a look-up says of a command that the receiver has: there, or being carried out.
THERE = ("found", "under_way")


def look(promise: EffectContract, effect: Effect, *, key: str = "") -> Finding:
    """One look-up, by another *key* than the effect's where one is given. Nothing is written."""
    revision = revision_of(effect)
    if not key:
        return receivers.look_up(promise, effect, revision, request_of(effect, revision))
    asked = copy.copy(effect)
    asked.key = key
    # Of the request too: the address that is asked may be the one that it was sent to.
    request = promise.wire.render(cast(Payload, payload_of(effect, revision)), key=key)
    return receivers.look_up(promise, asked, revision, request)


def found_in_time(promise: EffectContract, effect: Effect, since: float) -> tuple[Finding, float]:
    """Look until it is found, or until the contract's settle time is over; and how long after *since* that look began.

    *since*: on the monotonic clock, when it was sent at the latest. A look that begins after the settle time has to
    find it, the last of as many as the contract says prove absence.
    """
    late = 0
    while True:
        began = time.monotonic() - since
        finding = look(promise, effect)
        late += began >= promise.settle
        if finding.found in (*THERE, "several", "mismatch") or late >= promise.looks:
            return finding, began
        time.sleep(LOOK_EVERY_S)


def settled_finding(promise: EffectContract, effect: Effect) -> Finding:
    """The same, of an effect whose settle time is over: whatever there is is seen now."""
    for _ in range(promise.looks):
        finding = look(promise, effect)
        if finding.found != "absent":
            break
    return finding


def found_by_other_ids(promise: EffectContract, effect: Effect) -> Iterator[str]:
    """In words, what the receiver says that it has under ids that never were. None where it tells ids apart exactly.

    One is a whole id of its own; the others are parts of the effect's, which a search by prefix or substring finds.
    """
    never = look(promise, effect, key=successor_effect_id(effect.id, 1))
    if never.found != "absent":
        yield f"an id that never was: {never.sentence}"
    for part in (effect.key[:-1], effect.key[1:]):
        finding = look(promise, effect, key=part)
        if finding.found in (*THERE, "several", "mismatch"):
            yield f"a part of its id: {finding.sentence}"
            return


def differ(effect: Effect, one: str, other: str) -> bool:
    """Whether two references are two objects'. Where the receiver names none, the effect's key stands in its place."""
    return one != other and not {one, other} & {"", effect.key}
