"""The receiver itself tells a real web process how a command ended, and the run that waits for it goes on by itself."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator

import httpx
import pytest

from demo.receiver.webhooks import sign
from effects.hooks import LARGEST_MESSAGE
from effects.models import Effect, HookMessage, HookSource, Receiver
from runs.models import Execution
from tests.effects.postbox import keep_secret
from tests.people import World
from tests.process import journeys
from tests.process.journeys import begin, reaches
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.process


@pytest.fixture
def secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def address(stack: Stack, live: World, secret: str) -> str:
    """Where the world's CRM may tell its webhooks, at the stack's web process."""
    name = f"{live.workspace.id}-hook"
    keep_secret(name, secret)
    crm = Receiver.objects.get(workspace=live.workspace, name="crm")
    source = HookSource.objects.create(workspace=live.workspace, receiver=crm, secret_name=name)
    return f"{stack.web}/hooks/{source.id}"


def outcomes(stack: Stack, live: World) -> list[str]:
    """What the receiver was answered when it told, in its own records."""
    found = httpx.get(f"{stack.receiver}/_records/webhooks", params={"account": live.account})
    return [str(one["outcome"]) for one in found.raise_for_status().json()["webhooks"]]


@pytest.mark.parametrize(("final", "ends"), [("completed", "completed"), ("failed", "failed")])
def test_the_run_waits_without_a_worker_and_goes_on_when_it_is_told(
    stack: Stack, live: World, address: str, secret: str, final: str, ends: str
) -> None:
    receiver = journeys.Receiver(stack, live.account)
    receiver.order(
        "202_webhook", final=final, reason="no seats left", delay=3, webhook_url=address, secret=secret
    )
    run = begin(live, "test_offers", makes=["seats"], kill="", subject="told")

    reaches(run, "waiting_effect")

    effect = Effect.objects.get(run_id=run.id)
    assert (effect.status, effect.unresolved) == ("accepted", False)
    # Nobody works on it: its execution has ended and no worker holds it.
    assert not Execution.objects.filter(run=run, ended_at=None).exists()
    assert run.lease_until is None

    reaches(run, ends)

    effect.refresh_from_db()
    wait_for("the receiver's note of the answer", lambda: outcomes(stack, live) == ["200"])
    [message] = HookMessage.objects.filter(effect=effect)
    # Told, found by the sweep, taken by a worker: within seconds, and only then.
    [woken] = Execution.objects.filter(run=run, cause="wake")
    assert woken.started_at >= message.at
    assert (woken.started_at - message.at).total_seconds() < 10
    if final == "completed":
        assert effect.provider_reference == receiver.effects()[0]["object_id"]
    else:
        assert run.failure == "effect_refused"
        assert "no seats left" in run.failure_text
    assert (len(receiver.effects()), len(receiver.requests())) == (1 if final == "completed" else 0, 1)


def test_what_is_refused_over_a_real_connection(stack: Stack, live: World, address: str, secret: str) -> None:
    """A chunked body says no length: it is counted as it comes. And the sender's reason is JSON, without a cookie."""
    body = b"x" * (LARGEST_MESSAGE + 1)
    headers = sign(secret, "msg_1", int(time.time()), body)

    def chunks() -> Iterator[bytes]:
        yield body

    with httpx.Client(trust_env=False, timeout=30) as client:
        chunked = client.post(address, content=chunks(), headers=headers)
        forged = client.post(address, content=b"{}", headers=sign(secret, "msg_1", 1, b"{}"))
        read = client.get(address)
        elsewhere = client.post(address[:-1] + "0", content=b"{}", headers=headers)
    assert [one.status_code for one in (chunked, forged, read, elsewhere)] == [413, 401, 405, 404]
    for one in (chunked, forged, read, elsewhere):
        assert one.json()["message"]
        assert "set-cookie" not in one.headers
    assert not HookMessage.objects.filter(source__workspace=live.workspace).exists()
