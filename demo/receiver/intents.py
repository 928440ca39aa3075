"""What a request means to change, checked before anything is touched."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from demo.receiver.loopback import Answer, Request

PREFIXES: Final = {
    "customers": "cus",
    "offers": "off",
    "tickets": "tic",
    "invoices": "inv",
    "reservations": "res",
    "credits": "crd",
}
OBJECT_ID: Final = re.compile(r"[a-z]{3}_[A-Za-z0-9]{1,40}")
KEY_LIMIT: Final = 255

Document = dict[str, Any]


class Refused(Exception):
    """The request is not carried out; ``answer`` says why. Raised inside a transaction it also undoes it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(frozen=True)
class Intent:
    """A valid request to change something. ``object_id`` is None where the receiver chooses it (POST)."""

    account: str
    request_seq: int
    key: str | None
    method: str
    path: str
    body_sha256: str
    resource: str
    object_id: str | None
    fields: Document


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def idempotency_key(request: Request) -> str | None:
    """The key, without the quotes that the IETF draft puts around it. None when the header is missing."""
    raw = request.header("idempotency-key")
    if raw is None:
        return None
    raw = raw.strip()
    return raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw


def intent_of(account: str, request_seq: int, request: Request) -> Intent:
    """What a POST or PUT means to change. Raises Refused (400, 404, 405, 422)."""
    resource, object_id = resource_in(request.path)
    if (request.method, object_id is None) not in {("POST", True), ("PUT", False)}:
        raise Refused(
            Answer.error(405, "method_not_allowed", f"{request.method} is not possible on {request.path}")
        )
    if request.method == "PUT" and resource != "customers":
        raise Refused(Answer.error(405, "method_not_allowed", "only customers are written with PUT"))
    key = idempotency_key(request)
    if key is not None and not 0 < len(key) <= KEY_LIMIT:
        raise Refused(Answer.error(400, "bad_key", f"an Idempotency-Key has 1 to {KEY_LIMIT} characters"))
    return Intent(
        account=account,
        request_seq=request_seq,
        key=key,
        method=request.method,
        path=request.path,
        body_sha256=sha256(request.body),
        resource=resource,
        object_id=object_id,
        fields=fields_of(request.body),
    )


def resource_in(path: str) -> tuple[str, str | None]:
    """``/v1/offers`` → ("offers", None), ``/v1/offers/off_000001`` → ("offers", "off_000001"). Raises Refused 404."""
    parts = path.strip("/").split("/")
    if len(parts) in (2, 3) and parts[0] == "v1" and parts[1] in PREFIXES:
        object_id = parts[2] if len(parts) == 3 else None
        if object_id is None or OBJECT_ID.fullmatch(object_id):
            return parts[1], object_id
    raise Refused(Answer.error(404, "not_found", f"there is nothing at {path}"))


def fields_of(body: bytes) -> Document:
    """The body as an object that can be stored. Raises Refused (400, 422)."""
    try:
        fields = json.loads(body.decode(), parse_constant=refuse_constant)
        json.dumps(
            fields, ensure_ascii=False
        ).encode()  # a lone surrogate parses, but can't be stored or answered
    except (ValueError, RecursionError):
        raise Refused(Answer.error(400, "bad_json", "the body is not JSON in UTF-8")) from None
    if not isinstance(fields, dict):
        raise Refused(Answer.error(400, "bad_json", "the body is not a JSON object"))
    for name, valid, rule in (
        ("amount_minor", is_whole, "a whole number of minor units"),
        ("currency", is_currency, "three capital letters (ISO 4217)"),
        ("external_id", is_word, "a string of 1 to 255 characters"),
    ):
        if name in fields and not valid(fields[name]):
            raise Refused(Answer.error(422, "invalid_field", f"{name} must be {rule}", field=name))
    return fields


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_currency(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Z]{3}", value) is not None


def is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255
