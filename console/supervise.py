"""Child processes that neither outlive nor outnumber their parent, and the supervisor that `manage.py up` runs them under.

honcho's own manager ends everything as soon as one process ends, knows no process that is meant to end, and leaves
its children behind when it is killed. A worker that is killed must come back while everything else lives, and the
demo's seeding is a process that ends: so honcho prints (prefixes, colours, broken UTF-8), and the loop is here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, NoReturn

from honcho.colour import get_colours
from honcho.printer import Message, Printer

_TETHER = Path(__file__).with_name("tether.py")

BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
SETTLED_AFTER_S = 30.0  # a process that lived this long starts its backoff afresh


@dataclass(frozen=True)
class Owner:
    """The system user that a child runs as, when that is not its parent's."""

    uid: int
    gid: int


def tethered(
    command: Sequence[str],
    *,
    last_signal: signal.Signals = signal.SIGKILL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    output: int | IO[bytes] | None = None,
    owner: Owner | None = None,
) -> subprocess.Popen[bytes]:
    """Start *command*; when this process dies in whatever way, the kernel sends the child *last_signal* (see tether.py).

    The tether hangs on the *thread* that calls this: call it from the main thread. The child gets a session of its own,
    so that a Ctrl-C in the terminal reaches the parent alone, which then stops its children in order. *output* takes
    stdout and stderr together; without it they are the parent's. A command that can't be run ends with status 1.
    """
    who = ("-", "-") if owner is None else (str(owner.uid), str(owner.gid))
    return subprocess.Popen(  # noqa: S603 - every command is put together here in the project, none by a visitor
        [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), str(int(last_signal)), *who, *command],
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, without reaping it: until then its id, and so its group's, can't pass to a stranger."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def wait_for_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended within *seconds*; it is not reaped."""
    give_up = time.monotonic() + seconds
    while not has_ended(process):
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.02)
    return True


def end(process: subprocess.Popen[bytes], *steps: tuple[signal.Signals, float]) -> int:
    """Send each signal in turn and wait that many seconds for the end; then SIGKILL to the whole process group.

    The last also after a tidy end: what a process left behind in its group ends with it. Returns the exit status,
    negative for a signal, as subprocess does.
    """
    for signum, seconds in steps:
        if has_ended(process):
            break
        os.kill(process.pid, signum)
        wait_for_end(process, seconds)
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


class Backoff:
    """How long to wait before starting a process again: doubling while it dies young, afresh once it has lived."""

    def __init__(self) -> None:
        self._next = BACKOFF_FIRST_S

    def after(self, lived_s: float) -> float:
        if lived_s >= SETTLED_AFTER_S:
            self._next = BACKOFF_FIRST_S
        wait, self._next = self._next, min(self._next * 2, BACKOFF_MOST_S)
        return wait


