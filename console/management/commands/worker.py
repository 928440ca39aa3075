"""`manage.py worker`: a Celery worker that comes back when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import database
from console.celery import REPLAYER
from console.stack import BASE
from console.supervise import Backoff, describe, end, has_ended, tethered

POLL_S = 0.1


class Command(BaseCommand):
    help = (
        "Run a worker: takes runs and effects from the queues and carries them out. Celery runs as a child of this "
        "process, which starts it again when it dies. SIGTERM or Ctrl-C finishes what is under way first; "
        "a second one doesn't wait for it."
    )
    requires_system_checks: list[str] = []  # the child makes them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency", type=int, default=8, help="threads, or a replayer's processes (default 8)"
        )
        parser.add_argument("--queues", help="comma-separated (default: every queue of the application)")
        parser.add_argument(
            "--replayer",
            action="store_true",
            help="take runs in evidence and simulation, one after the other, each in a process that can reach nothing else",
        )
        parser.add_argument("--loglevel", default="info")
        parser.add_argument(
            "--no-restart", action="store_true", help="end when the child ends, with its status"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        database.require()
        command = celery_command(
            concurrency=options["concurrency"],
            queues=options["queues"] or default_queues(replayer=options["replayer"]),
            loglevel=options["loglevel"],
            replayer=options["replayer"],
        )
        if options["replayer"]:
            os.environ[REPLAYER] = "1"
        status = Keeper(command, restart=not options["no_restart"], say=self.stderr.write).run()
        sys.exit(status)


def default_queues(*, replayer: bool = False) -> str:
    """The queues of the workflows that this deployment holds. CommandError for one that can't be used, naming it."""
    from console.celery import worker_queues
    from effects.contracts import ContractError
    from runs.engine.registry import WorkflowRefused

    try:
        return ",".join(worker_queues(replayer=replayer))
    except (WorkflowRefused, ContractError) as refused:
        raise CommandError(str(refused)) from None


def celery_command(
    *,
    concurrency: int,
    queues: str,
    loglevel: str,
    replayer: bool = False,
    app: str = "console.celery:app",
) -> list[str]:
    # A replayer forks a child for each run by itself (runs.apart), and so must not have threads.
    pool = ("solo",) if replayer else ("threads", "--concurrency", str(concurrency))
    return [
        sys.executable,
        *("-m", "celery", "--quiet", "-A", app, "worker"),
        *("--pool", *pool, "--loglevel", loglevel),
        # Several on one machine must not share a name. Nothing here listens to what workers tell each other.
        *(
            "--hostname",
            f"{'replayer' if replayer else 'worker'}-{os.getpid()}@%h",
            "--without-gossip",
            "--without-mingle",
        ),
        *(("--queues", queues) if queues else ()),
    ]


class Keeper:
    """Keeps one child alive, passes a stop on to it, and takes it along when it is killed itself (see tether.py)."""

    def __init__(self, command: list[str], *, restart: bool, say: Callable[[str], object]) -> None:
        self._command = command
        self._restart = restart
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._stops = 0

    def run(self) -> int:
        """Return the exit status to end with: 0 after a stop that was asked for."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._stop)
        backoff = Backoff()
        while True:
            began = time.monotonic()
            status = self._live_once()
            if self._is_stopping():
                return 0
            if not self._restart:
                return status if status >= 0 else 128 - status
            wait = backoff.after(time.monotonic() - began)
            self._say(f"the worker ended with {describe(status)}; starting it again in {wait:g} s")
            while wait > 0 and not self._is_stopping():
                time.sleep(min(POLL_S, wait))
                wait -= POLL_S
            if self._is_stopping():
                return 0

    def _live_once(self) -> int:
        self._child = tethered(self._command, cwd=BASE)
        if self._is_stopping():  # asked while it was being started
            self._pass_on()
        while not has_ended(self._child):
            time.sleep(POLL_S)
        status = end(self._child)
        self._child = None
        return status

    def _is_stopping(self) -> bool:
        return self._stops > 0

    def _stop(self, _signum: int, _frame: FrameType | None) -> None:
        self._stops += 1
        self._pass_on()

    def _pass_on(self) -> None:
        """A warm shutdown at first; SIGKILL when asked again.

        Celery's own cold shutdown can't end tasks in threads and fails half-way (celery 5.7). A kill is what recovery
        is made for: the runs of this worker are taken up again when their leases end.
        """
        if self._child is not None and not has_ended(self._child):
            os.kill(self._child.pid, signal.SIGTERM if self._stops == 1 else signal.SIGKILL)
