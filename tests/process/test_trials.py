"""Workers that send five effects a run, killed at random moments. `make trials` plays a thousand and prints the figures."""

from __future__ import annotations

import os
import random

import pytest

from tests.people import World
from tests.stack import Stack
from tests.trials.trial import Trial
from tests.workflows.trial import EFFECTS

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("SIGNALBOX_TRIAL_KILLS", "15"))
WORKERS = int(os.environ.get("SIGNALBOX_TRIAL_WORKERS", "4"))
#: Looks at a receiver that does not have it go on for a minute before a person is asked: not in the short one.
MAKES = EFFECTS if "SIGNALBOX_TRIAL_KILLS" in os.environ else tuple(set(EFFECTS) - {"marked_ticket"})


def test_workers_killed_at_random_moments(
    stack: Stack, live: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made twice, nothing is lost, nothing failed that is there; what nobody can know stands in review."""
    figures = Trial(
        stack, live, kills=KILLS, workers=WORKERS, chance=random.Random(KILLS), makes=MAKES
    ).play()
    with capsys.disabled():
        print(f"\n{figures.table()}")
    assert figures.kills >= KILLS
    assert figures.clean, figures.table()
