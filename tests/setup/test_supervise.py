"""The supervisor and the tether, with real processes and real signals."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.supervise import Backoff, Program, ProgramFailed, Supervisor, describe
from tests.setup.processes import eventually, is_alive, python

SLEEP = "import time; print('ready now', flush=True); time.sleep(60)"
# Ignores every polite signal, and so does the child it has.
STUBBORN = r"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
os.write(1, b"ready\n" if child else f"child {os.getpid()}\n".encode())  # in one piece: two write to one pipe
time.sleep(60)
"""
PARENT = """
import sys, time
from console.supervise import tethered
child = tethered([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def program(name: str, code: str) -> Program:
    return Program(name, (sys.executable, "-c", code), dict(os.environ), announces=r"^ready\b")


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def supervisor(tmp_path: Path, output: io.StringIO) -> Iterator[Supervisor]:
    supervisor = Supervisor(cwd=tmp_path, grace_s=0.5, output=output)
    yield supervisor
    supervisor.stop()


def test_lines_are_shown_under_their_programs_name(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start([program("one", SLEEP), program("two", SLEEP)])
    supervisor.wait_announced(seconds=10)
    assert "one       | ready now" in output.getvalue()
    assert "two       | ready now" in output.getvalue()


def test_a_killed_program_comes_back_and_the_others_live_on(
    supervisor: Supervisor, output: io.StringIO
) -> None:
    supervisor.start([program("victim", SLEEP), program("other", SLEEP)])
    supervisor.wait_announced(seconds=10)
    victim, other = supervisor.pid("victim"), supervisor.pid("other")
    os.kill(victim, signal.SIGKILL)

    def is_back() -> bool:
        supervisor.watch_once()
        return supervisor.pid("victim") != victim

    eventually(is_back, 5)
    assert is_alive(supervisor.pid("victim"))
    assert supervisor.pid("other") == other
    assert is_alive(other)
    assert "victim ended with SIGKILL" in output.getvalue()


def test_a_program_that_ends_before_it_is_ready_fails_the_start(
    supervisor: Supervisor, output: io.StringIO
) -> None:
    supervisor.start([program("broken", "import sys; print('no such thing'); sys.exit(3)")])
    with pytest.raises(ProgramFailed, match="broken ended with status 3 before it was ready"):
        supervisor.wait_announced(seconds=10)
    assert "no such thing" in output.getvalue()


def test_a_start_that_takes_too_long_fails(supervisor: Supervisor) -> None:
    supervisor.start([program("silent", "import time; time.sleep(60)")])
    with pytest.raises(ProgramFailed, match=r"took longer than 0\.3 s"):
        supervisor.wait_announced(seconds=0.3)


def test_a_program_that_is_meant_to_end_tells_its_status(supervisor: Supervisor, output: io.StringIO) -> None:
    assert supervisor.run_once(program("once", "print('done')")) == 0
    assert supervisor.run_once(program("twice", "raise SystemExit(4)")) == 4
    assert "once      | done" in output.getvalue()


@pytest.mark.parametrize(("code", "told"), [("pass", False), ("raise SystemExit(3)", True)])
def test_what_runs_once_beside_the_others_is_not_started_again(
    supervisor: Supervisor, output: io.StringIO, code: str, told: bool
) -> None:
    once = Program("once", (sys.executable, "-c", code), dict(os.environ), once=True)
    supervisor.start([program("other", SLEEP), once])
    process = supervisor.pid("once")
    eventually(lambda: not is_alive(process))
    supervisor.watch_once()
    assert ("once ended with status 3" in output.getvalue()) is told
    assert "starting it again" not in output.getvalue()
    with pytest.raises(KeyError):
        supervisor.pid("once")


def test_stopping_leaves_not_even_the_stubborn(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start([program("stubborn", STUBBORN), program("tame", SLEEP)])
    supervisor.wait_announced(seconds=10)
    eventually(lambda: "child " in output.getvalue())
    child = int(output.getvalue().split("child ")[1].split()[0])
    everyone = [supervisor.pid("stubborn"), supervisor.pid("tame"), child]
    began = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began < 3
    eventually(lambda: not any(is_alive(pid) for pid in everyone), 2)


LAST_WORD = """
import signal, sys, time
def end(*_):
    time.sleep({seconds})
    print("last word of {name}", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


def test_what_others_speak_to_is_stopped_after_them(supervisor: Supervisor, output: io.StringIO) -> None:
    outside = program("outside", LAST_WORD.format(name="outside", seconds=0))
    supervisor.start(
        [
            replace(outside, spoken_to=True),
            program("speaker", LAST_WORD.format(name="speaker", seconds=0.2)),
        ]
    )
    supervisor.wait_announced(seconds=10)
    supervisor.stop()
    assert 0 < output.getvalue().find("last word of speaker") < output.getvalue().find("last word of outside")


def test_a_tethered_child_ends_with_a_killed_parent() -> None:
    parent = python(PARENT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    parent.wait()
    eventually(lambda: not is_alive(child), 3)


def test_a_command_that_is_not_there_is_told(supervisor: Supervisor, output: io.StringIO) -> None:
    assert supervisor.run_once(Program("absent", ("/no/such/command",), {})) == 1
    assert "/no/such/command: No such file or directory" in output.getvalue()


def test_backoff_doubles_and_begins_afresh_after_a_long_life() -> None:
    backoff = Backoff()
    assert [backoff.after(lived_s=0) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.after(lived_s=31) == 0.5


@pytest.mark.parametrize(
    ("status", "words"), [(0, "status 0"), (7, "status 7"), (-9, "SIGKILL"), (-99, "signal 99")]
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert describe(status) == words
