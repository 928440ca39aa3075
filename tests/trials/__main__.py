"""`python -m tests.trials --kills 1000`: the kill trials on servers and processes of their own."""

from __future__ import annotations

import argparse
import os
import sys

import pytest


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.trials", description="Kill workers at random moments.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    os.environ["SIGNALBOX_TRIAL_KILLS"] = str(arguments.kills)
    os.environ["SIGNALBOX_TRIAL_WORKERS"] = str(arguments.workers)
    return int(pytest.main(["-q", "tests/process/test_trials.py"]))


if __name__ == "__main__":
    sys.exit(main())
