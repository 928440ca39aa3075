"""What the receiver has seen and done: the witness for tests and for the person who watches the demo."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from demo.receiver import faults
from demo.receiver.business import seed
from demo.receiver.faults import Order
from demo.receiver.intents import idempotency_key, sha256
from demo.receiver.loopback import Answer, Dripped, Dropped, Reply, Request
from demo.receiver.store import Store, now, timestamp

#: Never kept: who may see the records may not therefore act as the caller.
SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})


def arrive(store: Store, account: str | None, request: Request) -> tuple[int, Order | None]:
    """Record the request before anything is done about it, and take its fault order, in one transaction.

    Returns the record's number and the order. A request without an account has no faults and no customers.
    """
    key = idempotency_key(request)
    with store.transaction() as db:
        order = None
        if account is not None:
            seed(db, account)
            order = faults.take(db, account, request, key) if request.complete else None
        return insert(db, account or "", request, key, order), order


def insert(
    db: sqlite3.Connection, account: str, request: Request, key: str | None, order: Order | None
) -> int:
    headers = {name: value for name, value in request.headers.items() if name not in SECRET_HEADERS}
    cursor = db.execute(
        "INSERT INTO requests (account, method, path, query, key, body_sha256, body, headers, received_at, fault)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            account,
            request.method,
            request.path,
            json.dumps(dict(request.query), ensure_ascii=False),
            key,
            sha256(request.body),
            request.body.decode(errors="backslashreplace"),
            json.dumps(headers, ensure_ascii=False),
            now(),
            order.kind if order else None,
        ),
    )
    return int(cursor.lastrowid or 0)


def answered(store: Store, request_seq: int, reply: Reply | None) -> None:
    """Note what the caller gets, just before it is sent; None for a request whose body never came whole."""
    with store.transaction() as db:
        db.execute("UPDATE requests SET answer = ? WHERE seq = ?", (answer_word(reply), request_seq))


def answer_word(reply: Reply | None) -> str:
    match reply:
        case None:
            return "incomplete"
        case Dropped():
            return "dropped"
        case Dripped(answer=answer):
            return str(answer.status)
        case _:
            return str(reply.status)


class BadQuery(ValueError):
    """The inspection asks by something that does not exist."""


def conditions(
    query: Mapping[str, str], known: Mapping[str, str], moment: str | None
) -> tuple[str, list[object]]:
    """SQL conditions for the filters in *query*. ``since`` is a number (records after it) or a time (from then on).

    Raises BadQuery for a filter that there is not: an empty list would look like a witness that saw nothing.
    """
    names = [*known, "since"] if moment else [*known]
    parts: list[str] = []
    values: list[object] = []
    for name, value in query.items():
        if name == "since" and moment:
            since = since_of(value)
            parts.append("seq > ?" if isinstance(since, int) else f"{moment} >= ?")
            values.append(since)
        elif name in known:
            parts.append(known[name])
            values.append(value)
        else:
            raise BadQuery(f"these records can be asked by {', '.join(names)}, not {name}")
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def since_of(value: str) -> int | str:
    """A record's number, or a time as the records write it."""
    try:
        if value.isdecimal() and len(value) < 19:
            return int(value)
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadQuery("since is a record's number or a time like 2026-07-23T09:14:06Z")
    return timestamp(moment)


def requests(store: Store, query: Mapping[str, str], *, newest: int | None = None) -> list[dict[str, Any]]:
    """Requests in the order of their arrival (the *newest* first if a number is given). Raises BadQuery."""
    known = {
        "account": "account = ?",
        "method": "method = ?",
        "key": "key = ?",
        "path": "instr(path, ?) = 1",
    }
    where, values = conditions(query, known, "received_at")
    made = "EXISTS (SELECT 1 FROM effects WHERE request_seq = requests.seq) AS made_effect"
    rows = store.rows(f"SELECT *, {made} FROM requests{where} {order(newest)}", *values)  # noqa: S608  (its text is all from here)
    return [request_record(row) for row in rows]


def order(newest: int | None) -> str:
    return "ORDER BY seq" if newest is None else f"ORDER BY seq DESC LIMIT {newest:d}"


def request_record(row: sqlite3.Row) -> dict[str, Any]:
    record = dict(row)
    answer = record.pop("answer")
    return {
        **record,
        "query": json.loads(row["query"]),
        "headers": json.loads(row["headers"]),
        "status": int(answer) if answer and answer.isdigit() else answer,
        "made_effect": bool(row["made_effect"]),
    }


def effects(store: Store, query: Mapping[str, str], *, newest: int | None = None) -> list[dict[str, Any]]:
    """Effects in the order they were made (the *newest* first if a number is given). Raises BadQuery."""
    known = {name: f"{name} = ?" for name in ("account", "resource", "key", "external_id", "object_id")}
    where, values = conditions(query, known, "made_at")
    rows = store.rows(f"SELECT * FROM effects{where} {order(newest)}", *values)  # noqa: S608  (its text is all from here)
    return [{**dict(row), "document": json.loads(row["document"])} for row in rows]


def webhooks(store: Store, query: Mapping[str, str]) -> list[dict[str, Any]]:
    """Later ends and what came of telling them. Raises BadQuery."""
    where, values = conditions(query, {"account": "account = ?"}, None)
    rows = store.rows(f"SELECT * FROM deliveries{where} ORDER BY id", *values)  # noqa: S608  (its text is all from here)
    return [
        {
            "id": row["id"],
            "account": row["account"],
            "request_seq": row["request_seq"],
            "end": json.loads(row["settled"]) if row["settled"] else None,
            "outcome": row["outcome"],
        }
        for row in rows
    ]


def accounts(store: Store) -> list[dict[str, Any]]:
    """Every account with its counts, the one that was heard from last first."""
    rows = store.rows(
        "SELECT account,"
        " (SELECT count(*) FROM requests WHERE requests.account = accounts.account) AS requests,"
        " (SELECT count(*) FROM effects WHERE effects.account = accounts.account) AS effects,"
        " (SELECT max(seq) FROM requests WHERE requests.account = accounts.account) AS latest"
        " FROM accounts ORDER BY latest DESC"
    )
    return [dict(row) for row in rows]


def page_of(store: Store, what: str, query: Mapping[str, str]) -> Answer:
    """``GET /_records/…`` as JSON."""
    listings = {"requests": requests, "effects": effects, "webhooks": webhooks}
    if what not in listings:
        return Answer.error(404, "not_found", f"records are {', '.join(listings)}")
    try:
        found = listings[what](store, query)
    except BadQuery as problem:
        return Answer.error(400, "unknown_filter", str(problem))
    return Answer.of(200, {what: found, "count": len(found)})
