"""The effect log: what is in it, its filters, its pages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent
from effects.models import Review
from effects.states import ReviewReason
from runs.models import Run
from tests.people import World
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, intend, paused_run
from tests.views.conftest import Reads, words_of
from tests.views.ordering import press
from tests.views.standing import completed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
ROLES = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]


def ids_in(page: Any) -> list[str]:
    return re.findall(r'<tr id="(eff_\w+)"', page.content.decode())


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.mark.parametrize("role", ROLES)
def test_everybody_sees_the_log_masked(acme: World, run: Run, reads: Reads, role: str) -> None:
    offer, mail = intend(acme, run, "crm.create_offer", OFFER), intend(acme, run, "test.asked_mail", MAIL)
    page = reads(getattr(acme, role), "effects/")
    assert ids_in(page) == [mail.id, offer.id]
    assert "j•••@brueckner.example" in words_of(page)
    assert MAIL["to"] not in page.content.decode()


def test_rows_say_what_to_whom_where_and_how_it_stands(acme: World, run: Run, reads: Reads) -> None:
    completed(intend(acme, run, "crm.create_offer", OFFER), "off_000042")
    said = words_of(reads(acme.viewer, "effects/"))
    for words in ("Create an offer", "cus_000003", "Completed", "off_000042", "crm"):
        assert words in said


def test_each_filter_narrows_and_together_they_narrow_more(acme: World, run: Run, reads: Reads) -> None:
    other_run = paused_run(acme)
    offer = completed(intend(acme, run, "crm.create_offer", OFFER), "off_000042")
    mail = intend(acme, other_run, "test.asked_mail", MAIL)
    ticket = intend(acme, other_run, "desk.open_ticket", {**TICKET, "customer_id": "cus_000009"})

    def found(**query: str) -> list[str]:
        return ids_in(reads(acme.viewer, "effects/", **query))

    assert found(status="completed") == [offer.id]
    assert found(sub_state="recorded") == [mail.id]
    assert found(type="desk.open_ticket") == [ticket.id]
    assert found(receiver="mail") == [mail.id]
    assert found(customer="cus_000009") == [ticket.id]
    assert found(run=other_run.id) == [ticket.id, mail.id]
    assert found(q=offer.id) == found(q="off_000042") == [offer.id]
    assert found(q=mail.command_id) == [mail.id]
    assert found(run=other_run.id, receiver="desk") == [ticket.id]
    assert found(run=run.id, receiver="desk") == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"status": "sent"}, "Status"),
        ({"sub_state": "gone"}, "Where it stands"),
        ({"type": "crm.nothing"}, "Type"),
        ({"receiver": "nobody"}, "Receiver"),
        ({"review": "closed"}, "Review"),
        ({"order": "any"}, "Order"),
        ({"customer": "x" * 121}, "Customer"),
        ({"q": "a\0b"}, "Id or reference"),
    ],
)
def test_a_filter_that_can_not_be_read_is_named_never_an_empty_list(
    acme: World, run: Run, reads: Reads, query: dict[str, str], said: str
) -> None:
    intend(acme, run, "crm.create_offer", OFFER)
    page = reads(acme.viewer, "effects/", **query)
    assert page.status_code == 400
    assert said in words_of(page)
    assert "No effect fits" not in words_of(page)


def test_a_cursor_that_nobody_made_is_a_bad_request(acme: World, reads: Reads) -> None:
    assert reads(acme.viewer, "effects/", cursor="zzz").status_code == 400


def test_pages_follow_each_other_without_gaps_and_keep_the_filter(
    acme: World, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("effects.views.effects.PAGE", 2)
    made = [intend(acme, run, "crm.create_offer", OFFER).id for _ in range(5)]
    intend(acme, run, "desk.open_ticket", TICKET)
    seen: list[str] = []
    query = {"type": "crm.create_offer"}
    while query:
        page = reads(acme.viewer, "effects/", **query)
        seen += ids_in(page)
        older = re.search(r'rel="next" href="\?([^"]+)"', page.content.decode())
        query = (
            dict(part.split("=", 1) for part in older[1].replace("&amp;", "&").split("&")) if older else {}
        )
    assert seen == made[::-1]


def test_what_is_in_review_says_so(acme: World, run: Run, reads: Reads) -> None:
    effect = intend(acme, run, "crm.create_offer", OFFER)
    Review.objects.create(
        workspace=acme.workspace, effect=effect, reason=ReviewReason.MISMATCH, sentence="Other amount."
    )
    assert "in review" in words_of(reads(acme.viewer, "effects/"))


def test_short_cuts_to_what_people_have_to_do_with(
    acme: World, run: Run, reads: Reads, client_of: Any
) -> None:
    held = standing.held(intend(acme, run, "test.offer", OFFER))
    reviewed = standing.uncertain(intend(acme, run, "test.offer", OFFER))
    standing.reviewed(reviewed)
    mail = standing.uncertain(intend(acme, run, "mail.send", MAIL))
    intend(acme, run, "desk.open_ticket", TICKET)
    assert press(client_of(acme.releaser), mail, "deliver-again").status_code == 303

    def chip(word: str) -> dict[str, str]:
        text = reads(acme.viewer, "effects/").content.decode()
        query = re.search(rf'class="chip" href="\?([^"]*)"[^>]*>{word}<', text)
        assert query is not None
        return dict(part.split("=") for part in query[1].replace("&amp;", "&").split("&"))

    for word, found in (("Held", [held.id]), ("In review", [reviewed.id]), ("Ordered", [mail.id])):
        page = reads(acme.viewer, "effects/", **chip(word))
        assert ids_in(page) == found
        assert f'aria-current="true">{word}<' in page.content.decode()
        # Another filter goes with it.
        assert ids_in(reads(acme.viewer, "effects/", **chip(word), receiver="desk")) == []
    assert "ordered" in words_of(reads(acme.viewer, "effects/", **chip("Ordered")))


def test_empty_states_tell_no_effects_from_none_that_fit(acme: World, run: Run, reads: Reads) -> None:
    assert "Nothing has been done outside yet" in words_of(reads(acme.viewer, "effects/"))
    intend(acme, run, "crm.create_offer", OFFER)
    assert "No effect fits these filters" in words_of(reads(acme.viewer, "effects/", customer="cus_000999"))


def test_nobody_else_gets_in_and_looking_writes_nothing(
    acme: World, run: Run, client: Client, client_of: Any
) -> None:
    intend(acme, run, "crm.create_offer", OFFER)
    address = f"/w/{acme.workspace.id}/effects/"
    events = AuditEvent.objects.count()
    assert client_of(acme.viewer).get(address).status_code == 200
    assert AuditEvent.objects.count() == events
    assert client_of(acme.outsider).get(address).status_code == 404
    assert client.get(address).status_code == 302
    assert client_of(acme.viewer).post(address).status_code == 405


def test_htmx_gets_the_list_alone(acme: World, run: Run, client_of: Any) -> None:
    intend(acme, run, "crm.create_offer", OFFER)
    client: Client = client_of(acme.viewer)
    address = f"/w/{acme.workspace.id}/effects/"
    part = client.get(address, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert part.strip() in client.get(address).content.decode()


def test_more_rows_take_no_more_queries(
    acme: World, run: Run, client_of: Any, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client: Client = client_of(acme.viewer)
    for _ in range(2):
        intend(acme, run, "crm.create_offer", OFFER)
        client.get(f"/w/{acme.workspace.id}/effects/")
        with django_assert_num_queries(9):
            client.get(f"/w/{acme.workspace.id}/effects/")
