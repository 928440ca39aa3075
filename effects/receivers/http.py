"""Receivers that speak JSON over HTTP. Zero retries, zero redirects, one total deadline."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpcore
from django.conf import settings

from console.kernel.masking import is_masked, mask
from effects.contracts import EffectContract, HttpLookUp, HttpWire
from effects.receivers.answers import Answer, Finding
from effects.receivers.wire import Deadline, DeadlineBackend, Late, Refused
from effects.states import Outcome

LARGEST_ANSWER = 2_000_000
#: As long as its column.
LONGEST_REFERENCE = 200


class TooLarge(Exception):
    """The receiver's answer is larger than anything we would read."""


def _exchange(
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    content: bytes,
    hosts: list[str],
    deadline: Deadline,
) -> tuple[int, dict[str, str], bytes]:
    """One request, one answer. httpcore by itself follows nothing and repeats nothing (retries=0 is for connects)."""
    with (
        httpcore.ConnectionPool(retries=0, network_backend=DeadlineBackend(deadline, hosts)) as pool,
        pool.stream(method, url, headers=list(headers.items()), content=content) as response,
    ):
        chunks, size = [], 0
        for chunk in response.iter_stream():
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise TooLarge
            chunks.append(chunk)
    return (
        response.status,
        {name.decode().lower(): value.decode("latin-1") for name, value in response.headers},
        b"".join(chunks),
    )


def _parsed(body: bytes) -> Any:
    """JSON as the standard has it, or None: NaN and what is nested beyond reading are no answer."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _excerpt(body: bytes) -> str:
    return body[:300].decode("utf-8", "replace")


def _retry_after(headers: dict[str, str]) -> float | None:
    """Seconds from now, given as a number or as a date (RFC 9110, 10.2.3)."""
    given = headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            at = parsedate_to_datetime(given)
        except ValueError:
            return None
        seconds = (at - datetime.now(UTC)).total_seconds() if at.tzinfo else -1.0
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _reference(wire: HttpWire, answer: dict[str, Any]) -> str:
    """The receiver's own id of the object; empty where it gave none that can be kept and searched for."""
    given = answer.get(wire.reference)
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        return ""
    text = str(given)
    return text if len(text) <= LONGEST_REFERENCE and text.isprintable() else ""


def _refused_scheme(base_url: str) -> str:
    if settings.PRODUCTION and not base_url.startswith("https://"):
        return "The receiver's address is not https, so nothing is sent to it"
    return ""


def deliver(
    contract: EffectContract,
    wire: HttpWire,
    *,
    base_url: str,
    hosts: list[str],
    secret: str,
    request: bytes,
    key: str,
    send_by: float,
) -> Answer:
    """Send the stored *request* once and say, in the ledger's terms, what came of it."""
    stored = json.loads(request)
    headers = {"Content-Type": stored["type"], "Accept": "application/json", "User-Agent": "signalbox"}
    if wire.key_header:
        headers[wire.key_header] = key
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    if problem := _refused_scheme(base_url):
        return Answer(Outcome.NOT_SENT, problem=problem)
    deadline = Deadline(contract.deadline, send_by)
    content = base64.b64decode(stored["body"])
    try:
        status, answered, body = _exchange(
            stored["method"],
            base_url.rstrip("/") + stored["path"],
            headers=headers,
            content=content,
            hosts=hosts,
            deadline=deadline,
        )
    except (Late, Refused) as error:
        return Answer(Outcome.NOT_SENT, problem=str(error))
    except Exception as error:
        # Whatever it was: before the first byte nothing was sent, after it nobody knows.
        if not deadline.sent:
            return Answer(Outcome.NOT_SENT, problem=f"The receiver could not be reached: {error}")
        return Answer(Outcome.UNKNOWN, problem=f"No usable answer came: {type(error).__name__}: {error}")
    return _classify(contract, wire, json.loads(content), status, answered, body)


