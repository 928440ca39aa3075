from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.kernel.timeline import LIVE_END, compress, elapsed

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_long_wait_folds_and_the_steps_keep_most_of_the_axis() -> None:
    axis = compress([(at(0), at(3)), (at(3_600), at(3_601))], START, at(3_601))
    (fold,) = axis.folds
    assert fold.length == timedelta(seconds=3_597)
    assert fold.width < 15
    assert axis.at(at(3)) > 60


def test_a_short_pause_does_not_fold() -> None:
    assert compress([(at(0), at(3)), (at(4), at(6))], START, at(6)).folds == ()


def test_a_live_axis_leaves_room_for_now() -> None:
    axis = compress([(at(0), at(1))], START, at(600), live=True)
    assert axis.at(at(600)) == pytest.approx(LIVE_END)


def test_a_run_that_has_only_waited_still_has_an_axis() -> None:
    axis = compress([], START, at(600))
    assert axis.at(START) == 0
    assert axis.at(at(600)) == pytest.approx(100)


def test_the_shortest_step_can_be_seen() -> None:
    axis = compress([(at(0), at(100)), (at(50), at(50.001))], START, at(100))
    assert axis.span(at(50), at(50.001))[1] >= 0.7
    x, width = axis.span(at(100), at(100))
    assert x + width <= 100


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)), max_size=12), st.floats(0, 2e6), st.booleans()
)
def test_time_never_runs_backwards(spans: list[tuple[float, float]], length: float, live: bool) -> None:
    work = [(at(s), at(s + n)) for s, n in spans]
    axis = compress(work, START, at(length), live=live)
    moments = sorted([START, at(length), *(m for span in work for m in span)])
    places = [axis.at(m) for m in moments]
    assert all(a <= b + 1e-9 for a, b in pairwise(places))
    assert all(0 <= p <= 100 + 1e-6 for p in places)
    assert all(0 <= t.x <= 100 for t in axis.ticks)
    assert len(axis.ticks) <= 12


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.0004, "1 ms"), (0.08, "80 ms"), (0.8, "0.8 s"), (9.96, "10 s"), (59.6, "1 min"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (273_600, "3 d 4 h"), (-1, "0 s")],
)  # fmt: skip
def test_elapsed(seconds: float, said: str) -> None:
    assert elapsed(timedelta(seconds=seconds)) == said
