"""A service of notes that heeds an Idempotency-Key as the IETF's draft says, and conditional PUTs as RFC 9110 does.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07 and
https://www.rfc-editor.org/rfc/rfc9110 (sections 9.3.4 and 13.1.2), read 2026-12-01.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.catalogue.servers import Reply, Seen

#: A structured field's string (RFC 8941, 3.3.3).
STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


def problem(status: int, title: str) -> Reply:
    """RFC 9457, as the draft's examples have it."""
    return Reply(
        status,
        {"type": "https://developer.example.com/idempotency", "title": title},
        {"Content-Type": "application/problem+json"},
    )


@dataclass
class Notes:
    notes: list[dict[str, Any]] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    known: dict[str, tuple[bytes, Reply]] = field(default_factory=dict)
    outstanding: set[str] = field(default_factory=set)
    failing: list[Reply] = field(default_factory=list)
    page: int = 2

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "POST":
            return self._post(seen)
        if seen.method == "PUT":
            return self._put(seen)
        if seen.path == "/notes":
            return self._list(seen)
        found = self.records.get(seen.path)
        return Reply(200, found) if found else Reply(404, {"title": "Not found"})

    def _post(self, seen: Seen) -> Reply:
        quoted = STRING.fullmatch(seen.headers.get("idempotency-key", ""))
        if not quoted:
            return problem(400, "Idempotency-Key is missing")
        key = quoted[1]
        if key in self.outstanding:
            return problem(409, "A request is outstanding for this Idempotency-Key")
        if known := self.known.get(key):
            return known[1] if known[0] == seen.body else problem(422, "Idempotency-Key is already used")
        reply = self.failing.pop(0) if self.failing else self._make(seen)
        self.known[key] = (seen.body, reply)
        return reply

    def _make(self, seen: Seen) -> Reply:
        note = {"id": f"note_{len(self.notes) + 1}", **seen.json}
        self.notes.append(note)
        return Reply(201, note)

    def _put(self, seen: Seen) -> Reply:
        there = seen.path in self.records
        if there and seen.headers.get("if-none-match") == "*":
            return Reply(412, {"title": "There is one already"})
        self.records[seen.path] = seen.json
        return Reply(204 if there else 201)

    def _list(self, seen: Seen) -> Reply:
        ids = [note["id"] for note in self.notes]
        start = ids.index(seen.query["after"]) + 1 if "after" in seen.query else 0
        end = start + self.page
        return Reply(200, {"data": self.notes[start:end], "has_more": end < len(self.notes)})
