"""Compensate: what its form asks and fills in, that it is never more than is left, and who may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, User
from effects.models import Effect, Order
from effects.selectors import payload_of, revision_of
from effects.states import OrderKind, OrderStatus
from runs.models import Run
from tests.people import World, make_world
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, intend, paused_run
from tests.views.conftest import words_of
from tests.views.ordering import WHY, address, form_at, order_of

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
OTHERS = ["viewer", "operator", "approver", "auditor", "developer", "administrator"]
CREDIT = {"arg-customer_id": "cus_000003", "arg-amount_minor": "95000", "arg-currency": "EUR"}


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def offer(acme: World, run: Run) -> Effect:
    """An offer of 5,760.00 EUR that crm has."""
    return standing.completed(intend(acme, run, "crm.create_offer", OFFER))


def page_of(client: Client, effect: Effect, **query: str) -> Any:
    return client.get(address(effect, "compensate"), query)


def carried(client: Client, effect: Effect) -> dict[str, str]:
    here = address(effect, "compensate")
    form = form_at(page_of(client, effect), here)
    return form or {"form_token": "0" * 32, "effect_type": "crm.credit_offer"}


def press(client: Client, effect: Effect, **typed: str) -> Any:
    given = {**carried(client, effect), **CREDIT, "reason": WHY, **typed}
    return client.post(address(effect, "compensate"), given)


def payload_sent(order: Order) -> Any:
    return payload_of(order.sends, revision_of(order.sends))


def test_the_form_is_filled_in_from_the_original_and_says_what_is_left(
    acme: World, offer: Effect, client_of: ClientOf
) -> None:
    page = page_of(client_of(acme.releaser), offer)
    text, said = page.content.decode(), words_of(page)
    assert page.status_code == 200
    assert 'name="arg-customer_id" value="cus_000003"' in text
    assert 'name="arg-amount_minor" value="576000"' in text
    assert 'name="arg-currency" value="EUR"' in text
    assert "It was for 5,760.00 EUR" in said
    assert "Left 5,760.00 EUR" in said
    assert "At most 576000: 5,760.00 EUR is left of it." in said
    assert "A second person has to agree first" in said
    assert "off_000042 written by the ledger" in said
    assert "arg-offer_id" not in text
    assert text.count("autofocus") == 1
    assert f'id="leave" href="{address(offer)}" autofocus' in text


def test_it_is_ordered_linked_and_waits_for_a_second_person(
    acme: World, offer: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    answer = press(client, offer)
    assert (answer.status_code, answer["Location"]) == (303, address(offer))
    order = order_of(offer)
    assert (order.kind, order.status) == (OrderKind.COMPENSATE, OrderStatus.AWAITING_SECOND)
    assert (order.sends.compensates_id, order.sends.amount_minor) == (offer.id, 95_000)
    assert payload_sent(order) == {
        "offer_id": "off_000042",
        "customer_id": "cus_000003",
        "amount_minor": 95_000,
        "currency": "EUR",
    }
    said = words_of(client.get(address(offer)))
    assert f"Compensate, ordered by Releaser: {WHY} A second person is asked now" in said
    assert "Taken back by" in said.partition("Linked effects")[2]
    theirs = words_of(client.get(address(order.sends)))
    assert "Takes back" in theirs
    assert offer.id in theirs
    # What is left has become less, and nothing is filled in that is more.
    again = page_of(client, offer)
    assert "Left 4,810.00 EUR" in words_of(again)
    assert 'name="arg-amount_minor" value="481000"' in again.content.decode()


def test_whoever_writes_the_original_s_number_themselves_is_not_heard(
    acme: World, offer: Effect, client_of: ClientOf
) -> None:
    assert press(client_of(acme.releaser), offer, **{"arg-offer_id": "off_999999"}).status_code == 303
    assert payload_sent(order_of(offer))["offer_id"] == "off_000042"


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"arg-amount_minor": "576001"}, "arg-amount_minor", "more than is left of the original"),
        ({"arg-amount_minor": "0"}, "arg-amount_minor", "0 is less than the minimum of 1"),
        ({"arg-amount_minor": "9.50"}, "arg-amount_minor", "Write a whole number."),
        ({"arg-currency": "euro"}, "arg-currency", "does not match"),
        ({"arg-customer_id": ""}, "arg-customer_id", "This field is required."),
        ({"reason": ""}, "reason", "Say why."),
        ({"reason": "x" * 2001}, "reason", "at most 2000 characters"),
    ],
)
def test_what_does_not_fit_is_said_beside_its_field_and_what_was_typed_is_kept(
    acme: World, offer: Effect, client_of: ClientOf, typed: dict[str, str], field: str, said: str
) -> None:
    client = client_of(acme.releaser)
    answer = press(client, offer, **typed)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert f'id="{"compensate_reason" if field == "reason" else f"id_{field}"}_error"' in text
    assert said in words_of(answer)
    kept = {**CREDIT, **typed}
    assert all(f'value="{value}"' in text for name, value in kept.items() if name != "reason" and value)
    assert "Nothing was ordered." in words_of(answer)
    assert not Order.objects.exists()
    assert press(client, offer).status_code == 303


def test_several_of_them_never_pass_the_original(acme: World, offer: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    assert press(client, offer, **{"arg-amount_minor": "500000"}).status_code == 303
    assert press(client, offer, **{"arg-amount_minor": "76001"}).status_code == 422
    assert press(client, offer, **{"arg-amount_minor": "76000"}).status_code == 303
    assert Order.objects.count() == 2


def test_a_double_click_is_one_and_two_tabs_are_told(acme: World, offer: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    given = {**carried(client, offer), **CREDIT, "reason": WHY}
    assert [client.post(address(offer, "compensate"), given).status_code for _ in range(3)] == [303] * 3
    assert Order.objects.count() == 1
    assert client.post(address(offer, "compensate"), {**given, "form_token": ""}).status_code == 400


def test_protected_fields_go_over_unseen(acme: World, run: Run, client_of: ClientOf) -> None:
    mail = standing.completed(intend(acme, run, "mail.send", MAIL), "m1")
    client = client_of(acme.releaser)
    page = page_of(client, mail)
    assert MAIL["to"] not in page.content.decode()
    assert "arg-to" not in page.content.decode()
    assert "as in the original" in words_of(page)
    # The text is protected in the original and not in the apology: it is not carried over, it is typed.
    assert 'name="arg-body"' in page.content.decode()
    assert "secret discount" not in page.content.decode()
    given = {**carried(client, mail), "arg-subject": "Sorry", "arg-body": "It was a mistake.", "reason": WHY}
    assert client.post(address(mail, "compensate"), given).status_code == 303
    order = order_of(mail)
    assert payload_sent(order) == {"to": MAIL["to"], "subject": "Sorry", "body": "It was a mistake."}
    assert order.sends.recipient == "j•••@brueckner.example"
    # It takes back the whole, and so once.
    answer = client.post(address(mail, "compensate"), {**given, "form_token": "another-token"})
    assert answer.status_code == 409
    assert "taken back already, or is about to be" in words_of(answer)
    assert "It was a mistake." in answer.content.decode()
    assert MAIL["to"] not in answer.content.decode()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda effect: standing.uncertain(effect), "Only what the receiver has can be taken back"),
        (lambda effect: standing.refused(effect), "Only what the receiver has can be taken back"),
    ],
    ids=["uncertain", "refused"],
)
def test_what_the_receiver_does_not_surely_have_is_not_taken_back(
    acme: World, run: Run, client_of: ClientOf, make: Callable[[Effect], Effect], said: str
) -> None:
    effect, client = make(intend(acme, run, "crm.create_offer", OFFER)), client_of(acme.releaser)
    page = page_of(client, effect)
    assert said in words_of(page)
    assert form_at(page, address(effect, "compensate")) is None
    assert press(client, effect).status_code == 409
    assert not Order.objects.exists()


def test_a_type_that_nothing_takes_back_says_so(acme: World, run: Run, client_of: ClientOf) -> None:
    ticket = standing.completed(intend(acme, run, "desk.open_ticket", TICKET), "t1")
    client = client_of(acme.releaser)
    assert "No contract says how an effect of this type is taken back." in words_of(page_of(client, ticket))
    answer = press(client, ticket)
    assert answer.status_code in (409, 422)
    assert not Order.objects.exists()


@pytest.mark.parametrize("effect_type", ["", "test.apology", "crm.create_offer", "no.such", "a\0b"])
def test_only_its_own_contracts_take_it_back(
    acme: World, offer: Effect, client_of: ClientOf, effect_type: str
) -> None:
    client = client_of(acme.releaser)
    assert press(client, offer, effect_type=effect_type).status_code == 422
    assert not Order.objects.exists()
    if effect_type:
        assert page_of(client, offer, type=effect_type).status_code == 400
    assert page_of(client, offer, type="crm.credit_offer").status_code == 200


@pytest.mark.parametrize("role", OTHERS)
def test_who_may_not_repeat_looks_and_is_refused(
    acme: World, offer: Effect, client_of: ClientOf, role: str
) -> None:
    user = getattr(acme, role)
    page = page_of(client_of(user), offer)
    assert page.status_code == 200
    assert form_at(page, address(offer, "compensate")) is None
    assert "Only a releaser may order this." in words_of(page)
    assert press(client_of(user), offer).status_code == 403
    assert press(client_of(user), offer, reason="", **{"arg-amount_minor": "x"}).status_code == 403
    assert not Order.objects.exists()
    assert AuditEvent.objects.filter(verb="order.not_taken", subject=offer.id, actor=user).count() == 2
    assert press(client_of(acme.releaser), offer).status_code == 303


def test_it_is_not_there_for_others(acme: World, offer: Effect, client: Client, client_of: ClientOf) -> None:
    other = make_world("other")
    here = address(offer, "compensate")
    given = {**carried(client_of(acme.releaser), offer), **CREDIT, "reason": WHY}
    elsewhere = here.replace(acme.workspace.id, other.workspace.id)
    for user, there in ((other.releaser, elsewhere), (acme.outsider, here)):
        assert client_of(user).get(there).status_code == 404
        assert client_of(user).post(there, given).status_code == 404
    assert client.get(here).status_code == 302
    assert client.post(here, given).status_code == 302
    assert not Order.objects.exists()


def test_texts_are_escaped(acme: World, run: Run, client_of: ClientOf) -> None:
    bad = "<script>alert(1)</script>"
    offer = standing.completed(
        intend(acme, run, "crm.create_offer", {**OFFER, "customer_id": bad}), reference=f"off_{bad}"
    )
    client = client_of(acme.releaser)
    assert "<script>alert" not in page_of(client, offer).content.decode()
    answer = press(client, offer, **{"arg-note": bad, "arg-amount_minor": "0"})
    assert answer.status_code == 422
    assert "<script>alert" not in answer.content.decode()


def test_the_page_s_queries(
    acme: World, offer: Effect, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.releaser)
    events = AuditEvent.objects.count()
    with django_assert_num_queries(25):
        page_of(client, offer)
    assert AuditEvent.objects.count() == events
