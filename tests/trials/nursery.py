"""A process that imports everything once and then keeps so many workers alive by forking: one that is killed is back
in a fraction of a second. Each is a process of its own, with connections, threads and a worker's row of its own.

`python -m tests.trials.nursery 4`; SIGTERM ends it and them.
"""

from __future__ import annotations

import os
import signal
import sys

_stopping = False
_alive: set[int] = set()


def main(count: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django

    django.setup()
    # Imported here, so that no child has to.
    from console import celery  # noqa: F401
    from runs import tasks  # noqa: F401
    from runs.engine.registry import workflows

    workflows()
    signal.signal(signal.SIGTERM, _stop)
    for _ in range(count):
        _alive.add(_born())
    print("ready.", flush=True)
    while _alive:
        pid, _status = os.wait()
        _alive.discard(pid)
        if not _stopping:
            _alive.add(_born())


def _stop(*_: object) -> None:
    global _stopping
    _stopping = True
    for pid in _alive:
        os.kill(pid, signal.SIGKILL)


def _born() -> int:
    """One more worker. Nobody is told to stop between its birth and its being known."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if pid == 0:
        try:
            from tests.worker import work

            work()
        finally:
            os._exit(1)
    return pid


if __name__ == "__main__":
    main(int(sys.argv[1]))
