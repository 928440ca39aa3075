"""How several workers share the tests (``pytest -n``, which is pytest-xdist).

Each worker is a process with a Postgres and a Redis of its own, so what a test does there no other worker sees. Within a worker
a database is used up as in one process (see tests/kinds.py): whoever has begun with the stack's tests is given no others
that use it. One worker begins with them at once: they mostly wait, and the others compute meanwhile.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

from tests.kinds import Kind

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


#: What uses the worker's database, which never goes back.
DATABASE = (Kind.ROLLED_BACK, Kind.COMMITTED, Kind.STACK)
OTHERS = (Kind.PROCESSES, Kind.NOTHING)


class Shares(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist tells no types
    """Hands out the tests of one file and kind at a time, of several files the one with the most tests first.

    What is long comes early in its kind, so that at the end no worker is left alone with it.
    """

    def __init__(self, config: pytest.Config, log: Producer, kinds: Path) -> None:
        """*kinds*: where the first worker to collect the tests has written the kind of each, as JSON by id."""
        super().__init__(config, log)
        self._file = kinds
        self._kinds: dict[str, Kind] = {}

    def schedule(self) -> None:
        if not self._kinds:
            found = json.loads(self._file.read_text())
            self._kinds = {test: Kind(kind) for test, kind in found.items()}
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return f"{self._kinds[nodeid]} {nodeid.partition('::')[0]}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        for kind in self._turns(node):
            for scope in self.workqueue:
                if _kind(scope) == kind:
                    self.workqueue.move_to_end(scope, last=False)
                    super()._assign_work_unit(node)
                    return
        node.shutdown()  # what is left is not for this one, and nothing will be added

    def _turns(self, node: WorkerController) -> list[Kind]:
        """What *node* may be given, in the order in which it is offered."""
        given = [DATABASE.index(kind) for kind in map(_kind, self.assigned_work[node]) if kind in DATABASE]
        left = DATABASE[max(given, default=0) :]
        if node is self.nodes[0] and len(self.nodes) > 1:
            return [Kind.STACK, *left[:-1], *OTHERS]
        return [*left[:-1], *OTHERS, Kind.STACK]


def _kind(scope: str) -> Kind:
    return Kind(scope.partition(" ")[0])
