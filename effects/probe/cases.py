"""The cases of a probe: what each tries, in words, and what was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from effects.contracts import EffectContract
from effects.states import Dedup
from effects.wires import HttpWire

#: A key must still protect its effect this long after the killed sender's lease, or there is no time to repeat.
TO_REPEAT_S = 5.0


class Name(StrEnum):
    """The cases in the order in which they are shown; the value is what stands in the rows."""

    KILLED_AFTER_INTENT = "killed_after_intent"
    KILLED_AFTER_COMMIT = "killed_after_commit"
    TWO_WORKERS = "two_workers"
    CHANGED_INPUT = "changed_input"
    NEW_RUN = "new_run"
    LOOK_UP = "look_up"
    SECOND_CREATE = "second_create"


TITLES = {
    Name.KILLED_AFTER_INTENT: "Killed after the intent is saved, before it is sent",
    Name.KILLED_AFTER_COMMIT: "Killed after the receiver's commit, before the answer is saved",
    Name.TWO_WORKERS: "Two workers at once on one intent",
    Name.CHANGED_INPUT: "Changed input under the same id",
    Name.NEW_RUN: "The same input in a new run",
    Name.LOOK_UP: "The receiver is asked by id",
    Name.SECOND_CREATE: "A second create with the same external id",
}


class Recovery(StrEnum):
    """What settles an effect whose sender was killed with the answer in its hands."""

    REPEAT = "repeat"
    LOOK = "look"
    REVIEW = "review"


@dataclass(frozen=True)
class Case:
    """One case and its verdict. *seen* is what the probe saw, in words."""

    name: Name
    expected: str
    seen: str
    passed: bool

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def stored(self) -> dict[str, Any]:
        return {**asdict(self), "name": self.name.value, "title": self.title}


def has_look_up(promise: EffectContract) -> bool:
    return isinstance(promise.wire, HttpWire) and promise.wire.look_up is not None


def recovery_of(promise: EffectContract) -> Recovery:
    """By the contract's dedup: the same key again in its window, a look-up, or else a person."""
    window = promise.key_window.total_seconds()
    if promise.dedup == Dedup.KEY and window > promise.lease + TO_REPEAT_S:
        return Recovery.REPEAT
    if promise.dedup != Dedup.NONE and has_look_up(promise):
        return Recovery.LOOK
    return Recovery.REVIEW


def cases_of(promise: EffectContract) -> list[Name]:
    """Those that say something about this contract."""
    left_out = set()
    if not has_look_up(promise):
        left_out.add(Name.LOOK_UP)
    if promise.dedup != Dedup.NATURAL:
        left_out.add(Name.SECOND_CREATE)
    return [name for name in Name if name not in left_out]


def expected(name: Name, promise: EffectContract) -> str:
    """What must be seen, in words."""
    after_commit = {
        Recovery.REPEAT: "the same key again gives the result that exists: one object",
        Recovery.LOOK: "a look-up finds it, nothing is sent again: one object",
        Recovery.REVIEW: "a review, and no second attempt",
    }
    changed = "refused by the ledger"
    if promise.dedup == Dedup.KEY:
        changed += ", and by the receiver under the same key, which makes nothing"
    return {
        Name.KILLED_AFTER_INTENT: "the same intent is delivered once: one object",
        Name.KILLED_AFTER_COMMIT: after_commit[recovery_of(promise)],
        Name.TWO_WORKERS: "one attempt, one object, the same result for both",
        Name.CHANGED_INPUT: changed,
        Name.NEW_RUN: "another id, another key, another object",
        Name.LOOK_UP: f"found by exactly its id within {promise.settle:g} s, and not by an id that never was",
        Name.SECOND_CREATE: "refused, and what exists stays as it is",
    }[name]
