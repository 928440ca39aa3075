"""The Runs page: who sees it, filters, chips, paging, what hostile titles do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.models import User
from runs.models import Run
from runs.states import RunStatus
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def page(world: World, query: str = "") -> str:
    return f"/w/{world.workspace.id}/runs/{query}"


def titles(html: str, runs: list[Run]) -> list[str]:
    return [run.title for run in runs if run.title in html]


@pytest.mark.parametrize(
    "role", ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
)
def test_every_role_sees_the_runs(acme: World, client_of: ClientOf, role: str) -> None:
    run = rows.run_in(acme)
    response = client_of(getattr(acme, role)).get(page(acme))
    assert response.status_code == 200
    assert run.title in response.content.decode()


def test_another_workspace_is_not_there(acme: World, client_of: ClientOf) -> None:
    other = make_world("other")
    assert client_of(other.operator).get(page(acme)).status_code == 404
    assert client_of(acme.outsider).get(page(acme)).status_code == 404


def test_another_workspaces_runs_are_not_among_them(acme: World, client_of: ClientOf) -> None:
    other = make_world("other")
    theirs = rows.run_in(other, title="Nobody else's business")
    rows.run_in(acme)
    assert theirs.title not in client_of(acme.viewer).get(page(acme)).content.decode()


def test_anonymous_goes_to_login_and_back(client: Client, acme: World) -> None:
    response = client.get(page(acme))
    assert response.status_code == 302
    assert response["Location"].startswith("/accounts/login/?next=")


def test_a_fragment_without_login_takes_the_whole_page_there(client: Client, acme: World) -> None:
    response = client.get(page(acme), headers={"HX-Request": "true"})
    assert "/accounts/login/" in response["HX-Redirect"]
    assert b"password" not in response.content


def test_only_who_may_start_is_offered_it(acme: World, client_of: ClientOf) -> None:
    address = f"/w/{acme.workspace.id}/runs/start/"
    assert address in client_of(acme.operator).get(page(acme)).content.decode()
    assert address not in client_of(acme.auditor).get(page(acme)).content.decode()


def test_filters_narrow_and_the_address_is_the_view(acme: World, client_of: ClientOf) -> None:
    failed = rows.stands(rows.run_in(acme, title="The failed one"), RunStatus.FAILED)
    paused = rows.stands(rows.run_in(acme, title="The paused one"), RunStatus.PAUSED)
    done = rows.stands(rows.run_in(acme, title="The done one"), RunStatus.COMPLETED)
    runs = [failed, paused, done]
    client = client_of(acme.viewer)

    def found(query: str) -> list[str]:
        return titles(client.get(page(acme, query)).content.decode(), runs)

    assert found("") == [failed.title, paused.title, done.title]
    assert found("?status=failed") == [failed.title]
    assert found("?status=needs_a_person") == [failed.title, paused.title]
    assert found("?failure=node_error") == [failed.title]
    assert found("?failure=limit") == []
    assert found("?q=PAUSED") == [paused.title]
    assert found("?q=brückner") == [failed.title, paused.title, done.title]
    assert found("?customer=cus_000003&status=completed") == [done.title]
    assert found("?workflow=sales_offer_agent&kind=original&mode=live") == [
        failed.title,
        paused.title,
        done.title,
    ]
    assert found("?kind=branch") == []


@pytest.mark.parametrize(
    "query",
    [
        "?status=stuck",
        "?kind=copy",
        "?mode=dead",
        "?failure=bad",
        "?cursor=nonsense",
        "?q=%00",
        "?q=" + "x" * 201,
    ],
)
def test_what_cannot_be_read_is_refused(acme: World, client_of: ClientOf, query: str) -> None:
    rows.run_in(acme)
    client = client_of(acme.viewer)
    assert client.get(page(acme)).status_code == 200
    assert client.get(page(acme, query)).status_code == 400


def test_chips_count_what_stands_where(acme: World, client_of: ClientOf) -> None:
    for status in (RunStatus.FAILED, RunStatus.FAILED, RunStatus.WAITING_APPROVAL, RunStatus.COMPLETED):
        rows.stands(rows.run_in(acme), status)
    chips = client_of(acme.viewer).get(page(acme)).context["chips"]
    assert {chip["word"]: chip["count"] for chip in chips} == {
        "All": None,
        "Needs a person": "3",
        "Waiting for approval": "1",
        "Failed": "2",
    }


def test_pages_follow_one_another_without_gap_or_repeat(acme: World, client_of: ClientOf) -> None:
    newest = rows.run_in(acme)
    Run.objects.bulk_create([copy_of(newest, n) for n in range(119)])
    client = client_of(acme.viewer)
    seen: list[str] = []
    address = page(acme)
    while address:
        response = client.get(address)
        seen += [row["run"].id for row in response.context["rows"]]
        older = response.context["older"]
        address = page(acme, older) if older else ""
    assert len(seen) == len(set(seen)) == 120
    assert seen == list(
        Run.objects.filter(workspace=acme.workspace)
        .order_by("-created_at", "-id")
        .values_list("id", flat=True)
    )


def copy_of(run: Run, n: int) -> Run:
    fields: dict[str, Any] = {
        field.attname: getattr(run, field.attname)
        for field in Run._meta.concrete_fields
        if not field.primary_key
    }
    fields |= {
        "command_token": f"copy-{n}",
        "title": f"Copy {n}",
        "created_at": timezone.now() - timedelta(minutes=n // 3),
    }
    return Run(**fields)


def test_the_same_queries_whatever_the_number_of_rows(
    acme: World, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    Run.objects.bulk_create([copy_of(run, n) for n in range(40)])
    client = client_of(acme.viewer)
    client.get(page(acme))
    with django_assert_max_num_queries(10):
        assert client.get(page(acme)).status_code == 200


def test_a_hostile_title_is_text(acme: World, client_of: ClientOf) -> None:
    rows.run_in(acme, title="<script>alert(1)</script>\u202egnp.exe")
    html = client_of(acme.viewer).get(page(acme)).content.decode()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\u202e" not in html


def test_a_fragment_is_the_part_that_the_page_holds(acme: World, client_of: ClientOf) -> None:
    rows.run_in(acme)
    client = client_of(acme.viewer)
    fragment = client.get(page(acme), headers={"HX-Request": "true"}).content.decode()
    assert fragment.lstrip().startswith('<div id="runs"')
    assert "<html" not in fragment
    assert 'id="runs"' in client.get(page(acme)).content.decode()


def test_nobody_posts_to_a_list(acme: World, client_of: ClientOf) -> None:
    assert client_of(acme.operator).post(page(acme)).status_code == 405
