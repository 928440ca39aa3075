"""Fault orders for mail: which recipient's delivery shall go wrong, how, how often. Kept in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

KINDS: Final = ("drop_after_data", "refuse", "defer", "hang")
#: Where in the dialogue a refusal is given: at the recipient's name, or after the whole message came.
PLACES: Final = ("rcpt", "data")
REPLIES: Final = {
    "refuse": "550 5.1.1 the recipient is not known here",
    "defer": "451 4.3.0 try again later",
}


class BadOrder(ValueError):
    """The order can't be taken; the message says why."""


@dataclass
class Fault:
    kind: str
    remaining: int
    to: str | None
    at: str
    seconds: float


def parse(document: object) -> Fault:
    """``{"kind", "times"?, "match": {"to"?}, "at"?, "seconds"?}``. Raises BadOrder."""
    if not isinstance(document, dict):
        raise BadOrder("an order is a JSON object")
    known = {"kind", "times", "match", "at", "seconds"}
    if unknown := sorted(set(document) - known):
        raise BadOrder(f"an order has {', '.join(sorted(known))}, not {', '.join(unknown)}")
    kind, match = document.get("kind"), document.get("match", {})
    if kind not in KINDS:
        raise BadOrder(f"kind must be one of {', '.join(KINDS)}")
    if not isinstance(match, dict) or set(match) - {"to"} or not isinstance(match.get("to", ""), str):
        raise BadOrder("match may have to, an address")
    times, seconds = document.get("times", 1), document.get("seconds", 30)
    if not isinstance(times, int) or not 1 <= times <= 1000:
        raise BadOrder("times must be a whole number from 1 to 1000")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= 3600:
        raise BadOrder("seconds must be a number up to 3600")
    at = document.get("at", "rcpt" if kind in REPLIES else "data")
    if at not in PLACES or (at == "rcpt" and kind not in REPLIES):
        raise BadOrder("at must be rcpt or data; only refuse and defer can come at rcpt")
    return Fault(kind, times, match.get("to"), at, float(seconds))


class Faults:
    """The pending orders, first come first used. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []

    def place(self, fault: Fault) -> None:
        with self._lock:
            self._pending.append(fault)

    def take(self, at: str, recipients: Iterable[str]) -> Fault | None:
        """The first order for this point of the dialogue and one of *recipients*, used up by one."""
        wanted = {address.lower() for address in recipients}
        with self._lock:
            for fault in self._pending:
                if fault.at == at and (fault.to is None or fault.to.lower() in wanted):
                    fault.remaining -= 1
                    self._pending = [other for other in self._pending if other.remaining]
                    return fault
        return None

    def pending(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(fault) for fault in self._pending]

    def clear(self) -> int:
        with self._lock:
            cleared, self._pending = len(self._pending), []
        return cleared
