"""What the model test did, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from effects.states import ReviewReason
from tests.model.errands import Stop
from tests.model.faults import Fault, View

#: Where a process is killed that does not stand still at the network.
BETWEEN = "between two statements"


@dataclass
class Figures:
    """Those that are counters by their words; the rest are totals over all examples."""

    examples: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    views: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    stood: Counter[str] = field(default_factory=Counter)
    overtaken: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    reviews: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    attempts: int = 0
    requests: int = 0
    looks: int = 0
    duplicates: int = 0
    lost: int = 0
    wrongly_failed: int = 0

    @property
    def step_count(self) -> int:
        return self.steps.total()

    def table(self) -> str:
        """For people: the same lines in the same order each time, a kind that did not come with its 0."""
        totals: dict[str, int] = {
            "steps": self.step_count,
            "examples": self.examples,
            "effects": self.effects,
            "attempts": self.attempts,
            "requests that left": self.requests,
            "look-ups": self.looks,
            "faults injected": self.faults.total(),
            "odd look-ups": self.views.total(),
            "kills": self.kills.total(),
            "senders held up": self.stood.total(),
            "senders overtaken": self.overtaken.total(),
            "duplicates": self.duplicates,
            "lost": self.lost,
            "wrongly failed": self.wrongly_failed,
        }
        lines = [f"{words:<20}{count:>7}" for words, count in totals.items()]
        for title, counted, kinds in (
            ("deliveries to a receiver …", self.faults, [one for one in Fault if one != Fault.NONE]),
            ("look-ups at a receiver …", self.views, [one for one in View if one != View.TRUE]),
            ("senders held up …", self.stood, list(Stop)),
            ("killed …", self.kills, [BETWEEN, *Stop]),
            ("senders taken for lost while another sent, held up …", self.overtaken, []),
            ("steps by rule", self.steps, []),
            ("effects at the end of their example", self.ended, []),
            ("reviews opened", self.reviews, list(ReviewReason)),
        ):
            full = Counter({**dict.fromkeys(kinds, 0), **counted})
            lines += ["", title, *(f"  {count:>7}  {words}" for words, count in full.most_common())]
        return "\n".join(lines)

    def add(self, other: Figures) -> None:
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, one.name, mine + theirs)
