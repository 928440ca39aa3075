"""The receiver's rules, with its own records as the witness."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from demo.receiver.customers import CUSTOMERS
from tests.demo.conftest import Account, Process

OFFER = {"customer_id": "cus_000003", "amount_minor": 196000, "currency": "EUR", "external_id": "eff_1"}


def test_a_create_answers_with_the_object_and_makes_one_effect(account: Account) -> None:
    answer = account.create("offers", OFFER, key="k1")
    assert answer.status_code == 201
    made = answer.json()
    assert made["id"] == "off_000001"
    assert made["status"] == "created"
    assert {name: made[name] for name in OFFER} == OFFER
    assert account.get("/v1/offers/off_000001").json() == made
    [effect] = account.effects()
    assert effect["key"] == "k1"
    assert effect["external_id"] == "eff_1"
    assert effect["document"] == made


@pytest.mark.parametrize(
    ("resource", "prefix"),
    [("offers", "off"), ("tickets", "tic"), ("invoices", "inv"), ("reservations", "res"), ("credits", "crd")],
)
def test_each_resource_counts_for_itself(account: Account, resource: str, prefix: str) -> None:
    ids = [account.create(resource, {"subject": "n"}).json()["id"] for _ in range(2)]
    assert ids == [f"{prefix}_000001", f"{prefix}_000002"]


def test_same_key_and_body_replays_the_stored_response(account: Account) -> None:
    first = account.create("offers", OFFER, key="k1")
    second = account.create("offers", OFFER, key="k1")
    assert second.content == first.content
    assert second.status_code == 201
    assert second.headers["Idempotent-Replay"] == "true"
    assert "Idempotent-Replay" not in first.headers
    assert account.rx() == (1, 2)


def test_the_draft_s_quoted_key_is_the_same_key(account: Account) -> None:
    account.create("offers", OFFER, key='"k1"')
    assert account.create("offers", OFFER, key="k1").headers["Idempotent-Replay"] == "true"


def test_same_key_with_other_bytes_is_refused_and_changes_nothing(account: Account) -> None:
    made = account.create("offers", OFFER, key="k1").json()
    answer = account.create("offers", {**OFFER, "amount_minor": 1}, key="k1")
    assert answer.status_code == 422
    assert answer.json()["error"] == "key_reused"
    assert account.get("/v1/offers/off_000001").json() == made
    assert account.rx() == (1, 2)


def test_same_key_for_another_resource_is_refused(account: Account) -> None:
    account.create("offers", OFFER, key="k1")
    assert account.create("invoices", OFFER, key="k1").status_code == 422
    assert account.rx() == (1, 2)


def test_without_a_key_every_request_makes_an_effect(account: Account) -> None:
    for _ in range(2):
        assert account.create("offers", {"amount_minor": 5, "currency": "EUR"}).status_code == 201
    assert account.rx() == (2, 2)


def test_a_taken_external_id_is_refused_with_the_id_of_its_object(account: Account) -> None:
    account.create("tickets", {"subject": "a", "external_id": "eff_9"})
    answer = account.create("tickets", {"subject": "b", "external_id": "eff_9"}, key="fresh")
    assert answer.status_code == 409
    assert answer.json()["existing_id"] == "tic_000001"
    assert account.rx() == (1, 2)
    assert account.create("offers", {"external_id": "eff_9"}).status_code == 201  # unique within a resource


def test_a_refusal_leaves_its_key_free(account: Account) -> None:
    account.create("tickets", {"external_id": "eff_9"})
    account.create("tickets", {"external_id": "eff_9"}, key="k1")
    assert account.get("/v1/operations/k1").status_code == 404
    assert account.create("tickets", {"external_id": "eff_10"}, key="k1").status_code == 201


def test_look_up_by_key_and_by_natural_key(account: Account) -> None:
    answer = account.create("offers", OFFER, key="k/1 %")
    by_key = account.get("/v1/operations/k%2F1%20%25").json()
    sent = answer.request.content
    assert by_key["key"] == "k/1 %"
    assert by_key["body_hash"] == hashlib.sha256(sent).hexdigest()
    assert by_key["status"] == "completed"
    assert by_key["object"] == answer.json()
    assert account.get("/v1/offers", external_id="eff_1").json() == {
        "data": [answer.json()],
        "has_more": False,
    }
    assert account.get("/v1/offers", external_id="eff_").json()["data"] == []
    assert account.get("/v1/operations/nothing").status_code == 404


def test_a_list_from_a_time_on_goes_on_where_it_was_cut(account: Account) -> None:
    made = [account.create("tickets", {"external_id": f"eff_{number}"}).json() for number in range(102)]
    first = account.get("/v1/tickets", created_since=made[1]["created_at"]).json()
    assert first == {"data": made[1:101], "has_more": True}
    rest = account.get("/v1/tickets", created_since=made[1]["created_at"], after=made[100]["id"]).json()
    assert rest == {"data": made[101:], "has_more": False}
    assert account.get("/v1/tickets", created_since="2999-01-01T00:00:00Z").json()["data"] == []
    for no_time in ("yesterday", "2026-12-01T00:00:00"):
        assert account.get("/v1/tickets", created_since=no_time).json()["error"] == "no_time"


def test_twenty_parallel_posts_with_one_key_make_one_effect(account: Account) -> None:
    def post(_: int) -> httpx.Response:
        return account.create("offers", OFFER, key="k1")

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, range(20)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotent-Replay" in answer.headers for answer in answers) == 19
    assert account.rx() == (1, 20)


def test_twenty_parallel_posts_with_one_external_id_make_one_effect(account: Account) -> None:
    def post(number: int) -> int:
        return account.create("tickets", {"external_id": "eff_1", "subject": str(number)}).status_code

    with ThreadPoolExecutor(20) as pool:
        statuses = sorted(pool.map(post, range(20)))
    assert statuses == [201] + [409] * 19
    assert account.rx() == (1, 20)


def test_accounts_never_meet(account: Account, other_account: Account) -> None:
    account.create("offers", OFFER, key="k1")
    assert other_account.get("/v1/operations/k1").status_code == 404
    assert other_account.get("/v1/offers/off_000001").status_code == 404
    assert other_account.create("offers", {**OFFER, "amount_minor": 7}, key="k1").json()["id"] == "off_000001"
    assert account.rx() == other_account.rx() == (1, 1)


def test_every_account_has_the_customers_and_they_are_no_effects(account: Account) -> None:
    listed = account.get("/v1/customers").json()["data"]
    assert [customer["id"] for customer in listed] == [customer["id"] for customer in CUSTOMERS]
    assert len({customer["language"] for customer in listed}) >= 6
    [sato] = account.get("/v1/customers", email="misaki.sato@minato-seiki.example").json()["data"]
    assert sato["company"] == "みなと精機株式会社"
    assert account.get(f"/v1/customers/{sato['id']}").json() == sato
    assert account.rx() == (0, 0)


def test_put_creates_and_replaces_a_customer(account: Account) -> None:
    body = {"name": "Ines Duarte", "email": "ines@duarte.example", "language": "pt"}
    created = account.client.put("/v1/customers/cus_ines", json=body)
    replaced = account.client.put("/v1/customers/cus_ines", json={**body, "name": "Inês Duarte"})
    assert (created.status_code, replaced.status_code) == (201, 200)
    assert replaced.json()["created_at"] == created.json()["created_at"]
    assert account.get("/v1/customers", email="ines@duarte.example").json()["data"] == [replaced.json()]
    assert [effect["action"] for effect in account.effects()] == ["created", "replaced"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b'{"n": NaN}', 400, None),
        (b'{"n": "\\ud800"}', 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"amount_minor": 19.6}', 422, "amount_minor"),
        (b'{"amount_minor": true}', 422, "amount_minor"),
        (b'{"currency": "euro"}', 422, "currency"),
        (b'{"external_id": ""}', 422, "external_id"),
    ],
)
def test_a_bad_body_is_refused_and_recorded(
    account: Account, body: bytes, status: int, field: str | None
) -> None:
    answer = account.client.post("/v1/offers", content=body, headers={"Idempotency-Key": "k1"})
    assert answer.status_code == status
    assert answer.json().get("field") == field
    [seen] = account.requests()
    assert (seen["status"], seen["made_effect"]) == (status, False)
    assert account.get("/v1/operations/k1").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/unicorns", 404),
        ("POST", "/v1/offers/off_000001", 405),
        ("PUT", "/v1/offers/off_000001", 405),
        ("DELETE", "/v1/offers/off_000001", 405),
        ("GET", "/v1/offers/off_999999", 404),
        ("GET", "/v1/offers?colour=red", 400),
        ("GET", "/v2/offers", 404),
    ],
)
def test_what_there_is_not(account: Account, method: str, path: str, status: int) -> None:
    assert account.client.request(method, path, content=b"{}").status_code == status
    assert account.effects() == []


@pytest.mark.parametrize(
    "token", ["", "Bearer acme", "Bearer acme:", "Basic acme:x", "Bearer a b:x", "Bearer :x"]
)
def test_without_an_account_nothing_is_done(receiver_process: Process, token: str) -> None:
    headers = {"Authorization": token} if token else {}
    answer = httpx.post(f"{receiver_process.url}/v1/offers", json={}, headers=headers)
    assert answer.status_code == 401


def test_records_keep_what_came_but_no_secret(account: Account) -> None:
    answer = account.create("offers", OFFER, key="k1")
    [seen] = account.requests(path="/v1/off")
    sent = answer.request.content
    assert (seen["method"], seen["path"], seen["key"]) == ("POST", "/v1/offers", "k1")
    assert seen["body_sha256"] == hashlib.sha256(sent).hexdigest()
    assert seen["body"] == sent.decode()
    assert seen["headers"]["content-type"] == "application/json"
    assert (seen["status"], seen["made_effect"], seen["fault"]) == (201, True, None)
    assert "s3cret" not in account.get("/_records/requests", account=account.name).text


def test_records_since_a_number_and_since_a_time(account: Account) -> None:
    for _ in range(2):
        account.create("offers", {})
    first, second = account.requests()
    assert account.requests(since=str(first["seq"])) == [second]
    assert account.requests(since=first["received_at"]) == [first, second]
    assert account.requests(since="2999-01-01T00:00:00Z") == []


@pytest.mark.parametrize("query", [{"acount": "x"}, {"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}])
def test_records_refuse_a_filter_that_there_is_not(account: Account, query: dict[str, str]) -> None:
    assert account.get("/_records/requests", **query).status_code == 400


def test_prune_forgets_keys_of_one_account_and_keeps_objects(
    account: Account, other_account: Account
) -> None:
    for caller in (account, other_account):
        caller.create("invoices", {"amount_minor": 5}, key="k1")
    assert account.client.post("/_prune", json={"account": account.name}).json() == {"pruned": 1}
    assert account.get("/v1/operations/k1").status_code == 404
    assert account.get("/v1/invoices/inv_000001").status_code == 200
    assert account.create("invoices", {"amount_minor": 5}, key="k1").json()["id"] == "inv_000002"
    assert other_account.create("invoices", {"amount_minor": 5}, key="k1").json()["id"] == "inv_000001"
    assert account.rx() == (2, 2)
    assert other_account.rx() == (1, 2)


def test_the_page_shows_what_happened_escaped_and_without_scripts(
    account: Account, other_account: Account
) -> None:
    account.create(
        "offers",
        {"note": "<script>alert(1)</script>", "amount_minor": 196000, "currency": "EUR"},
        key="k-shown",
    )
    other_account.create("offers", {"note": "not for this page"}, key="k-hidden")
    account.order("slow", seconds=9)
    page = account.get("/", account=account.name)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src" not in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert "k-shown" in page.text
    assert "1,960.00 EUR" in page.text
    assert "k-hidden" not in page.text
    assert "slow" in page.text
    assert account.get("/style.css").headers["content-type"].startswith("text/css")
    assert account.get("/health").json() == {"status": "ok"}
