"""The kill switch: its page, and what every page of the workspace says while it is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, User
from effects.commands.stop_sending import lift_stop, stop_sending
from effects.models import Effect, Stop
from effects.states import StopScope
from runs.models import Run
from tests.people import World, make_world
from tests.views import standing
from tests.views.asking import OFFER, TICKET, intend, paused_run
from tests.views.conftest import Reads, words_of
from tests.views.ordering import form_at

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
OTHERS = [role for role in EVERYBODY if role != "releaser"]
TOKEN = "f" * 32
WHY = "crm answers with errors."


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def offer(acme: World, run: Run) -> Effect:
    """Ready to be sent to crm."""
    return standing.fresh(intend(acme, run, "test.offer", OFFER))


def stopped(world: World, scope: StopScope = StopScope.RECEIVER, target: str = "crm", why: str = WHY) -> Stop:
    if not world.workspace.receivers.exists():
        world.receivers("http://127.0.0.1:9", 9)
    return stop_sending(
        world.actor(world.releaser),
        scope=scope,
        target=target,
        reason=why,
        token=f"{scope}{target}{why[:20]}",
    )


def path(world: World, rest: str = "") -> str:
    return f"/w/{world.workspace.id}/stops/{rest}"


def test_nothing_stopped_is_said_with_what_a_stop_would_do(acme: World, reads: Reads) -> None:
    said = words_of(reads(acme.releaser, "stops/"))
    for words in (
        "Nothing is stopped.",
        "From the moment you press the button nothing further is sent",
        "What is in flight is not cut off. It finishes, and what came of it is recorded.",
        "waits for Continue",
    ):
        assert words in said


def test_a_stop_says_what_since_when_by_whom_why_and_how_much_it_holds_up(
    acme: World, run: Run, offer: Effect, reads: Reads
) -> None:
    intend(acme, run, "desk.open_ticket", TICKET)
    stopped(acme)
    page = reads(acme.viewer, "stops/")
    said = words_of(page)
    for words in ("Nothing is sent to crm", "Stopped by Releaser", WHY):
        assert words in said
    assert [one.held_up for one in page.context["standing"]] == ["1"]
    assert offer.sub_state == "ready"


def test_it_is_set_once_by_its_form_and_lifted_with_a_reason(
    acme: World, offer: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    carried = form_at(client.get(path(acme)), path(acme, "set/"))
    assert carried
    for _ in range(2):
        answer = client.post(path(acme, "set/"), {**carried, "target": "receiver:crm", "reason": WHY})
        assert (answer.status_code, answer["Location"]) == (303, path(acme))
    stop = Stop.objects.get(workspace=acme.workspace)
    assert (stop.scope, stop.target, stop.by, stop.reason) == ("receiver", "crm", acme.releaser, WHY)
    lift = path(acme, f"{stop.id}/lift/")
    empty = client.post(lift, {"form_token": TOKEN, "reason": ""})
    assert empty.status_code == 422
    assert "Say why sending may go on." in words_of(empty)
    for _ in range(2):
        assert client.post(lift, {"form_token": TOKEN, "reason": "They answer again."}).status_code == 303
    stop.refresh_from_db()
    assert (stop.lifted_by, stop.lifted_why) == (acme.releaser, "They answer again.")
    said = words_of(client.get(path(acme)))
    assert "What was stopped before" in said
    assert "They answer again." in said
    again = client.post(lift, {"form_token": "e" * 32, "reason": "Once more."})
    assert again.status_code == 409
    assert "It has been lifted already." in words_of(again)
    verbs = AuditEvent.objects.filter(subject=stop.id).values_list("verb", flat=True)
    assert sorted(verbs) == ["stop.lifted", "stop.not_lifted", "stop.not_lifted", "stop.set"]


@pytest.mark.parametrize(
    ("target", "scope", "named"),
    [("workspace", "workspace", ""), ("type:test.offer", "type", "test.offer")],
)
def test_everything_and_a_type_can_be_stopped(
    acme: World, offer: Effect, client_of: ClientOf, target: str, scope: str, named: str
) -> None:
    given = {"form_token": TOKEN, "target": target, "reason": WHY}
    assert client_of(acme.releaser).post(path(acme, "set/"), given).status_code == 303
    stop = Stop.objects.get(workspace=acme.workspace)
    assert (stop.scope, stop.target) == (scope, named)


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        ({"target": ""}, 422, "Choose what to stop."),
        ({"target": "receiver:nobody"}, 422, "Choose what to stop."),
        ({"reason": ""}, 422, "Say why."),
        ({"reason": "y" * 2001}, 422, "at most 2000"),
    ],
)
def test_what_is_missing_is_said_and_what_was_typed_stays(
    acme: World, offer: Effect, client_of: ClientOf, typed: dict[str, str], status: int, said: str
) -> None:
    given = {"form_token": TOKEN, "target": "receiver:crm", "reason": "kept words", **typed}
    page = client_of(acme.releaser).post(path(acme, "set/"), given)
    assert page.status_code == status
    assert said in words_of(page)
    kept = 'value="receiver:crm" selected' if "reason" in typed else "kept words"
    assert kept in page.content.decode()
    assert not Stop.objects.filter(workspace=acme.workspace).exists()


def test_the_same_stop_again_is_refused_with_what_was_typed(
    acme: World, offer: Effect, client_of: ClientOf
) -> None:
    stopped(acme)
    given = {"form_token": TOKEN, "target": "receiver:crm", "reason": "kept words"}
    page = client_of(acme.releaser).post(path(acme, "set/"), given)
    assert page.status_code == 409
    assert "Sending is stopped there already." in words_of(page)
    assert "kept words" in page.content.decode()


@pytest.mark.parametrize("role", OTHERS)
def test_nobody_else_is_shown_a_form_or_may(
    acme: World, offer: Effect, client_of: ClientOf, role: str
) -> None:
    stop = stopped(acme, StopScope.TYPE, "test.offer")
    client = client_of(getattr(acme, role))
    page = client.get(path(acme))
    assert form_at(page, path(acme, "set/")) is None
    assert form_at(page, path(acme, f"{stop.id}/lift/")) is None
    assert "Only a releaser may lift it." in words_of(page)
    given = {"form_token": TOKEN, "target": "receiver:crm", "reason": WHY}
    assert client.post(path(acme, "set/"), given).status_code == 403
    assert client.post(path(acme, f"{stop.id}/lift/"), given).status_code == 403
    assert Stop.objects.filter(workspace=acme.workspace, lifted_at=None).count() == 1
    assert client_of(acme.releaser).post(path(acme, "set/"), given).status_code == 303


def test_nobody_elses_and_nothing_without_a_token(acme: World, client: Client, client_of: ClientOf) -> None:
    stop = stopped(acme)
    other = make_world("other")
    elsewhere = client_of(other.releaser)
    assert elsewhere.get(path(acme)).status_code == 404
    given = {"form_token": TOKEN, "reason": WHY}
    assert elsewhere.post(path(other, f"{stop.id}/lift/"), given).status_code == 404
    assert client.get(path(acme)).status_code == 302
    assert client_of(acme.releaser).post(path(acme, "set/"), {"target": "workspace"}).status_code == 400
    assert client_of(acme.releaser).get(path(acme, "set/")).status_code == 405


def test_a_stop_after_a_restore_says_what_is_to_be_done_first(acme: World, client_of: ClientOf) -> None:
    stop = Stop.objects.create(
        workspace=acme.workspace,
        scope=StopScope.WORKSPACE,
        reason="The database was restored.",
        needs_scan=True,
    )
    page = client_of(acme.releaser).get(path(acme))
    assert "once every receiver that can list was scanned" in words_of(page)
    assert "Stopped by Signalbox" in words_of(page)
    assert f"/w/{acme.workspace.id}/reviews/#scans" in page.content.decode()
    assert stop.lifted_at is None


def test_htmx_gets_exactly_the_part_of_the_page(acme: World, client_of: ClientOf) -> None:
    stopped(acme)
    client = client_of(acme.viewer)
    for here in (path(acme), path(acme, "banner/")):
        part = client.get(here, headers={"HX-Request": "true"}).content.decode().strip()
        assert "<html" not in part
        assert part in client.get(path(acme)).content.decode()


# -- the banner ----------------------------------------------------------------------------------------------------

PAGES = (
    "",
    "runs/",
    "conversations/",
    "approvals/",
    "effects/",
    "reviews/",
    "recoveries/",
    "stops/",
    "contracts/",
)


def banner(page: Any) -> str:
    """What the banner says; empty where nothing is stopped."""
    text: str = page.content.decode()
    return text.partition('<aside class="banner-stop"')[2].partition("</aside>")[0]


@pytest.mark.parametrize("here", PAGES)
def test_every_page_says_it_while_it_stands(acme: World, run: Run, client_of: ClientOf, here: str) -> None:
    client = client_of(acme.viewer)
    address = f"/w/{acme.workspace.id}/{here}"
    assert not banner(client.get(address))
    stop = stopped(acme)
    said = banner(client.get(address))
    for words in ("Nothing is sent to crm.", "Stopped by Releaser", WHY, path(acme)):
        assert words in said
    assert "data-close" not in said
    assert 'id="stopped" data-live="stops"' in client.get(address).content.decode()
    lift_stop(acme.actor(acme.releaser), stop.id, reason="Over.", token="over")
    assert not banner(client.get(address))


def test_a_run_and_a_refusal_say_it_too(acme: World, run: Run, client_of: ClientOf) -> None:
    stopped(acme, StopScope.WORKSPACE, "")
    client = client_of(acme.viewer)
    for here in (f"runs/{run.id}/", "effects/eff_0/", "approvals/?view=open", "search?q=x"):
        assert "Nothing is sent from this workspace." in banner(client.get(f"/w/{acme.workspace.id}/{here}"))


def test_other_workspaces_are_not_concerned(acme: World, client_of: ClientOf) -> None:
    stopped(acme)
    other = make_world("other")
    assert not banner(client_of(other.viewer).get(f"/w/{other.workspace.id}/"))


def test_several_stops_are_each_named_and_more_are_counted(acme: World, client_of: ClientOf) -> None:
    stopped(acme, StopScope.WORKSPACE, "")
    for name in ("crm", "desk", "mail"):
        stopped(acme, StopScope.RECEIVER, name)
    said = banner(client_of(acme.viewer).get(path(acme)))
    assert "Nothing is sent to desk." in said
    assert "and 1 more." in said


def test_hostile_text_is_text(acme: World, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    stop = stopped(acme, why=evil)
    assert "<img" not in client_of(acme.viewer).get(path(acme)).content.decode()
    lift_stop(acme.actor(acme.releaser), stop.id, reason=evil, token="over")
    assert "<img" not in client_of(acme.viewer).get(path(acme)).content.decode()


def test_the_banner_costs_a_page_one_query(acme: World, client_of: ClientOf) -> None:
    client = client_of(acme.viewer)
    address = f"/w/{acme.workspace.id}/effects/"
    client.get(address)
    with CaptureQueriesContext(connection) as none:
        client.get(address)
    stopped(acme)
    with CaptureQueriesContext(connection) as some:
        client.get(address)
    assert len(some) == len(none)
    asked = [one["sql"] for one in some if 'FROM "effects_stop"' in one["sql"] and "COUNT" not in one["sql"]]
    assert len(asked) == 1


def test_more_stops_take_one_query_each(
    acme: World, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.viewer)
    stopped(acme)
    client.get(path(acme))
    with django_assert_num_queries(12):
        client.get(path(acme))
    stopped(acme, StopScope.RECEIVER, "desk")
    with django_assert_num_queries(13):
        client.get(path(acme))
