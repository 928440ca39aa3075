"""The battery itself: no row is missing, none is there twice, and docs/battery.md is what its rows say."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.battery import rows
from tests.battery.rows import PARTS, ROWS, Row, Seen, Stage, in_order, line_of, row, run_of, told
from tests.plugin import ROOT

DOCUMENT = ROOT / "docs" / "battery.md"

#: Every numbered row that there has to be, by part. A number is never used again: gaps are rows that were given up.
NUMBERS = {
    "Killed with SIGKILL": "1 2 3 3b 4 5 6 7 9 10 11 12",
    "Answers": "13 15 16 17 18 19 20 21 22 24 25 26 26b",
    "Concurrency and queue": "27 29 30 31 32 34 34b 34c",
    "Database": "35 37 38 39 40",
    "Same or other": "41 42 43 46 49 50 50b",
    "Tenants and expiry": "51 52 54 55 57",
    "Replay, branch, repeat": "58 59 60 61 61b 62 62b 64 65 66 66b 66h",
    "Approval": "66c 66d 66e 66f 66g 67 68 69 70 71 72 73 74 75 75b 76 76b",
    "Public reports": "C01 C03 C15 C16 C17 C18 C19 C20 C21 C30 C31 C58 C59 C60 C62",
}


@pytest.fixture(scope="module", autouse=True)
def _all_rows() -> None:
    """Also when this file is run alone."""
    for module in PARTS:
        importlib.import_module(f"tests.battery.{module}")


def test_every_numbered_row_is_a_test_and_no_other() -> None:
    for part, numbers in NUMBERS.items():
        assert {one.number for one in ROWS if one.part == part} == set(numbers.split()), part


def test_no_row_is_skipped() -> None:
    """Neither skipped nor expected to fail: what does not hold fails the build."""
    for module in PARTS:
        text = (ROOT / "tests" / "battery" / f"{module}.py").read_text()
        assert not re.search(r"\b(skip|skipif|xfail|importorskip)\b", text), module


def documented() -> dict[str, tuple[str, ...]]:
    """The lines of docs/battery.md by their row's name."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return {one[0].strip(): one for one in cells if one[0].strip() != rows.HEAD[0]}


def test_the_document_lists_the_rows_of_the_code() -> None:
    """Otherwise: run `make battery`."""
    assert list(documented()) == [one.name for one in in_order(ROWS)]


def test_the_document_says_of_each_row_what_the_code_expects_and_that_it_passed() -> None:
    for one in ROWS:
        name, what, rx, _, attempts, ledger, verdict = documented()[one.name]
        expected = line_of(one, Seen(one.name, list(one.stages), one.attempts, verdict="passed"))
        assert (name, what, rx, attempts, ledger, verdict) == (*expected[:3], *expected[4:]), one.name


def test_a_row_that_was_not_tried_does_not_look_like_one_that_passed() -> None:
    never = Row("999", "Never tried", "Answers", (Stage((1, 1), "completed"),), "completed")
    assert line_of(never, Seen())[2:] == ("", "", "", "", "not tried")


def test_what_was_seen_travels_between_processes() -> None:
    seen = Seen("6", [Stage((1, 1), "pending/uncertain"), Stage((1, 2), "completed")], "unknown", 1, "passed")
    assert Seen.of_json(seen.as_json()) == seen


def test_words_of_the_table() -> None:
    assert run_of(["unknown", "not_sent", "not_sent", "completed"]) == "unknown, not_sent ×2, completed"
    assert told(["completed", "pending/ready", "completed"]) == "2 × completed; pending/ready"


class Watched:
    """A bench that sees what it is told to see."""

    def __init__(self, seen: RX) -> None:
        self.seen = seen

    def look_back(self, seen: Seen) -> None:
        seen.stages = [Stage(self.seen, "completed")]

    def check(self, row: Row, seen: Seen) -> None:
        assert tuple(seen.stages) == row.stages


RX = rows.RX


def test_a_row_that_is_not_as_expected_fails_and_is_told_as_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "ROWS", [])
    monkeypatch.setattr(rows, "SEEN", {})

    def nothing(bench: Watched) -> None:
        pass

    nothing.__module__ = "tests.battery.test_answers"
    tried = row("999", "Made twice", rx=(1, 1), stands="completed", attempts="")(nothing)
    with pytest.raises(AssertionError):
        tried(bench=Watched((2, 2)))
    assert rows.SEEN["999"].verdict == "FAILED"
    assert rows.SEEN["999"].stages == [Stage((2, 2), "completed")]
    tried(bench=Watched((1, 1)))
    assert rows.SEEN["999"].verdict == "passed"
    with pytest.raises(ValueError, match="stands twice"):
        row("999", "Again", rx=(1, 1), stands="completed", attempts="")(nothing)
