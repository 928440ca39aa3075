"""Continue, Pause and Cancel: what the question says, who may, twice is once, and what a refusal shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.models import AuditEvent, User
from effects.models import Approval, Effect
from effects.states import ApprovalStatus, EffectStatus, SubState
from runs import execution
from runs.engine.advance import Ended
from runs.models import Run
from runs.states import RunStatus, StepOutcome
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
VERBS = ("continue", "pause", "cancel")
pytestmark = pytest.mark.django_db


def address(run: Run, verb: str = "continue") -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/{verb}/"


def token_in(client: Client, run: Run, verb: str = "continue") -> str:
    return str(client.get(address(run, verb)).context["form_token"])


def pull(client: Client, run: Run, verb: str = "continue", **headers: str) -> Any:
    return client.post(address(run, verb), {"form_token": token_in(client, run, verb)}, headers=headers)


@pytest.fixture
def failed(acme: World) -> Run:
    run = rows.stands(rows.run_in(acme), RunStatus.FAILED, fence=1)
    claim = rows.execution(run)
    rows.step(claim, "classify", 1)
    rows.step(claim, "draft_offer", 3, outcome=StepOutcome.FAILED)
    return run


def status_of(run: Run) -> str:
    return Run.objects.get(id=run.id).status


def test_it_says_what_is_kept_what_runs_and_what_may_go_out(
    acme: World, client_of: ClientOf, failed: Run
) -> None:
    rows.effect(acme, failed, status=EffectStatus.COMPLETED, sub=SubState.NONE, key="made", reference="off_1")
    rows.effect(acme, failed, sub=SubState.UNCERTAIN, key="unsure")
    shown = client_of(acme.operator).get(address(failed)).content.decode()
    for words in (
        "classify",
        "never run again",
        "draft_offer",
        "off_1",
        "Uncertain",
        "the same key",
        "sales_offer_agent@7",
    ):
        assert words in shown
    assert "No worker holds this version" in shown


def test_the_operator_continues(acme: World, client_of: ClientOf, failed: Run) -> None:
    response = pull(client_of(acme.operator), failed)
    assert response.status_code == 303
    assert response["Location"] == f"/w/{acme.workspace.id}/runs/{failed.id}/"
    assert status_of(failed) == RunStatus.QUEUED


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", ["viewer", "approver", "auditor", "releaser", "administrator"])
def test_who_may_only_see_is_refused(
    acme: World, client_of: ClientOf, failed: Run, role: str, verb: str
) -> None:
    client, token = client_of(getattr(acme, role)), token_in(client_of(acme.operator), failed)
    assert client.get(address(failed, verb)).status_code == 403
    assert client.post(address(failed, verb), {"form_token": token}).status_code == 403
    assert status_of(failed) == RunStatus.FAILED


@pytest.mark.parametrize("verb", VERBS)
def test_others_get_nothing(acme: World, client: Client, client_of: ClientOf, failed: Run, verb: str) -> None:
    token = token_in(client_of(acme.operator), failed)
    other = make_world("other")
    assert client_of(other.operator).post(address(failed, verb), {"form_token": token}).status_code == 404
    elsewhere = address(failed, verb).replace(acme.workspace.id, other.workspace.id)
    assert client_of(other.operator).post(elsewhere, {"form_token": token}).status_code == 404
    assert client.post(address(failed, verb), {"form_token": token}).status_code == 302
    assert status_of(failed) == RunStatus.FAILED


def test_the_same_form_twice_does_it_once(acme: World, client_of: ClientOf, failed: Run) -> None:
    client = client_of(acme.operator)
    form = {"form_token": token_in(client, failed)}
    first, second = (client.post(address(failed), form) for _ in range(2))
    assert (first.status_code, second.status_code) == (303, 303)
    assert first["Location"] == second["Location"]
    assert AuditEvent.objects.filter(subject=failed.id, verb="run.continued").count() == 1


def test_another_form_afterwards_says_what_happened(acme: World, client_of: ClientOf, failed: Run) -> None:
    client = client_of(acme.operator)
    late = token_in(client, failed)
    assert pull(client, failed).status_code == 303
    response = client.post(address(failed), {"form_token": late})
    assert response.status_code == 409
    assert "it waits for a worker" in response.content.decode()
    assert AuditEvent.objects.filter(subject=failed.id, verb="run.continued").count() == 1


def test_htmx_takes_the_whole_page_on(acme: World, client_of: ClientOf, failed: Run) -> None:
    response = pull(client_of(acme.operator), failed, **{"HX-Request": "true"})
    assert response["HX-Redirect"] == f"/w/{acme.workspace.id}/runs/{failed.id}/"
    assert response.content == b""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", [{}, {"form_token": ""}, {"form_token": "x"}, {"form_token": "bad token!"}])
def test_a_form_without_a_token_is_not_ours(
    acme: World, client_of: ClientOf, failed: Run, verb: str, form: dict[str, str]
) -> None:
    assert client_of(acme.operator).post(address(failed, verb), form).status_code == 400
    assert status_of(failed) == RunStatus.FAILED


def test_the_question_comes_alone_into_a_dialog(acme: World, client_of: ClientOf, failed: Run) -> None:
    client = client_of(acme.operator)
    alone = client.get(address(failed), headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in alone
    assert "Continue the run" in alone
    assert "<html" in client.get(address(failed)).content.decode()


@pytest.mark.parametrize(("verb", "status"), [("pause", RunStatus.PAUSED), ("cancel", RunStatus.CANCELLED)])
def test_where_no_worker_is_on_it_it_happens_at_once(
    acme: World, client_of: ClientOf, verb: str, status: RunStatus
) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    assert pull(client_of(acme.operator), run, verb).status_code == 303
    assert status_of(run) == status


@pytest.mark.parametrize(("verb", "flag"), [("pause", "pause_requested"), ("cancel", "cancel_requested")])
def test_where_a_worker_is_on_it_it_is_asked(acme: World, client_of: ClientOf, verb: str, flag: str) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.RUNNING)
    client = client_of(acme.operator)
    assert pull(client, run, verb).status_code == 303
    run.refresh_from_db()
    assert (run.status, getattr(run, flag)) == (RunStatus.RUNNING, True)
    shown = client.get(f"/w/{run.workspace_id}/runs/{run.id}/").content.decode()
    assert {"pause": "Pausing", "cancel": "Cancelling"}[verb] in shown


def test_cancel_names_what_ends_with_the_run_and_what_stays_sent(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    rows.effect(acme, run, status=EffectStatus.COMPLETED, sub=SubState.NONE, key="sent", reference="off_7")
    unsent = rows.effect(acme, run, key="asked")
    unsure = rows.effect(acme, run, sub=SubState.UNCERTAIN, key="unsure")
    asked = rows.approval(acme, run, unsent, group="Sales approvers")
    client = client_of(acme.operator)
    shown = client.get(address(run, "cancel")).content.decode()
    for words in (
        "was sent (off_7) and stays sent",
        "is cancelled: never sent",
        "may have been sent",
        "the queue of Sales approvers",
    ):
        assert words in shown
    assert pull(client, run, "cancel").status_code == 303
    assert Effect.objects.get(id=unsent.id).sub_state == SubState.CANCELLED
    assert Effect.objects.get(id=unsure.id).sub_state == SubState.UNCERTAIN
    assert Approval.objects.get(id=asked.id).status == ApprovalStatus.CLOSED


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_that_has_ended_is_left_alone(acme: World, client_of: ClientOf, verb: str) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    response = pull(client_of(acme.operator), run, verb)
    assert response.status_code == 409
    assert "it is completed" in response.content.decode()
    assert status_of(run) == RunStatus.COMPLETED


def test_after_a_cancel_the_page_lists_what_was_sent_as_sent_and_the_rest_as_cancelled(
    acme: World, client_of: ClientOf
) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.RUNNING)
    claim = rows.execution(run, fence=run.fence, outcome=None)
    sent = rows.effect(
        acme, run, status=EffectStatus.COMPLETED, sub=SubState.NONE, key="sent", reference="off_7"
    )
    unsent = rows.effect(acme, run, key="asked")
    rows.approval(acme, run, unsent)
    client = client_of(acme.operator)
    page = f"/w/{run.workspace_id}/runs/{run.id}/?part=effects"
    assert pull(client, run, "cancel").status_code == 303
    asked_for = client.get(page).content.decode()
    assert "Cancelling" in asked_for
    assert states_in(client.get(page), sent, unsent) == ["completed", "cancelled"]

    # Its worker has stopped at the next safe point.
    run.refresh_from_db()
    execution.settle(run, Ended(drained="cancel"))
    shown = client.get(page).content.decode()
    assert status_of(run) == RunStatus.CANCELLED
    assert "Cancelling" not in shown
    assert f"Cancelled by <b>{acme.operator.name}</b>" in shown
    assert states_in(client.get(page), sent, unsent) == ["completed", "cancelled"]
    assert "off_7" in shown
    assert shown.count("sent before cancel") == 1
    claim.refresh_from_db()
    assert claim.ended_at is not None


def test_a_pause_is_shown_as_asked_for_and_then_as_done(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.RUNNING)
    rows.execution(run, fence=run.fence, outcome=None)
    client = client_of(acme.operator)
    page = f"/w/{run.workspace_id}/runs/{run.id}/"
    assert pull(client, run, "pause").status_code == 303
    assert "Pausing" in client.get(page).content.decode()
    run.refresh_from_db()
    execution.settle(run, Ended(drained="pause"))
    shown = client.get(page).content.decode()
    assert status_of(run) == RunStatus.PAUSED
    assert "Pausing" not in shown
    assert f"Paused by {acme.operator.name}." in shown


def states_in(page: Any, *effects: Effect) -> list[str]:
    """How the page's list of effects says that each of these stands."""
    listed = {row.id: row for row in page.context["effects"]}
    return [listed[effect.id].sub_state or listed[effect.id].status for effect in effects]
