"""The inbox: what waits for me, all that is open, my decisions with what became of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, Role, User
from effects.models import Approval, Review
from effects.states import ReviewReason
from tests.people import World
from tests.views.asking import MAIL, asked, asked_action, due_in, expire, questioned
from tests.views.conftest import Decides, Reads, words_of
from tests.views.standing import completed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]


def ids_in(page: Any) -> list[str]:
    return re.findall(r'<tr id="(apr_\w+)"', page.content.decode())


def badge_of(page: Any) -> int:
    found = re.search(r'count--turn">(\d+)', page.content.decode())
    return int(found[1]) if found else 0


def test_inbox_is_in_the_order_of_deciding_and_the_badge_counts_it(acme: World, reads: Reads) -> None:
    later, overdue, soon = asked(acme), asked(acme), asked_action(acme)
    for approval, hours in ((later, 5), (overdue, -1), (soon, 1)):
        due_in(approval, hours=hours)
    page = reads(acme.approver, "approvals/")
    assert ids_in(page) == [overdue.id, soon.id, later.id]
    assert badge_of(page) == 3
    assert "Overdue" in words_of(page)


def test_of_two_that_are_due_together_the_one_without_a_way_back_comes_first(
    acme: World, reads: Reads
) -> None:
    offer, mail = asked(acme), asked(acme, "test.asked_mail", MAIL)
    Approval.objects.update(due_at=offer.due_at)
    page = reads(acme.approver, "approvals/")
    assert ids_in(page) == [mail.id, offer.id]
    assert "cannot be undone" in words_of(page)


def test_what_is_asked_of_a_group_is_in_the_inbox_of_its_members_only(acme: World, reads: Reads) -> None:
    offer, ticket = asked(acme), asked_action(acme)
    stranger = acme.person("stranger", Role.APPROVER)
    assert ids_in(reads(acme.approver, "approvals/")) == [offer.id, ticket.id]
    theirs = reads(stranger, "approvals/")
    assert ids_in(theirs) == [ticket.id]
    assert badge_of(theirs) == 1
    assert ids_in(reads(stranger, "approvals/", view="open")) == [offer.id, ticket.id]


def test_rows_say_the_question_the_customer_who_asked_and_when_it_is_due(acme: World, reads: Reads) -> None:
    asked(acme)
    said = words_of(reads(acme.approver, "approvals/"))
    for words in (
        "5,760.00 EUR",
        "Brückner Maschinenbau GmbH",
        "cus_000003",
        "40 seats for the Stuttgart office",
        "Sales approvers",
        "in 3 h",
    ):
        assert words in said


@pytest.mark.parametrize("role", ["viewer", "operator", "auditor", "developer", "administrator"])
def test_who_decides_nothing_sees_all_that_is_open_and_no_inbox(acme: World, reads: Reads, role: str) -> None:
    approval = asked(acme)
    page = reads(getattr(acme, role), "approvals/")
    assert ids_in(page) == [approval.id]
    assert badge_of(page) == 0
    assert "For me" not in words_of(page)


def test_what_has_expired_waits_for_nobody_even_before_the_sweep(acme: World, reads: Reads) -> None:
    approval, gone = asked(acme), asked(acme)
    expire(gone)
    for view in ("mine", "open"):
        assert ids_in(reads(acme.approver, "approvals/", view=view)) == [approval.id]


def test_an_empty_inbox_says_so_and_leads_on(acme: World, reads: Reads) -> None:
    page = reads(acme.approver, "approvals/")
    assert "Nothing waits for you" in words_of(page)
    assert badge_of(page) == 0
    assert "You have decided nothing yet" in words_of(reads(acme.approver, "approvals/", view="decided"))
    assert "Nobody is asked anything" in words_of(reads(acme.viewer, "approvals/"))


def test_my_decisions_say_what_became_of_each(acme: World, reads: Reads, decides: Decides) -> None:
    sent, refused, reviewed, theirs = asked(acme), asked(acme), asked(acme), asked(acme)
    decides(acme.approver, sent, "approve", reason="Price checked.")
    decides(acme.approver, refused, "reject", reason="Wrong customer.")
    decides(acme.approver, reviewed, "approve")
    decides(acme.second_approver, theirs, "approve")
    assert sent.effect is not None
    completed(sent.effect, "off_000009")
    Review.objects.create(
        workspace=acme.workspace,
        effect_id=reviewed.effect_id,
        reason=ReviewReason.MISMATCH,
        sentence="Another amount.",
    )
    page = reads(acme.approver, "approvals/", view="decided")
    assert ids_in(page) == [reviewed.id, refused.id, sent.id]
    said = words_of(page)
    for words in (
        "off_000009",
        "Completed",
        "Price checked.",
        "Rejected by a person",
        "Wrong customer.",
        "in review",
    ):
        assert words in said


def test_an_edit_among_my_decisions_says_that_somebody_else_was_asked(
    acme: World, reads: Reads, decides: Decides
) -> None:
    approval = asked_action(acme)
    assert decides(acme.approver, approval, "edit", **edited(priority='"high"')).status_code == 303
    assert "asked of somebody else" in words_of(reads(acme.approver, "approvals/", view="decided"))


def edited(**changes: str) -> dict[str, str]:
    typed = {
        "customer_id": "cus_000003",
        "subject": "Printer prints nothing",
        "description": "Since this morning.",
        "priority": '"low"',
        **changes,
    }
    return {f"arg-{name}": value for name, value in typed.items()}


@pytest.mark.parametrize("query", [{"view": "everything"}, {"view": "decided", "cursor": "zzz"}])
def test_a_view_or_page_that_there_is_not_is_a_bad_request(
    acme: World, reads: Reads, query: dict[str, str]
) -> None:
    assert reads(acme.approver, "approvals/", **query).status_code == 400


def test_htmx_gets_the_list_alone_and_the_page_includes_it_as_it_is(
    acme: World, client_of: Any, reads: Reads
) -> None:
    asked(acme)
    client: Client = client_of(acme.approver)
    part = client.get(f"/w/{acme.workspace.id}/approvals/", headers={"HX-Request": "true"}).content.decode()
    whole = client.get(f"/w/{acme.workspace.id}/approvals/").content.decode()
    assert "<html" not in part
    assert part.strip() in whole
    assert 'data-live="approvals"' in part


def test_nobody_else_gets_in(acme: World, client: Client, client_of: Any) -> None:
    asked(acme)
    address = f"/w/{acme.workspace.id}/approvals/"
    assert client_of(acme.approver).get(address).status_code == 200
    assert client_of(acme.outsider).get(address).status_code == 404
    assert client.get(address).status_code == 302


def test_looking_writes_nothing(acme: World, reads: Reads) -> None:
    asked(acme)
    before = AuditEvent.objects.count()
    for view in ("mine", "open", "decided"):
        reads(acme.approver, "approvals/", view=view)
    assert AuditEvent.objects.count() == before


@pytest.mark.parametrize(("view", "queries"), [("mine", 9), ("open", 9)])
def test_more_rows_take_no_more_queries(
    acme: World, client_of: Any, django_assert_num_queries: DjangoAssertNumQueries, view: str, queries: int
) -> None:
    user: User = acme.approver
    client: Client = client_of(user)
    address = f"/w/{acme.workspace.id}/approvals/?view={view}"
    for _ in range(2):
        asked(acme)
        questioned(acme)
        client.get(address)
        with django_assert_num_queries(queries):
            client.get(address)


def test_more_decisions_take_no_more_queries(
    acme: World, client_of: Any, decides: Decides, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client: Client = client_of(acme.approver)
    for _ in range(2):
        decides(acme.approver, asked(acme), "approve")
        with django_assert_num_queries(10):
            client.get(f"/w/{acme.workspace.id}/approvals/?view=decided")
