"""Let a machine play so many steps, in as many processes as are asked for, and tell what came of it."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass, replace

from django.db import connections
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import run_state_machine_as_test

from effects import restored
from tests.model.figures import Figures
from tests.model.judge import Wrong
from tests.model.machine import Core, Setting
from tests.model.shortening import shortest

#: The same on every machine, since each plays its own sequences; one where several workers share the tests.
PROCESSES = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
#: Of one example. Long enough that what it began can go wrong several times.
STEPS = 60
#: Examples that Hypothesis plans at once: it varies those that it has made.
EXAMPLES = 10
#: Half of the steps are the same in every run; the other half begins with a number that is new each time.
FIXED_SEED = 31_03_2031

_SETTINGS = hypothesis_settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    # What fails is made shorter by playing it again, see tests.model.shortening.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
    print_blob=False,
)


@dataclass(frozen=True)
class Share:
    """What one process has to play. *seed* is that of its second half."""

    number: int
    steps: int
    seed: int


def play(machine: type[Core], setting: Setting, share: Share) -> str:
    """Play a share. Returns the story of what went wrong, shortened; empty when nothing did."""
    machine.setting = setting
    # This process has made sure of its database before the first example: each is to repeat statement by statement.
    restored.check()
    figures = setting.figures
    for seed, until in ((FIXED_SEED, share.steps // 2), (share.seed, share.steps)):
        turn = seed + share.number * 100_000
        while figures.step_count < until:
            try:
                _one_turn(machine, turn)
            except Wrong:
                return f"seed {turn}: {shortest(machine, machine.failed)}"
            turn += 1
    return ""


def _one_turn(machine: type[Core], seed: int) -> None:
    # As hypothesis.seed does for a test function; a machine made into a test takes it over.
    machine._hypothesis_internal_use_seed = seed
    run_state_machine_as_test(machine, settings=_SETTINGS)


def play_at_once(
    machine: type[Core], settings: list[Setting], *, steps: int, seed: int
) -> tuple[Figures, list[str]]:
    """The same in a process for each of *settings*, each with its own connection. The figures of all, and what went wrong."""
    processes = len(settings)
    shares = [Share(number, -(-steps // processes), seed) for number in range(processes)]
    if processes == 1:
        told = play(machine, settings[0], shares[0])
        return settings[0].figures, [told] if told else []
    # A connection can't be shared with a child: each makes its own.
    connections.close_all()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        played = pool.starmap(
            _in_child, [(machine, setting, share) for setting, share in zip(settings, shares, strict=True)]
        )
    total = Figures()
    for figures, _ in played:
        total.add(figures)
    return total, [told for _, told in played if told]


def _in_child(machine: type[Core], setting: Setting, share: Share) -> tuple[Figures, str]:
    own = replace(setting, figures=Figures())
    return own.figures, play(machine, own, share)
