"""What an effect comes from, as far as the ledger needs to know it, and what it is told came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from console.kernel.canonical import JSONValue
from console.kernel.errors import Refusal
from effects.models import Effect, WouldHave
from effects.states import EffectStatus, Stance


class Unpermitted(Refusal):
    """Whoever stands behind this sending may no longer do so. Nothing was sent."""

    code = "not_permitted"
    status = 403


class OriginLost(Exception):
    """The sender no longer holds its origin: the run was cancelled, or another worker has it."""


@dataclass(frozen=True)
class Inherited:
    """An effect of an earlier run, whose id the state of a replay or branch carries.

    *is_history*: it was settled before the checkpoint that the run was made from, so its result is part of the state.
    """

    effect: Effect
    is_history: bool


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

    def earlier(self, position: str, effect_type: str, command_key: str) -> Effect | None:  # noqa: ARG002
        """The effect that the nearest earlier run of its lineage made at the same place by the same command."""
        return None

    def inherited(self, effect_id: str) -> Inherited | None:  # noqa: ARG002
        """What *effect_id* is, where an earlier run of its lineage made it and not this one."""
        return None

    def intended_before(self, would_have_id: str) -> WouldHave | None:  # noqa: ARG002
        """What an earlier simulation of its lineage would have sent under this id."""
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