@dataclass(frozen=True)
class Program:
    """A process to run. *announces* is the pattern of the line it prints once others may count on it, if it prints one.

    One that runs *once* is meant to end and isn't started again. What is *spoken_to* by others is stopped after them:
    they finish what is under way first, and would take its absence for a fault.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    announces: str | None = None
    once: bool = False
    spoken_to: bool = False


class ProgramFailed(Exception):
    """A program ended before the start was complete. Its own lines, printed above, say why."""


@dataclass
class _Running:
    program: Program
    colour: str
    process: subprocess.Popen[bytes]
    started: float
    reader: threading.Thread
    ready: threading.Event
    backoff: Backoff = field(default_factory=Backoff)
    again_at: float | None = None


class Supervisor:
    """Runs programs, shows their lines, starts again what dies, and stops all of it within twice *grace_s* plus a little.

    Not thread-safe: one thread, the main one, calls it (see `tethered`).
    """

    def __init__(
        self,
        *,
        cwd: Path,
        grace_s: float = 5.0,
        tend: Callable[[], None] = lambda: None,
        output: IO[str] | None = None,
    ) -> None:
        self._cwd = cwd
        self._grace_s = grace_s
        self._tend = tend
        self._running: dict[str, _Running] = {}
        self._colours = get_colours()
        self._printer = Printer(output or sys.stdout, width=len("signalbox"))
        self._printing = threading.Lock()

    def say(self, text: str) -> None:
        """A line of the supervisor's own among the programs' lines."""
        self._print("signalbox", None, text)

    def start(self, programs: Iterable[Program]) -> None:
        for program in programs:
            self._running[program.name] = self._launch(program, next(self._colours), Backoff())

    def pid(self, name: str) -> int:
        return self._running[name].process.pid

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Return when *ready* answers True.

        Raises ProgramFailed when a program ends meanwhile, or when it takes longer than *seconds*.
        """
        give_up = time.monotonic() + seconds
        while not ready():
            for running in self._running.values():
                if has_ended(running.process):
                    status = end(running.process)
                    running.reader.join(1)  # its last words first
                    raise ProgramFailed(
                        f"{running.program.name} ended with {describe(status)} before it was ready"
                    )
            if time.monotonic() > give_up:
                raise ProgramFailed(f"{what} took longer than {seconds:g} s")
            self._tend()
            time.sleep(0.1)

    def wait_announced(self, *, seconds: float = 30.0) -> None:
        """Return when every program that announces itself has done so; raises as `wait_until` does."""
        self.wait_until(
            lambda: all(r.ready.is_set() for r in self._running.values() if r.program.announces),
            seconds=seconds,
            what="the start of the processes",
        )

    def run_once(self, program: Program) -> int:
        """Run a program that is meant to end, beside the others, and return its exit status."""
        self.start([program])
        running = self._running.pop(program.name)
        try:
            while not has_ended(running.process):
                self.watch_once()
                time.sleep(0.1)
        finally:
            self._stop([running])
        return running.process.wait()

    def watch(self) -> NoReturn:
        """Start again whatever dies, for ever: an exception, such as a signal handler's, is the way out."""
        while True:
            self.watch_once()
            time.sleep(0.1)

    def stop(self) -> None:
        """End every program: those that others speak to after those others, which have the grace for it."""
        everything = list(self._running.values())
        for spoken_to in (False, True):
            self._stop([running for running in everything if running.program.spoken_to is spoken_to])
        self._running.clear()

    def _stop(self, all_of_them: list[_Running]) -> None:
        """SIGTERM to all, then, after the grace, SIGKILL to the groups of those that remain."""
        for running in all_of_them:
            if not has_ended(running.process):
                os.kill(running.process.pid, signal.SIGTERM)
        give_up = time.monotonic() + self._grace_s
        for running in all_of_them:
            wait_for_end(running.process, max(0.0, give_up - time.monotonic()))
        for running in all_of_them:
            end(running.process)
            running.reader.join(1)

    def watch_once(self) -> None:
        """One look at everything: what has ended is started again, when its backoff is over."""
        self._tend()
        now = time.monotonic()
        for name, running in list(self._running.items()):
            if not has_ended(running.process):
                continue
            if running.program.once:
                self._let_go(running)
            elif running.again_at is None:
                wait = running.backoff.after(now - running.started)
                running.again_at = now + wait
                self.say(
                    f"{name} ended with {describe(end(running.process))}; starting it again in {wait:g} s"
                )
            elif now >= running.again_at:
                self._running[name] = self._launch(running.program, running.colour, running.backoff)

    def _let_go(self, running: _Running) -> None:
        """A program that was to run once has ended: only a failure is worth a line."""
        del self._running[running.program.name]
        status = end(running.process)
        running.reader.join(1)  # its last words first
        if status:
            self.say(f"{running.program.name} ended with {describe(status)}: the lines above say why")

    def _launch(self, program: Program, colour: str, backoff: Backoff) -> _Running:
        process = tethered(program.command, env=program.env, cwd=self._cwd, output=subprocess.PIPE)
        ready = threading.Event()
        reader = threading.Thread(target=self._relay, args=(program, colour, process, ready), daemon=True)
        reader.start()
        return _Running(program, colour, process, time.monotonic(), reader, ready, backoff)

    def _relay(
        self, program: Program, colour: str, process: subprocess.Popen[bytes], ready: threading.Event
    ) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._print(program.name, colour, line)
                if program.announces and re.search(program.announces, line.decode(errors="replace")):
                    ready.set()

    def _print(self, name: str, colour: str | None, data: bytes | str) -> None:
        # The programs' clock is a person's: local time, as honcho prints it.
        message = Message(type="line", data=data, time=datetime.now().astimezone(), name=name, colour=colour)
        with self._printing, suppress(BrokenPipeError):
            self._printer.write(message)


def describe(status: int) -> str:
    """An exit status in words: "status 1", "SIGKILL"."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
