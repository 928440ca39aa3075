"""The rows of the failure battery: what each expects, what was seen of it, and the table of both.

A row is written down before it is tried: how many effects the receiver makes of how many requests, and where the
effect stands in the ledger. What is seen is read from the receiver's own records and from the rows; both have to agree.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar, cast

#: Effects made / effect-bearing requests received.
RX = tuple[int, int]
Test = TypeVar("Test", bound=Callable[..., None])

#: The parts of the battery, by the module that holds their rows.
PARTS = {
    "test_killed": "Killed with SIGKILL",
    "test_answers": "Answers",
    "test_queue": "Concurrency and queue",
    "test_database": "Database",
    "test_same_or_other": "Same or other",
    "test_tenants": "Tenants and expiry",
    "test_replay": "Replay, branch, repeat",
    "test_approval": "Approval",
    "test_public_reports": "Public reports",
}


@dataclass(frozen=True)
class Stage:
    """What the receiver has made of how many requests, and where the effects stand, at one moment."""

    rx: RX
    stands: str


@dataclass(frozen=True)
class Row:
    """One case of one row. Most have one stage, their end; *stages* may begin with the moment of the fault.

    *never_left*: attempts whose sender was killed before the first byte; the ledger can't know that, and the receiver
    has no request of them. *twice*: the row is about an effect that was made twice.
    """

    number: str
    what: str
    part: str
    stages: tuple[Stage, ...]
    attempts: str
    case: str = ""
    never_left: int = 0
    twice: bool = False

    @property
    def name(self) -> str:
        return f"{self.number} {self.case}".strip()


@dataclass
class Seen:
    """What was seen of a row while it was tried."""

    name: str = ""
    stages: list[Stage] = field(default_factory=list)
    attempts: str = ""
    look_ups: int = 0
    verdict: str = "not tried"

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Seen:
        given = json.loads(text)
        stages = [Stage(tuple(one["rx"]), one["stands"]) for one in given.pop("stages")]
        return cls(stages=stages, **given)


class Witnessing(Protocol):
    """The bench that a row is tried on."""

    def look_back(self, seen: Seen) -> None:
        """Write into *seen* what the receiver and the ledger hold now."""

    def check(self, row: Row, seen: Seen) -> None:
        """Raise AssertionError where anything is not as it has to be."""


ROWS: list[Row] = []
SEEN: dict[str, Seen] = {}


def row(
    number: str,
    what: str,
    *,
    rx: RX | tuple[RX, ...],
    stands: str | tuple[str, ...],
    attempts: str,
    case: str = "",
    never_left: int = 0,
    twice: bool = False,
) -> Callable[[Test], Test]:
    """Make a test that takes ``bench`` a row of the battery. Two values of *rx* and *stands*: at the fault, at the end."""
    several: Any = rx if isinstance(rx[0], tuple) else (rx,)
    where = (stands,) if isinstance(stands, str) else stands
    stages = tuple(Stage(one, stand) for one, stand in zip(several, where, strict=True))

    def make(test: Test) -> Test:
        module = "test_public_reports" if number.startswith("C") else test.__module__.rpartition(".")[2]
        made = Row(number, what, PARTS[module], stages, attempts, case, never_left, twice)
        if made.name in {one.name for one in ROWS}:
            raise ValueError(f"row {made.name} stands twice; say of each which case it is")
        ROWS.append(made)

        @functools.wraps(test)
        def tried(*args: Any, bench: Witnessing, **kwargs: Any) -> None:
            seen = SEEN[made.name] = Seen(made.name, verdict="FAILED")
            try:
                test(*args, bench=bench, **kwargs)
            finally:
                bench.look_back(seen)
            bench.check(made, seen)
            seen.verdict = "passed"

        tried.rows = (*getattr(test, "rows", ()), made.name)  # type: ignore[attr-defined]  # for the report
        return cast(Test, tried)

    return make


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By part, then number; the cases of one number as they stand in the code."""
    parts = list(PARTS.values())
    return sorted(rows, key=lambda one: (parts.index(one.part), _key(one.number)))


def _key(number: str) -> tuple[int, str]:
    found = re.fullmatch(r"C?(\d+)([a-z]*)", number)
    if found is None:
        raise ValueError(f"{number!r} is no number of a row")
    return int(found[1]), found[2]


def told(several: Iterable[str]) -> str:
    """Equal words once, with how many there are of them."""
    counted = Counter(several)
    return "; ".join(f"{count} × {words}" if count > 1 else words for words, count in sorted(counted.items()))


def run_of(words: Sequence[str]) -> str:
    """unknown, not_sent ×7, completed."""
    parts: list[tuple[str, int]] = []
    for word in words:
        if parts and parts[-1][0] == word:
            parts[-1] = (word, parts[-1][1] + 1)
        else:
            parts.append((word, 1))
    return ", ".join(f"{word} ×{count}" if count > 1 else word for word, count in parts)


HEAD = ("Row", "What happens", "RX", "Look-ups", "Attempts", "Ledger", "Verdict")


def line_of(row: Row, seen: Seen) -> tuple[str, ...]:
    rx = " → ".join(f"{made}/{received}" for made, received in (stage.rx for stage in seen.stages))
    stands = " → ".join(stage.stands for stage in seen.stages)
    look_ups = str(seen.look_ups) if seen.look_ups else ""
    return row.name, row.what, rx, look_ups, seen.attempts, stands, seen.verdict


def lines() -> dict[str, list[tuple[str, ...]]]:
    """The table by parts, of what was seen; a row that was not tried says so."""
    table: dict[str, list[tuple[str, ...]]] = {part: [] for part in PARTS.values()}
    for one in in_order(ROWS):
        table[one.part].append(line_of(one, SEEN.get(one.name, Seen())))
    return table


def summary() -> str:
    verdicts = Counter(SEEN.get(one.name, Seen()).verdict for one in ROWS)
    numbers = len({one.number for one in ROWS})
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return f"{numbers} rows in {len(ROWS)} cases: {counted}."


INTRODUCTION = """\
# The failure battery

Written by `make battery`, from what was seen; do not edit. Every row is a real test in `tests/battery/` against the test
receiver's process, whose own records are the witness.

**RX** is effects made / effect-bearing requests received, by the receiver's records; → stands between the moment of the
fault and the end. **Look-ups** change nothing and are counted apart. **Attempts** are the ledger's, in their order, and
**Ledger** is where the effect stands at the end. Besides what its line says, every row checks that the requests that came
are the attempts that were sent, that no effect was made twice (unless the row is about that), that no ended attempt was
edited, and that neither the receiver's secret nor a protected value stands in any column, log or observation.
"""


def markdown() -> str:
    """docs/battery.md."""
    text = [INTRODUCTION, summary(), ""]
    for part, several in lines().items():
        text += [f"## {part}", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
        text += ["| " + " | ".join(cell.replace("|", "\\|") for cell in one) + " |" for one in several]
        text.append("")
    return "\n".join(text)


def plain(width: int = 58) -> str:
    """The same for a terminal."""
    whole = [
        (*one[:1], one[1] if len(one[1]) <= width else one[1][: width - 1] + "…", *one[2:])
        for one in [HEAD, *(one for several in lines().values() for one in several)]
    ]
    widths = [max(len(one[column]) for one in whole) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip()
        for one in whole
    )
