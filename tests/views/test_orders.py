"""Orders on the pages: the effect's levers and orders, withdrawing, asking the receiver, the second person's request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, Role, User
from effects.models import Approval, Effect, LookRequest, Order
from effects.states import ApprovalStatus, OrderStatus, SubState
from runs.models import Run
from tests.people import World, make_world
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, asked, intend, paused_run
from tests.views.conftest import Decides, Reads, words_of
from tests.views.ordering import WHY, WORDS, address, form_at, order_of, press, request_of
from tests.views.test_approvals import badge_of, ids_in

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
MAY_ASK = ["operator", "auditor", "releaser", "developer"]
NO_SECOND = ["viewer", "operator", "auditor", "developer", "administrator"]


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def mail(acme: World, run: Run) -> Effect:
    """A mail that may have arrived: nothing tells its repeats apart, and nobody can be asked."""
    return standing.uncertain(intend(acme, run, "mail.send", MAIL))


@pytest.fixture
def ordered(acme: World, mail: Effect, client_of: ClientOf) -> Order:
    """An order to deliver that mail again: a second person has to accept the risk, too."""
    assert press(client_of(acme.releaser), mail, "deliver-again").status_code == 303
    return order_of(mail)


def withdraw_at(order: Order) -> str:
    return f"/w/{order.workspace_id}/orders/{order.id}/withdraw/"


def request_at(order: Order) -> str:
    return f"approvals/{request_of(order).id}/"


# -- the effect's page ---------------------------------------------------------------------------------------------


def test_the_levers_lead_to_the_screens_or_say_why_not(acme: World, run: Run, client_of: ClientOf) -> None:
    offer = standing.completed(intend(acme, run, "crm.create_offer", OFFER))
    page = client_of(acme.releaser).get(address(offer))
    text = page.content.decode()
    assert f'href="{address(offer, "repeat")}"' in text
    assert f'href="{address(offer, "compensate")}"' in text
    assert form_at(page, address(offer, "ask")) is not None
    ticket = intend(acme, run, "test.free_text", {"customer_id": "cus_000003"})
    page = client_of(acme.releaser).get(address(ticket))
    said = words_of(page)
    assert "Repeat external effect It has not been approved yet: its approval decides." in said
    assert "Compensate No contract says how an effect of this type is taken back." in said
    assert f'href="{address(ticket, "compensate")}"' not in page.content.decode()
    # Why, act by act, stands on the screen all the same.
    assert f'href="{address(ticket, "repeat")}"' in page.content.decode()


@pytest.mark.parametrize("role", [role for role in EVERYBODY if role != "releaser"])
def test_whoever_may_not_repeat_is_told_so_on_the_lever(
    acme: World, run: Run, client_of: ClientOf, role: str
) -> None:
    offer = standing.completed(intend(acme, run, "crm.create_offer", OFFER))
    said = words_of(client_of(getattr(acme, role)).get(address(offer)))
    assert "Compensate Only a releaser may order this." in said
    assert "What each act would take" in said
    said = words_of(client_of(acme.releaser).get(address(offer)))
    assert "Only a releaser" not in said


def test_orders_stand_on_both_effects_with_who_why_and_what_became_of_them(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    press(client, mail, "send-as-new")
    order = order_of(mail)
    for effect in (mail, order.sends):
        said = words_of(client_of(acme.viewer).get(address(effect))).partition("What people ordered")[2]
        for words in ("Send as a new effect", "Waiting for a second person", f"Releaser, now : {WHY}", WORDS):
            assert words in said
    assert "Withdraw it" not in said
    assert (
        client.post(withdraw_at(order), {"form_token": "t" * 32, "reason": "She has it."}).status_code == 303
    )
    said = words_of(client_of(acme.viewer).get(address(mail)))
    assert "Withdrawn by Releaser: She has it." in said
    assert "Withdrawn by Releaser: She has it." in words_of(client.get(address(order.sends)))


def test_an_effect_that_an_order_made_says_so_instead_of_a_tool(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    press(client, mail, "send-as-new")
    second = order_of(mail).sends
    why = words_of(client.get(address(second))).partition("Why")[2]
    assert f"Send as a new effect, by Releaser: {WHY}" in why
    assert "asked for the first one" in why


def test_proven_absence_is_said(acme: World, run: Run, client_of: ClientOf) -> None:
    effect = standing.uncertain(intend(acme, run, "test.queried", TICKET))
    assert "Proven absent" not in words_of(client_of(acme.viewer).get(address(effect)))
    standing.absent(effect)
    said = words_of(client_of(acme.viewer).get(address(effect)))
    assert "by 1 look since the last sending" in said.partition("Proven absent")[2]
    assert "it is proven since that desk does not have it" in said


def test_more_orders_take_no_more_queries(
    acme: World, mail: Effect, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.releaser)
    for number in range(1, 4):
        assert press(client, mail, "send-as-new").status_code == 303
        order = Order.objects.latest("asked_at")
        assert client.post(
            withdraw_at(order), {"form_token": f"withdraws-{number}", "reason": "Not needed."}
        ).status_code in (303,)
        client.get(address(mail))
        with django_assert_num_queries(26):
            client.get(address(mail))


# -- withdrawing ---------------------------------------------------------------------------------------------------


def test_an_order_is_withdrawn_with_its_reason_and_its_request_with_it(
    acme: World, ordered: Order, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    page = client.get(address(ordered.effect))
    form = form_at(page, withdraw_at(ordered))
    assert form is not None
    answer = client.post(withdraw_at(ordered), {**form, "reason": "She has it."})
    assert (answer.status_code, answer["Location"]) == (303, address(ordered.effect))
    ordered.refresh_from_db()
    assert (ordered.status, ordered.outcome) == (OrderStatus.WITHDRAWN, "Withdrawn by Releaser: She has it.")
    assert Approval.objects.get(order=ordered).status == ApprovalStatus.CLOSED
    assert "Deliver again: Withdrawn by Releaser: She has it." in words_of(
        client.get(address(ordered.effect))
    )
    # The same form again is the same withdrawal; another one comes too late.
    assert client.post(withdraw_at(ordered), {**form, "reason": "She has it."}).status_code == 303
    assert AuditEvent.objects.filter(verb="order.withdrawn").count() == 1
    late = client.post(withdraw_at(ordered), {"form_token": "u" * 32, "reason": "Late."})
    assert late.status_code == 409
    assert "has ended, already" in words_of(late)
    assert "Late." in late.content.decode()


def test_another_releaser_may_withdraw_it(acme: World, ordered: Order, client_of: ClientOf) -> None:
    other = acme.person("other_releaser", Role.RELEASER)
    answer = client_of(other).post(withdraw_at(ordered), {"form_token": "t" * 32, "reason": "I called her."})
    assert answer.status_code == 303
    ordered.refresh_from_db()
    assert ordered.outcome == "Withdrawn by Other Releaser: I called her."


@pytest.mark.parametrize(("reason", "said"), [("", "Say why you withdraw it."), ("x" * 2001, "at most 2000")])
def test_a_withdrawal_says_why(
    acme: World, ordered: Order, client_of: ClientOf, reason: str, said: str
) -> None:
    answer = client_of(acme.releaser).post(withdraw_at(ordered), {"form_token": "t" * 32, "reason": reason})
    assert answer.status_code == 422
    assert said in words_of(answer)
    assert f'id="withdraw_{ordered.id}_reason_error"' in answer.content.decode()
    assert reason in answer.content.decode()
    ordered.refresh_from_db()
    assert ordered.status == OrderStatus.AWAITING_SECOND


@pytest.mark.parametrize("role", [role for role in EVERYBODY if role != "releaser"])
def test_who_may_not_repeat_may_not_withdraw(
    acme: World, ordered: Order, client_of: ClientOf, role: str
) -> None:
    client = client_of(getattr(acme, role))
    assert form_at(client.get(address(ordered.effect)), withdraw_at(ordered)) is None
    for reason in ("Not needed.", ""):
        given = {"form_token": "t" * 32, "reason": reason}
        assert client.post(withdraw_at(ordered), given).status_code == 403
    assert AuditEvent.objects.filter(verb="order.not_withdrawn", subject=ordered.id).count() == 2
    ordered.refresh_from_db()
    assert ordered.status == OrderStatus.AWAITING_SECOND


def test_an_order_is_not_there_for_others(
    acme: World, ordered: Order, client: Client, client_of: ClientOf
) -> None:
    other = make_world("other")
    given = {"form_token": "t" * 32, "reason": "Not needed."}
    elsewhere = withdraw_at(ordered).replace(acme.workspace.id, other.workspace.id)
    assert client_of(other.releaser).post(elsewhere, given).status_code == 404
    assert client_of(acme.outsider).post(withdraw_at(ordered), given).status_code == 404
    assert client.post(withdraw_at(ordered), given).status_code == 302
    assert client_of(acme.releaser).get(withdraw_at(ordered)).status_code == 405
    nowhere = withdraw_at(ordered).replace(ordered.id, "ord_none")
    assert client_of(acme.releaser).post(nowhere, given).status_code == 404
    assert client_of(acme.releaser).post(withdraw_at(ordered), {"reason": "Not needed."}).status_code == 400
    ordered.refresh_from_db()
    assert ordered.status == OrderStatus.AWAITING_SECOND


# -- asking the receiver -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", MAY_ASK)
def test_the_receiver_is_asked_once_however_often_it_is_clicked(
    acme: World, run: Run, client_of: ClientOf, role: str
) -> None:
    effect = standing.uncertain(intend(acme, run, "test.offer", OFFER))
    user = getattr(acme, role)
    client = client_of(user)
    form = form_at(client.get(address(effect)), address(effect, "ask"))
    assert form is not None
    for _ in range(2):
        answer = client.post(address(effect, "ask"), form)
        assert (answer.status_code, answer["Location"]) == (303, address(effect))
    other = client.post(address(effect, "ask"), {"form_token": "another-form"})
    assert other.status_code == 303
    assert LookRequest.objects.get().asked_by == user
    said = words_of(client.get(address(effect)))
    assert f"{user.name} asked crm." in said
    assert f"{user.name} has asked crm already." in said
    assert f"Asked, waiting for the answer by {user.name}" in said
    assert form_at(client.get(address(effect)), address(effect, "ask")) is None
    LookRequest.objects.update(ended_at=Now(), found="absent")
    assert form_at(client.get(address(effect)), address(effect, "ask")) is not None


@pytest.mark.parametrize("role", [role for role in EVERYBODY if role not in MAY_ASK])
def test_who_may_not_ask_sees_why(acme: World, run: Run, client_of: ClientOf, role: str) -> None:
    effect = standing.uncertain(intend(acme, run, "test.offer", OFFER))
    client = client_of(getattr(acme, role))
    page = client.get(address(effect))
    assert "Ask the receiver now Your roles do not let you ask the receiver." in words_of(page)
    assert form_at(page, address(effect, "ask")) is None
    assert client.post(address(effect, "ask"), {"form_token": "t" * 32}).status_code == 403
    assert not LookRequest.objects.exists()
    assert client_of(acme.operator).post(address(effect, "ask"), {"form_token": "t" * 32}).status_code == 303


def test_a_receiver_that_can_t_be_asked_says_so(acme: World, mail: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    page = client.get(address(mail))
    assert "Ask the receiver now mail can't be asked: its contract has no look-up." in words_of(page)
    answer = client.post(address(mail, "ask"), {"form_token": "t" * 32})
    assert answer.status_code == 422
    assert "mail can't be asked" in words_of(answer)
    assert client.post(address(mail, "ask")).status_code == 400
    assert client.get(address(mail, "ask")).status_code == 405
    assert client_of(make_world("other").operator).post(address(mail, "ask")).status_code == 404
    assert not LookRequest.objects.exists()


# -- the second person's request -----------------------------------------------------------------------------------


def test_R3_the_request_says_who_orders_what_in_which_words_and_what_approving_does(
    acme: World, ordered: Order, reads: Reads
) -> None:
    said = words_of(reads(acme.approver, request_at(ordered)))
    for words in (
        "This is an order about an effect",
        f"Ordered by Releaser , now : {WHY}",
        f"Accepts {WORDS}",
        "Exactly the bytes below go to mail once more, with the same id and key.",
        "Nobody knows whether mail has the first one.",
        "for a second person",
        "In your own words, that you accept the risk of a second one",
        "Approve and deliver the mail again",
        MAIL["to"],
    ):
        assert words in said
    assert "optional" not in said


@pytest.mark.parametrize("person", ["approver", "other_releaser"])
def test_R3_the_second_person_says_that_the_risk_is_taken(
    acme: World, ordered: Order, reads: Reads, decides: Decides, person: str
) -> None:
    second = acme.person("other_releaser", Role.RELEASER) if person == "other_releaser" else acme.approver
    request = request_of(ordered)
    silent = decides(second, request, "approve", reason=" ")
    assert silent.status_code == 422
    assert "Say in your own words that you accept the risk of a second one." in words_of(silent)
    assert 'id="decide_reason_error"' in silent.content.decode()
    assert order_of(ordered.effect).status == OrderStatus.AWAITING_SECOND
    assert decides(second, request, "approve", reason="Two mails are no harm.").status_code == 303
    order = order_of(ordered.effect)
    assert (order.status, order.second_by) == (OrderStatus.DUE, second)
    page = reads(second, f"approvals/{request.id}/")
    said = words_of(page)
    assert f"Approved by {second.name}" in said
    assert f'href="{address(ordered.effect)}"' in page.content.decode()
    assert "Show the effect that it is about" in said
    said = words_of(reads(acme.viewer, f"effects/{ordered.effect_id}/"))
    assert f"{second.name} agreed, now : Two mails are no harm." in said
    assert "A worker sends it as soon as one is free." in said


def test_R3_without_a_risk_the_second_person_need_not_say_a_word(
    acme: World, run: Run, client_of: ClientOf, reads: Reads, decides: Decides
) -> None:
    first = standing.completed(intend(acme, run, "test.offer", OFFER))
    press(client_of(acme.releaser), first, "send-as-new")
    request = request_of(order_of(first))
    said = words_of(reads(acme.approver, f"approvals/{request.id}/"))
    assert "with an id and a key of its own. crm has the first one: afterwards there are two." in said
    assert "Approve and send the offer as a new effect" in said
    assert "Reason optional" in said
    assert decides(acme.approver, request, "approve").status_code == 303
    assert order_of(first).sends.sub_state == SubState.READY


def test_a_compensation_s_request_names_what_it_takes_back(
    acme: World, run: Run, client_of: ClientOf, reads: Reads, decides: Decides
) -> None:
    offer = standing.completed(intend(acme, run, "crm.create_offer", OFFER))
    client = client_of(acme.releaser)
    given = {"form_token": "t" * 32, "effect_type": "crm.credit_offer", "reason": WHY}
    typed = {"arg-customer_id": "cus_000003", "arg-amount_minor": "95000", "arg-currency": "EUR"}
    assert client.post(address(offer, "compensate"), {**given, **typed}).status_code == 303
    request = request_of(order_of(offer))
    said = words_of(reads(acme.approver, f"approvals/{request.id}/"))
    for words in ("950.00 EUR", "takes that one back", "Approve and credit the offer", "off_000042"):
        assert words in said
    assert decides(acme.approver, request, "reject", reason="Half of it.").status_code == 303
    assert order_of(offer).outcome == "Rejected by Approver: Half of it."
    assert "Rejected by Approver: Half of it." in words_of(client.get(address(offer)))


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_R3_four_eyes_who_ordered_it_does_not_decide_it(
    acme: World, ordered: Order, reads: Reads, decides: Decides, verb: str
) -> None:
    page = reads(acme.releaser, request_at(ordered))
    assert "Four eyes: you gave this order" in words_of(page)
    assert MAIL["to"] not in page.content.decode()
    assert decides(acme.releaser, request_of(ordered), verb, reason="Mine.").status_code == 403
    assert order_of(ordered.effect).status == OrderStatus.AWAITING_SECOND
    assert decides(acme.approver, request_of(ordered), verb, reason="Seen.").status_code == 303


@pytest.mark.parametrize("role", NO_SECOND)
@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_who_is_no_second_person_does_not_decide_it(
    acme: World, ordered: Order, reads: Reads, decides: Decides, role: str, verb: str
) -> None:
    user = getattr(acme, role)
    page = reads(user, request_at(ordered))
    assert "do not let you be the second person here" in words_of(page)
    assert MAIL["to"] not in page.content.decode()
    assert decides(user, request_of(ordered), verb, reason="Mine.").status_code == 403
    assert order_of(ordered.effect).status == OrderStatus.AWAITING_SECOND


def test_a_releaser_is_a_second_person_about_orders_alone(
    acme: World, ordered: Order, decides: Decides
) -> None:
    other = acme.person("other_releaser", Role.RELEASER)
    of_a_run = asked(acme)
    assert decides(other, of_a_run, "approve").status_code == 403
    assert decides(other, request_of(ordered), "approve", reason="Two are no harm.").status_code == 303


# -- the inbox -----------------------------------------------------------------------------------------------------


def test_the_inbox_marks_orders_and_the_badge_counts_them(acme: World, ordered: Order, reads: Reads) -> None:
    of_a_run, request = asked(acme), request_of(ordered)
    page = reads(acme.approver, "approvals/")
    assert sorted(ids_in(page)) == sorted([of_a_run.id, request.id])
    assert badge_of(page) == 2
    said = words_of(page)
    assert "order Deliver again: Send a mail: Your offer" in said
    assert "A second person" in said
    assert "Releaser A second person" in said


def test_a_releaser_has_an_inbox_of_others_orders(acme: World, ordered: Order, reads: Reads) -> None:
    of_a_run, request = asked(acme), request_of(ordered)
    other = acme.person("other_releaser", Role.RELEASER)
    page = reads(other, "approvals/")
    assert ids_in(page) == [request.id]
    assert badge_of(page) == 1
    assert "For me" in words_of(page)
    # Who gave it is not asked, and sees it among all that is open.
    page = reads(acme.releaser, "approvals/")
    assert (ids_in(page), badge_of(page)) == ([], 0)
    assert sorted(ids_in(reads(acme.releaser, "approvals/", view="open"))) == sorted(
        [of_a_run.id, request.id]
    )
    assert "Nothing waits for you" in words_of(reads(acme.releaser, "approvals/"))


def test_home_counts_and_lists_the_orders_that_wait_for_me(acme: World, ordered: Order, reads: Reads) -> None:
    other = acme.person("other_releaser", Role.RELEASER)
    said = words_of(reads(other, ""))
    assert "Approvals for you 1" in said
    assert "Deliver again: Send a mail: Your offer" in said
    assert "Approvals for you 0" in words_of(reads(acme.releaser, ""))


def test_the_effect_s_page_leads_who_is_asked_to_the_request(
    acme: World, ordered: Order, client_of: ClientOf
) -> None:
    here = f'href="/w/{acme.workspace.id}/{request_at(ordered)}"'
    page = client_of(acme.approver).get(address(ordered.effect))
    assert "Decide…" in words_of(page)
    assert page.content.decode().count(here) >= 2
    assert "Decide…" not in words_of(client_of(acme.releaser).get(address(ordered.effect)))


def test_more_orders_take_no_more_queries_in_the_inbox(
    acme: World, run: Run, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    releaser, approver = client_of(acme.releaser), client_of(acme.approver)
    for _ in range(2):
        effect = standing.uncertain(intend(acme, run, "mail.send", MAIL))
        assert press(releaser, effect, "deliver-again").status_code == 303
        approver.get(f"/w/{acme.workspace.id}/approvals/")
        with django_assert_num_queries(9):
            approver.get(f"/w/{acme.workspace.id}/approvals/")


def test_nothing_that_people_wrote_is_markup(
    acme: World, mail: Effect, client_of: ClientOf, reads: Reads, decides: Decides
) -> None:
    bad = "<script>alert(1)</script> and more"
    press(client_of(acme.releaser), mail, "deliver-again", reason=bad, accepts=bad)
    request = request_of(order_of(mail))
    pages: list[Any] = [reads(acme.approver, f"approvals/{request.id}/"), reads(acme.approver, "approvals/")]
    decides(acme.approver, request, "approve", reason=bad)
    pages += [reads(acme.approver, f"approvals/{request.id}/"), reads(acme.viewer, f"effects/{mail.id}/")]
    for page in pages:
        assert "<script>alert" not in page.content.decode()
