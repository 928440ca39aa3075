"""What a receiver's answer says: its words, its object, and whether that is what was sent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urldefrag, urljoin

from console.kernel.masking import is_masked, mask
from effects.contracts import EffectContract
from effects.wires import HttpWire, at, marks

#: As long as its column.
LONGEST_REFERENCE = 200


def parsed(body: bytes) -> Any:
    """JSON as the standard has it, or None: NaN and what is nested beyond reading are no answer."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def excerpt(body: bytes) -> str:
    return body[:300].decode("utf-8", "replace")


def retry_after(headers: dict[str, str]) -> float | None:
    """Seconds from now, given as a number or as a date (RFC 9110, 10.2.3)."""
    given = headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            when = parsedate_to_datetime(given)
        except ValueError:
            return None
        seconds = (when - datetime.now(UTC)).total_seconds() if when.tzinfo else -1.0
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def location_of(headers: dict[str, str], base_url: str, path: str) -> str:
    """Where the answer to a request at *path* says that more is to be learned (RFC 9110, 10.2.2), below *base_url*.

    Empty where it says nothing, or names an address elsewhere: the secret goes with each question, and is not carried
    to wherever an answer points.
    """
    base = base_url.rstrip("/")
    named = headers.get("location", "")
    try:
        whole = urldefrag(urljoin(f"{base}{path}", named)).url if named else ""
    except ValueError:
        return ""
    below = whole.removeprefix(base)
    kept = below != whole and below.startswith("/") and below.isprintable() and " " not in below
    return below if kept and len(below) <= LONGEST_REFERENCE else ""


def limit_resets(headers: dict[str, str]) -> float | None:
    """Seconds until an exhausted rate limit is filled again, where the widespread x-ratelimit headers say so."""
    if headers.get("x-ratelimit-remaining") != "0":
        return None
    try:
        return max(float(headers.get("x-ratelimit-reset", "")) - time.time(), 0.0)
    except ValueError:
        return None


def reference_of(wire: HttpWire, one: Mapping[str, Any], key: str, named: str = "") -> str:
    """The receiver's own id of the object; empty where it gave none that can be kept and searched for.

    A receiver that gives none at all knows it by the effect's *key*. *named*: what the id is called here.
    """
    if not wire.reference:
        return key
    given = at(one, named or wire.reference)
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        return ""
    text = str(given)
    return text if len(text) <= LONGEST_REFERENCE and text.isprintable() else ""


def keys_of(wire: HttpWire, matches: str, one: dict[str, Any]) -> list[str]:
    """The keys of effects that the receiver's object bears: exactly what stands there, never a part of it."""
    if not matches and wire.marker:
        text = at(one, wire.marker)
        return marks(text) if isinstance(text, str) else []
    found = at(one, matches) if matches else None
    return [found] if isinstance(found, str) and found else []


def differs(
    contract: EffectContract, sent: Mapping[str, Any], answer: Mapping[str, Any], *, shown_only: bool = False
) -> str:
    """In words, the first echoed field in which *answer* differs from what was *sent*; empty when none does.

    *shown_only*: a field that is not there is no difference; what is not final yet need not show everything.
    """
    for name, value in sent.items():
        said = at(answer, name)
        if said is None and shown_only:
            continue
        if said != value or isinstance(said, bool) != isinstance(value, bool):
            if _protected(contract, name, value):
                return f"The receiver holds another {name} than was sent"
            return f"The receiver says {name} is {said!r}, but {value!r} was sent"
    return ""


def _protected(contract: EffectContract, name: str, value: Any) -> bool:
    """Whether the contract protects the field, or what it stands in."""
    parts = name.split(".")
    whole: Any = value
    for part in reversed(parts):
        whole = {part: whole}
    shown: Any = mask(whole, contract.mask)
    for part in parts:
        shown = shown if is_masked(shown) else shown[part]
    return is_masked(shown)


def error_code(answer: Any) -> str:
    """The receiver's machine code for what went wrong."""
    error = _error(answer)
    named = error if isinstance(error, dict) else {"code": error}
    top = answer if isinstance(answer, dict) else {}
    found = named.get("code") or named.get("type") or top.get("code") or top.get("type")
    return found if isinstance(found, str) else ""


def _error(answer: Any) -> Any:
    return answer.get("error") if isinstance(answer, dict) else None


def said(answer: Any) -> str:
    """What the receiver says in words; its machine code only where there are none."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        answer = answer[0]
    error = _error(answer)
    if isinstance(error, dict):
        return str(error.get("message") or error.get("title") or error.get("code") or "")
    if isinstance(answer, dict):
        words = (answer.get(name) for name in ("message", "detail", "description", "title"))
        return str(next((one for one in words if one), None) or error or "")
    return ""


def date_of(headers: dict[str, str]) -> datetime | None:
    """When the receiver says that it answered (RFC 9110, 6.6.1); None where it says nothing that can be read."""
    try:
        at = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return at if at.tzinfo else None
