"""Look-ups: an object by its id, an operation by its key, a list. They change nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from demo.receiver.business import find, operation
from demo.receiver.intents import Refused, resource_in
from demo.receiver.loopback import Answer, Request
from demo.receiver.store import Store, timestamp

LIST_LIMIT: Final = 100
#: What a list may be filtered by, and the SQL for it.
FILTERS: Final = {
    "external_id": "external_id = ?",
    "email": "json_extract(document, '$.email') = ?",
    "customer_id": "json_extract(document, '$.customer_id') = ?",
    "created_since": "created_at >= ?",
    "after": "id > ?",
}


def look_up(store: Store, account: str, request: Request) -> Answer:
    """GET: an object, an operation by its key, or a list. Raises Refused (400, 404)."""
    if request.path.startswith("/v1/operations/"):
        return look_up_operation(store, account, request.path.removeprefix("/v1/operations/"))
    resource, object_id = resource_in(request.path)
    if object_id is None:
        return look_up_list(store, account, resource, request.query)
    with store.transaction() as db:
        document = find(db, account, resource, object_id)
    if document is None:
        raise Refused(Answer.error(404, "not_found", f"there is no {object_id}"))
    return Answer.of(200, document)


def look_up_operation(store: Store, account: str, key: str) -> Answer:
    with store.transaction() as db:
        known = operation(db, account, key)
        if known is None:
            raise Refused(Answer.error(404, "not_found", "this key has done nothing, or was pruned"))
        found = find(db, account, known["resource"], known["object_id"]) if known["object_id"] else None
    return Answer.of(
        200,
        {
            "key": key,
            "body_hash": known["body_sha256"],
            "status": known["status"],
            "response_status": known["response_status"],
            "object": found,
            "reason": reason_of(known) if known["status"] == "failed" else None,
            "created_at": known["created_at"],
        },
    )


def reason_of(known: sqlite3.Row) -> str | None:
    """Why the command failed, as its stored response says."""
    response = json.loads(known["response"])
    reason: str | None = response.get("reason") or response.get("message")
    return reason


def look_up_list(store: Store, account: str, resource: str, query: Mapping[str, str]) -> Answer:
    """``{"data": […], "has_more": bool}``, in the order of their ids, so that ``after`` goes on where a list was cut."""
    if unknown := sorted(set(query) - set(FILTERS)):
        raise Refused(
            Answer.error(400, "unknown_filter", f"a list can't be filtered by {', '.join(unknown)}")
        )
    conditions = "".join(f" AND {FILTERS[name]}" for name in query)
    rows = store.rows(
        f"SELECT document FROM objects WHERE account = ? AND resource = ?{conditions} ORDER BY id LIMIT ?",  # noqa: S608  (its text is all from FILTERS)
        account,
        resource,
        *(since(value) if name == "created_since" else value for name, value in query.items()),
        LIST_LIMIT + 1,
    )
    data = [json.loads(row["document"]) for row in rows[:LIST_LIMIT]]
    return Answer.of(200, {"data": data, "has_more": len(rows) > LIST_LIMIT})


def since(given: str) -> str:
    """The time as it is stored. Raises Refused 400 for what is none."""
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError(given)
    except ValueError:
        raise Refused(Answer.error(400, "no_time", f"{given!r} is no time with a zone")) from None
    return timestamp(moment)
