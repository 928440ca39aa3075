"""What came of speaking to a receiver, in the ledger's terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from console.kernel.masking import mask_text_secrets
from console.kernel.texts import storable
from effects.states import Outcome

#: No more of what a receiver says is kept in words.
LONGEST_TEXT = 600


@dataclass(frozen=True)
class Answer:
    """How one delivery ended. NOT_SENT only where no byte of the request left, or the provider says so.

    *mismatch*: something else exists under the key. *cached_error*: the receiver keeps this failure under the key and
    would only repeat it, so that sending again says nothing new. *said_at*: by the receiver's own clock.
    """

    outcome: Outcome
    status: str = ""
    reference: str = ""
    body: Any = None
    problem: str = ""
    retry_after: float | None = None
    mismatch: bool = False
    cached_error: bool = False
    said_at: datetime | None = None

    def fit_to_keep(self, hidden: Iterable[str]) -> Answer:
        """The same with words that may be stored and shown: without *hidden*, cut, and of storable characters."""
        return replace(self, problem=fit_to_keep(self.problem, hidden))


@dataclass(frozen=True)
class Finding:
    """What a receiver says later, asked or not: found, under_way, failed, absent, several, mismatch or unclear.

    *absent* proves nothing by itself. *failed* is the receiver's own final answer: it has the command, nothing exists.
    *retry_after*: the seconds for which it wants not to be asked again.
    """

    found: str
    reference: str = ""
    body: Any = None
    sentence: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    retry_after: float | None = None

    def fit_to_keep(self, hidden: Iterable[str]) -> Finding:
        return replace(self, sentence=fit_to_keep(self.sentence, hidden))


def fit_to_keep(text: str, hidden: Iterable[str]) -> str:
    """*text* as it may be stored: a receiver may echo a secret or a protected value, and says what it likes."""
    return storable(mask_text_secrets(text[: 10 * LONGEST_TEXT], hidden), LONGEST_TEXT)
