"""What came of speaking to a receiver, in the ledger's terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from console.kernel.masking import mask_text_secrets
from console.kernel.texts import storable
from effects.states import Outcome

#: No more of what a receiver says is kept in words.
LONGEST_TEXT = 600


@dataclass(frozen=True)
class Answer:
    """How one delivery ended. NOT_SENT only where no byte of the request left, or the provider says so."""

    outcome: Outcome
    status: str = ""
    reference: str = ""
    body: Any = None
    problem: str = ""
    retry_after: float | None = None
    mismatch: bool = False

    def fit_to_keep(self, hidden: Iterable[str]) -> Answer:
        """The same with words that may be stored and shown: without *hidden*, cut, and of storable characters."""
        return replace(self, problem=fit_to_keep(self.problem, hidden))


@dataclass(frozen=True)
class Finding:
    """What a look-up found: found, absent, several, mismatch or unclear. ABSENT proves nothing by itself."""

    found: str
    reference: str = ""
    body: Any = None
    sentence: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    def fit_to_keep(self, hidden: Iterable[str]) -> Finding:
        return replace(self, sentence=fit_to_keep(self.sentence, hidden))


def fit_to_keep(text: str, hidden: Iterable[str]) -> str:
    """*text* as it may be stored: a receiver may echo a secret or a protected value, and says what it likes."""
    return storable(mask_text_secrets(text[: 10 * LONGEST_TEXT], hidden), LONGEST_TEXT)
