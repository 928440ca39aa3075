"""The shortest story that still fails: the steps of a failed example, played again without those that do not matter.

Hypothesis shrinks what it drew; an example here is a list of steps, and playing it again is quick and exact, so that
taking steps away finds the same in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.model.errands import Stop
from tests.model.faults import Fault, View
from tests.model.judge import Wrong
from tests.model.machine import Core, Step

#: The plainest value of each argument that has one.
_PLAINEST: dict[str, Any] = {
    "fault": Fault.NONE,
    "meets": (Fault.NONE, Fault.NONE),
    "view": View.TRUE,
    "looks": None,
    "stops": frozenset[Stop](),
    "goes_on": False,
    "dies": None,
}


def failure_of(machine: type[Core], steps: list[Step]) -> Wrong | None:
    """Play *steps*, leaving out those that may not be made then, and the end. What went wrong, if anything did."""
    rules = {
        one.function.__name__: one for one in machine.setup_state().rules + machine.setup_state().initializers
    }
    played = machine()
    try:
        try:
            played.the_ledger_is_right()
            for name, drawn in steps:
                if all(holds(played) for holds in rules[name].preconditions):
                    rules[name].function(played, **drawn)
                    played.the_ledger_is_right()
        finally:
            played.teardown()
    except Wrong as wrong:
        return wrong
    return None


def shortest(machine: type[Core], steps: list[Step]) -> Wrong:
    """The failure of the fewest and plainest of *steps* that still make one."""
    fails: Callable[[list[Step]], bool] = lambda some: failure_of(machine, some) is not None  # noqa: E731
    size = max(len(steps) // 2, 1)
    while size:
        without = [steps[:at] + steps[at + size :] for at in range(0, len(steps), size)]
        shorter = next((some for some in without if fails(some)), None)
        if shorter is None:
            size //= 2
        else:
            steps = shorter
            size = min(size, max(len(steps) // 2, 1))
    for at, (name, drawn) in enumerate(steps):
        for argument, plainest in _PLAINEST.items():
            plainer = [*steps[:at], (name, {**drawn, argument: plainest}), *steps[at + 1 :]]
            if drawn.get(argument, plainest) != plainest and fails(plainer):
                steps, drawn = plainer, {**drawn, argument: plainest}
    wrong = failure_of(machine, steps)
    assert wrong is not None, "what failed before does not fail any more: something here is left to chance"
    return wrong
