"""What the model test did, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass
class Figures:
    """*steps*, *faults*, *views*, *stops* and *deaths* by their words; the rest are totals over all examples."""

    examples: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    views: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    stood: Counter[str] = field(default_factory=Counter)
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
        """For people."""
        lines = [
            f"steps            {self.step_count} in {self.examples} examples",
            f"effects          {self.effects}, attempts {self.attempts}, requests that left {self.requests}, "
            f"look-ups {self.looks}",
            f"faults injected  {self.faults.total()}, odd look-ups {self.views.total()}, "
            f"kills {self.kills.total()}, senders held up {self.stood.total()}",
            f"duplicates       {self.duplicates}",
            f"lost             {self.lost}",
            f"wrongly failed   {self.wrongly_failed}",
        ]
        for title, counted in (
            ("steps by rule", self.steps),
            ("deliveries to a receiver …", self.faults),
            ("look-ups at a receiver …", self.views),
            ("senders held up …", self.stood),
            ("killed …", self.kills),
            ("effects at the end of their example", self.ended),
            ("reviews opened", self.reviews),
        ):
            lines += ["", title, *(f"  {count:>7}  {words}" for words, count in counted.most_common())]
        return "\n".join(lines)

    def add(self, other: Figures) -> None:
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, one.name, mine + theirs)
