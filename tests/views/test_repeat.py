"""The screen of Repeat external effect: what it shows in each state, to whom it offers what, and twice is once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.kernel.ids import new_id
from console.models import AuditEvent, User
from effects import moves
from effects.commands import stop_sending
from effects.models import Approval, Command, Effect, Order
from effects.states import OrderStatus, ReviewReason, StopScope
from runs.models import Run
from tests.people import World, make_world
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, intend, paused_run
from tests.views.conftest import Reads, words_of
from tests.views.ordering import WHY, WORDS, address, carried, form_at, order_of, press, request_of

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
OTHERS = [role for role in EVERYBODY if role != "releaser"]
VERBS = ("deliver-again", "send-as-new")
PASSED = timedelta(hours=-1)


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def mail(acme: World, run: Run) -> Effect:
    """A mail that may have arrived: nothing tells its repeats apart, and nobody can be asked."""
    return standing.uncertain(intend(acme, run, "mail.send", MAIL))


@pytest.fixture
def held(acme: World, run: Run) -> Effect:
    """An offer that was never sent: it may be delivered by one person."""
    return standing.held(intend(acme, run, "test.offer", OFFER))


def screen(client: Client, effect: Effect) -> Any:
    return client.get(address(effect, "repeat"))


def offered(page: Any, effect: Effect) -> tuple[bool, bool]:
    """Whether there is a form to deliver it again, and one to send it as new."""
    again, new = (form_at(page, address(effect, verb)) is not None for verb in VERBS)
    return again, new


# -- what each state says and offers -------------------------------------------------------------------------------


def offer(acme: World, run: Run) -> Effect:
    return intend(acme, run, "test.offer", OFFER)


def window_open(acme: World, run: Run) -> Effect:
    return standing.uncertain(offer(acme, run))


def window_passed(acme: World, run: Run) -> Effect:
    return standing.uncertain(offer(acme, run), window=PASSED)


def window_passed_and_looked(acme: World, run: Run) -> Effect:
    effect = window_passed(acme, run)
    standing.looked(effect)
    return effect


def no_dedup(acme: World, run: Run) -> Effect:
    return standing.uncertain(intend(acme, run, "mail.send", MAIL))


def not_found(acme: World, run: Run) -> Effect:
    effect = standing.uncertain(intend(acme, run, "test.queried", TICKET))
    standing.looked(effect)
    return effect


def found(acme: World, run: Run) -> Effect:
    effect = window_passed(acme, run)
    standing.looked(effect, "found")
    assert moves.complete_by_evidence(effect.id, reference="off_000042", answer=b"")
    return standing.fresh(effect)


def proven_absent(acme: World, run: Run) -> Effect:
    return standing.absent(standing.uncertain(intend(acme, run, "test.queried", TICKET)))


def flying(acme: World, run: Run) -> Effect:
    effect = offer(acme, run)
    standing.in_flight(effect)
    return standing.fresh(effect)


def under_review(acme: World, run: Run) -> Effect:
    effect = window_open(acme, run)
    standing.reviewed(effect)
    return effect


def stopped(acme: World, run: Run) -> Effect:
    effect = standing.held(offer(acme, run))
    stop_sending.stop_sending(
        acme.actor(acme.releaser),
        scope=StopScope.RECEIVER,
        target="crm",
        reason="crm is being moved.",
        token="stop-the-crm",
    )
    return effect


def unapproved(acme: World, run: Run) -> Effect:
    return intend(acme, run, "crm.create_offer", OFFER)


def drifted(acme: World, run: Run) -> Effect:
    effect = standing.held(offer(acme, run))
    Effect.objects.filter(id=effect.id).update(contract_version=99)
    return standing.fresh(effect)


def of_a_probe(acme: World, run: Run) -> Effect:
    """It belongs to no run."""
    probe = Run(id=new_id("prb"))
    return standing.held(intend(acme, probe, "test.offer", OFFER))


STATES: dict[str, tuple[Callable[[World, Run], Effect], tuple[bool, bool], tuple[str, ...]]] = {
    "window open": (
        window_open,
        (True, False),
        (
            "Window open",
            "may be sent again until",
            "knows the key and answers with what it has",
            "Its key still protects a repeat",
        ),
    ),
    "window passed": (window_passed, (False, False), ("Window passed", "closed at", "Ask crm first")),
    "window passed, looked": (
        window_passed_and_looked,
        (True, True),
        ("Window passed", "crm has no object with exactly this id.", "it will exist twice"),
    ),
    "no dedup": (
        no_dedup,
        (True, True),
        (
            "No idempotency key",
            "cannot tell a repeat",
            "can't be asked",
            "If the first one did arrive, it will exist twice.",
        ),
    ),
    "not found": (
        not_found,
        (True, True),
        ("has no object with exactly this id", "would not notice a repeat"),
    ),
    "proven absent": (
        proven_absent,
        (True, True),
        ("Proven absent", "proven that nothing of this one exists"),
    ),
    "found": (found, (False, True), ("crm has it. To have it a second time", "afterwards there are two")),
    "in flight": (flying, (False, False), ("In flight", "wait until this attempt has ended")),
    "held": (
        lambda acme, run: standing.held(offer(acme, run)),
        (True, False),
        ("Held, never sent", "Nothing of it exists at the receiver", "It was never sent: deliver this one"),
    ),
    "refused": (
        lambda acme, run: standing.refused(offer(acme, run)),
        (True, True),
        ("Refused by the receiver", "crm answered 422.", "Of this one nothing exists."),
    ),
    "completed": (
        lambda acme, run: standing.completed(offer(acme, run)),
        (False, True),
        ("Completed", "send it as a new effect", "crm has the first one"),
    ),
    "accepted": (
        lambda acme, run: standing.accepted(offer(acme, run)),
        (False, True),
        ("Accepted", "has yet to say how it ended"),
    ),
    "cancelled": (
        lambda acme, run: standing.cancelled(offer(acme, run)),
        (False, True),
        ("Cancelled", "It was cancelled. To have it all the same"),
    ),
    "rejected": (
        lambda acme, run: standing.rejected(unapproved(acme, run)),
        (False, True),
        ("Rejected by a person", "A person rejected it. To have it all the same"),
    ),
    "not approved": (unapproved, (False, False), ("its approval decides", "It was never sent")),
    "under review": (under_review, (False, False), ("settle it first", "A releaser has to settle it")),
    "stopped": (stopped, (False, False), ("Sending is stopped (the receiver crm): crm is being moved.",)),
    "another contract": (drifted, (False, False), ("is not sent under another one",)),
    "of a probe": (
        of_a_probe,
        (False, False),
        ("A probe made it", "a harmless object that tried the contract"),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_says_what_is_known_and_offers_what_may_be_done(
    acme: World, run: Run, client_of: ClientOf, state: str
) -> None:
    make, expected, words = STATES[state]
    effect = make(acme, run)
    page = screen(client_of(acme.releaser), effect)
    assert page.status_code == 200
    assert offered(page, effect) == expected
    said = words_of(page)
    for one in words:
        assert one in said
    # Whoever may not repeat sees the same facts, and not one form.
    for other in (acme.viewer, acme.auditor):
        page = screen(client_of(other), effect)
        assert page.status_code == 200
        assert offered(page, effect) == (False, False)
        assert ("Only a releaser may order this." in words_of(page)) == any(expected)


@pytest.mark.parametrize("state", STATES)
def test_the_command_refuses_what_the_screen_does_not_offer(
    acme: World, run: Run, client_of: ClientOf, state: str
) -> None:
    make, expected, _ = STATES[state]
    effect = make(acme, run)
    client = client_of(acme.releaser)
    for verb, may in zip(VERBS, expected, strict=True):
        if not may:
            answer = press(client, effect, verb)
            assert answer.status_code == 409
            assert "Nothing was ordered." in words_of(answer)
            assert WHY in words_of(answer).partition("What you wrote")[2]
    assert not Order.objects.exists()


def test_an_order_under_way_stands_before_what_it_stands_in_the_way_of(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    assert press(client, mail, VERBS[0]).status_code == 303
    page = screen(client, mail).content.decode()
    assert page.count("What people ordered") == 1
    assert page.index("What people ordered") < page.index('class="acts"')


# -- R2 ------------------------------------------------------------------------------------------------------------


def test_R2_it_shows_what_it_is_why_and_all_that_was_tried(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    said = words_of(screen(client_of(acme.releaser), mail))
    for words in (
        "j•••@brueckner.example",  # recipient, masked
        MAIL["subject"],  # payload
        "•••• masked",
        mail.id,
        mail.run_id,
        "approve_offer",  # the step
        mail.command.id,
        "Attempt 1",
        "Unknown",
        "1500 ms",
        "Uncertain",
        standing.LOST,
        "cannot tell a repeat",
        "account",
        acme.account,
        "cannot be undone",
        "Nothing so far.",
    ):
        assert words in said


def test_R2_the_model_s_answer_that_led_to_it_is_linked(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    recording = new_id("rec")
    Command.objects.filter(id=mail.command_id).update(recording_id=recording, tool="send_mail")
    page = screen(client_of(acme.releaser), mail)
    assert f'href="/w/{acme.workspace.id}/runs/{mail.run_id}/?show={recording}"' in page.content.decode()
    assert "send_mail called by the agent" in words_of(page)


def test_R2_the_key_s_age_and_window_and_the_last_answer_with_its_age(
    acme: World, run: Run, client_of: ClientOf
) -> None:
    effect = window_open(acme, run)
    standing.looked(effect, "unclear")
    said = words_of(screen(client_of(acme.releaser), effect))
    assert "In use for 0 s . The same key may be sent again until" in said
    assert "crm did not answer: ReadTimeout" in said.partition("crm said last")[2]
    assert said.partition("crm did not answer: ReadTimeout")[2].strip().startswith("now")


@pytest.mark.parametrize("role", ["operator", "auditor", "releaser", "developer"])
def test_R2_the_receiver_is_asked_from_the_screen_and_the_answer_awaited_there(
    acme: World, run: Run, client_of: ClientOf, role: str
) -> None:
    effect, client = window_passed(acme, run), client_of(getattr(acme, role))
    form = form_at(screen(client, effect), address(effect, "ask"))
    assert form is not None
    answer = client.post(address(effect, "ask"), form)
    assert (answer.status_code, answer["Location"]) == (303, address(effect, "repeat"))
    assert effect.look_requests.get().asked_by == getattr(acme, role)
    page = screen(client, effect)
    assert "Asked, waiting for the answer" in words_of(page)
    assert form_at(page, address(effect, "ask")) is None


@pytest.mark.parametrize("role", EVERYBODY)
def test_R2_protected_values_are_masked_for_everybody(
    acme: World, mail: Effect, client_of: ClientOf, role: str
) -> None:
    page = screen(client_of(getattr(acme, role)), mail)
    assert page.status_code == 200
    assert MAIL["to"] not in page.content.decode()
    assert "secret discount" not in page.content.decode()


# -- ordering it ---------------------------------------------------------------------------------------------------


def test_one_person_delivers_what_was_never_sent(acme: World, held: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    page = screen(client, held)
    assert "Nobody else has to agree" in words_of(page)
    assert "Deliver the offer to cus_000003 again" in words_of(page)
    assert "typed_id" not in page.content.decode()
    answer = press(client, held, "deliver-again")
    assert (answer.status_code, answer["Location"]) == (303, address(held))
    order = order_of(held)
    assert (order.status, order.reason, order.asked_by) == (OrderStatus.DUE, WHY, acme.releaser)
    said = words_of(client.get(address(held)))
    assert f"Deliver again, ordered by Releaser: {WHY} It is sent now." in said
    assert f"Releaser, now : {WHY}" in said
    event = AuditEvent.objects.get(verb="order.placed")
    assert event.sentence == f"Deliver again, ordered by Releaser: {WHY}"


def test_a_successor_takes_a_second_person_and_both_are_linked(
    acme: World, run: Run, client_of: ClientOf
) -> None:
    first = standing.completed(offer(acme, run))
    client = client_of(acme.releaser)
    assert "A second person has to agree first" in words_of(screen(client, first))
    answer = press(client, first, "send-as-new")
    assert answer.status_code == 303
    order = order_of(first)
    second = order.sends
    assert (order.status, second.successor_of_id) == (OrderStatus.AWAITING_SECOND, first.id)
    said = words_of(client.get(address(first)))
    assert "A second person is asked now; nothing is sent before they agree." in said
    assert "Successor" in said.partition("Linked effects")[2]
    assert second.id in said
    theirs = words_of(client.get(address(second)))
    assert "Sent in the place of" in theirs
    assert first.id in theirs
    assert f"Send as a new effect, by Releaser: {WHY}" in theirs.partition("Why")[2]


# -- R3 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [window_passed_and_looked, no_dedup, not_found], ids=["window passed", "no dedup", "not found"]
)
def test_R3_the_id_is_typed_and_the_risk_accepted_in_words(
    acme: World, run: Run, client_of: ClientOf, make: Callable[[World, Run], Effect]
) -> None:
    effect, client = make(acme, run), client_of(acme.releaser)
    page = screen(client, effect)
    assert page.content.decode().count('name="typed_id"') == 2
    assert "A second person has to agree first" in words_of(page)
    assert "it will exist twice" in words_of(page)
    assert press(client, effect, "deliver-again").status_code == 303
    order = order_of(effect)
    assert (order.overrides, order.accepts, order.status) == (True, WORDS, OrderStatus.AWAITING_SECOND)
    assert request_of(order).must_say


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"typed_id": "eff_another"}, "Type the effect's id, exactly"),
        ({"typed_id": ""}, "Type the effect's id, exactly"),
        ({"accepts": "ok"}, "Say in your own words that you accept"),
        ({"accepts": ""}, "Say in your own words that you accept"),
        ({"reason": "  "}, "Say why."),
        ({"reason": "x" * 2001}, "Say it in at most 2000 characters."),
        ({"accepts": "a\0b" * 20}, "Null characters are not allowed."),
    ],
)
def test_R3_what_is_missing_is_said_beside_its_field_and_what_was_typed_is_kept(
    acme: World, mail: Effect, client_of: ClientOf, verb: str, typed: dict[str, str], said: str
) -> None:
    client = client_of(acme.releaser)
    answer = press(client, mail, verb, **typed)
    assert answer.status_code == 422
    text = answer.content.decode()
    field = next(iter(typed))
    name = verb.replace("-", "_")
    assert f'id="{name}_{field}_error"' in text
    assert said in words_of(answer).replace("’", "'")
    assert "Nothing was ordered." in words_of(answer)
    kept = {"reason": WHY, "accepts": WORDS, "typed_id": mail.id, **typed}
    assert all(value.strip("\0 ") in text for key, value in kept.items() if key != "reason" or value.strip())
    assert not Order.objects.exists()
    # The same screen, put right, orders it.
    assert press(client, mail, verb).status_code == 303
    assert Order.objects.count() == 1


def test_R3_nobody_is_asked_for_what_nothing_protects_before_somebody_has_looked(
    acme: World, run: Run, client_of: ClientOf
) -> None:
    effect, client = window_passed(acme, run), client_of(acme.releaser)
    assert offered(screen(client, effect), effect) == (False, False)
    standing.looked(effect)
    assert offered(screen(client, effect), effect) == (True, True)


def test_R3_what_has_changed_since_the_page_was_opened_is_read_first(
    acme: World, run: Run, client_of: ClientOf
) -> None:
    effect, client = window_open(acme, run), client_of(acme.releaser)
    early = carried(client, effect, "deliver-again")
    standing.looked(effect)
    Effect.objects.filter(id=effect.id).update(key_until=effect.created_at)
    answer = client.post(address(effect, "deliver-again"), {**early, "reason": WHY})
    assert answer.status_code == 409
    assert "has changed since you opened this page" in words_of(answer)
    assert "it will exist twice" in words_of(answer)
    assert WHY in answer.content.decode()
    assert not Order.objects.exists()
    assert press(client, effect, "deliver-again").status_code == 303


# -- R4 ------------------------------------------------------------------------------------------------------------


def test_R4_a_double_click_and_the_way_back_are_one_order(
    acme: World, held: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    form = {**carried(client, held, "deliver-again"), "reason": WHY}
    answers = [client.post(address(held, "deliver-again"), form) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [303] * 3
    assert {answer["Location"] for answer in answers} == {address(held)}
    assert Order.objects.count() == 1
    assert AuditEvent.objects.filter(verb="order.placed").count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_R4_two_tabs_are_one_order_and_the_second_says_who_was_first(
    acme: World, mail: Effect, client_of: ClientOf, verb: str
) -> None:
    one, two = client_of(acme.releaser), client_of(acme.releaser)
    late = carried(two, mail, verb)
    assert press(one, mail, verb).status_code == 303
    typed = {"reason": "Typed in the second tab.", "typed_id": mail.id, "accepts": WORDS}
    answer = two.post(address(mail, verb), {**late, **typed})
    assert answer.status_code == 409
    said = words_of(answer)
    first = {"deliver-again": "Releaser has ordered it already", "send-as-new": "is under way."}[verb]
    assert first in said
    assert "Typed in the second tab." in said
    assert Order.objects.count() == 1
    assert AuditEvent.objects.filter(subject=mail.id, verb="order.not_taken").count() == 1


def test_R4_a_form_of_one_act_does_not_do_another(
    acme: World, run: Run, client_of: ClientOf, held: Effect
) -> None:
    client = client_of(acme.releaser)
    form = {**carried(client, held, "deliver-again"), "reason": WHY}
    assert client.post(address(held, "deliver-again"), form).status_code == 303
    other = standing.held(offer(acme, run))
    answer = client.post(address(other, "deliver-again"), form)
    assert answer.status_code == 422
    assert "This form was used for another order" in words_of(answer)
    assert Order.objects.count() == 1
    # The page that came back carries a token of its own.
    again = form_at(answer, address(other, "deliver-again"))
    assert again is not None
    assert client.post(address(other, "deliver-again"), {**again, "reason": WHY}).status_code == 303


@pytest.mark.parametrize("token", [None, "", "short", "x" * 65, "a b c d e f g h", "sälzig-genug"])
def test_R4_a_form_without_a_token_of_ours_was_not_made_here(
    acme: World, held: Effect, client_of: ClientOf, token: str | None
) -> None:
    form = {"reason": WHY} if token is None else {"reason": WHY, "form_token": token}
    assert client_of(acme.releaser).post(address(held, "deliver-again"), form).status_code == 400
    assert not Order.objects.exists()


def test_R4_while_an_order_is_open_the_screen_leads_to_it(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    press(client, mail, "deliver-again")
    page = screen(client, mail)
    assert offered(page, mail) == (False, False)
    said = words_of(page)
    assert "Releaser has ordered it already: deliver again." in said
    assert WORDS in said.partition("What people ordered")[2]
    request = request_of(order_of(mail))
    assert f'href="/w/{acme.workspace.id}/approvals/{request.id}/"' in page.content.decode()


# -- who may -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", OTHERS)
def test_who_may_not_repeat_is_refused_and_that_is_recorded(
    acme: World, mail: Effect, client_of: ClientOf, role: str, verb: str
) -> None:
    user = getattr(acme, role)
    answer = press(client_of(user), mail, verb)
    assert answer.status_code == 403
    assert not Order.objects.exists()
    event = AuditEvent.objects.get(verb="order.not_taken")
    assert (event.subject, event.actor) == (mail.id, user)
    assert "do not let you repeat effects" in event.sentence
    # An empty form is no way round that.
    assert press(client_of(user), mail, verb, reason="", typed_id="", accepts="").status_code == 403
    assert AuditEvent.objects.filter(verb="order.not_taken").count() == 2
    # The same, by who may.
    assert press(client_of(acme.releaser), mail, verb).status_code == 303


def test_it_is_not_there_for_others(acme: World, mail: Effect, client: Client, client_of: ClientOf) -> None:
    other = make_world("other")
    elsewhere = address(mail, "repeat").replace(acme.workspace.id, other.workspace.id)
    assert client_of(other.releaser).get(elsewhere).status_code == 404
    assert client_of(acme.outsider).get(address(mail, "repeat")).status_code == 404
    assert client.get(address(mail, "repeat")).status_code == 302
    for verb in VERBS:
        form = {**carried(client_of(acme.releaser), mail, verb), "reason": WHY, "typed_id": mail.id}
        there = address(mail, verb).replace(acme.workspace.id, other.workspace.id)
        assert client_of(other.releaser).post(there, form).status_code == 404
        assert client_of(acme.outsider).post(address(mail, verb), form).status_code == 404
        assert client.post(address(mail, verb), form).status_code == 302
        assert client_of(acme.releaser).get(address(mail, verb)).status_code == 405
    assert client_of(acme.releaser).post(address(mail, "repeat")).status_code == 405
    assert not Order.objects.exists()


# -- how it is built -----------------------------------------------------------------------------------------------


def test_looking_writes_nothing(acme: World, mail: Effect, client_of: ClientOf) -> None:
    before = AuditEvent.objects.count(), Approval.objects.count()
    screen(client_of(acme.releaser), mail)
    assert (AuditEvent.objects.count(), Approval.objects.count()) == before


def test_nothing_is_chosen_and_the_focus_is_on_the_safe_one(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    text = screen(client_of(acme.releaser), mail).content.decode()
    assert text.count("autofocus") == 1
    assert f'id="leave" href="{address(mail)}" autofocus' in text
    assert "button--primary" not in text.partition("<main")[2]
    assert "checked" not in text.partition("<main")[2]
    assert "hx-post" not in text


def test_the_buttons_repeat_verb_and_object(acme: World, mail: Effect, client_of: ClientOf) -> None:
    said = words_of(screen(client_of(acme.releaser), mail))
    assert "Deliver the mail to j•••@brueckner.example again" in said
    assert "Send the mail to j•••@brueckner.example as a new effect" in said


def test_what_agents_and_people_wrote_is_escaped_and_hidden_characters_shown(
    acme: World, run: Run, client_of: ClientOf
) -> None:
    bad = "<script>alert(1)</script>\u202e"
    effect = intend(acme, run, "test.offer", {**OFFER, "customer_id": f"cus{bad}", "subject": bad})
    effect = standing.uncertain(effect, problem=bad)
    client = client_of(acme.releaser)
    page = screen(client, effect)
    assert "<script>alert" not in page.content.decode()
    assert "hidden characters" in words_of(page)
    assert "RLO" in words_of(page)
    assert press(client, effect, "deliver-again", reason=bad).status_code == 303
    for there in (address(effect), address(effect, "repeat")):
        text = client.get(there).content.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


def test_htmx_gets_the_screen_alone(acme: World, mail: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.viewer)
    part = client.get(address(mail, "repeat"), headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert f'data-live="effect:{mail.id} approvals stops"' in part


def test_a_review_that_only_says_nobody_knows_does_not_stand_in_the_way(
    acme: World, mail: Effect, client_of: ClientOf
) -> None:
    standing.reviewed(mail, ReviewReason.UNQUERYABLE)
    assert offered(screen(client_of(acme.releaser), mail), mail) == (True, True)


def test_more_orders_take_no_more_queries(
    acme: World, mail: Effect, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.releaser)
    with django_assert_num_queries(22):
        screen(client, mail)
    for number in range(1, 4):
        assert press(client, mail, "send-as-new").status_code == 303
        order = Order.objects.latest("asked_at")
        withdrawn = client.post(
            f"/w/{acme.workspace.id}/orders/{order.id}/withdraw/",
            {"form_token": f"withdraws-{number}", "reason": "Not needed any more."},
        )
        assert withdrawn.status_code == 303
        screen(client, mail)
        with django_assert_num_queries(24):
            screen(client, mail)


def test_reads_are_reads(acme: World, mail: Effect, reads: Reads) -> None:
    assert reads(acme.viewer, f"effects/{mail.id}/repeat/").status_code == 200
    assert reads(acme.viewer, "effects/eff_none/repeat/").status_code == 404
