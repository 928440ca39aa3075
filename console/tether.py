"""Become another program, tied to the life of the process that started this one.

Run as a script, never imported: ``python -I -S tether.py PARENT SIGNAL USER GROUP COMMAND…``. It asks the kernel to send
SIGNAL when its parent dies (PR_SET_PDEATHSIG, Linux only: elsewhere a parent that is killed leaves its children running),
takes on USER and GROUP unless they are "-", and turns into COMMAND, under the same process id.

A script, because the other way, a function between fork and exec, may deadlock in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, signum: str, user: str, group: str, *command: str) -> None:
    if user != "-":
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    if sys.platform == "linux":
        # After the change of user, which would undo it; exec keeps it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the tether held
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
