"""Stripe, against localstripe as a real process: the wire format, the objects and their metadata are its own.

What it lacks, and what stands in front of it therefore, is said in stripe_front.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from effects import moves, receivers
from effects.contracts import contract
from effects.ledger import Refused
from effects.models import Receiver
from effects.receivers import Answer
from effects.selectors import request_of, revision_of
from effects.states import Outcome
from tests.catalogue.conftest import Desk
from tests.catalogue.servers import LocalServer, Reply, Seen
from tests.catalogue.stripe_front import StripeFront, error, made
from tests.plugin import ROOT

SECRET = "sk_test_signalbox"
CARD = {"number": "4242424242424242", "exp_month": "12", "exp_year": "2030", "cvc": "123"}


@pytest.fixture(scope="module")
def localstripe() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.catalogue.stripe_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("ready ").strip()
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def front(localstripe: str) -> StripeFront:
    return StripeFront(localstripe)


@pytest.fixture
def stripe(desk: Desk, front: StripeFront, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(front)
    desk.receiver("stripe", server.url, SECRET)
    return server


@pytest.fixture
def ask(localstripe: str) -> Callable[..., Any]:
    """Somebody else's request to Stripe."""

    def post(path: str, **form: str) -> Any:
        answer = httpx.post(
            f"{localstripe}/v1/{path}",
            data=form,
            headers={"Authorization": f"Bearer {SECRET}"},
            trust_env=False,
        )
        return answer.raise_for_status().json()

    return post


def customers_of(front: StripeFront, effect_id: str) -> list[str]:
    every = made(front.upstream, "customers", SECRET)
    return [one["id"] for one in every if one["metadata"].get("effect_id") == effect_id]


def deliver(desk: Desk, effect_id: str) -> Answer:
    """The stored bytes once more, past the ledger, to see what the answer is taken for."""
    effect = desk.effect(effect_id)
    request = request_of(effect, revision_of(effect))
    return receivers.deliver(contract(effect.effect_type), effect, request, send_by=30)


