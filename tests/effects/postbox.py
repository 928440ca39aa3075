"""A receiver's side of webhooks: it signs and posts them to the product's own view, as the demo's receiver does."""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import connection
from django.http import HttpResponse
from django.test import Client

from demo.receiver.loopback import Answer, LoopbackServer, Request
from demo.receiver.webhooks import sign
from effects.models import Effect, HookMessage, HookSource, Observation, Receiver
from tests.effects.book import Book

_numbers = itertools.count(1)


def new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def keep_secret(name: str, *values: str) -> None:
    """Set the secret of that name, as a deployment does by a file."""
    Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], name).write_text(" ".join(values))


@dataclass
class Postbox:
    """The webhooks of one receiver of the book's workspace."""

    book: Book
    receiver: str = "crm"
    secret: str = field(default_factory=new_secret)
    source: HookSource = field(init=False)
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def __post_init__(self) -> None:
        workspace = self.book.world.workspace
        name = f"{workspace.id}-{self.receiver}-hook-{next(_numbers)}"
        keep_secret(name, self.secret)
        receiver = Receiver.objects.get(workspace=workspace, name=self.receiver)
        self.source = HookSource.objects.create(workspace=workspace, receiver=receiver, secret_name=name)

    @property
    def path(self) -> str:
        return f"/hooks/{self.source.id}"

    def about(self, effect_id: str, status: str = "completed", **data: Any) -> dict[str, Any]:
        """What the demo's receiver says of a reservation, when it is about this effect."""
        made = {
            "id": "res_000001",
            "external_id": effect_id,
            "status": "created",
            "customer_id": "cus_000001",
            "seats": 40,
            "until": "2027-01-31",
        }
        said = {
            "key": effect_id,
            "external_id": effect_id,
            "status": status,
            "object": made if status == "completed" else None,
            **({"reason": "declined"} if status == "failed" else {}),
            **data,
        }
        return {"type": f"reservation.{status}", "timestamp": "2026-12-01T09:14:06Z", "data": said}

    def headers(
        self, body: bytes, *, message: str = "", at: float | None = None, secret: str = ""
    ) -> dict[str, str]:
        stamp = int(time.time() if at is None else at)
        return sign(secret or self.secret, message or f"msg_{next(_numbers)}", stamp, body)

    def post(
        self,
        document: Any,
        *,
        message: str = "",
        at: float | None = None,
        secret: str = "",
        headers: dict[str, str | None] | None = None,
        path: str = "",
    ) -> HttpResponse:
        """One message. *document* is sent as JSON, or as it is when it is bytes. A header of None is left out."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        signed = {**self.headers(body, message=message, at=at, secret=secret), **(headers or {})}
        sent = {name: value for name, value in signed.items() if value is not None}
        return self.client.post(path or self.path, data=body, content_type="application/json", headers=sent)  # type: ignore[return-value]  # the test client's own subclass

    def tell(self, effect_id: str, status: str = "completed", **data: Any) -> str:
        """Say *status* of an effect, by a new message; what was answered."""
        answer = self.post(self.about(effect_id, status, **data))
        assert answer.status_code == 200, answer.content
        return str(json.loads(answer.content)["status"])


def webhooks_of(effect_id: str) -> list[str]:
    """What the webhooks about the effect were taken to say, in their order."""
    told = Observation.objects.filter(effect_id=effect_id, kind="webhook").order_by("id")
    return list(told.values_list("found", flat=True))


def messages_of(effect: Effect | str) -> list[HookMessage]:
    key = effect if isinstance(effect, str) else effect.id
    return list(HookMessage.objects.filter(effect_id=key).order_by("id"))


class Letterbox:
    """A real address for the demo's receiver to post to. Each request is queued, or handled at once by *takes*."""

    def __init__(self, takes: Callable[[Request], int] | None = None) -> None:
        self.got: queue.Queue[Request] = queue.Queue()
        self._takes = takes
        self._server = LoopbackServer(self._take, 0, threading.Event())
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.url = f"{self._server.address}/hooks/somewhere"

    def _take(self, request: Request) -> Answer:
        status = 200
        if self._takes:
            try:
                status = self._takes(request)
            finally:
                connection.close()
        self.got.put(request)
        return Answer.of(status, {})

    def next(self) -> Request:
        return self.got.get(timeout=10)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def forward(postbox: Postbox, request: Request) -> HttpResponse:
    """What the receiver sent, byte for byte with its own headers, to the product's view."""
    kept = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: request.headers[name] for name in kept}
    return postbox.client.post(  # type: ignore[return-value]
        postbox.path, data=request.body, content_type="application/json", headers=headers
    )
