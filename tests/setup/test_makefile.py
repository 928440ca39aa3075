"""`make` on machines that lack something: one line that says what, and nothing half made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.setup.processes import ROOT


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def script(folder: Path, text: str) -> Path:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def own_lines(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in run.stderr.splitlines() if not line.startswith("make")]


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_no_fitting_python_is_one_line(tmp_path: Path, python: str) -> None:
    run = make("run", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert run.returncode != 0
    (line,) = own_lines(run)
    assert "needs Python 3.11 or newer" in line
    assert python in line
    assert not (tmp_path / "venv").exists()


def test_a_python_without_ensurepip_is_one_line(tmp_path: Path) -> None:
    python = script(tmp_path, f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    run = make("run", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert run.returncode != 0
    (line,) = own_lines(run)
    assert "python3-venv" in line
    assert not (tmp_path / "venv").exists()


def test_help_names_every_target() -> None:
    run = make("help")
    assert run.returncode == 0
    for target in ("run", "test", "battery", "model", "trials", "check", "reset", "css", "help"):
        assert f"make {target} " in run.stdout
