"""The tables of docs/commands.md: who may give each command, and where a run has to stand for it.

Every run that the database would hold is put to runs.availability, and the answers that are the same are told in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

from django.utils import timezone

from console.access import Actor
from console.models import User, Workspace
from console.models.roles import HOLDERS, Role
from runs.availability import LONG_QUEUED, NEEDS, OperatorCommand, availability
from runs.models import Run
from runs.states import FINAL, Failure, RunKind, RunMode, RunStatus

GO = "go"
ANY = "any"

#: The kinds and modes that go together: the constraints of runs.models.Run.
KINDS: tuple[tuple[RunKind, RunMode], ...] = (
    (RunKind.ORIGINAL, RunMode.LIVE),
    (RunKind.REPLAY, RunMode.LIVE),
    (RunKind.REPLAY, RunMode.SIMULATION),
    (RunKind.REPLAY, RunMode.EVIDENCE),
    (RunKind.BRANCH, RunMode.LIVE),
    (RunKind.BRANCH, RunMode.SIMULATION),
)
FLAGS: dict[str, dict[str, bool]] = {
    "no flag": {},
    "pausing": {"pause_requested": True},
    "cancelling": {"cancel_requested": True},
    "pausing and cancelling": {"pause_requested": True, "cancel_requested": True},
}
RECORDINGS = {"kept": False, "removed": True}


@dataclass(frozen=True)
class Standing:
    """Where a run stands: its status, and what else of it an answer depends on."""

    words: str
    status: RunStatus
    failure: str = ""
    failed_on_answer: bool = False
    queued_for: timedelta = timedelta()
    lease: timedelta | None = None


_LEASE = timedelta(hours=1)
STANDINGS: tuple[Standing, ...] = (
    Standing(f"`queued` for at most {LONG_QUEUED.seconds} s", RunStatus.QUEUED),
    Standing(
        f"`queued` for more than {LONG_QUEUED.seconds} s", RunStatus.QUEUED, queued_for=LONG_QUEUED + _LEASE
    ),
    Standing("`running`, its worker alive", RunStatus.RUNNING, lease=_LEASE),
    Standing("`running`, its worker lost", RunStatus.RUNNING, lease=-_LEASE),
    Standing("`waiting_approval`", RunStatus.WAITING_APPROVAL),
    Standing("`waiting_effect`", RunStatus.WAITING_EFFECT),
    Standing("`paused`", RunStatus.PAUSED),
    Standing("`failed` on an answer", RunStatus.FAILED, Failure.NODE_ERROR, failed_on_answer=True),
    Standing("`failed` for `obligation_dropped`", RunStatus.FAILED, Failure.OBLIGATION_DROPPED),
    Standing("`failed` for another reason", RunStatus.FAILED, Failure.NODE_ERROR),
    Standing("`diverged`", RunStatus.DIVERGED),
    Standing("`completed`", RunStatus.COMPLETED),
    Standing("`cancelled`", RunStatus.CANCELLED),
)


def _family(of: RunStatus) -> frozenset[str]:
    return frozenset(one.words for one in STANDINGS if one.status == of)


def _kind_and_mode(kind: RunKind, mode: RunMode) -> str:
    return f"{kind.label.lower()}, {mode.label.lower()}"


#: Several that are said in one word, the larger first.
FAMILIES: dict[str, frozenset[str]] = {
    "not final": frozenset(one.words for one in STANDINGS if one.status not in FINAL),
    **{f"`{status}`": _family(status) for status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.FAILED)},
    **{
        f"any, {mode.label.lower()}": frozenset(
            _kind_and_mode(kind, its) for kind, its in KINDS if its == mode
        )
        for mode in (RunMode.LIVE, RunMode.SIMULATION)
    },
}
#: Only evidence diverges: elsewhere "any status" says nothing of it.
ONLY_EVIDENCE = _family(RunStatus.DIVERGED)

#: One row before it is put together with others: the run's standing, flag, kind and mode, and its recordings.
Cell = tuple[str, str, str, str]
Box = tuple[frozenset[str], ...]


def command_sections(table: Callable[[Sequence[str], Iterable[Sequence[str]]], str]) -> Iterable[str]:
    yield "## Who may"
    yield table(
        ("command", *(str(role.label) for role in Role)),
        (
            (str(one.label), *("yes" if role in HOLDERS[NEEDS[one]] else "" for role in Role))
            for one in OperatorCommand
        ),
    )
    answers = dict(every_answer())
    dimensions = [list(dict.fromkeys(cell[place] for cell in answers)) for place in range(4)]
    for command in OperatorCommand:
        boxes = _together({cell: offers[command] for cell, offers in answers.items()})
        yield f"## {command.label}"
        yield table(
            ("status", "flag", "kind and mode", "recordings", "answer"),
            ((*_row(box, dimensions), reason) for box, reason in _in_order(boxes, dimensions)),
        )


def every_answer() -> Iterable[tuple[Cell, dict[OperatorCommand, str]]]:
    """What each command answers to somebody who holds every role, for every run that the database would hold."""
    everybody = Actor(User(name="Everybody"), Workspace(id="acme", name="Acme"), frozenset(Role))
    for stands, (flag, flags), (kind, mode), (kept, removed) in product(
        STANDINGS, FLAGS.items(), KINDS, RECORDINGS.items()
    ):
        if stands.status == RunStatus.DIVERGED and mode != RunMode.EVIDENCE:
            continue
        run = run_that(stands, kind=kind, mode=mode, removed=removed, **flags)
        offers = availability(run, everybody, alive=())
        yield (
            (stands.words, flag, _kind_and_mode(kind, mode), kept),
            {command: offers[command].reason or GO for command in OperatorCommand},
        )


def run_that(stands: Standing, *, removed: bool, **fields: Any) -> Run:
    """A run, of no database, that stands so."""
    now = timezone.now()
    return Run(
        status=stands.status,
        status_since=now - stands.queued_for,
        lease_until=now + stands.lease if stands.lease else None,
        failure=stands.failure,
        failed_on_answer=stands.failed_on_answer,
        ended_at=now if stands.status in FINAL else None,
        recordings_removed_at=now if removed else None,
        **fields,
    )


def _together(reasons: dict[Cell, str]) -> dict[Box, str]:
    """Rows that say the same and differ in one place alone are one row, place after place."""
    boxes: dict[Box, str] = {tuple(frozenset([one]) for one in cell): said for cell, said in reasons.items()}
    for place in (3, 1, 2, 0):
        merged: dict[tuple[Box, str], frozenset[str]] = {}
        for box, reason in boxes.items():
            others = (*box[:place], *box[place + 1 :])
            key = (others, reason)
            merged[key] = merged.get(key, frozenset()) | box[place]
        boxes = {
            (*others[:place], together, *others[place:]): reason
            for (others, reason), together in merged.items()
        }
    return boxes


def _in_order(boxes: dict[Box, str], dimensions: list[list[str]]) -> list[tuple[Box, str]]:
    """What is offered first; then as the statuses, flags and kinds are named."""

    def key(item: tuple[Box, str]) -> tuple[bool, list[list[int]]]:
        box, reason = item
        return reason != GO, [
            sorted(dimensions[place].index(one) for one in ones) for place, ones in enumerate(box)
        ]

    return sorted(boxes.items(), key=key)


def _row(box: Box, dimensions: list[list[str]]) -> Iterable[str]:
    evidence = {_kind_and_mode(kind, mode) for kind, mode in KINDS if mode == RunMode.EVIDENCE}
    for place, ones in enumerate(box):
        impossible = ONLY_EVIDENCE if place == 0 and not box[2] & evidence else frozenset()
        yield _said(ones, dimensions[place], but=impossible)


def _said(ones: frozenset[str], all_of_them: list[str], *, but: frozenset[str] = frozenset()) -> str:
    if ones | but >= set(all_of_them):
        return ANY
    words = {one: one for one in all_of_them}
    for name, members in FAMILIES.items():
        if members <= ones:
            words |= dict.fromkeys(members & {one for one in words if words[one] == one}, name)
    return "; ".join(dict.fromkeys(words[one] for one in all_of_them if one in ones))