def _classify(
    contract: EffectContract,
    wire: HttpWire,
    sent: dict[str, Any],
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> Answer:
    code = str(status)
    answer = _parsed(body)
    wait = _retry_after(headers)
    if status in wire.unprocessed:
        return Answer(
            Outcome.NOT_SENT, code, problem=f"The receiver asked to wait ({code})", retry_after=wait
        )
    if 200 <= status < 300:
        return _taken(contract, wire, sent, code, answer, body)
    said = _said(answer) or _excerpt(body)
    if _error_code(answer) in wire.key_mismatch:
        # The key was used: something exists under it, and it is not this.
        return Answer(Outcome.UNKNOWN, code, problem=f"{code}: {said}", mismatch=True)
    if status == 409 and wait is not None:
        # In progress under the same key: not a failure, and not proof that nothing was done.
        return Answer(Outcome.UNKNOWN, code, problem="The receiver is still working on it", retry_after=wait)
    if status == 409:
        return Answer(
            Outcome.UNKNOWN, code, body=answer, problem=f"The receiver already has one ({code}): {said}"
        )
    if 400 <= status < 500 and status != 408:
        return Answer(Outcome.REFUSED, code, problem=f"{code}: {said}")
    return Answer(Outcome.UNKNOWN, code, problem=f"The receiver failed ({code}): {said}")


def _taken(
    contract: EffectContract, wire: HttpWire, sent: dict[str, Any], code: str, answer: Any, body: bytes
) -> Answer:
    """A 2xx: accepted, completed, or something that does not say what was done."""
    if not isinstance(answer, dict):
        return Answer(Outcome.UNKNOWN, code, problem=f"The answer can't be read: {_excerpt(body)}")
    reference = _reference(wire, answer)
    if code == "202":
        return Answer(Outcome.ACCEPTED, code, reference, answer)
    if differing := differs(contract, wire, sent, answer):
        return Answer(Outcome.UNKNOWN, code, body=answer, problem=differing, mismatch=True)
    if not reference:
        return Answer(
            Outcome.UNKNOWN, code, body=answer, problem=f"The answer names no usable {wire.reference}"
        )
    return Answer(Outcome.COMPLETED, code, reference, answer)


def _error(answer: Any) -> Any:
    return answer.get("error") if isinstance(answer, dict) else None


def _error_code(answer: Any) -> str:
    error = _error(answer)
    found = error.get("code") or error.get("type") if isinstance(error, dict) else error
    return found if isinstance(found, str) else ""


def _said(answer: Any) -> str:
    """What the receiver says in words; its machine code only where there are none."""
    error = _error(answer)
    if isinstance(error, dict):
        return str(error.get("message") or error.get("code") or "")
    if isinstance(answer, dict):
        return str(answer.get("message") or answer.get("detail") or error or "")
    return ""


def differs(contract: EffectContract, wire: HttpWire, sent: dict[str, Any], answer: dict[str, Any]) -> str:
    """In words, the first echoed field in which *answer* differs from what was *sent*; empty when none does."""
    for name in wire.echoes:
        if name in sent and answer.get(name) != sent[name]:
            if is_masked(mask({name: sent[name]}, contract.mask)[name]):  # type: ignore[index, call-overload]  # an object stays one
                return f"The receiver holds another {name} than was sent"
            return f"The receiver says {name} is {answer.get(name)!r}, but {sent[name]!r} was sent"
    return ""


def look_up(
    contract: EffectContract,
    wire: HttpWire,
    *,
    base_url: str,
    hosts: list[str],
    secret: str,
    request: bytes,
    key: str,
) -> Finding:
    """Ask the receiver about the effect with exactly this *key*. Sends nothing that has an effect."""
    if wire.look_up is None:
        return Finding("unclear", sentence="This receiver can't be asked.")
    headers = {"Accept": "application/json", "User-Agent": "signalbox"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    path = wire.look_up.path.format_map({"key": quote(key, safe=""), "effect_id": quote(key, safe="")})
    if problem := _refused_scheme(base_url):
        return Finding("unclear", sentence=f"{problem}.")
    try:
        status, _, body = _exchange(
            "GET",
            base_url.rstrip("/") + path,
            headers=headers,
            content=b"",
            hosts=hosts,
            deadline=Deadline(contract.deadline),
        )
    except Exception as error:
        return Finding("unclear", sentence=f"The receiver did not answer: {type(error).__name__}")
    if status == 404 and not wire.look_up.items:
        return Finding("absent", sentence="The receiver has no record of it.")
    answer = _parsed(body)
    if not 200 <= status < 300 or not isinstance(answer, dict):
        return Finding("unclear", sentence=f"The receiver answered {status}: {_excerpt(body)}")
    sent = json.loads(base64.b64decode(json.loads(request)["body"]))
    return _found(contract, wire, wire.look_up, sent, key, answer)


def _found(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpLookUp,
    sent: dict[str, Any],
    key: str,
    answer: dict[str, Any],
) -> Finding:
    listed = (
        answer.get(asked.items) if asked.items else [answer.get(asked.object) if asked.object else answer]
    )
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return Finding("unclear", sentence="The receiver's answer does not say whether it has it.")
    # Exactly the key: never a prefix or a substring, whatever the receiver's search makes of it.
    exact = [one for one in listed if not asked.matches or one.get(asked.matches) == key]
    if not exact and (not asked.items or answer.get(asked.more)):
        return Finding("unclear", sentence="The receiver's answer is another object, or a list that is cut.")
    if not exact:
        return Finding("absent", sentence="The receiver has no object with exactly this id.")
    references = [_reference(wire, one) for one in exact]
    if len(exact) > 1:
        return Finding(
            "several",
            sentence=f"The receiver has {len(exact)} of them: {', '.join(references)}.",
            detail={"references": references},
        )
    if differing := differs(contract, wire, sent, exact[0]):
        return Finding("mismatch", references[0], exact[0], f"{differing}.")
    if not references[0]:
        return Finding("unclear", sentence=f"The receiver has it, but names no usable {wire.reference}.")
    return Finding("found", references[0], exact[0], f"The receiver has it as {references[0]}.")
