"""What localstripe lacks of Stripe, in front of it: keys, and lists from a time on.

localstripe 1.15.10 has the wire format and the objects. It ignores Idempotency-Key (each POST makes an object) and
refuses ``created[gte]``. Both are done here as Stripe documents them (https://docs.stripe.com/api/idempotent_requests
and https://docs.stripe.com/error-low-level, read 2026-12-01): the first answer to a key is saved, whatever it was, and
repeated; the same key with other parameters is an idempotency_error; a request while another of its key is under way
is 409 and not saved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from tests.catalogue.servers import Reply, Seen


def error(status: int, kind: str, message: str, **more: Any) -> Reply:
    return Reply(status, {"error": {"type": kind, "message": message, **more}})


@dataclass
class StripeFront:
    upstream: str
    saved: dict[str, tuple[tuple[str, bytes], Reply]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)
    #: What the next endpoints that begin to work answer instead of doing anything.
    failing: list[Reply] = field(default_factory=list)
    #: What its objects say otherwise than localstripe's, where nothing ever stays open or fails.
    says: dict[str, Any] = field(default_factory=dict)
    #: Pages no longer than this, so that a test needs few objects.
    longest_page: int = 100

    def __call__(self, seen: Seen) -> Reply:
        return self._read(seen) if seen.method == "GET" else self._write(seen)

    def _write(self, seen: Seen) -> Reply:
        key = seen.headers.get("idempotency-key", "")
        if key in self.under_way:
            return error(
                409,
                "idempotency_error",
                "Another request with this key is under way.",
                code="idempotency_key_in_use",
            )
        if known := self.saved.get(key):
            sent, reply = known
            if sent != (seen.path, seen.body):
                return error(
                    400,
                    "idempotency_error",
                    "Keys can only be used with the parameters they were first used with.",
                )
            return Reply(reply.status, reply.body, {"Idempotent-Replayed": "true"})
        reply = self.failing.pop(0) if self.failing else self._passed_on(seen)
        if key:
            self.saved[key] = ((seen.path, seen.body), reply)
        return reply

    def _passed_on(self, seen: Seen) -> Reply:
        answer = self._ask(seen.method, seen.path, seen)
        if answer.status_code < 300:
            return Reply(answer.status_code, answer.json() | self.says)
        return error(answer.status_code, "invalid_request_error", answer.text)

    def _read(self, seen: Seen) -> Reply:
        """Newest first, as Stripe lists."""
        query = dict(parse_qsl(urlsplit(seen.target).query))
        since = int(query.pop("created[gte]", 0))
        size = min(int(query.pop("limit", 10)), self.longest_page)
        after = query.pop("starting_after", "")
        answer = self._ask("GET", f"{seen.path}?{urlencode({**query, 'limit': 10_000})}", seen)
        found = [one for one in reversed(answer.json()["data"]) if one["created"] >= since]
        ids = [one["id"] for one in found]
        start = ids.index(after) + 1 if after else 0
        page = [one | self.says for one in found[start : start + size]]
        return Reply(
            200, {"object": "list", "data": page, "has_more": start + size < len(found), "url": seen.path}
        )

    def _ask(self, method: str, target: str, seen: Seen) -> httpx.Response:
        headers: dict[str, str] = {
            name: seen.headers[name] for name in ("authorization", "content-type") if name in seen.headers
        }
        return httpx.request(
            method, self.upstream + target, headers=headers, content=seen.body, trust_env=False
        )


def made(upstream: str, resource: str, secret: str) -> list[dict[str, Any]]:
    """All that there is of a kind, by localstripe's own account."""
    answer = httpx.get(
        f"{upstream}/v1/{resource}",
        params={"limit": 10_000},
        headers={"Authorization": f"Bearer {secret}"},
        trust_env=False,
    )
    return list(json.loads(answer.text)["data"])
