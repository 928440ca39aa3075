"""The audit page: for auditors and administrators, newest first, filtered exactly."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent
from tests.people import World, make_world
from tests.views.asking import asked
from tests.views.conftest import Decides, Reads, words_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]


def ids_in(page: Any) -> list[str]:
    return re.findall(r'<tr id="(evt_\w+)"', page.content.decode())


@pytest.mark.parametrize(
    ("role", "status"),
    [("auditor", 200), ("administrator", 200), ("viewer", 403), ("operator", 403), ("approver", 403), ("releaser", 403), ("developer", 403)],
)  # fmt: skip
def test_the_trail_is_for_those_who_hold_the_capability(
    acme: World, reads: Reads, role: str, status: int
) -> None:
    asked(acme)
    page = reads(getattr(acme, role), "audit/")
    assert page.status_code == status
    assert bool(ids_in(page)) == (status == 200)


def test_it_says_who_did_what_and_why_in_the_words_of_the_pages(
    acme: World, reads: Reads, decides: Decides
) -> None:
    approval = asked(acme)
    decides(acme.approver, approval, "reject", reason="Wrong customer.")
    page = reads(acme.auditor, "audit/")
    said = words_of(page)
    assert "Rejected by Approver: Create an offer: 5,760.00 EUR for cus_000003 — Wrong customer." in said
    assert f'href="/w/{acme.workspace.id}/approvals/{approval.id}/"' in page.content.decode()
    newest = list(
        AuditEvent.objects.filter(workspace=acme.workspace)
        .order_by("-at", "-id")
        .values_list("id", flat=True)
    )
    assert ids_in(page) == newest


def test_filters_are_exact(acme: World, reads: Reads, decides: Decides) -> None:
    first, second = asked(acme), asked(acme)
    decides(acme.approver, first, "approve")
    decides(acme.second_approver, second, "reject", reason="No.")

    def verbs(**query: str) -> list[str]:
        found = ids_in(reads(acme.auditor, "audit/", **query))
        return [AuditEvent.objects.get(id=one).verb for one in found]

    assert verbs(actor="Second Approver") == ["approval.reject", "approval.read"]
    assert verbs(verb="approval.approve") == ["approval.approve"]
    assert verbs(verb="approval") == ["approval.reject", "approval.read", "approval.approve", "approval.read"]
    assert verbs(subject=first.id) == ["approval.approve", "approval.read"]
    assert verbs(subject=first.run_id) == ["approval.approve", "approval.read", "run.started"]
    assert verbs(subject=first.id, verb="run") == []
    assert "No event fits" in words_of(reads(acme.auditor, "audit/", subject="apr_none"))


@pytest.mark.parametrize(
    "query", [{"verb": "Approve!"}, {"actor": "x" * 161}, {"subject": "x" * 61}, {"cursor": "zz"}]
)
def test_a_filter_that_can_not_be_read_is_a_bad_request(
    acme: World, reads: Reads, query: dict[str, str]
) -> None:
    assert reads(acme.auditor, "audit/", **query).status_code == 400


def test_another_workspace_s_events_are_not_there(acme: World, reads: Reads, client_of: Any) -> None:
    asked(acme)
    other = make_world("other")
    assert ids_in(reads(acme.auditor, "audit/"))
    assert ids_in(client_of(other.auditor).get(f"/w/{other.workspace.id}/audit/")) == []
    assert client_of(other.auditor).get(f"/w/{acme.workspace.id}/audit/").status_code == 404


def test_looking_writes_nothing_and_takes_few_queries(
    acme: World, client_of: Any, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client: Client = client_of(acme.auditor)
    asked(acme)
    before = AuditEvent.objects.count()
    for _ in range(2):
        with django_assert_num_queries(6):
            client.get(f"/w/{acme.workspace.id}/audit/")
        asked(acme)
    assert AuditEvent.objects.count() == before + 2
    assert client.post(f"/w/{acme.workspace.id}/audit/").status_code == 405
