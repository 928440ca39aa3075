"""What the tests of the API share: a token, and calls with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.kernel.crypto import hash_token, new_token
from console.models import ApiToken, User
from console.tokens import Scope
from tests.people import World

#: ``call("post", "runs", token=…, key=…, body=…)``
Call = Callable[..., Any]
_keys = itertools.count(1)

OFFER = {"email": "jana@brueckner.example", "request": "Please send an offer for 40 seats."}


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def token_for(world: World, user: User, *scopes: Scope, **fields: Any) -> str:
    token = new_token()
    given = {"expires_at": timezone.now() + timedelta(days=1), **fields}
    ApiToken.objects.create(
        workspace=world.workspace,
        maker=user,
        name="Ordering system",
        hash=hash_token(token),
        scopes=[scope.value for scope in scopes or tuple(Scope)],
        **given,
    )
    return token


@pytest.fixture
def token(acme: World) -> str:
    """An operator's token with every scope."""
    return token_for(acme, acme.operator)


@pytest.fixture
def call(db: None) -> Call:
    """Send a request as a program does: with no cookie, and CSRF checked."""
    client = Client(enforce_csrf_checks=True)

    def send(
        method: str,
        path: str,
        *,
        token: str = "",
        key: str | None = None,
        body: Any = None,
        raw: bytes | None = None,
        content_type: str = "application/json",
    ) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if method == "post" and key != "":
            headers["Idempotency-Key"] = key or f"key-{next(_keys)}"
        sent = {"data": raw if raw is not None else json.dumps(body), "content_type": content_type}
        return getattr(client, method)(
            f"/api/v1/{path}", headers=headers, **(sent if method == "post" else {})
        )

    return send


def start_of(world: World, **changes: Any) -> dict[str, Any]:
    """The body that starts a sales offer."""
    body = {"workflow": "sales_offer_agent", "conversation": world.conversation.id, "input": OFFER, **changes}
    return {name: value for name, value in body.items() if value is not ...}
