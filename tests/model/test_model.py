"""The ledger against a model of the world: random sequences of everything that can happen, looked at after each step.

`make model` plays at least 20,000 steps, from a seed of its own each time, and prints the figures. SIGNALBOX_MODEL_STEPS
says how many, SIGNALBOX_MODEL_SEED repeats a run; without them the same few steps are played each time.
"""

from __future__ import annotations

import os
import secrets
import time

import pytest

from tests.model.ledger import Ledger
from tests.model.machine import Setting
from tests.model.playing import play_at_once

STEPS = int(os.environ.get("SIGNALBOX_MODEL_STEPS", "400"))
SEED = int(os.environ.get("SIGNALBOX_MODEL_SEED", "1")) or secrets.randbelow(10**6) + 1


def test_the_ledger_and_the_world_never_part(
    settings: list[Setting], capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.perf_counter()
    figures, wrong = play_at_once(Ledger, settings, steps=STEPS, seed=SEED)
    took = time.perf_counter() - began
    with capsys.disabled():
        print(f"\nModel test, seed {SEED}, {took:.0f} s in {len(settings)} processes")
        print(figures.table())
    assert not wrong, "\n\n".join(wrong)
    assert figures.step_count >= STEPS
    assert (figures.duplicates, figures.lost, figures.wrongly_failed) == (0, 0, 0)
