"""Preview: what the receiver has now, field by field against what would be sent. Only looks; nothing is written anywhere.

A14 of the points on approvals. It is asked for by a POST of its own, since no GET calls anybody outside, and in no
transaction. It never stands in the way of a decision: where it can't be shown, it says so in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.utils import timezone

from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable
from console.kernel.masking import is_masked, mask
from console.kernel.words import MASKED
from effects import receivers
from effects.contracts import EffectContract, UnknownType, contract
from effects.models import Effect, EffectRevision
from effects.selectors import payload_of, request_of, revision_of
from effects.wires import HttpWire

#: A difference is shown up to so many fields, and so much of each value.
MOST_FIELDS = 200
LONGEST_VALUE = 300


@dataclass(frozen=True)
class Field:
    """One field as the difference table shows it. *kind*: same, changed, added, or removed."""

    path: str
    before: str
    after: str
    kind: str


@dataclass(frozen=True)
class Preview:
    """What *receiver* had at *at*, against what would be sent. *problem* says why that can't be shown; empty: it can.

    *absent*: it has nothing there yet. *more*: how many fields are not shown.
    """

    receiver: str
    at: datetime
    problem: str = ""
    absent: bool = False
    fields: tuple[Field, ...] = ()
    more: int = 0

    @property
    def has_masks(self) -> bool:
        return any(MASKED in (field.before, field.after) for field in self.fields)

    @property
    def characters(self) -> str:
        """Every text in it, for the warning about hidden characters."""
        return "\n".join(text for field in self.fields for text in (field.path, field.before, field.after))


def has_preview(effect_type: str) -> bool:
    """Whether the type's contract says how to look at what there is now."""
    try:
        return contract(effect_type).preview is not None
    except UnknownType:
        return False


def preview_of(effect: Effect, *, revision: int | None = None, whole: bool = False) -> Preview:
    """Ask the effect's receiver what it has now, and compare. Never raises for what the network or the receiver does.

    *whole*: with protected values, for who may see the whole payload and whose reading is recorded. Call it outside
    any transaction: it waits for the receiver, for receivers.PREVIEW_WITHIN seconds at most.
    """
    name = effect.receiver.name
    try:
        promise = contract(effect.effect_type)
        row = revision_of(effect, revision)
        payload = cast(Mapping[str, JSONValue], payload_of(effect, row))
        problem, current = _current(effect, promise, row, payload)
    except UnknownType as unknown:
        problem, current = unknown.message, None
    except Undecryptable:
        problem, current = "Its stored payload does not open with the keys of this deployment.", None
    now = timezone.now()
    if problem:
        return Preview(name, now, problem)
    fields = tuple(_compared(promise, payload, current, whole=whole))
    return Preview(name, now, "", current is None, fields[:MOST_FIELDS], max(0, len(fields) - MOST_FIELDS))


def _current(
    effect: Effect, promise: EffectContract, row: EffectRevision, payload: Mapping[str, JSONValue]
) -> tuple[str, Mapping[str, JSONValue] | None]:
    """Why it can't be known, or what is there; None where nothing is."""
    if promise.preview is None:
        return "This type has no preview.", None
    if effect.account != effect.receiver.account:
        return f"The account at {effect.receiver.name} has changed since this was asked for.", None
    there = receivers.preview(promise, effect, payload, request_of(effect, row))
    if there.found == "unclear":
        return there.sentence, None
    return "", there.body if there.found == "found" else None


def _compared(
    promise: EffectContract,
    payload: Mapping[str, JSONValue],
    current: Mapping[str, JSONValue] | None,
    *,
    whole: bool,
) -> Iterator[Field]:
    """Each field that is sent; and, where the sending replaces all of it, each that would be gone."""
    wire, asked = promise.wire, promise.preview
    assert isinstance(wire, HttpWire)
    assert asked is not None
    sent = wire.sent_of(payload)
    before = asked.as_sent(sent, current or {})
    masks = () if whole else promise.mask
    shown_before, shown_after = _masked(before, masks), _masked(sent, masks)
    for name in sent:
        yield from _differences(
            name,
            (before.get(name), shown_before.get(name), name in before),
            (sent[name], shown_after.get(name), True),
        )
    for name in asked.would_go(sent, current or {}):
        # What the contract does not know it can't protect: such a value is for those alone who may see everything.
        known = whole or name in promise.schema.get("properties", {})
        value = _masked({name: (current or {})[name]}, masks)[name] if known else None
        yield Field(name, _text(value) if known else MASKED, "", "removed")


def _masked(values: Mapping[str, JSONValue], masks: tuple[str, ...]) -> dict[str, Any]:
    shown = mask(dict(values), masks)
    return dict(shown) if isinstance(shown, dict) else {}


#: A value, the copy of it that this person may see, and whether there is one at all.
_Side = tuple[Any, Any, bool]


def _differences(path: str, before: _Side, after: _Side) -> Iterator[Field]:
    """Objects field by field; everything else as a whole. What is compared is the value, what is shown its copy."""
    (old, old_shown, was), (new, new_shown, _) = before, after
    nested = isinstance(old, Mapping) and isinstance(new, Mapping) and not is_masked(new_shown)
    if nested and not is_masked(old_shown):
        for name in new:
            yield from _differences(
                f"{path}.{name}",
                (old.get(name), old_shown.get(name), name in old),
                (new[name], new_shown.get(name), True),
            )
    elif not was:
        yield Field(path, "", _text(new_shown), "added")
    else:
        same = old == new and isinstance(old, bool) == isinstance(new, bool)
        yield Field(path, _text(old_shown), _text(new_shown), "same" if same else "changed")


def _text(shown: Any) -> str:
    if is_masked(shown):
        return MASKED
    text = shown if isinstance(shown, str) else json.dumps(_readable(shown), ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _readable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MASKED if is_masked(value) else {name: _readable(one) for name, one in value.items()}
    return [_readable(one) for one in value] if isinstance(value, list) else value
