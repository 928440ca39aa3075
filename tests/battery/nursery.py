"""A process that has everything imported and no thread: it forks a worker for each order, to be killed for real.

An order is a line, ``execute <run id>`` or ``look <effect id>``. It says the worker's process id, and in another line, once
the worker has ended, its exit status (negative: the signal that killed it).
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django

    django.setup()
    import runs.tasks  # noqa: F401  # what a worker imports first
    from runs.engine.registry import workflows

    workflows()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, which = line.split()
        pid = os.fork()
        if pid == 0:
            _work(verb, which)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _work(verb: str, which: str) -> None:
    """As a worker, or the sweep, does; this process has nothing open yet that the nursery shares."""
    from effects import reconcile
    from runs import execution

    os.dup2(2, 1)
    try:
        if verb == "look":
            reconcile.look(which)
        else:
            execution.begin_process()
            execution.execute(which)
            execution.end_process()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
