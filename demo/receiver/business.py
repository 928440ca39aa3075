"""The business: customers, offers, tickets, invoices, reservations and credits, made at most once for a key.

Rules, all inside the one transaction of ``carry_out``:

* same key, same request: the stored response, and nothing happens;
* same key, another method, path or body: 422, and nothing happens;
* an ``external_id`` that the account already has in that resource: 409 with the id of the object that has it;
* otherwise the object, the effect and the operation record are written together.

A refusal stores nothing, so its key stays free.
"""

from __future__ import annotations

import json
import sqlite3

from demo.receiver.customers import CUSTOMERS
from demo.receiver.intents import PREFIXES, Document, Intent, Refused
from demo.receiver.loopback import Answer
from demo.receiver.store import Store, now


def carry_out(store: Store, intent: Intent) -> Answer:
    """Make the effect, or replay what the key did before. The answer is final; raises Refused (409, 422)."""
    with store.transaction() as db:
        if replayed := replay(db, intent):
            return replayed
        status, document = make(db, intent)
        record_operation(db, intent, "completed", status, document, object_id=document["id"])
    return Answer.of(status, document)


def carry_out_failure(store: Store, intent: Intent, status: int, document: Document) -> Answer:
    """Keep *status* and *document* under the key before doing anything: the same key gets them again for ever."""
    with store.transaction() as db:
        if replayed := replay(db, intent):
            return replayed
        record_operation(db, intent, "failed", status, document)
    return Answer.of(status, document)


def replay(db: sqlite3.Connection, intent: Intent) -> Answer | None:
    """The stored response of the intent's key; None for a key that is new. Raises Refused 422 for another request."""
    if intent.key is None:
        return None
    known = operation(db, intent.account, intent.key)
    if known is None:
        return None
    if (known["method"], known["path"], known["body_sha256"]) != (
        intent.method,
        intent.path,
        intent.body_sha256,
    ):
        raise Refused(
            Answer.error(
                422, "key_reused", "this Idempotency-Key was used for another request", key=intent.key
            )
        )
    return Answer(
        known["response_status"],
        known["response"].encode(),
        {"Content-Type": "application/json", "Idempotent-Replay": "true"},
    )


def operation(db: sqlite3.Connection, account: str, key: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM operations WHERE account = ? AND key = ?", (account, key)
    ).fetchone()
    return found


def record_operation(
    db: sqlite3.Connection,
    intent: Intent,
    status: str,
    response_status: int,
    document: Document,
    *,
    object_id: str | None = None,
) -> None:
    """Remember what the key did. Without a key there is nothing to remember: telling repeats apart is the client's."""
    if intent.key is None:
        return
    db.execute(
        "INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            intent.account,
            intent.key,
            intent.method,
            intent.path,
            intent.body_sha256,
            status,
            response_status,
            json.dumps(document, ensure_ascii=False),
            intent.resource,
            object_id,
            now(),
        ),
    )


def make(db: sqlite3.Connection, intent: Intent) -> tuple[int, Document]:
    """Write the object and its effect: (201, document), or (200, document) for a customer that was there before."""
    refuse_taken_external_id(db, intent)
    made_at = now()
    object_id = intent.object_id or next_id(db, intent.account, intent.resource)
    before = find(db, intent.account, intent.resource, object_id)
    document = document_of(intent, object_id, before["created_at"] if before else made_at)
    external_id = intent.fields.get("external_id")
    text = json.dumps(document, ensure_ascii=False)
    db.execute(
        "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (account, resource, id) DO UPDATE SET external_id = excluded.external_id, document = excluded.document",
        (intent.account, intent.resource, object_id, external_id, text, document["created_at"]),
    )
    action = "replaced" if before else "created"
    db.execute(
        "INSERT INTO effects (account, request_seq, action, resource, object_id, external_id, key, document, made_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            intent.account,
            intent.request_seq,
            action,
            intent.resource,
            object_id,
            external_id,
            intent.key,
            text,
            made_at,
        ),
    )
    return (200 if before else 201), document


def document_of(intent: Intent, object_id: str, created_at: str) -> Document:
    """The body's fields with what the receiver says: a caller can't choose id, status or time."""
    document = {**intent.fields, "id": object_id, "created_at": created_at}
    if intent.resource == "customers":
        return document
    return {"external_id": None, **document, "status": "created"}


def refuse_taken_external_id(db: sqlite3.Connection, intent: Intent) -> None:
    external_id = intent.fields.get("external_id")
    if external_id is None:
        return
    holder = db.execute(
        "SELECT id FROM objects WHERE account = ? AND resource = ? AND external_id = ?",
        (intent.account, intent.resource, external_id),
    ).fetchone()
    if holder and holder["id"] != intent.object_id:
        raise Refused(
            Answer.error(
                409,
                "external_id_taken",
                f"{holder['id']} already has this external_id",
                existing_id=holder["id"],
                external_id=external_id,
            )
        )


def next_id(db: sqlite3.Connection, account: str, resource: str) -> str:
    """The next number of this account and resource that no object has (PUT may have taken one)."""
    while True:
        number = db.execute(
            "INSERT INTO sequences VALUES (?, ?, 1)"
            " ON CONFLICT (account, resource) DO UPDATE SET last = last + 1 RETURNING last",
            (account, resource),
        ).fetchone()["last"]
        object_id = f"{PREFIXES[resource]}_{number:06}"
        if find(db, account, resource, object_id) is None:
            return object_id


def find(db: sqlite3.Connection, account: str, resource: str, object_id: str) -> Document | None:
    row = db.execute(
        "SELECT document FROM objects WHERE account = ? AND resource = ? AND id = ?",
        (account, resource, object_id),
    ).fetchone()
    return json.loads(row["document"]) if row else None


def seed(db: sqlite3.Connection, account: str) -> None:
    """Give a new account its customers. They were there before anybody asked, so they are not effects."""
    created_at = now()
    if not db.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?)", (account, created_at)).rowcount:
        return
    db.executemany(
        "INSERT INTO objects VALUES (?, 'customers', ?, NULL, ?, ?)",
        [
            (
                account,
                row["id"],
                json.dumps({**row, "created_at": created_at}, ensure_ascii=False),
                created_at,
            )
            for row in CUSTOMERS
        ],
    )


def prune(store: Store, account: str) -> int:
    """Forget every key of the account, as providers do after their retention; the objects stay."""
    with store.transaction() as db:
        return db.execute("DELETE FROM operations WHERE account = ?", (account,)).rowcount
