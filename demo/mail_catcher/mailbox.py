"""What came by mail: every delivery is a row of its own, also the second one with the same Message-ID."""

from __future__ import annotations

import email
import email.policy
import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Final, cast

from demo.receiver.store import Store, now

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at TEXT NOT NULL,
    mail_from TEXT NOT NULL,
    rcpt_tos TEXT NOT NULL,
    message_id TEXT,
    sender TEXT NOT NULL,
    recipients TEXT NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    raw BLOB NOT NULL,
    fault TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS messages_by_id ON messages (message_id);
"""


@dataclass(frozen=True)
class Envelope:
    """What SMTP said, which need not be what the message's own headers say."""

    mail_from: str
    rcpt_tos: tuple[str, ...]
    content: bytes


def keep(store: Store, envelope: Envelope, fault: str | None) -> int:
    """Keep one delivery; its number. It is committed when this returns, so before any reply is sent."""
    message = parse(envelope.content)
    with store.transaction() as db:
        cursor = db.execute(
            "INSERT INTO messages (received_at, mail_from, rcpt_tos, message_id, sender, recipients, subject, text, raw, fault)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                now(),
                storable(envelope.mail_from),
                json.dumps([storable(address) for address in envelope.rcpt_tos], ensure_ascii=False),
                header(message, "message-id"),
                header(message, "from") or "",
                header(message, "to") or "",
                header(message, "subject") or "",
                text_of(message),
                envelope.content,
                fault,
            ),
        )
    return int(cursor.lastrowid or 0)


def parse(content: bytes) -> EmailMessage:
    return email.message_from_bytes(content, policy=email.policy.default)


def header(message: EmailMessage, name: str) -> str | None:
    """The decoded header. One that can't be parsed is kept as it stands: a catcher refuses nothing."""
    try:
        value = message[name]
    except Exception:  # the parser of malformed headers raises many kinds
        value = dict(message.raw_items()).get(name)
    return None if value is None else storable(str(value).strip())


def text_of(message: EmailMessage) -> str:
    """The readable text: plain before HTML; of a broken message, what can be read of it."""
    part = message.get_body(("plain", "html"))
    if part is None:
        return ""
    try:
        return storable(str(part.get_content()))
    except (LookupError, ValueError, KeyError):
        return storable(str(part.get_payload()))


def storable(text: str) -> str:
    """Without the lone surrogates that undecodable bytes leave, which no database takes."""
    return text.encode(errors="replace").decode()


class BadQuery(ValueError):
    """The inspection asks by something that does not exist."""


def find(store: Store, query: Mapping[str, str]) -> list[dict[str, Any]]:
    """Messages by ``to`` (an envelope recipient, exact), ``message_id`` (exact, angle brackets or not), ``contains``
    (subject, text or raw) and ``since`` (after that number), oldest first. Raises BadQuery for any other filter."""
    if unknown := sorted(set(query) - {"to", "message_id", "contains", "since"}):
        raise BadQuery(f"messages can be asked by to, message_id, contains, since, not {', '.join(unknown)}")
    since = query.get("since", "0")
    if not (since.isdecimal() and len(since) < 19):
        raise BadQuery("since is a message's number")
    message_id = query.get("message_id")
    bare = None if message_id is None else message_id.strip("<>")
    rows = store.rows(
        "SELECT * FROM messages WHERE seq > ?1 AND (?2 IS NULL OR message_id IN (?2, '<' || ?2 || '>')) ORDER BY seq",
        int(since),
        bare,
    )
    return [record(row) for row in chosen(rows, query)]


def newest(store: Store, count: int) -> list[dict[str, Any]]:
    """The last messages, newest first."""
    return [record(row) for row in store.rows("SELECT * FROM messages ORDER BY seq DESC LIMIT ?", count)]


def chosen(rows: Iterable[sqlite3.Row], query: Mapping[str, str]) -> Iterable[sqlite3.Row]:
    """Those that the remaining filters, which SQL can't decide, let through."""
    to, contains = query.get("to"), query.get("contains")
    for row in rows:
        if to is not None and to.lower() not in [address.lower() for address in json.loads(row["rcpt_tos"])]:
            continue
        if contains is not None and contains not in row["subject"] + "\n" + row["text"] + "\n" + raw_text(
            row
        ):
            continue
        yield row


def raw_text(row: sqlite3.Row) -> str:
    return cast(bytes, row["raw"]).decode(errors="backslashreplace")


def record(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "seq": row["seq"],
        "received_at": row["received_at"],
        "envelope": {"mail_from": row["mail_from"], "rcpt_tos": json.loads(row["rcpt_tos"])},
        "message_id": row["message_id"],
        "from": row["sender"],
        "to": row["recipients"],
        "subject": row["subject"],
        "text": row["text"],
        "raw": raw_text(row),
        "fault": row["fault"],
    }
