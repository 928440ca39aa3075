"""Everything that an effect's pages show, from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from effects.models import Approval, Effect, EffectAttempt, EffectRevision, Observation
from effects.selectors import PROBE_RUN, unprobed
from effects.states import Dedup, EffectStatus, Outcome
from effects.views.payload import Sheet, readable, sheet
from effects.views.telling import dedup_method, key_window, learned_by, promise_of, risk, standing


@dataclass(frozen=True)
class Revision:
    """One version of the payload, and what it changed against the one before."""

    row: EffectRevision
    changes: list[dict[str, Any]]


@dataclass(frozen=True)
class Learned:
    """What the receiver said last, and when."""

    sentence: str
    at: datetime


@dataclass(frozen=True)
class Seen:
    """One observation, and how it came about."""

    row: Observation
    by: str


def record_of(effect: Effect) -> dict[str, Any]:
    """What is known of it. Payloads are the masked ones that were stored beside the sealed ones."""
    promise = promise_of(effect.effect_type)
    revisions = list(effect.revisions.select_related("by").order_by("-n"))
    attempts = list(effect.attempts.order_by("n"))
    observations = list(effect.observations.order_by("at", "id"))
    reviews = list(effect.reviews.order_by("opened_at"))
    in_review = any(review.closed_at is None for review in reviews)
    key = key_window(effect, timezone.now())
    unproven = _unprobed(effect)
    return {
        "effect": effect,
        "command": effect.command,
        "promise": promise,
        "title": promise.title if promise else effect.effect_type,
        "drifted": promise is not None and promise.version != effect.contract_version,
        "standing": standing(effect, may_repeat=key.state == "open" and not unproven, in_review=in_review),
        "risk": risk(effect),
        "dedup": dedup_method(effect),
        "key": key,
        "of_probe": effect.run_id.startswith(PROBE_RUN),
        "unprobed": unproven,
        "revisions": _revisions(revisions),
        "sheet": _current(effect, revisions),
        "attempts": attempts,
        "last_attempt": attempts[-1] if attempts else None,
        "observations": [Seen(row, learned_by(row.kind)) for row in observations],
        "last_answer": last_answer(attempts, observations),
        "reviews": reviews,
        "in_review": in_review,
        "approvals": _approvals(effect),
    }


def _unprobed(effect: Effect) -> str:
    """Why it is not sent a second time by itself, where its dedup would let it and nothing else has settled it."""
    repeats = effect.dedup in (Dedup.KEY, Dedup.NATURAL) and effect.status == EffectStatus.PENDING
    return unprobed(effect) if repeats else ""


def _current(effect: Effect, revisions: list[EffectRevision]) -> Sheet | None:
    current = next((row for row in revisions if row.n == effect.revision), None)
    promise = promise_of(effect.effect_type)
    return sheet(current.shown, promise.schema if promise else None) if current else None


def _revisions(newest_first: list[EffectRevision]) -> list[Revision]:
    before = {row.n + 1: row for row in newest_first}
    return [
        Revision(row, _changes(before[row.n].shown, row.shown) if row.n in before else [])
        for row in newest_first
    ]


def _changes(before: Any, after: Any) -> list[dict[str, Any]]:
    """Field by field, of masked payloads. A protected field that changed is told by its hash alone, so not here."""
    old, new = readable(before), readable(after)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    names = dict.fromkeys((*old, *new))
    return [
        {"path": name, "before": old.get(name, ""), "after": new.get(name, ""), "kind": _kind(name, old, new)}
        for name in names
        if old.get(name) != new.get(name)
    ]


def _kind(name: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    return "added" if name not in old else "removed" if name not in new else "changed"


def last_answer(attempts: list[EffectAttempt], observations: list[Observation]) -> Learned | None:
    """The newest thing the receiver said, in an answer or when it was asked; None where it never said anything."""
    said = [Learned(row.sentence, row.at) for row in observations]
    said += [
        Learned(_answered(row), row.ended_at)
        for row in attempts
        if row.ended_at is not None and row.outcome not in (Outcome.NOT_SENT, Outcome.UNKNOWN)
    ]
    return max(said, key=lambda one: one.at, default=None)


def _answered(attempt: EffectAttempt) -> str:
    said = attempt.problem
    told = not attempt.answer_status or said.startswith(attempt.answer_status)
    status = "" if told else f" ({attempt.answer_status})"
    return f"{attempt.get_outcome_display()}{status}" + (f": {said}" if said else "")


def _approvals(effect: Effect) -> list[Approval]:
    return list(effect.approvals.prefetch_related("decisions__by").order_by("created_at", "id"))
