"""What can't be used is refused at start: one line that names it, a status that is not 0, and not a row."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.setup.processes import ROOT

REFUSED = {
    "a workflow that does not import": (
        {"SIGNALBOX_WORKFLOWS": "no.such.module:workflow"},
        "workflow no.such.module:workflow can't be imported",
    ),
    "two of one name and version": (
        {"SIGNALBOX_WORKFLOWS": "tests.workflows.slow:workflow,tests.workflows.slow:workflow"},
        "test_slow@1 stands twice",
    ),
    "a contract that nobody has": (
        {"SIGNALBOX_WORKFLOWS": "tests.workflows.slow:workflow", "SIGNALBOX_CONTRACTS": ""},
        "test.offer_by_key",
    ),
}


@pytest.mark.parametrize("command", ["worker", "sweep"])
@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_at_start(what: str, command: str) -> None:
    given, named = REFUSED[what]
    ended = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, ended.stderr
    assert named in lines[0]
