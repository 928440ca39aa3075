"""Accepted commands and their later ends, told by signed webhooks to a real listener."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from demo.receiver.loopback import Answer, LoopbackServer, Request
from tests.demo.conftest import Account, start

SECRET = "whsec_" + base64.b64encode(b"a shared secret of 24 by").decode()
OFFER = {"amount_minor": 196000, "currency": "EUR", "external_id": "eff_1"}


@dataclass
class Listener:
    """Takes webhooks and checks each signature as Standard Webhooks says, written here a second time on purpose."""

    url: str = ""
    got: queue.Queue[Request] = field(default_factory=queue.Queue)

    def take(self, request: Request) -> Answer:
        self.got.put(request)
        return Answer.of(200, {})

    def next(self) -> tuple[str, dict[str, Any]]:
        request = self.got.get(timeout=5)
        message_id, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        assert abs(time.time() - int(stamp)) < 60
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = hmac.new(key, f"{message_id}.{stamp}.".encode() + request.body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
        return message_id, json.loads(request.body)


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    server = LoopbackServer(listening.take, 0, threading.Event())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    listening.url = f"{server.address}/hooks/crm"
    yield listening
    server.shutdown()
    server.server_close()


def test_accepted_then_completed(account: Account, listener: Listener) -> None:
    account.order("202_webhook", webhook_url=listener.url, secret=SECRET, delay=1)
    answer = account.create("offers", OFFER, key="k1")
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    again = account.create("offers", OFFER, key="k1")
    assert (again.status_code, again.headers["Idempotent-Replay"]) == (202, "true")
    pending = account.get("/v1/operations/k1").json()
    assert (pending["status"], pending["object"]) == ("accepted", None)
    assert account.rx() == (0, 2)
    _, event = listener.next()
    assert event["type"] == "offer.completed"
    assert event["data"]["key"] == "k1"
    assert event["data"]["external_id"] == "eff_1"
    assert event["data"]["object"] == account.get("/v1/offers/off_000001").json()
    done = account.get("/v1/operations/k1").json()
    assert (done["status"], done["object"]["id"]) == ("completed", "off_000001")
    assert account.create("offers", OFFER, key="k1").json()["id"] == "off_000001"
    assert account.rx() == (1, 3)
    assert account.requests()[0]["made_effect"] is True


def test_accepted_then_failed(account: Account, listener: Listener) -> None:
    account.order(
        "202_webhook", webhook_url=listener.url, secret=SECRET, delay=0, final="failed", reason="credit limit"
    )
    account.create("offers", OFFER, key="k1")
    _, event = listener.next()
    assert event["type"] == "offer.failed"
    assert (event["data"]["status"], event["data"]["reason"], event["data"]["object"]) == (
        "failed",
        "credit limit",
        None,
    )
    ended = account.get("/v1/operations/k1").json()
    assert (ended["status"], ended["reason"]) == ("failed", "credit limit")
    assert account.rx() == (0, 1)


def test_accepted_and_silence(account: Account) -> None:
    account.order("202_webhook", final="never")
    assert account.create("offers", OFFER, key="k1").status_code == 202
    assert account.get("/v1/operations/k1").json()["status"] == "accepted"
    assert account.get("/_records/webhooks", account=account.name).json()["webhooks"] == []


def test_completed_without_telling_anybody_is_found_by_looking(account: Account) -> None:
    account.order("202_webhook", delay=0)
    account.create("offers", OFFER, key="k1")
    deadline = time.monotonic() + 5
    while account.get("/v1/operations/k1").json()["status"] == "accepted" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert account.get("/v1/operations/k1").json()["object"]["id"] == "off_000001"


def test_copies_carry_new_ids_and_one_end(account: Account, listener: Listener) -> None:
    account.order("202_webhook", webhook_url=listener.url, secret=SECRET, delay=0, copies=2)
    account.create("offers", OFFER, key="k1")
    (first_id, first), (second_id, second) = listener.next(), listener.next()
    assert first_id != second_id
    assert first["data"] == second["data"]
    assert account.rx() == (1, 1)


def test_the_webhook_may_come_before_the_answer(account: Account, listener: Listener) -> None:
    account.order("202_webhook", webhook_url=listener.url, secret=SECRET, webhook_first=True)
    answer = account.create("offers", OFFER, key="k1")
    assert answer.status_code == 202
    assert not listener.got.empty()
    assert listener.next()[1]["type"] == "offer.completed"
    assert account.rx() == (1, 1)


def test_a_503_that_lies_makes_the_effect_later(account: Account, listener: Listener) -> None:
    account.order("503_unprocessed", webhook_url=listener.url, secret=SECRET, final="completed", delay=0.1)
    assert account.create("offers", OFFER, key="k1").status_code == 503
    assert listener.next()[1]["data"]["object"]["id"] == "off_000001"
    assert account.create("offers", OFFER, key="k1").headers["Idempotent-Replay"] == "true"
    assert account.rx() == (1, 2)


def test_a_503_that_lies_does_not_make_it_twice_when_it_was_sent_again(
    account: Account, listener: Listener
) -> None:
    account.order("503_unprocessed", webhook_url=listener.url, secret=SECRET, final="completed", delay=1)
    account.create("offers", OFFER, key="k1")
    sent_again = account.create("offers", OFFER, key="k1")
    assert sent_again.status_code == 201
    assert listener.next()[1]["data"]["object"] == sent_again.json()
    assert account.rx() == (1, 2)


def test_the_secret_is_never_shown_and_the_delivery_is(account: Account, listener: Listener) -> None:
    account.order("202_webhook", webhook_url=listener.url, secret=SECRET, delay=0)
    assert SECRET not in account.get("/_faults", account=account.name).text
    account.create("offers", OFFER, key="k1")
    listener.next()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        answer = account.get("/_records/webhooks", account=account.name)
        if answer.json()["webhooks"][0]["outcome"]:
            break
        time.sleep(0.02)
    assert answer.json()["webhooks"][0]["outcome"] == "200"
    assert SECRET not in answer.text


def test_a_receiver_that_was_killed_ends_its_accepted_commands_after_the_next_start(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = str(tmp_path_factory.mktemp("killed"))
    first = start("demo.receiver", "--port", "0", "--data", folder)
    before = Account.new(first.url)
    before.order("202_webhook", delay=1)
    before.create("offers", OFFER, key="k1")
    first.popen.kill()
    first.popen.wait()
    second = start("demo.receiver", "--port", "0", "--data", folder)
    try:
        after = Account(second.url, before.name, before.client)
        after.client.base_url = second.url
        deadline = time.monotonic() + 5
        while not after.effects() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert after.rx() == (1, 1)
        assert after.get("/v1/operations/k1").json()["status"] == "completed"
    finally:
        before.client.close()
        assert second.stop() == 0
