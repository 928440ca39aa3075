"""Page, API and command give the same answer in the same words, for every status; and a token's commands."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from console.kernel.errors import Refusal
from console.models import AuditEvent, User
from console.tokens import Scope
from runs.availability import OperatorCommand, availability
from runs.commands.ask_again import ask_again
from runs.commands.continue_run import continue_run
from runs.commands.settle_dropped import Act, settle_dropped
from runs.commands.stop import cancel, pause
from runs.models import Run
from runs.states import Failure, RunStatus
from tests.api.conftest import Call, token_for
from tests.people import World
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db

COMMANDS: dict[OperatorCommand, Callable[..., Run]] = {
    OperatorCommand.CONTINUE: continue_run,
    OperatorCommand.ASK_AGAIN: ask_again,
    OperatorCommand.PAUSE: pause,
    OperatorCommand.CANCEL: cancel,
    OperatorCommand.SETTLE_DROPPED: lambda actor, run_id, *, token: settle_dropped(
        actor, run_id, "eff_none", act=Act.ACCEPT, reason="so", token=token
    ),
}
STANDINGS: dict[str, tuple[RunStatus, dict[str, Any]]] = {
    **{status.value: (status, {}) for status in RunStatus if status != RunStatus.DIVERGED},
    "running, its worker lost": (RunStatus.RUNNING, {"lost": True}),
    "queued for long": (RunStatus.QUEUED, {"status_since": timedelta(minutes=2)}),
    "pausing": (RunStatus.RUNNING, {"pause_requested": True}),
    "cancelling": (RunStatus.RUNNING, {"cancel_requested": True}),
    "failed on an answer": (RunStatus.FAILED, {"failed_on_answer": True}),
    "obligation dropped": (RunStatus.FAILED, {"failure": Failure.OBLIGATION_DROPPED}),
}


def standing(acme: World, words: str) -> Run:
    status, fields = STANDINGS[words]
    now = timezone.now()
    given = {name: value for name, value in fields.items() if name not in ("lost", "status_since")}
    run = rows.stands(rows.run_in(acme), status, **given)
    if fields.get("lost"):
        rows.change(run, lease_until=now - timedelta(seconds=5))
    if since := fields.get("status_since"):
        rows.change(run, status_since=now - since)
    return run


def said_by_command(command: OperatorCommand, person: Any, run: Run) -> str:
    """What the command refuses with; empty: it was done (and undone again)."""
    try:
        with transaction.atomic():
            COMMANDS[command](person, run.id, token=str(uuid.uuid4()))
            transaction.set_rollback(True)
    except Refusal as refusal:
        return refusal.message
    return ""


@pytest.mark.parametrize("words", STANDINGS)
def test_page_api_and_command_agree(acme: World, client_of: ClientOf, call: Call, words: str) -> None:
    run = standing(acme, words)
    for user in (acme.operator, acme.viewer):
        person = acme.actor(user)
        offers = availability(run, person)
        api = call("get", f"runs/{run.id}", token=token_for(acme, user)).json()["commands"]
        shown = client_of(user).get(f"/w/{run.workspace_id}/runs/{run.id}/").context["levers"]
        levers = {lever.label.rstrip("…"): lever.reason for lever in shown}
        assert {name: reason or "" for name, reason in api.items()} == {
            name: offer.reason for name, offer in offers.items()
        }
        for command in COMMANDS:
            reason = offers[command].reason
            label = {OperatorCommand.SETTLE_DROPPED: "Settle what it dropped"}.get(
                command, str(command.label)
            )
            if label in levers:
                assert levers[label] == reason, (command, user)
            said = said_by_command(command, person, run)
            if command == OperatorCommand.SETTLE_DROPPED and not reason:
                assert said == "No node of this run has dropped an effect eff_none."
            elif offers[command].forbidden:
                assert "your roles" in said.lower(), (command, said)
            elif reason:
                assert said.endswith(f": {reason}."), (command, said)
            else:
                assert said == "", (command, said)
        assert {"Continue", "Pause", "Cancel"} <= set(levers)
        assert ("Ask again" in levers) is (words == "failed on an answer")
        assert ("Settle what it dropped" in levers) is (words == "obligation dropped")


@pytest.mark.parametrize(
    ("path", "status", "becomes"),
    [
        ("continue", RunStatus.PAUSED, "queued"),
        ("pause", RunStatus.WAITING_APPROVAL, "paused"),
        ("cancel", RunStatus.FAILED, "cancelled"),
    ],
)
def test_a_token_gives_a_command_once(
    acme: World, call: Call, token: str, path: str, status: RunStatus, becomes: str
) -> None:
    run = rows.stands(rows.run_in(acme), status)
    for _ in range(2):
        answer = call("post", f"runs/{run.id}/{path}", token=token, key="one")
        assert (answer.status_code, answer.json()["status"]) == (200, becomes)
    another = call("post", f"runs/{run.id}/{path}", token=token, key="two")
    assert another.status_code == 409
    reason = call("get", f"runs/{run.id}", token=token).json()["commands"][path]
    assert another.json()["message"].endswith(f": {reason}.")
    other = rows.stands(rows.run_in(acme), status)
    assert call("post", f"runs/{other.id}/{path}", token=token, key="one").status_code == 422
    assert (
        AuditEvent.objects.filter(
            subject=run.id, verb__startswith="run.", detail__token__startswith="api:"
        ).count()
        == 1
    )


def test_a_token_asks_again(acme: World, call: Call, token: str) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.FAILED, failed_on_answer=True)
    assert call("post", f"runs/{run.id}/ask-again", token=token, key="one").json()["status"] == "queued"


def test_a_token_without_the_scope_gives_none(acme: World, call: Call) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.PAUSED)
    reader = token_for(acme, acme.operator, Scope.READ, Scope.START)
    for path in ("continue", "ask-again", "pause", "cancel"):
        refused = call("post", f"runs/{run.id}/{path}", token=reader, key="one")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert rows.change(run, title="the same").status == RunStatus.PAUSED


def test_continue_takes_a_run_from_its_lost_worker(acme: World, call: Call, token: str) -> None:
    run = standing(acme, "running, its worker lost")
    execution = rows.execution(run, fence=run.fence, outcome=None)
    assert call("post", f"runs/{run.id}/continue", token=token, key="one").json()["status"] == "queued"
    execution.refresh_from_db()
    assert execution.outcome == "lost"
