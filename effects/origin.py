"""What an effect comes from, as far as the ledger needs to know it, and what it is told came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from console.kernel.canonical import JSONValue
from console.kernel.errors import Refusal
from effects.models import WouldHave
from effects.states import EffectStatus, Stance


class Unpermitted(Refusal):
    """Whoever stands behind this sending may no longer do so. Nothing was sent."""

    code = "not_permitted"
    status = 403


class OriginLost(Exception):
    """The sender no longer holds its origin: the run was cancelled, or another worker has it."""


class Origin(Protocol):
    """What an effect comes from, as far as the ledger needs to know it. Who inherits from it sends, and records nothing."""

    @property
    def workspace_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def customer_ref(self) -> str: ...
    @property
    def name(self) -> str:
        """For the attempt's row: the execution or the order."""

    @property
    def worker_id(self) -> str: ...
    @property
    def stance(self) -> Stance:
        """Whether it sends; a live replay or branch does, but asks for each and irreversible types need permission."""
        return Stance.LIVE

    @property
    def permitted_types(self) -> frozenset[str]:
        """The irreversible types that a releaser has permitted it, where its stance is FRESH."""
        return frozenset()

    def recorded_result(self, intended: WouldHave) -> Result | None:  # noqa: ARG002
        """What the recording says came of this effect, where its stance is EVIDENCE."""
        return None

    def hold(self) -> None:
        """Lock the origin's row until the transaction ends, or raise OriginLost."""

    def check_permitted(self) -> None:
        """Raise Unpermitted, in words, when the person behind it may no longer do this. Asked before each sending."""


@dataclass(frozen=True)
class Result:
    """What became of an effect: brought about, or turned down by a person."""

    effect_id: str
    status: str
    reference: str = ""
    answer: JSONValue = None
    rejected: bool = False
    reason: str = ""

    @property
    def completed(self) -> bool:
        return self.status == EffectStatus.COMPLETED
