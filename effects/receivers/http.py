"""Receivers that take requests over HTTP: deliver the stored one once, and say what came of it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

from effects.contracts import EffectContract
from effects.receivers.answers import Answer
from effects.receivers.commands import command_number, failed, under_way
from effects.receivers.exchange import check_scheme, credentials, exchange
from effects.receivers.reading import (
    date_of,
    differs,
    error_code,
    excerpt,
    limit_resets,
    location_of,
    parsed,
    reference_of,
    retry_after,
    said,
)
from effects.receivers.wire import Deadline, Late, Refused
from effects.states import Outcome
from effects.wires import HttpWire, State


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
    content = base64.b64decode(stored["body"])
    deadline = Deadline(contract.deadline, send_by)
    try:
        check_scheme(base_url)
        headers = {"Accept": "application/json", "User-Agent": "signalbox", **stored["headers"]}
        if wire.key_header:
            headers[wire.key_header] = f'"{key}"' if wire.key_quoted else key
        headers |= credentials(wire, secret, key=key, content=content)
        status, answered, body = exchange(
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
        return Answer(Outcome.UNKNOWN, problem=f"No usable answer came: {_in_words(error)}")
    answer = _classify(contract, wire, stored["echoes"], key, status, answered, body)
    if answer.outcome == Outcome.ACCEPTED and wire.polls_location:
        answer = replace(answer, reference=location_of(answered, base_url, stored["path"]))
    return replace(answer, said_at=date_of(answered))


def _in_words(error: Exception) -> str:
    """What it says first, its class for whoever looks it up; some say nothing, and then the class is all there is."""
    said, name = str(error).rstrip("."), type(error).__name__
    return f"{said} ({name})" if said else name


def _classify(
    contract: EffectContract,
    wire: HttpWire,
    sent: dict[str, Any],
    key: str,
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> Answer:
    code = str(status)
    wait = retry_after(headers)
    if status in wire.rate_limited and wait is None:
        wait = limit_resets(headers)
    if status in wire.unprocessed or (status in wire.rate_limited and wait is not None):
        return Answer(
            Outcome.NOT_SENT, code, problem=f"The receiver asked to wait ({code})", retry_after=wait
        )
    answer = parsed(body)
    if 200 <= status < 300:
        return replace(_taken(contract, wire, sent, key, code, answer, body), retry_after=wait)
    words = said(answer) or excerpt(body)
    if error_code(answer) in wire.key_mismatch or status in wire.mismatch_statuses:
        # The key was used: something exists under it, and it is not this.
        return Answer(Outcome.UNKNOWN, code, problem=f"{code}: {words}", mismatch=True)
    if status in wire.in_progress or (status == 409 and wait is not None):
        # In progress under the same key: not a failure, and not proof that nothing was done.
        return Answer(Outcome.UNKNOWN, code, problem="The receiver is still working on it", retry_after=wait)
    if status in wire.exists:
        return Answer(
            Outcome.UNKNOWN, code, body=answer, problem=f"The receiver already has one ({code}): {words}"
        )
    return _failed(wire, status, words, repeated=_is_repeated(wire, headers))


def _failed(wire: HttpWire, status: int, words: str, *, repeated: bool) -> Answer:
    code = str(status)
    if 400 <= status < 500 and status != 408:
        return Answer(Outcome.REFUSED, code, problem=f"{code}: {words}", cached_error=repeated)
    problem = f"The receiver failed ({code}): {words}"
    if repeated or (wire.errors_cached and status >= 500):
        return Answer(Outcome.UNKNOWN, code, problem=f"{problem}. {REPEATS}", cached_error=True)
    return Answer(Outcome.UNKNOWN, code, problem=problem)


REPEATS = "It keeps this answer under the key and would only repeat it"


def _is_repeated(wire: HttpWire, headers: dict[str, str]) -> bool:
    """Whether the receiver marked the answer as one that it gave before."""
    if wire.replay is None:
        return False
    name, value = wire.replay
    return headers.get(name.lower(), "").lower() == value.lower()


def _taken(
    contract: EffectContract,
    wire: HttpWire,
    sent: dict[str, Any],
    key: str,
    code: str,
    answer: Any,
    body: bytes,
) -> Answer:
    """A 2xx: accepted, completed, or something that does not say what was done."""
    if not wire.reference:
        # This receiver says nothing more than that it has it.
        problem = differs(contract, sent, answer) if isinstance(answer, dict) else ""
        if problem:
            return Answer(Outcome.UNKNOWN, code, body=answer, problem=problem, mismatch=True)
        return Answer(Outcome.COMPLETED, code, key, answer)
    one = answer.get(wire.envelope) if wire.envelope and isinstance(answer, dict) else answer
    if code == "202" and not body.strip():
        return Answer(Outcome.ACCEPTED, code)
    if not isinstance(one, dict):
        return Answer(Outcome.UNKNOWN, code, problem=f"The answer can't be read: {excerpt(body)}")
    state = _state(contract, wire, code, one)
    if differing := differs(contract, sent, one, shown_only=state != "completed"):
        return Answer(Outcome.UNKNOWN, code, body=one, problem=differing, mismatch=True)
    if state == "failed" and wire.progress:
        return Answer(Outcome.REFUSED, code, problem=failed(wire.progress, one))
    if state == "under_way":
        return Answer(Outcome.ACCEPTED, code, command_number(wire, one), one, under_way(wire.progress, one))
    reference = reference_of(wire, one, key)
    if not reference:
        return Answer(Outcome.UNKNOWN, code, body=one, problem=f"The answer names no usable {wire.reference}")
    return Answer(Outcome.COMPLETED, code, reference, one)


def _state(contract: EffectContract, wire: HttpWire, code: str, one: dict[str, Any]) -> State:
    """Whether a 2xx is the end of it. A 202 never is (RFC 9110, 15.3.3), whatever its object says."""
    if wire.progress:
        state = wire.progress.of(one)
        return "under_way" if code == "202" and state == "completed" else state
    return "completed" if contract.synchronous and code != "202" else "under_way"
