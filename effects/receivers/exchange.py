"""One request and its answer over HTTP: zero retries, zero redirects, one total deadline."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import httpcore
from django.conf import settings

from console.kernel import webhooks
from effects.receivers.wire import Deadline, DeadlineBackend, Refused
from effects.wires import HttpWire

LARGEST_ANSWER = 2_000_000


class TooLarge(Exception):
    """The receiver's answer is larger than anything we would read."""


def exchange(
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    content: bytes,
    hosts: list[str],
    deadline: Deadline,
) -> tuple[int, dict[str, str], bytes]:
    """One request, one answer. httpcore by itself follows nothing and repeats nothing (retries=0 is for connects)."""
    with (
        httpcore.ConnectionPool(retries=0, network_backend=DeadlineBackend(deadline, hosts)) as pool,
        pool.stream(method, url, headers=list(headers.items()), content=content) as response,
    ):
        chunks, size = [], 0
        for chunk in response.iter_stream():
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise TooLarge
            chunks.append(chunk)
    return (
        response.status,
        {name.decode().lower(): value.decode("latin-1") for name, value in response.headers},
        b"".join(chunks),
    )


def check_scheme(base_url: str) -> None:
    """Refused for an address without encryption, in production."""
    if settings.PRODUCTION and not base_url.startswith("https://"):
        raise Refused("The receiver's address is not https, so nothing is sent to it")


def credentials(wire: HttpWire, secret: str, *, key: str, content: bytes) -> dict[str, str]:
    """The headers that prove who sends: made from the receiver's secret now, and stored nowhere.

    Raises Refused where the secret can't be used for this.
    """
    if wire.auth == "webhook":
        try:
            return webhooks.signed_headers(webhooks.secrets_in(secret), key, datetime.now(UTC), content)
        except (webhooks.UnusableSecret, ValueError) as error:
            raise Refused(f"The request can't be signed: {error}") from error
    if not secret:
        return {}
    if wire.auth == "basic":
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    return {"Authorization": f"Bearer {secret}"}
