"""Workers of a probe: processes of their own, forked from it, which hand over what they found and end, or are killed.

Forked, so that each begins with the contract in memory; every one opens its own connections, because the probe closes
its own before it forks. The probe's process has one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Generic, TypeVar

from django.db import connections

from console.kernel.errors import Refusal

T = TypeVar("T")

_FORK = multiprocessing.get_context("fork")
#: How long those that begin together wait for each other, in seconds.
_TOGETHER_S = 30


class WorkerFailed(Exception):
    """A worker ended without saying what it found. The message is what went wrong in it, in words."""


class _Worker(Generic[T]):
    """One forked process that does *work* once; *killed*: it then ends itself with SIGKILL, with nothing tidied up."""

    def __init__(self, work: Callable[[], T], *, killed: bool, gate: Barrier | None = None) -> None:
        self._killed = killed
        connections.close_all()
        self._found, handing_over = _FORK.Pipe(duplex=False)
        self._process: BaseProcess = _FORK.Process(
            target=_live, args=(work, handing_over, killed, gate), daemon=True
        )
        self._process.start()
        # Else the end of the worker could not be told from its silence.
        handing_over.close()

    def found(self, within: float) -> T:
        """What it found. Raises WorkerFailed, also where it was to be killed and ended otherwise."""
        with closing(self._found):
            try:
                said = self._found.recv() if self._found.poll(within) else None
            except EOFError:
                said = None
            if said is None:
                self._process.kill()
            self._process.join(within)
        status = self._process.exitcode
        if said is None:
            raise WorkerFailed(f"a worker ended with status {status} and found nothing")
        failed, found = said
        if failed:
            raise WorkerFailed(str(found))
        if self._killed and status != -signal.SIGKILL:
            raise WorkerFailed(f"a worker that was to be killed ended with status {status}")
        result: T = found
        return result


def _live(work: Callable[[], object], handing_over: Connection, killed: bool, gate: Barrier | None) -> None:
    """The worker's whole life. An error is handed over as words: its type may not exist where it is read."""
    try:
        if gate is not None:
            gate.wait(_TOGETHER_S)
        handing_over.send((False, work()))
    except Refusal as refusal:
        handing_over.send((True, refusal.message))
        return
    except Exception as error:
        handing_over.send((True, f"{type(error).__name__}: {error}"))
        return
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after(work: Callable[[], T], *, within: float) -> T:
    """Let a worker do *work* and kill it with SIGKILL before it does anything with what it found; that is returned."""
    return _Worker(work, killed=True).found(within)


def at_once(work: Sequence[Callable[[], T]], *, within: float) -> list[T]:
    """Let each be done by a worker of its own, all begun together, and return what each found."""
    gate = _FORK.Barrier(len(work))
    workers = [_Worker(one, killed=False, gate=gate) for one in work]
    return [worker.found(within) for worker in workers]
