"""Every run that the database would hold, every role and every command, against the tables of docs/commands.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import product

from django.utils import timezone

from console.access import Actor
from console.models import User, Workspace
from console.models.roles import Role
from runs.availability import OperatorCommand, availability
from runs.models import Run
from runs.states import FINAL, Failure, RunKind, RunMode, RunStatus
from tests.plugin import ROOT

ROLES_HELD = [frozenset([role]) for role in Role]
SECONDS = (0, 29, 31, 86_400)
LIVE_KINDS = {(kind, RunMode.LIVE) for kind in RunKind}
SIMULATIONS = {(RunKind.REPLAY, RunMode.SIMULATION), (RunKind.BRANCH, RunMode.SIMULATION)}
EVIDENCE = {(RunKind.REPLAY, RunMode.EVIDENCE)}


@dataclass(frozen=True)
class Case:
    """One run, in the columns that an answer may depend on."""

    status: RunStatus
    pausing: bool
    cancelling: bool
    kind: RunKind
    mode: RunMode
    failure: str = ""
    on_answer: bool = False
    queued_for: int = 0
    lost: bool = False
    removed: bool = False

    @property
    def run(self) -> Run:
        now = timezone.now()
        running = self.status == RunStatus.RUNNING
        return Run(
            status=self.status,
            status_since=now - timedelta(seconds=self.queued_for),
            pause_requested=self.pausing,
            cancel_requested=self.cancelling,
            kind=self.kind,
            mode=self.mode,
            failure=self.failure,
            failed_on_answer=self.on_answer,
            lease_until=now + timedelta(seconds=-1 if self.lost else 30) if running else None,
            recordings_removed_at=now if self.removed else None,
            ended_at=now if self.status in FINAL else None,
        )


def cases() -> Iterator[Case]:
    """What the constraints of runs.models.Run let in, by every value of every column that availability reads."""
    kinds = sorted(LIVE_KINDS | SIMULATIONS | EVIDENCE)
    for status, pausing, cancelling, (kind, mode), removed in product(
        RunStatus, (False, True), (False, True), kinds, (False, True)
    ):
        if status == RunStatus.DIVERGED and mode != RunMode.EVIDENCE:
            continue
        case = Case(status, pausing, cancelling, kind, mode, removed=removed)
        if status == RunStatus.FAILED:
            for failure in Failure:
                yield Case(status, pausing, cancelling, kind, mode, failure, removed=removed)
            yield Case(
                status, pausing, cancelling, kind, mode, Failure.NODE_ERROR, on_answer=True, removed=removed
            )
        elif status == RunStatus.QUEUED:
            for seconds in SECONDS:
                yield Case(status, pausing, cancelling, kind, mode, queued_for=seconds, removed=removed)
        elif status == RunStatus.RUNNING:
            yield case
            yield Case(status, pausing, cancelling, kind, mode, lost=True, removed=removed)
        else:
            yield case


# --- the page, read as a person reads it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    status: str
    flag: str
    kind_and_mode: str
    recordings: str
    answer: str

    def covers(self, case: Case) -> bool:
        return (
            any(_status_is(words, case) for words in self.status.split("; "))
            and any(_flag_is(words, case) for words in self.flag.split("; "))
            and any(_kind_is(words, case) for words in self.kind_and_mode.split("; "))
            and self.recordings in ("any", "removed" if case.removed else "kept")
        )


def _status_is(words: str, case: Case) -> bool:
    if words in ("any", f"`{case.status}`"):
        return True
    return {
        "not final": case.status not in FINAL,
        "`queued` for at most 30 s": case.status == RunStatus.QUEUED and case.queued_for <= 30,
        "`queued` for more than 30 s": case.status == RunStatus.QUEUED and case.queued_for > 30,
        "`running`, its worker alive": case.status == RunStatus.RUNNING and not case.lost,
        "`running`, its worker lost": case.status == RunStatus.RUNNING and case.lost,
        "`failed` on an answer": case.on_answer,
        "`failed` for `obligation_dropped`": case.failure == Failure.OBLIGATION_DROPPED,
        "`failed` for another reason": case.status == RunStatus.FAILED
        and not case.on_answer
        and case.failure != Failure.OBLIGATION_DROPPED,
        **{f"`{status}`": False for status in RunStatus},
    }[words]


def _flag_is(words: str, case: Case) -> bool:
    return {
        "any": True,
        "no flag": not case.pausing and not case.cancelling,
        "pausing": case.pausing and not case.cancelling,
        "cancelling": case.cancelling and not case.pausing,
        "pausing and cancelling": case.pausing and case.cancelling,
    }[words]


def _kind_is(words: str, case: Case) -> bool:
    if words == "any":
        return True
    kind, mode = words.split(", ")
    return kind in ("any", case.kind) and mode == case.mode


@cache
def page() -> dict[str, list[list[str]]]:
    """The rows of each table of the page, under its heading."""
    tables: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / "commands.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
            tables[heading] = []
        elif line.startswith("|") and not re.fullmatch(r"[|-]+", line):
            tables[heading].append([cell.strip() for cell in line.strip("|").split("|")])
    return {name: rows[1:] for name, rows in tables.items()}


def may(command: OperatorCommand, role: Role) -> bool:
    row = next(cells for cells in page()["Who may"] if cells[0] == command.label)
    return row[1 + list(Role).index(role)] == "yes"


def rows_for(command: OperatorCommand) -> list[Row]:
    return [Row(*cells) for cells in page()[command.label]]


# --- the tests ------------------------------------------------------------------------------------------------------


def test_every_answer_stands_in_the_page_exactly_once() -> None:
    tables = {command: rows_for(command) for command in OperatorCommand}
    actors = [(role, Actor(User(), Workspace(id="acme", name="Acme"), frozenset([role]))) for role in Role]
    answers = 0
    for case in cases():
        said = {}
        for command, rows in tables.items():
            fits = [row.answer for row in rows if row.covers(case)]
            assert len(fits) == 1, (command, case, fits)
            [said[command]] = fits
        run = case.run
        for role, actor in actors:
            offers = availability(run, actor, alive=())
            for command in OperatorCommand:
                offer = offers[command]
                answers += 1
                if not may(command, role):
                    assert offer.forbidden, (command, role, case)
                    assert offer.reason.startswith("your roles do not let you"), offer
                else:
                    assert not offer.forbidden, (command, role, case)
                    assert (offer.reason or "go") == said[command], (command, role, case)
    print(f"{answers} answers, {sum(map(len, tables.values()))} rows of the page")
    # 28 standings (4 queued, 2 running, 16 failed, 6 others) × 4 flags × 6 kinds and modes × 2 recordings, less those
    # that only evidence may have; 7 roles; 12 commands.
    assert answers == (28 * 6 - 5) * 4 * 2 * len(Role) * len(OperatorCommand) == 109_536


def test_the_page_keeps_the_promises_of_the_product() -> None:
    """Written down apart from the rules: what no table may ever come to say."""
    for case in cases():
        offers = {
            one: offer.available
            for one, offer in availability(
                case.run, Actor(User(), Workspace(id="acme"), frozenset(Role)), alive=()
            ).items()
        }
        open_to_stop = case.status not in FINAL and not case.cancelling
        live = case.mode == RunMode.LIVE
        stands = (
            case.status in (RunStatus.PAUSED, RunStatus.FAILED)
            or case.lost
            or (case.status == RunStatus.QUEUED and case.queued_for > 30)
        )
        assert offers[OperatorCommand.CANCEL] is open_to_stop, case
        assert offers[OperatorCommand.CONTINUE] is (live and open_to_stop and stands), case
        if case.on_answer:
            assert offers[OperatorCommand.ASK_AGAIN] is (live and open_to_stop), case
        if case.status in FINAL or not live:
            for command in (
                OperatorCommand.CONTINUE,
                OperatorCommand.PAUSE,
                OperatorCommand.ASK_AGAIN,
                OperatorCommand.SETTLE_DROPPED,
            ):
                assert not offers[command], (command, case)
        # Of a run that has ended too: people may order an effect of it to be sent anew, or taken back.
        fresh = live and case.kind != RunKind.ORIGINAL
        assert offers[OperatorCommand.PERMIT_TYPE] is fresh, case
        if not live:
            assert not offers[OperatorCommand.REPLAY_LIVE], case
            assert not offers[OperatorCommand.BRANCH_LIVE], case
        assert not (offers[OperatorCommand.REPLAY_EVIDENCE] and case.removed), case


def test_the_reasons_are_words_for_an_operator() -> None:
    """One sentence without a code or a full stop, to stand after “This run can't be continued: ”."""
    reasons = {row.answer for command in OperatorCommand for row in rows_for(command)} - {"go"}
    for reason in reasons:
        assert reason == reason[:1].lower() + reason[1:], reason
        assert not re.search(r"[_`]|\.$", reason), reason
