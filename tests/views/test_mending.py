"""Ask again, and what a node dropped: the levers of a run that failed for what a person can answer, and their pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from console.models import AuditEvent, User
from effects.models import Approval, Effect, Review
from effects.states import ApprovalStatus, EffectStatus, ReviewReason, SubState
from runs.models import Pause, Run
from runs.states import Cause, Failure, PauseKind, RunStatus
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


@pytest.fixture
def wrongly_answered(acme: World) -> Run:
    """A run whose node raised on the answer to its question."""
    run = rows.stands(rows.run_in(acme), RunStatus.FAILED, fence=1, failed_on_answer=True)
    asked = rows.approval(acme, run, group="Sales approvers")
    Approval.objects.filter(id=asked.id).update(status=ApprovalStatus.DECIDED, ended_at=timezone.now())
    Pause.objects.create(
        run=run,
        fence=1,
        interrupt_id=asked.interrupt_id,
        task_id="task",
        node="draft_offer",
        kind=PauseKind.QUESTION,
        value_hash=asked.interrupt_hash,
        actions=1,
        answered=True,
        raised=True,
    )
    return run


def dropping(acme: World, *effects: Effect, run: Run) -> Run:
    for effect in effects:
        Review.objects.create(
            workspace=acme.workspace,
            effect=effect,
            reason=ReviewReason.NOT_ASKED_AGAIN,
            sentence="The node draft_offer made it and, run again, did not ask for it.",
        )
    return rows.stands(
        run,
        RunStatus.FAILED,
        failure=Failure.OBLIGATION_DROPPED,
        failure_of="draft_offer",
        failure_text="It no longer asks for it.",
    )


def page(client: Client, run: Run) -> str:
    return client.get(f"/w/{run.workspace_id}/runs/{run.id}/").content.decode()


def test_ask_again_says_who_is_asked_and_does_it_once(
    acme: World, client_of: ClientOf, wrongly_answered: Run
) -> None:
    client, run = client_of(acme.operator), wrongly_answered
    address = f"/w/{run.workspace_id}/runs/{run.id}/ask-again/"
    assert address in page(client, run)
    response = client.get(address)
    shown = response.content.decode()
    for words in ("is asked of Sales approvers in round 2", "ValueError: no price", "draft_offer"):
        assert words in shown
    form = {"form_token": response.context["form_token"]}
    late = {"form_token": client.get(address).context["form_token"]}
    assert [client.post(address, form).status_code for _ in range(2)] == [303, 303]
    run.refresh_from_db()
    assert (run.status, run.next_cause, run.failed_on_answer) == (RunStatus.QUEUED, Cause.ASK_AGAIN, False)
    assert Approval.objects.get(run_id=run.id).status == ApprovalStatus.SUPERSEDED
    assert AuditEvent.objects.filter(subject=run.id, verb="run.asked_again").count() == 1
    refused = client.post(address, late)
    assert refused.status_code == 409
    assert "no answer made a node of it fail" in refused.content.decode()
    assert address not in page(client, run)


def test_a_viewer_sees_why_not(acme: World, client_of: ClientOf, wrongly_answered: Run) -> None:
    client, run = client_of(acme.viewer), wrongly_answered
    shown = page(client, run)
    assert "Ask again" in shown
    assert "your roles do not let you start, continue, pause or cancel runs, or ask again" in shown
    for verb in ("ask-again", "dropped"):
        address = f"/w/{run.workspace_id}/runs/{run.id}/{verb}/"
        assert client.get(address).status_code == 403
        assert client.post(address, {"form_token": "0123456789ab"}).status_code == 403
        other = make_world(f"other-{verb}")
        assert client_of(other.operator).get(address).status_code == 404


def test_where_no_answer_made_it_fail_it_is_not_among_the_levers(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.FAILED)
    shown = page(client_of(acme.operator), run)
    assert "Ask again" not in shown
    assert "Settle what it dropped" not in shown


def test_each_dropped_effect_offers_the_one_act_that_is_open(acme: World, client_of: ClientOf) -> None:
    run = rows.run_in(acme)
    made = rows.effect(
        acme, run, status=EffectStatus.COMPLETED, sub=SubState.NONE, key="made", reference="off_1"
    )
    unsent = rows.effect(acme, run, key="unsent")
    dropping(acme, made, unsent, run=run)
    client = client_of(acme.operator)
    address = f"/w/{run.workspace_id}/runs/{run.id}/dropped/"
    assert address in page(client, run)
    response = client.get(address)
    shown = response.content.decode()
    assert "the receiver has it, and what was sent stays sent" in shown
    assert "nothing of it was sent, and no step is left to send it: cancel it" in shown
    tokens = {item["choice"].effect.id: item["token"] for item in response.context["items"]}

    def post(effect: Effect, act: str, reason: str = "Seen in the customer's file") -> int:
        form = {"form_token": tokens[effect.id], "effect": effect.id, "act": act, "reason": reason}
        return client.post(address, form).status_code

    assert post(made, "cancel") == 409
    assert post(unsent, "accept") == 409
    assert post(made, "accept", "") == 422
    assert post(made, "forget") == 400
    assert rows.change(run).status == RunStatus.FAILED
    assert [post(made, "accept"), post(made, "accept")] == [303, 303]
    assert rows.change(run).status == RunStatus.FAILED
    assert post(unsent, "cancel") == 303
    run.refresh_from_db()
    unsent.refresh_from_db()
    assert (run.status, run.failure, unsent.sub_state) == (RunStatus.QUEUED, "", SubState.CANCELLED)
    refused = client.get(address)
    assert "no node of it has dropped an effect" in refused.content.decode()
