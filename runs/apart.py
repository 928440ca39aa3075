"""What a replayer does with a run: a child for each, bound to the run's mode before any code of its workflow runs.

The parent loads the workflows and never runs one. It has a single thread, so that a fork copies no lock that somebody
holds, and it closes its connections before each.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import FrameType

from django.db import connections

from runs import execution
from runs.execution import WorkerProcess

logger = logging.getLogger(__name__)

#: How often the parent looks after its child, and shows that it is alive itself.
_LOOK_S, _SHOW_S = 0.05, 1.0

_child = 0


def execute_in_child(run_id: str) -> str:
    """One visit to a run, in a child of this process that ends with it. Returns how the child ended, for the log.

    A child that is killed leaves what a lost worker leaves: its lease ends, and the sweep has the run taken up again.
    """
    global _child
    process = execution.this_process()
    connections.close_all()
    _child = os.fork()
    if _child == 0:
        _live(process, run_id, parent=os.getppid())
    try:
        return _ended(process, _child)
    finally:
        _child = 0


def _ended(process: WorkerProcess, child: int) -> str:
    shown = 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return "done" if code == 0 else f"its process ended with {code}"
        if time.monotonic() - shown > _SHOW_S:
            shown = time.monotonic()
            execution.show_alive(process)
        time.sleep(_LOOK_S)


def drain_child() -> None:
    """Have the child hand its run back at the next safe point."""
    if _child:
        os.kill(_child, signal.SIGTERM)


def _live(process: WorkerProcess, run_id: str, *, parent: int) -> None:
    """The child's whole life. It never returns: nothing of the parent's is to be cleaned up by it."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, _drain)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_follow, args=[parent], name="follow", daemon=True).start()
        execution.begin_pulse(process)
        logger.info("run %s: %s", run_id, execution.execute(run_id))
        code = 0
    except BaseException:
        logger.exception("the replay of %s failed in its process", run_id)
    finally:
        logging.shutdown()
        os._exit(code)


def _drain(_signum: int, _frame: FrameType | None) -> None:
    execution.drain_process()


def _follow(parent: int) -> None:
    """A parent that was killed takes its child along: nobody would know of it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(execution.RESTART)
