"""A compressed time axis: work keeps its scale, long waits fold to a narrow strip, so that steps stay in sight.

A leaf: pure functions over datetimes; positions are percentages of the axis' width, for SVG attributes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

FOLD_WIDTH = 11.0
FOLD_BUDGET = 45.0
FOLD_LEAST = timedelta(seconds=2)
LIVE_END = 94.0
NICE = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Fold:
    """A stretch in which nothing worked, drawn narrow: where it lies (percent) and how long it really is."""

    x: float
    width: float
    length: timedelta


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis: its place (percent) and the time since the start, as a label."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps moments to percentages by straight pieces; ``at`` never leaves 0 to 100 and never runs backwards."""

    moments: tuple[datetime, ...]
    places: tuple[float, ...]
    folds: tuple[Fold, ...]
    ticks: tuple[Tick, ...]

    def at(self, moment: datetime) -> float:
        """Where ``moment`` lies, in percent; before the start is 0, after the end is the end's place."""
        if moment <= self.moments[0]:
            return self.places[0]
        if moment >= self.moments[-1]:
            return self.places[-1]
        right = bisect_right(self.moments, moment)
        t0, t1 = self.moments[right - 1], self.moments[right]
        x0, x1 = self.places[right - 1], self.places[right]
        return x0 + (x1 - x0) * ((moment - t0) / (t1 - t0))

    def span(self, start: datetime, end: datetime, least: float = 0.7) -> tuple[float, float]:
        """Place and width of a bar; at least ``least`` wide, so that the shortest step can be seen, and inside the axis."""
        x = self.at(start)
        width = max(self.at(end) - x, least)
        return min(x, 100 - width), width


def compress(
    work: Iterable[tuple[datetime, datetime]], start: datetime, end: datetime, *, live: bool = False
) -> Axis:
    """An axis from ``start`` to ``end`` on which stretches without any of ``work`` fold once they are long.

    Long means: longer than two seconds and than a sixth of the time in which something worked. ``live`` leaves
    room after the end, for a line that says "now". ``end`` must not lie before ``start``.
    """
    if end <= start:
        end = start + timedelta(milliseconds=1)
    busy = _merged(work, start, end)
    gaps = _gaps(busy, start, end)
    worked = sum((e - s for s, e in busy), timedelta())
    long = max(FOLD_LEAST, worked / 6)
    folded = [gap for gap in gaps if gap[1] - gap[0] > long]
    return _axis(folded, start, end, LIVE_END if live else 100.0)


def _merged(
    work: Iterable[tuple[datetime, datetime]], start: datetime, end: datetime
) -> list[tuple[datetime, datetime]]:
    merged: list[tuple[datetime, datetime]] = []
    for s, e in sorted((max(s, start), min(e, end)) for s, e in work):
        if e < s:
            continue
        if merged and s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(e, merged[-1][1]))
        else:
            merged.append((s, e))
    return merged


def _gaps(
    busy: Sequence[tuple[datetime, datetime]], start: datetime, end: datetime
) -> list[tuple[datetime, datetime]]:
    edges = [(start, start), *busy, (end, end)]
    return [(a[1], b[0]) for a, b in pairwise(edges) if b[0] > a[1]]


def _axis(folded: Sequence[tuple[datetime, datetime]], start: datetime, end: datetime, width: float) -> Axis:
    open_time = (end - start) - sum((e - s for s, e in folded), timedelta())
    each = min(FOLD_WIDTH, FOLD_BUDGET / len(folded)) if folded else 0.0
    if not open_time:  # nothing but one wait: it takes the whole axis
        each = width / len(folded)
    scale = (width - each * len(folded)) / open_time.total_seconds() if open_time else 0.0
    moments, places, folds = [start], [0.0], []
    for s, e in folded:
        if s > moments[-1]:
            places.append(places[-1] + scale * (s - moments[-1]).total_seconds())
            moments.append(s)
        folds.append(Fold(places[-1], each, e - s))
        moments.append(e)
        places.append(places[-1] + each)
    if end > moments[-1]:
        moments.append(end)
        places.append(width)
    axis = Axis(tuple(moments), tuple(places), tuple(folds), ())
    return Axis(axis.moments, axis.places, axis.folds, tuple(_ticks(axis, open_time, width)))


def _ticks(axis: Axis, open_time: timedelta, width: float) -> Iterable[Tick]:
    """Marks at round times since the start, outside the folds, each with room for its label."""
    start, folded = axis.moments[0], {fold.x for fold in axis.folds}
    step = next((n for n in NICE if open_time.total_seconds() / n <= 6), NICE[-1])
    last = -100.0
    pieces = zip(pairwise(axis.moments), axis.places, strict=False)
    for (left, right), place in pieces:
        if place in folded:
            continue
        first, stop = (-(-(t - start).total_seconds() // step) for t in (left, right))
        for n in range(int(first), int(stop) + 1):
            moment = start + timedelta(seconds=n * step)
            x = axis.at(moment)
            if left <= moment <= right and x - last >= 9 and x <= width - 6:
                yield Tick(x, elapsed(timedelta(seconds=n * step)))
                last = x


def elapsed(length: timedelta) -> str:
    """A length of time as two units at most: 80 ms, 2.1 s, 14 s, 3 min 20 s, 2 h 05 min, 3 d 4 h."""
    seconds = length.total_seconds()
    if seconds < 0:
        return "0 s"
    if 0 < seconds < 0.0995:
        return f"{round(seconds * 1000) or 1} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if whole < 86400:
        hours, rest = divmod(whole // 60, 60)
        return f"{hours} h {rest:02d} min" if rest else f"{hours} h"
    days, rest = divmod(whole // 3600, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"
