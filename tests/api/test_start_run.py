"""POST /api/v1/runs: one run a key, and a plain answer to everything that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from console.models import AuditEvent
from console.tokens import Scope
from runs.models import Run
from tests.api.conftest import OFFER, Call, start_of, token_for
from tests.people import World, make_world

pytestmark = pytest.mark.django_db


def test_it_starts_a_run_as_the_token_s_maker(acme: World, call: Call, token: str) -> None:
    answer = call("post", "runs", token=token, body=start_of(acme))
    assert answer.status_code == 201
    run = Run.objects.get(workspace=acme.workspace)
    said = answer.json()
    assert answer["Location"].endswith(f"/api/v1/runs/{run.id}")
    assert (said["id"], said["status"], said["workflow"]) == (run.id, "queued", "sales_offer_agent@7")
    assert (said["conversation"], said["kind"], said["mode"]) == (acme.conversation.id, "original", "live")
    assert said["url"].endswith(f"/w/{acme.workspace.id}/runs/{run.id}/")
    assert run.starter == acme.operator
    event = AuditEvent.objects.get(subject=run.id, verb="run.started")
    assert event.on_behalf_of == "token Ordering system"


def test_only_a_workflow_that_posts_to_a_conversation_needs_one(acme: World, call: Call, token: str) -> None:
    given = {"email": "jana@brueckner.example", "message": "The printer prints nothing."}
    for conversation in (..., None):
        body = start_of(acme, workflow="support_agent", input=given, conversation=conversation)
        answer = call("post", "runs", token=token, body=body)
        assert (answer.status_code, answer.json()["conversation"]) == (201, None)
        refused = call("post", "runs", token=token, body=start_of(acme, conversation=conversation))
        assert (refused.status_code, refused.json()["field"]) == (422, "conversation")


def test_the_same_key_and_input_is_the_same_run(acme: World, call: Call, token: str) -> None:
    first = call("post", "runs", token=token, key="order-4711", body=start_of(acme))
    again = call("post", "runs", token=token, key="order-4711", body=start_of(acme))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert Run.objects.filter(workspace=acme.workspace).count() == 1
    other = call("post", "runs", token=token, key="order-4712", body=start_of(acme))
    assert other.status_code == 201
    assert other.json()["id"] != first.json()["id"]


def test_a_key_reused_with_other_input_is_refused(acme: World, call: Call, token: str) -> None:
    call("post", "runs", token=token, key="order-4711", body=start_of(acme))
    changed = start_of(acme, input={**OFFER, "request": "Please send an offer for 41 seats."})
    answer = call("post", "runs", token=token, key="order-4711", body=changed)
    assert answer.status_code == 422
    assert answer.json()["code"] == "key_reused"
    assert Run.objects.filter(workspace=acme.workspace).count() == 1


@pytest.mark.parametrize("key", ["", "a b", "k" * 256, "schlüssel"])
def test_a_missing_or_unusable_key_is_malformed(acme: World, call: Call, token: str, key: str) -> None:
    answer = call("post", "runs", token=token, key=key, body=start_of(acme))
    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")
    assert not Run.objects.filter(workspace=acme.workspace).exists()


def test_a_key_of_255_characters_works(acme: World, call: Call, token: str) -> None:
    assert call("post", "runs", token=token, key="k" * 255, body=start_of(acme)).status_code == 201


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff{}", 400),
        (b'{"workflow": NaN}', 422),
        (b'{"workflow": "a", "workflow": "b"}', 422),
        (b"[]", 422),
        (b"null", 422),
        (b"[" * 100_000, 422),
    ],
)
def test_what_is_no_json_is_malformed_and_what_has_two_readings_invalid(
    acme: World, call: Call, token: str, raw: bytes, status: int
) -> None:
    answer = call("post", "runs", token=token, raw=raw)
    assert answer.status_code == status
    assert answer.json()["code"]
    assert not Run.objects.filter(workspace=acme.workspace).exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"workflow": ...}, "workflow"),
        ({"workflow": 7}, "workflow"),
        ({"workflow": "no_such_agent"}, "workflow"),
        ({"workflow": "x" * 81}, "workflow"),
        ({"conversation": "conv_none"}, "conversation"),
        ({"conversation": "a\0b"}, "conversation"),
        ({"input": ...}, "input"),
        ({"input": [1]}, "input"),
        ({"input": {"email": "jana@brueckner.example"}}, "request"),
        ({"input": {**OFFER, "email": 7}}, "email"),
        ({"input": {**OFFER, "colour": "red"}}, "input"),
        ({"input": {**OFFER, "request": "a\0b"}}, "request"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_does_not_fit_is_named_and_leaves_no_row(
    acme: World, call: Call, token: str, changes: dict[str, Any], field: str
) -> None:
    answer = call("post", "runs", token=token, body=start_of(acme, **changes))
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert not Run.objects.filter(workspace=acme.workspace).exists()


def test_a_workflow_that_the_workspace_has_not_enabled_is_unknown(
    acme: World, call: Call, token: str
) -> None:
    assert call("post", "runs", token=token, body=start_of(acme)).status_code == 201
    acme.workspace.workflows = ["support_agent"]
    acme.workspace.save(update_fields=["workflows"])
    answer = call("post", "runs", token=token, body=start_of(acme))
    assert (answer.status_code, answer.json()["field"]) == (422, "workflow")


def test_another_workspace_s_conversation_is_not_there(acme: World, call: Call, token: str) -> None:
    theirs = make_world("other").conversation.id
    answer = call("post", "runs", token=token, body=start_of(acme, conversation=theirs))
    assert (answer.status_code, answer.json()["field"]) == (422, "conversation")


def test_a_body_too_large_or_of_another_type_is_not_read(acme: World, call: Call, token: str) -> None:
    large = start_of(acme, input={**OFFER, "request": "x" * 300_000})
    assert call("post", "runs", token=token, body=large).status_code == 413
    answer = call(
        "post", "runs", token=token, raw=b"workflow=a", content_type="application/x-www-form-urlencoded"
    )
    assert answer.status_code == 415
    assert not Run.objects.filter(workspace=acme.workspace).exists()


@pytest.mark.parametrize(
    ("role", "status"),
    [("operator", 201), ("developer", 201), ("viewer", 403), ("approver", 403), ("auditor", 403), ("releaser", 403), ("administrator", 403)],
)  # fmt: skip
def test_a_token_may_what_its_maker_may(acme: World, call: Call, role: str, status: int) -> None:
    token = token_for(acme, getattr(acme, role))
    assert call("post", "runs", token=token, body=start_of(acme)).status_code == status
    assert Run.objects.filter(workspace=acme.workspace).exists() == (status == 201)


def test_a_token_may_only_what_it_was_made_for(acme: World, call: Call) -> None:
    reading = token_for(acme, acme.operator, Scope.READ)
    answer = call("post", "runs", token=reading, body=start_of(acme))
    assert answer.status_code == 403
    assert "runs:start" in answer.json()["message"]
    starting = token_for(acme, acme.operator, Scope.START)
    assert call("post", "runs", token=starting, body=start_of(acme)).status_code == 201
