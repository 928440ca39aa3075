"""Everything that one effect's page shows, from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from effects.models import Approval, Effect, EffectAttempt, EffectRevision, Observation
from effects.states import Dedup, Outcome
from effects.views.payload import Sheet, readable, sheet
from effects.views.telling import dedup_method, promise_of, risk, standing


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


def record_of(effect: Effect) -> dict[str, Any]:
    """The page's context. Payloads are the masked ones that were stored beside the sealed ones."""
    promise = promise_of(effect.effect_type)
    revisions = list(effect.revisions.select_related("by").order_by("-n"))
    attempts = list(effect.attempts.order_by("n"))
    observations = list(effect.observations.order_by("at", "id"))
    return {
        "effect": effect,
        "command": effect.command,
        "promise": promise,
        "title": promise.title if promise else effect.effect_type,
        "drifted": promise is not None and promise.version != effect.contract_version,
        "standing": standing(effect),
        "risk": risk(effect),
        "dedup": dedup_method(effect),
        "key_open": effect.key_until is not None and effect.key_until > timezone.now(),
        "has_key": effect.dedup == Dedup.KEY,
        "revisions": _revisions(revisions),
        "sheet": _current(effect, revisions),
        "attempts": attempts,
        "observations": observations,
        "last_answer": last_answer(attempts, observations),
        "reviews": list(effect.reviews.order_by("opened_at")),
        "approvals": _approvals(effect),
    }


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
    status = f" ({attempt.answer_status})" if attempt.answer_status else ""
    return f"{attempt.get_outcome_display()}{status}" + (f": {attempt.problem}" if attempt.problem else "")


def _approvals(effect: Effect) -> list[Approval]:
    return list(effect.approvals.prefetch_related("decisions__by").order_by("created_at", "id"))
