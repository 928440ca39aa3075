"""The work of one process, that can be held up at the network, and killed between any two statements.

Each errand is a greenlet that runs the product's own code. While it stands still others run, in the same database
transaction: at the points where it can stand still the product holds none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db import connection
from greenlet import getcurrent, greenlet

from tests.model.faults import Fault, View


class Killed(BaseException):
    """SIGKILL: nothing of the process runs any more. No handler of the product may catch it."""


class Stop(StrEnum):
    """Where an errand can be held up, as its story says it."""

    BEFORE = "before its first byte"
    ARRIVED = "after the receiver took it"
    ANSWERED = "with the answer in hand"


#: They are no moment of their own: what is between two of them is undone as a whole.
_BOUNDARIES = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")


@dataclass
class Errand:
    """*stops*: where it is to stand still. *dies_before*: the number of the statement that it does not live to make.

    *attempt_id*: the attempt whose request it is sending, or has sent.
    """

    words: str
    effect_id: str
    work: Callable[[], Any]
    fault: Fault = Fault.NONE
    view: View = View.TRUE
    stops: frozenset[Stop] = frozenset()
    dies_before: int | None = None
    statements: int = 0
    stands: Stop | None = None
    attempt_id: int | None = None
    killed: bool = False
    error: Exception | None = None
    result: Any = None
    _thread: greenlet = field(init=False)

    def __post_init__(self) -> None:
        self._thread = greenlet(self._run)
        self._thread.errand = self

    def _run(self) -> None:
        try:
            self.result = self.work()
        except Killed:
            self.killed = True
        except Exception as error:
            self.error = error

    @property
    def over(self) -> bool:
        return bool(self._thread.dead)

    def go(self) -> Errand:
        """Run until it is over or stands still."""
        self.stands = None
        self._thread.switch()
        return self

    def kill(self) -> None:
        """Where it stands."""
        self._thread.throw(Killed)

    def may_stop(self, at: Stop) -> None:
        """Called from within: stand still here if that was asked."""
        if at in self.stops:
            self.stands = at
            self._thread.parent.switch()

    def counts(self, sql: str) -> None:
        if sql.startswith(_BOUNDARIES):
            return
        self.statements += 1
        if self.statements == self.dies_before:
            raise Killed


def underway() -> Errand | None:
    """The errand that this code runs in."""
    return getattr(getcurrent(), "errand", None)


@contextmanager
def counted_statements() -> Iterator[None]:
    """Within it every statement of an errand counts, so that it can die before any of them."""

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        errand = underway()
        if errand is not None:
            errand.counts(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        yield