def test_a_customer_is_made_with_these_bytes_and_these_headers(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    effect_id = desk.send(
        "stripe.create_customer",
        email="j.brueckner@example.com",
        name="Jürgen & Söhne",
        metadata={"deal": "D 7", "area": "north"},
    )
    [sent] = stripe.writes
    assert sent.target == "/v1/customers"
    assert sent.body.decode() == (
        "email=j.brueckner%40example.com"
        "&metadata%5Barea%5D=north&metadata%5Bdeal%5D=D+7"
        f"&metadata%5Beffect_id%5D={effect_id}"
        "&name=J%C3%BCrgen+%26+S%C3%B6hne"
    )
    assert sent.headers["content-type"] == "application/x-www-form-urlencoded"
    assert sent.headers["idempotency-key"] == effect_id
    assert sent.headers["stripe-version"] == "2025-03-31.basil"
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    assert desk.standing(effect_id) == ("completed", "")
    assert customers_of(front, effect_id) == [desk.effect(effect_id).provider_reference]


def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_the_same_bytes(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    stripe.lose = 1
    effect_id = desk.send("stripe.create_customer", email="a@example.com")
    assert desk.standing(effect_id) == ("pending", "uncertain")

    desk.perform(effect_id)

    first, second = stripe.writes
    assert first.body == second.body
    assert first.headers == second.headers
    assert desk.attempts(effect_id) == [("unknown", ""), ("completed", "200")]
    assert len(customers_of(front, effect_id)) == 1


def test_a_saved_failure_says_that_sending_again_would_only_repeat_it(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    front.failing = [error(500, "api_error", "An unknown error occurred")]
    effect_id = desk.send("stripe.create_customer", email="b@example.com")
    assert desk.attempts(effect_id) == [("unknown", "500")]

    answer = deliver(desk, effect_id)

    assert (answer.outcome, answer.status, answer.cached_error) == (Outcome.UNKNOWN, "500", True)
    assert "would only repeat it" in answer.problem
    assert customers_of(front, effect_id) == []


def test_a_refusal_is_final_and_known_to_be_repeated(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    declined = error(402, "card_error", "Your card was declined.", code="card_declined")
    front.failing = [declined]
    effect_id = desk.propose("stripe.create_invoice_item", **ITEM, customer="cus_unknown")
    with pytest.raises(Refused, match="Your card was declined"):
        desk.perform(effect_id)
    answer = deliver(desk, effect_id)
    assert (answer.outcome, answer.cached_error) == (Outcome.REFUSED, True)


def test_a_key_that_was_used_for_something_else_goes_to_a_person(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    effect_id = desk.propose("stripe.create_customer", email="c@example.com")
    front.saved[effect_id] = (
        ("/v1/customers", b"email=other%40example.com"),
        Reply(200, {"id": "cus_other"}),
    )
    desk.perform(effect_id)
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.reviews(effect_id) == ["mismatch"]


def test_under_way_is_no_failure(desk: Desk, stripe: LocalServer, front: StripeFront) -> None:
    effect_id = desk.propose("stripe.create_customer", email="d@example.com")
    front.under_way = {effect_id}
    desk.perform(effect_id)
    assert desk.attempts(effect_id) == [("unknown", "409")]
    assert desk.reviews(effect_id) == []

    front.under_way.clear()
    desk.perform(effect_id)

    assert desk.standing(effect_id) == ("completed", "")
    assert len(customers_of(front, effect_id)) == 1


def test_too_many_requests_means_that_nothing_was_done(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    stripe.instead = [error(429, "invalid_request_error", "Too many requests", code="rate_limit")]
    effect_id = desk.send("stripe.create_customer", email="e@example.com")
    assert desk.standing(effect_id) == ("pending", "backoff")
    desk.perform(effect_id)
    assert desk.attempts(effect_id) == [("not_sent", "429"), ("completed", "200")]


ITEM: dict[str, Any] = {"amount": 1250, "currency": "eur", "description": "Consulting"}


def test_it_is_found_by_its_metadata_in_a_list_of_several_pages(
    desk: Desk, stripe: LocalServer, front: StripeFront
) -> None:
    front.longest_page = 2
    stripe.lose = 1
    effect_id = desk.send("stripe.create_customer", email="f@example.com")
    for number in range(5):
        desk.send("stripe.create_customer", command=f"later {number}", email="f@example.com")

    assert desk.look(effect_id) == "found"

    effect = desk.effect(effect_id)
    assert (effect.status, [effect.provider_reference]) == ("completed", customers_of(front, effect_id))
    assert len(stripe.reads) >= 3
    assert all(one.headers["stripe-version"] == "2025-03-31.basil" for one in stripe.reads)
    assert all("idempotency-key" not in one.headers for one in stripe.reads)
    created = int(stripe.reads[0].query["created[gte]"])
    assert 0 <= effect.first_sent_at.timestamp() - created <= 62  # type: ignore[union-attr]


def test_a_prefix_of_the_id_is_another_object(
    desk: Desk, stripe: LocalServer, ask: Callable[..., Any]
) -> None:
    stripe.instead = [Reply(lost=True)]
    effect_id = desk.send("stripe.create_customer", email="g@example.com")
    ask("customers", email="g@example.com", **{"metadata[effect_id]": effect_id[:-1]})
    ask("customers", email="g@example.com", **{"metadata[effect_id]": f"{effect_id}0"})
    assert desk.look(effect_id) == "absent"
    # Stripe may yet finish it, or somebody may have deleted it: absent proves nothing.
    assert desk.standing(effect_id) == ("pending", "uncertain")


def test_two_of_them_go_to_a_person(desk: Desk, stripe: LocalServer, ask: Callable[..., Any]) -> None:
    stripe.lose = 1
    effect_id = desk.send("stripe.create_customer", email="h@example.com")
    ask("customers", email="h@example.com", **{"metadata[effect_id]": effect_id})
    assert desk.look(effect_id) == "several"
    assert desk.reviews(effect_id) == ["duplicate_found"]


def test_one_that_says_something_else_goes_to_a_person_without_the_protected_value(
    desk: Desk, stripe: LocalServer, ask: Callable[..., Any]
) -> None:
    stripe.instead = [Reply(lost=True)]
    effect_id = desk.send("stripe.create_customer", email="i@example.com")
    ask("customers", email="somebody.else@example.com", **{"metadata[effect_id]": effect_id})
    assert desk.look(effect_id) == "mismatch"
    assert desk.reviews(effect_id) == ["mismatch"]
    assert desk.said(effect_id) == ["The receiver holds another email than was sent."]


@pytest.fixture
def payer(ask: Callable[..., Any]) -> dict[str, str]:
    """A customer with a saved card."""
    customer = ask("customers", email="payer@example.com")["id"]
    card = {f"card[{name}]": value for name, value in CARD.items()}
    method = ask("payment_methods", type="card", **card)["id"]
    ask(f"payment_methods/{method}/attach", customer=customer)
    return {"customer": customer, "payment_method": method}


def pay(desk: Desk, payer: dict[str, str], amount: int) -> str:
    effect_id = desk.propose("stripe.create_payment", amount=amount, currency="eur", **payer)
    grant(desk, effect_id)
    desk.perform(effect_id)
    return effect_id


def grant(desk: Desk, effect_id: str) -> None:
    """As an approval leaves it; tests/effects/test_approvals.py is about how it gets there."""
    effect = desk.effect(effect_id)
    assert effect.needs_approval, "money moves only when a person has said so"
    type(effect).objects.filter(id=effect_id).update(needs_approval=False)
    assert moves.make_ready_without_approval(effect_id)


def test_a_payment_and_its_refund(
    desk: Desk, stripe: LocalServer, front: StripeFront, payer: dict[str, str]
) -> None:
    payment = pay(desk, payer, 4200)
    assert desk.standing(payment) == ("completed", "")
    form = dict(parse_qsl(stripe.writes[0].body.decode()))
    assert form["confirm"] == form["off_session"] == "true"
    assert (form["amount"], form["currency"]) == ("4200", "eur")

    intent = desk.effect(payment).provider_reference
    refund = desk.propose("stripe.refund", payment_intent=intent, amount=1200)
    grant(desk, refund)
    desk.perform(refund)

    assert desk.standing(refund) == ("completed", "")
    [there] = [
        one for one in made(front.upstream, "refunds", SECRET) if one["metadata"] == {"effect_id": refund}
    ]
    assert (there["amount"], there["id"]) == (1200, desk.effect(refund).provider_reference)


def test_a_payment_that_is_not_final_yet_is_only_accepted(
    desk: Desk, stripe: LocalServer, ask: Callable[..., Any]
) -> None:
    """By direct debit Stripe says processing; that of this account number fails later."""
    customer = ask("customers", email="debit@example.com")["id"]
    method = ask("payment_methods", type="sepa_debit", **{"sepa_debit[iban]": "DE62370400440532013001"})["id"]
    ask(f"payment_methods/{method}/attach", customer=customer)
    effect_id = pay(desk, {"customer": customer, "payment_method": method}, 900)
    assert desk.standing(effect_id) == ("accepted", "")
    assert desk.effect(effect_id).provider_reference.startswith("pi_")

    assert desk.look(effect_id) == "under_way"

    assert desk.standing(effect_id) == ("accepted", "")
    assert "The receiver says status is 'processing', which is not final" in desk.said(effect_id)[0]


@pytest.mark.parametrize(
    "says", [{"status": "failed", "failure_reason": "expired_or_canceled_card"}, {"status": "canceled"}]
)
def test_a_refund_that_fails_in_the_end_is_no_refund(
    desk: Desk, stripe: LocalServer, front: StripeFront, payer: dict[str, str], says: dict[str, str]
) -> None:
    payment = pay(desk, payer, 4200)
    front.says = {"status": "pending"}
    refund = desk.propose(
        "stripe.refund", payment_intent=desk.effect(payment).provider_reference, amount=1200
    )
    grant(desk, refund)
    desk.perform(refund)
    assert desk.standing(refund) == ("accepted", "")

    front.says = says
    assert desk.look(refund) == "failed"

    assert desk.standing(refund) == ("failed", "refused")
    assert "has failed" in desk.effect(refund).problem
    assert says.get("failure_reason", "") in desk.effect(refund).problem


def test_a_payment_that_was_canceled_is_none_and_one_that_may_be_tried_again_is_open(
    desk: Desk, stripe: LocalServer, front: StripeFront, payer: dict[str, str]
) -> None:
    front.says = {"status": "processing"}
    effect_id = pay(desk, payer, 4200)
    front.says = {"status": "requires_payment_method"}
    assert desk.look(effect_id) == "under_way"
    assert desk.standing(effect_id) == ("accepted", "")

    front.says = {"status": "canceled", "cancellation_reason": "abandoned"}
    assert desk.look(effect_id) == "failed"
    assert desk.standing(effect_id) == ("failed", "refused")
    assert "abandoned" in desk.effect(effect_id).problem


def test_what_was_made_can_be_listed_for_an_orphan_scan(
    desk: Desk, stripe: LocalServer, front: StripeFront, ask: Callable[..., Any]
) -> None:
    front.longest_page = 2
    ours = desk.send("stripe.create_customer", email="j@example.com")
    theirs = [ask("customers", email="shop@example.com")["id"] for _ in range(2)]
    effect = desk.effect(ours)
    since = effect.created_at

    whole = receivers.list_made(contract("stripe.create_customer"), effect.receiver, since=since)

    assert whole.cut == ""
    assert {(one.keys, one.reference) for one in whole.objects} >= {
        ((ours,), effect.provider_reference),
        *(((), one) for one in theirs),
    }
    cut = receivers.list_made(contract("stripe.create_customer"), effect.receiver, since=since, pages=1)
    assert len(cut.objects) == 2
    assert cut.cut == "The list goes on after 1 page, and was not read further."


def test_a_receiver_that_can_not_be_reached_lists_nothing_and_says_so(desk: Desk) -> None:
    desk.receiver("stripe", "http://127.0.0.1:9", SECRET)
    [receiver] = Receiver.objects.filter(workspace=desk.world.workspace, name="stripe")
    listing = receivers.list_made(contract("stripe.create_customer"), receiver, since=receiver.created_at)
    assert listing.objects == ()
    assert listing.cut == "The receiver did not answer: ConnectError"


def test_seen_is_what_was_sent(stripe: LocalServer) -> None:
    """The witness itself: what it keeps is what came."""
    httpx.post(f"{stripe.url}/v1/customers?x=1", content=b"a=b", trust_env=False)
    assert [(one.target, one.body) for one in stripe.writes] == [("/v1/customers?x=1", b"a=b")]
    assert isinstance(stripe.writes[0], Seen)
