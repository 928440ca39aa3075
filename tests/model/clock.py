"""The time of the model: the database's clock and this process's monotonic one, moved by hand and nothing else.

No row is touched to make time pass. Every `Now()` of the product is compiled to the moment that this clock shows, the
defaults of time columns too, so that a window, a lease or a settle time is over exactly when the clock says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

from django.db import connection
from django.db.models.functions import Now

from effects import hooks, ledger, restored
from effects.receivers import wire

EPOCH = datetime(2031, 3, 1, 9, 0, tzinfo=UTC)
#: What one reading of the clock takes: no two rows of an example bear the same moment.
TICK = timedelta(microseconds=10)


@dataclass
class Clock:
    now: datetime = EPOCH

    def reading(self) -> datetime:
        self.now += TICK
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def since(self, moment: datetime) -> float:
        return (self.now - moment).total_seconds()

    def monotonic(self) -> float:
        return (self.reading() - EPOCH).total_seconds()


@contextmanager
def governs(clock: Clock) -> Iterator[None]:
    """Within it the ledger has no other time than *clock*'s."""

    def compiled(self: Now, compiler: Any, connection: Any, **more: Any) -> tuple[str, list[Any]]:
        return "%s::timestamptz", [clock.reading()]

    process = SimpleNamespace(monotonic=clock.monotonic)
    with ExitStack() as patched:
        for owner, name, value in (
            (Now, "as_postgresql", compiled),
            (connection.features, "supports_default_keyword_in_insert", False),
            (ledger, "time", process),
            (wire, "time", process),
            (hooks, "_database_now", clock.reading),
            # By real time it would be looked at again now and then: an example would not repeat statement by statement.
            (restored, "READ_AGAIN", float("inf")),
        ):
            patched.enter_context(mock.patch.object(owner, name, value))
        yield
