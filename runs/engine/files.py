"""Which files a workflow's nodes write by a path of their own: a replay or branch of such a run would overwrite them.

An audit hook of this process (PEP 578) sees every file that Python opens for writing while a node runs. It refuses
nothing. What a node keeps for itself in the folder for temporary files is nobody's business.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from runs.engine.going import TASK

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_MOVES = frozenset(
    {"os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink", "shutil.copyfile", "shutil.move"}
)
#: How many paths of one execution are told.
MOST = 20


@cache
def watch() -> None:
    """From now on note in each task's execution what its node writes. Once a process."""
    own = [Path(folder).resolve() for folder in (tempfile.gettempdir(), "/dev", "/proc")]
    own += [Path(folder).resolve() for folder in {sys.prefix, sys.base_prefix}]

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and bool(flags & _WRITES)
        elif event in _MOVES:
            path, writes = arguments[0], True
        else:
            return
        task = TASK.get() if writes and isinstance(path, (str, bytes, os.PathLike)) else None
        if task is None or len(task.going.written) >= MOST:
            return
        absolute = Path(os.path.abspath(os.fsdecode(path)))
        if "__pycache__" not in absolute.parts and not any(absolute.is_relative_to(one) for one in own):
            task.going.written.add((task.node, str(absolute)))

    sys.addaudithook(seen)
