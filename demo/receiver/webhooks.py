"""The later end of an accepted command: the effect is made (or is not), then a signed webhook says so.

The signature is that of Standard Webhooks: HMAC-SHA256 over ``id.timestamp.body``, base64, prefixed ``v1,``. What is due
is a row, so a receiver that is stopped in between ends its commands after the next start.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx

from demo.receiver import business
from demo.receiver.intents import Document, Intent, Refused, resource_in
from demo.receiver.loopback import Answer
from demo.receiver.store import Store, now

TIMEOUT_SECONDS: Final = 10
#: Rows are looked at this often even when nobody rings: a clock that jumps costs at most this.
LONGEST_NAP: Final = 1.0


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks for *body*."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


def accept(
    store: Store, intent: Intent, options: Mapping[str, Any], answer: Document
) -> tuple[Answer, int | None]:
    """Keep the command as accepted, with its end to come. The 202 and the delivery's id (None: it is never settled)."""
    with store.transaction() as db:
        if replayed := business.replay(db, intent):
            return replayed, None
        business.refuse_taken_external_id(db, intent)
        business.record_operation(db, intent, "accepted", 202, answer)
        delivery = schedule(db, intent, options)
    return Answer.of(202, answer), delivery


def schedule(db: sqlite3.Connection, intent: Intent, options: Mapping[str, Any]) -> int | None:
    """Note when and how the command ends. None when it never does.

    One that is told before the answer is ended by the answering thread; its row is due only for the case that this fails.
    """
    if options["final"] == "never":
        return None
    wait = TIMEOUT_SECONDS * options["copies"] if options["webhook_first"] else options["delay"]
    cursor = db.execute(
        "INSERT INTO deliveries (account, request_seq, resource, options, due) VALUES (?, ?, ?, ?, ?)",
        (
            intent.account,
            intent.request_seq,
            intent.resource,
            json.dumps(dict(options)),
            time.time() + wait,
        ),
    )
    return cursor.lastrowid


def intent_again(db: sqlite3.Connection, request_seq: int) -> Intent:
    """The intent of a recorded request: what it asked for is in the record, whole."""
    row = db.execute("SELECT * FROM requests WHERE seq = ?", (request_seq,)).fetchone()
    resource, object_id = resource_in(row["path"])
    return Intent(
        account=row["account"],
        request_seq=request_seq,
        key=row["key"],
        method=row["method"],
        path=row["path"],
        body_sha256=row["body_sha256"],
        resource=resource,
        object_id=object_id,
        fields=json.loads(row["body"]),
    )


def settle(store: Store, delivery_id: int) -> Document:
    """Bring the command to its end, once; what the webhook says of it. One transaction with the effect."""
    with store.transaction() as db:
        delivery = db.execute("SELECT * FROM deliveries WHERE id = ?", (delivery_id,)).fetchone()
        if delivery["settled"]:
            settled: Document = json.loads(delivery["settled"])
            return settled
        options = json.loads(delivery["options"])
        intent = intent_again(db, delivery["request_seq"])
        try:
            end = (
                complete(db, intent)
                if options["final"] == "completed"
                else fail(db, intent, options["reason"])
            )
        except Refused as refused:
            end = fail(db, intent, json.loads(refused.answer.body)["error"])
        end = {"key": intent.key, "external_id": intent.fields.get("external_id"), **end}
        db.execute(
            "UPDATE deliveries SET settled = ? WHERE id = ?",
            (json.dumps(end, ensure_ascii=False), delivery_id),
        )
    return end


def complete(db: sqlite3.Connection, intent: Intent) -> Document:
    """Make the effect, unless the same key has made it meanwhile."""
    known = business.operation(db, intent.account, intent.key) if intent.key else None
    if known and known["object_id"]:
        return {
            "status": "completed",
            "object": business.find(db, intent.account, intent.resource, known["object_id"]),
        }
    status, document = business.make(db, intent)
    if known:
        update_operation(db, intent, "completed", status, document)
    else:
        business.record_operation(db, intent, "completed", status, document, object_id=document["id"])
    return {"status": "completed", "object": document}


def fail(db: sqlite3.Connection, intent: Intent, reason: str) -> Document:
    end: Document = {"status": "failed", "object": None, "reason": reason}
    update_operation(db, intent, "failed", 200, end)
    return end


def update_operation(
    db: sqlite3.Connection, intent: Intent, status: str, response_status: int, document: Document
) -> None:
    """An accepted operation gets its end; one that has an end, or was pruned, is left as it is."""
    db.execute(
        "UPDATE operations SET status = ?, response_status = ?, response = ?, object_id = ?"
        " WHERE account = ? AND key = ? AND status = 'accepted'",
        (
            status,
            response_status,
            json.dumps(document, ensure_ascii=False),
            document.get("id"),
            intent.account,
            intent.key,
        ),
    )


def tell(resource: str, end: Document, options: Mapping[str, Any]) -> str:
    """POST the end to the webhook address, ``copies`` times, each a new message. What came of it, in words."""
    if options["webhook_url"] is None:
        return "nobody to tell"
    event = {"type": f"{resource.removesuffix('s')}.{end['status']}", "timestamp": now(), "data": end}
    body = json.dumps(event, ensure_ascii=False).encode()
    return ", ".join(post(options["webhook_url"], options["secret"], body) for _ in range(options["copies"]))


def post(url: str, secret: str, body: bytes) -> str:
    headers = sign(secret, f"msg_{secrets.token_hex(12)}", int(time.time()), body)
    try:
        answer = httpx.post(
            url,
            content=body,
            headers={"content-type": "application/json", **headers},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return str(answer.status_code)


class Deliverer:
    """Ends accepted commands when they are due; one thread for each, so that a hung address delays no other."""

    def __init__(self, store: Store, stopping: threading.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._rung = threading.Event()
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def ring(self) -> None:
        """Something new may be due."""
        self._rung.set()

    def finish(self, delivery_id: int) -> None:
        """Settle and tell this one now, in the calling thread; nothing if another thread has it."""
        with self._lock:
            if delivery_id in self._taken:
                return
            self._taken.add(delivery_id)
        end = settle(self._store, delivery_id)
        row = self._store.rows("SELECT resource, options FROM deliveries WHERE id = ?", delivery_id)[0]
        outcome = tell(row["resource"], end, json.loads(row["options"]))
        with self._store.transaction() as db:
            db.execute("UPDATE deliveries SET outcome = ? WHERE id = ?", (outcome, delivery_id))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._rung.wait(self._start_due())
            self._rung.clear()

    def _start_due(self) -> float:
        """Start what is due; how long until the next."""
        waiting = self._store.rows("SELECT id, due FROM deliveries WHERE outcome IS NULL ORDER BY due")
        moment = time.time()
        later = [row["due"] for row in waiting if row["due"] > moment]
        for row in waiting:
            if row["due"] <= moment and row["id"] not in self._taken:
                threading.Thread(target=self._finish_quietly, args=(row["id"],), daemon=True).start()
        return float(min([LONGEST_NAP, *(due - moment for due in later)]))

    def _finish_quietly(self, delivery_id: int) -> None:
        try:
            self.finish(delivery_id)
        except Exception as error:
            if not self._stopping.is_set():
                sys.stderr.write(f"delivery {delivery_id} broke: {error!r}\n")
