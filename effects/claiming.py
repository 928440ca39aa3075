"""The transaction in which an effect is claimed, and what the database must be like for that.

Committed before the first byte, the attempt is all that keeps an effect from being sent twice. So it is made only in the
database that the ledger was written in (effects.restored), and an irreversible one only where a commit is not lost in
a crash (effects.durability).
"""

from __future__ import annotations

from functools import partial
from types import TracebackType

from django.db import transaction

from effects import durability, moves, restored
from effects.models import Effect, EffectAttempt
from effects.states import Reversibility


class WentBack(Exception):
    """The database gave a number out again: it was put back while this process was connected to it."""


class Claim:
    """``with Claim() as claim:`` around a claim. Entering it may freeze sending; leaving it commits, or rolls back.

    A database that turns out to have gone back meanwhile ends the block without a word: nothing was claimed.
    """

    def __enter__(self) -> Claim:
        self._newest = restored.ensure()
        self._atomic = transaction.atomic()
        self._atomic.__enter__()
        return self

    def is_safe(self, effect: Effect) -> bool:
        """Whether this database can be trusted with an attempt of *effect*. If not, the effect waits and says why."""
        if not restored.trusted():
            return False
        forgets = durability.problem() if effect.reversibility == Reversibility.IRREVERSIBLE else ""
        if forgets:
            moves.say_why_it_waits(effect.id, forgets)
        return not forgets

    def note(self, attempt: EffectAttempt | None) -> None:
        """The attempt that was made in here, if any. Raises WentBack for a number that is not new."""
        if attempt is None:
            return
        if attempt.id <= self._newest:
            raise WentBack(f"attempt {attempt.id} was made again")
        transaction.on_commit(partial(restored.remember, attempt), robust=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._atomic.__exit__(kind, error, trace)
        if isinstance(error, WentBack):
            restored.check()
            return True
        return False
