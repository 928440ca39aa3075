"""Each fault as its caller sees it and as the receiver's own records tell it."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from demo.receiver.faults import KINDS
from demo.receiver.plays import PLAYS
from tests.demo.conftest import Account

OFFER = {"amount_minor": 196000, "currency": "EUR", "external_id": "eff_1"}


def test_every_kind_has_its_play() -> None:
    assert set(PLAYS) == set(KINDS)


@pytest.mark.parametrize("reset", [False, True])
def test_drop_after_commit(account: Account, reset: bool) -> None:
    account.order("drop_after_commit", reset=reset)
    with pytest.raises(httpx.ReadError if reset else httpx.RemoteProtocolError):
        account.create("offers", OFFER, key="k1")
    assert account.requests()[0]["status"] == "dropped"
    assert account.requests()[0]["fault"] == "drop_after_commit"
    again = account.create("offers", OFFER, key="k1")
    assert again.headers["Idempotent-Replay"] == "true"
    assert account.rx() == (1, 2)
    first, second = account.requests()
    assert (first["made_effect"], second["made_effect"]) == (True, False)


def test_drop_before(account: Account) -> None:
    account.order("drop_before")
    with pytest.raises(httpx.RemoteProtocolError):
        account.create("offers", OFFER, key="k1")
    assert account.rx() == (0, 1)
    assert account.get("/v1/operations/k1").status_code == 404
    assert account.create("offers", OFFER, key="k1").status_code == 201
    assert account.rx() == (1, 2)


def test_hang_after_commit_holds_up_nobody_else(account: Account, other_account: Account) -> None:
    account.order("hang_after_commit", seconds=2)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(account.create, "offers", OFFER, key="k1")
        while not account.effects():
            time.sleep(0.01)
        assert other_account.create("offers", OFFER, key="k1").status_code == 201
        assert account.create("offers", OFFER, key="k1").headers["Idempotent-Replay"] == "true"
        assert account.requests()[0]["status"] is None  # not answered yet, and recorded all the same
        assert not hanging.done()
        with pytest.raises(httpx.RemoteProtocolError):
            hanging.result()
    assert account.requests()[0]["status"] == "dropped"
    assert account.rx() == (1, 2)


def test_hang_after_commit_may_answer_in_the_end(account: Account) -> None:
    account.order("hang_after_commit", seconds=0.4, then="answer")
    started = time.monotonic()
    assert account.create("offers", OFFER, key="k1").status_code == 201
    assert time.monotonic() - started >= 0.4


def test_hang_before_does_nothing(account: Account) -> None:
    account.order("hang_before", seconds=0.3)
    started = time.monotonic()
    with pytest.raises(httpx.RemoteProtocolError):
        account.create("offers", OFFER, key="k1")
    assert time.monotonic() - started >= 0.3
    assert account.rx() == (0, 1)


def test_a_client_that_stops_waiting_does_not_stop_a_slow_effect(account: Account) -> None:
    account.order("slow", seconds=1.2)
    with pytest.raises(httpx.ReadTimeout):
        account.create("offers", OFFER, key="k1", timeout=0.1)
    assert account.get("/v1/operations/k1").status_code == 404  # absent now, and yet it comes
    deadline = time.monotonic() + 5
    while not account.effects() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert account.rx() == (1, 1)


def test_500_before_and_500_after(account: Account) -> None:
    account.order("500_before")
    account.order("500_after")
    assert account.create("offers", OFFER, key="k1").status_code == 500
    assert account.rx() == (0, 1)
    assert account.create("offers", OFFER, key="k1").status_code == 500
    assert account.rx() == (1, 2)
    assert account.create("offers", OFFER, key="k1").status_code == 201
    assert account.rx() == (1, 3)


def test_cached_500_is_replayed_for_its_key_for_ever(account: Account) -> None:
    account.order("cached_500")
    first = account.create("offers", OFFER, key="k1")
    second = account.create("offers", OFFER, key="k1")
    assert (first.status_code, second.status_code) == (500, 500)
    assert second.headers["Idempotent-Replay"] == "true"
    assert account.get("/v1/operations/k1").json()["status"] == "failed"
    assert account.rx() == (0, 2)
    assert account.create("offers", OFFER, key="k2").status_code == 201
    assert account.rx() == (1, 3)


def test_429_says_when_to_come_back(account: Account) -> None:
    account.order("429", retry_after=7)
    answer = account.create("offers", OFFER, key="k1")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert account.rx() == (0, 1)


@pytest.mark.parametrize(("kind", "status"), [("409_in_progress", 409), ("503_unprocessed", 503)])
def test_in_progress_and_unprocessed_say_it_too(account: Account, kind: str, status: int) -> None:
    account.order(kind, retry_after=2)
    answer = account.create("offers", OFFER, key="k1")
    assert (answer.status_code, answer.headers["Retry-After"]) == (status, "2")


@pytest.mark.parametrize(
    ("kind", "status"), [("409_in_progress", 409), ("503_unprocessed", 503), ("401", 401)]
)
def test_refusals_that_do_nothing_as_often_as_ordered(account: Account, kind: str, status: int) -> None:
    account.order(kind, times=3)
    statuses = [account.create("offers", OFFER, key="k1").status_code for _ in range(4)]
    assert statuses == [status, status, status, 201]
    assert account.rx() == (1, 4)


def test_drip_sends_a_byte_at_a_time(account: Account) -> None:
    account.order("drip", interval=0.002)
    started = time.monotonic()
    answer = account.create("offers", OFFER, key="k1", timeout=0.5)  # no single read is slow
    assert answer.status_code == 201
    assert answer.json()["id"] == "off_000001"
    assert time.monotonic() - started > 0.4
    assert account.requests()[0]["status"] == 201


def test_wrong_amount_is_only_in_the_answer(account: Account) -> None:
    account.order("wrong_amount", amount_minor=1)
    account.order("wrong_amount")
    told = account.create("offers", OFFER, key="k1")
    assert (told.status_code, told.json()["amount_minor"]) == (200, 1)
    assert account.create("offers", OFFER, key="k1").json()["amount_minor"] == 196100
    assert account.get("/v1/offers/off_000001").json()["amount_minor"] == 196000
    assert account.rx() == (1, 2)


def test_malformed_is_a_2xx_that_does_not_parse(account: Account) -> None:
    account.order("malformed")
    answer = account.create("offers", OFFER, key="k1")
    assert answer.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        answer.json()
    assert account.rx() == (1, 1)


def test_stale_look_ups_find_nothing_although_it_is_there(account: Account) -> None:
    account.create("tickets", {"external_id": "eff_1"}, key="k1")
    account.order("stale", match={"method": "GET"}, times=3)
    assert account.get("/v1/tickets", external_id="eff_1").json()["data"] == []
    assert account.get("/v1/tickets/tic_000001").status_code == 404
    assert account.get("/v1/operations/k1").status_code == 404
    assert len(account.get("/v1/tickets", external_id="eff_1").json()["data"]) == 1


def test_look_ups_fail_only_when_the_match_says_get(account: Account) -> None:
    account.order("500_before")
    assert account.get("/v1/customers").status_code == 200
    account.order("429", match={"method": "get"})
    assert account.get("/v1/customers").status_code == 429
    assert account.get("/v1/customers").status_code == 200


def test_orders_are_used_in_their_order_by_what_they_match(account: Account) -> None:
    account.order("500_before", match={"path": "/v1/invoices"})
    account.order("429", match={"body_contains": "eff_7"})
    account.order("401", match={"key": "k9"})
    account.order("503_unprocessed", match={"method": "PUT"})
    assert account.create("offers", {"a": 1}).status_code == 201
    assert account.create("offers", {"external_id": "eff_7"}).status_code == 429
    assert account.create("offers", {"a": 1}, key="k8").status_code == 201
    assert account.create("offers", {"a": 1}, key="k9").status_code == 401
    assert account.client.put("/v1/customers/cus_x", json={}).status_code == 503
    assert account.create("invoices", {}).status_code == 500
    assert account.get("/_faults", account=account.name).json() == {"faults": []}


def test_one_order_fails_one_of_many_parallel_requests(account: Account) -> None:
    account.order("500_before")
    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(lambda _: account.create("offers", {}).status_code, range(8)))
    assert statuses == [201] * 7 + [500]


def test_orders_are_listed_and_cleared_by_account(account: Account, other_account: Account) -> None:
    account.order("slow", seconds=1, times=5, match={"path": "/v1/offers"})
    other_account.order("slow")
    [listed] = account.get("/_faults", account=account.name).json()["faults"]
    assert (listed["kind"], listed["remaining"], listed["seconds"]) == ("slow", 5, 1)
    assert listed["match"] == {"path": "/v1/offers"}
    assert account.client.delete("/_faults", params={"account": account.name}).json() == {"cleared": 1}
    assert account.get("/_faults", account=account.name).json() == {"faults": []}
    assert len(account.get("/_faults", account=other_account.name).json()["faults"]) == 1
    assert account.client.delete("/_faults").status_code == 422


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({"kind": "explode"}, "kind"),
        ({"kind": "slow", "account": ""}, "account"),
        ({"kind": "slow", "times": 0}, "times"),
        ({"kind": "slow", "second": 1}, "second"),
        ({"kind": "slow", "seconds": "long"}, "seconds"),
        ({"kind": "slow", "match": {"colour": "red"}}, "match.colour"),
        ({"kind": "202_webhook", "webhook_url": "http://127.0.0.1:1/x"}, "secret"),
        ({"kind": "202_webhook", "webhook_url": "ftp://x"}, "webhook_url"),
        ({"kind": "202_webhook", "secret": "whsec_???"}, "secret"),
        ({"kind": "202_webhook", "match": {"method": "GET"}}, "kind"),
        ({"kind": "stale"}, "match.method"),
    ],
)
def test_a_bad_order_is_refused_naming_the_field(account: Account, order: dict[str, Any], field: str) -> None:
    answer = account.client.post("/_faults", json={"account": account.name, **order})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert account.get("/_faults", account=account.name).json() == {"faults": []}


def test_a_request_cut_in_mid_body_is_recorded_and_does_nothing(account: Account) -> None:
    account.order("500_before")  # and it uses up no fault order
    target = urlsplit(account.url)
    with socket.create_connection((target.hostname, target.port)) as raw:
        head = f"POST /v1/offers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {account.name}:s\r\nContent-Length: 999\r\n\r\n"
        raw.sendall(head.encode() + b'{"amount_minor": 1')
    deadline = time.monotonic() + 5
    while not account.requests() and time.monotonic() < deadline:
        time.sleep(0.02)
    while (seen := account.requests()[0])["status"] is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (seen["status"], seen["made_effect"]) == ("incomplete", False)
    assert len(account.get("/_faults", account=account.name).json()["faults"]) == 1


def test_a_chunked_body_is_read_whole(account: Account) -> None:
    answer = account.client.post("/v1/offers", content=iter([b'{"amount_mi', b'nor": 12}']))
    assert answer.json()["amount_minor"] == 12


def test_two_requests_with_one_key_while_the_first_is_slow(account: Account) -> None:
    account.order("slow", seconds=0.8)
    answers: list[httpx.Response] = []
    first = threading.Thread(target=lambda: answers.append(account.create("offers", OFFER, key="k1")))
    first.start()
    while not account.requests():
        time.sleep(0.01)
    second = account.create("offers", OFFER, key="k1")
    first.join()
    assert second.content == answers[0].content
    assert answers[0].headers["Idempotent-Replay"] == "true"
    assert account.rx() == (1, 2)
