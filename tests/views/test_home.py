"""Home: what needs this person, the most urgent first, each with its next step; and the way there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.models import Membership, User, Worker
from effects.states import SubState
from runs.models import Run
from runs.selectors import held
from runs.states import RunStatus
from tests.people import World, make_world
from tests.views import desk, rows
from tests.views.asking import paused_run

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def page(world: World) -> str:
    return f"/w/{world.workspace.id}/"


def turns(client: Client, world: World) -> list[Any]:
    response = client.get(page(world))
    assert response.status_code == 200
    return list(response.context["turns"])


def test_the_root_leads_to_the_first_workspace(acme: World, client_of: ClientOf) -> None:
    response = client_of(acme.viewer).get("/")
    assert (response.status_code, response["Location"]) == (302, page(acme))


def test_who_belongs_to_none_is_told_so(acme: World, client_of: ClientOf) -> None:
    response = client_of(acme.outsider).get("/")
    assert response.status_code == 200
    assert "You belong to no workspace" in response.content.decode()


def test_anonymous_goes_to_login(acme: World, client: Client) -> None:
    assert client.get("/").status_code == 302
    assert client.get(page(acme))["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize(
    "role", ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
)
def test_every_role_has_a_home(acme: World, client_of: ClientOf, role: str) -> None:
    assert client_of(getattr(acme, role)).get(page(acme)).status_code == 200
    assert client_of(make_world("other").operator).get(page(acme)).status_code == 404


def test_nothing_to_do_is_said(acme: World, client_of: ClientOf) -> None:
    shown = client_of(acme.viewer).get(page(acme)).content.decode()
    assert "Nothing needs a person" in shown
    assert "No run was made in the last 24 hours" in shown
    assert "none alive" in shown


def test_the_most_urgent_stands_first(acme: World, client_of: ClientOf) -> None:
    def run(title: str, status: RunStatus) -> Run:
        return rows.stands(rows.run_in(acme, title=title), status)

    run("paused", RunStatus.PAUSED)
    run("failed", RunStatus.FAILED)
    unsure = run("uncertain", RunStatus.WAITING_EFFECT)
    rows.effect(acme, unsure, sub=SubState.UNCERTAIN)
    in_review = run("in review", RunStatus.WAITING_EFFECT)
    rows.review(acme, rows.effect(acme, in_review, sub=SubState.UNCERTAIN))
    rows.approval(acme, run("due", RunStatus.WAITING_APPROVAL))
    rows.approval(acme, run("overdue", RunStatus.WAITING_APPROVAL), late=True)
    run("completed", RunStatus.COMPLETED)
    seen = [(turn.subject, turn.step) for turn in turns(client_of(acme.approver), acme)]
    assert seen == [
        ("overdue", "Decide"),
        ("in review", "Look"),
        ("uncertain", "Look"),
        ("failed", "Look"),
        ("due", "Decide"),
        ("paused", "Look"),
    ]


def test_each_sees_their_own_next_step(acme: World, client_of: ClientOf) -> None:
    failed = rows.stands(rows.run_in(acme, title="failed"), RunStatus.FAILED)
    asked = rows.stands(rows.run_in(acme, title="asked"), RunStatus.WAITING_APPROVAL)
    rows.approval(acme, asked, group="Sales approvers")

    def steps(user: User) -> dict[str, str]:
        return {turn.subject: turn.step for turn in turns(client_of(user), acme)}

    assert steps(acme.operator) == {"failed": "Continue…"}
    assert steps(acme.approver) == {"failed": "Look", "asked": "Decide"}
    assert steps(acme.viewer) == {"failed": "Look"}
    (turn,) = turns(client_of(acme.operator), acme)
    assert turn.step_href == f"/w/{acme.workspace.id}/runs/{failed.id}/continue/"


@pytest.mark.usefixtures("contracts_that_ask")
def test_reviews_lead_to_their_page_an_orphans_too(acme: World, client_of: ClientOf) -> None:
    review = desk.mail_in_review(acme, paused_run(acme))
    orphan = desk.orphan_in_review(acme)

    def seen(user: User) -> dict[str, tuple[str, str]]:
        return {
            turn.step_href: (turn.whose, turn.step)
            for turn in turns(client_of(user), acme)
            if turn.table == "review"
        }

    one, two = desk.address(review), desk.address(orphan)
    assert seen(acme.viewer) == {one: ("A releaser", "Look"), two: ("A releaser", "Look")}
    assert seen(acme.releaser) == {one: ("You", "Settle"), two: ("You", "Settle")}
    desk.proposed(acme, review)
    assert seen(acme.approver)[one] == ("You, as the second person", "Settle")
    said = client_of(acme.viewer).get(page(acme)).content.decode()
    assert "Object tkt_000099" in said
    assert f'href="{page(acme)}reviews/"' in said


def test_an_approval_of_another_group_is_not_mine_until_it_is_overdue(
    acme: World, client_of: ClientOf
) -> None:
    asked = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    approval = rows.approval(acme, asked, group="Lawyers")
    assert turns(client_of(acme.approver), acme) == []
    approval.due_at = timezone.now() - timedelta(minutes=1)
    approval.save(update_fields=["due_at"])
    (turn,) = turns(client_of(acme.approver), acme)
    assert (turn.whose, turn.step) == ("Lawyers", "Look")


def test_a_queued_run_without_a_worker_is_stuck(acme: World, client_of: ClientOf) -> None:
    run = rows.run_in(acme)
    client = client_of(acme.viewer)
    assert [turn.what for turn in turns(client, acme)] == ["No worker holds sales_offer_agent 7"]
    worker = Worker.objects.create(host="here", pid=1, versions=[held(run.workflow, run.fingerprint)])
    assert turns(client, acme) == []
    assert "1 alive" in client.get(page(acme)).content.decode()
    Worker.objects.filter(id=worker.id).update(last_seen=timezone.now() - timedelta(minutes=5))
    assert len(turns(client, acme)) == 1


def test_runs_of_the_last_day_are_a_chart(acme: World, client_of: ClientOf) -> None:
    rows.stands(rows.run_in(acme), RunStatus.FAILED)
    rows.change(rows.run_in(acme), created_at=timezone.now() - timedelta(days=3))
    response = client_of(acme.viewer).get(page(acme))
    assert response.context["hours"]["total"] == 1
    assert 'class="bad"' in response.content.decode()


def test_another_workspaces_work_is_not_mine(acme: World, client_of: ClientOf) -> None:
    other = make_world("other")
    rows.stands(rows.run_in(other), RunStatus.FAILED)
    Membership.objects.create(workspace=other.workspace, user=acme.viewer, roles=["viewer"])
    assert turns(client_of(acme.viewer), acme) == []
    assert len(turns(client_of(acme.viewer), other)) == 1


def test_hostile_text_is_text(acme: World, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    rows.stands(rows.run_in(acme, title=evil), RunStatus.PAUSED, failure_text=evil)
    assert "<img" not in client_of(acme.operator).get(page(acme)).content.decode()


def test_the_same_queries_whatever_there_is_to_do(
    acme: World, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    for status in (
        RunStatus.FAILED,
        RunStatus.PAUSED,
        RunStatus.WAITING_APPROVAL,
        RunStatus.WAITING_EFFECT,
    ) * 3:
        run = rows.stands(rows.run_in(acme), status)
        made = rows.effect(acme, run, sub=SubState.UNCERTAIN)
        rows.review(acme, made)
        rows.approval(acme, run)
    client = client_of(acme.approver)
    client.get(page(acme))
    with django_assert_max_num_queries(29):
        assert client.get(page(acme)).status_code == 200
