"""Watching real processes: who is there, who has gone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


def eventually(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """Return when *holds* answers something true; fail after *seconds*."""
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"not within {seconds:g} s"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def working_on(folder: Path) -> list[int]:
    """The ids of living processes that work in *folder* or name it in their command line, this one not among them."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if any(str(folder) in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return [pid for pid in found if pid != psutil.Process().pid]


def python(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A Python process that runs *code* with the project on its path, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
