"""What is drawn for the steps, and when some of them may be made."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.model.errands import Stop
from tests.model.faults import View
from tests.model.machine import Core

WHICH = st.integers(0, 3)
#: Counted among the machine's kinds of effects.
KIND = st.integers(0, 23)
AMOUNTS = st.sampled_from([1000, 2500, 9900])
VIEWS = st.sampled_from(list(View))
GOES_THROUGH = frozenset[Stop]()
STOPS = st.sampled_from(
    [GOES_THROUGH] * 8
    + [frozenset({one}) for one in Stop]
    + [frozenset({Stop.BEFORE, Stop.ARRIVED}), frozenset({Stop.ARRIVED, Stop.ANSWERED})]
)
#: Of a sender that is to be held up, mostly.
HELD_UP = st.sampled_from([frozenset({one}) for one in Stop] * 3 + [frozenset(Stop), GOES_THROUGH])
#: Whether a run comes before there is something for it to do, as a message that comes twice makes it.
SOON = st.sampled_from([False, False, True])
#: Mostly it lives. A visit makes about fifteen statements.
DEATHS = st.sampled_from([None] * 40 + list(range(1, 21)))
WAITS = st.sampled_from([1.0, 3.0, 13.0, 20.0, 70.0, 400.0, 4_000.0, 90_000.0])
#: Moments that something hangs on; the clock is moved just past the next of them.
MOMENTS = st.sampled_from(["due_at", "lease_until", "key_until", "grant_until", "give_up_at", "final_by"])


def some_intent(machine: Core) -> bool:
    return bool(machine.intents)


def something_moves(machine: Core) -> bool:
    """Something may be sent, or its outcome is not known."""
    return any(machine.rank(one) <= 1 for one in machine.intents)


def somebody_held_up(machine: Core) -> bool:
    return bool(machine.waiting)
