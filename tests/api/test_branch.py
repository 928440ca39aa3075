"""POST /api/v1/runs/…/branches: one branch a key, and a plain answer to everything that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from console.tokens import Scope
from runs.models import Checkpoint, Run
from runs.states import RunKind, RunStatus
from tests.api.conftest import Call, token_for
from tests.people import World, make_world
from tests.views import rows
from tests.views.test_branch import EXACT, STATE, Saved, newest

pytestmark = pytest.mark.django_db


@pytest.fixture
def approved(acme: World) -> Iterator[Checkpoint]:
    saved = Saved(rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL))
    saved.after("classify", {"intent": "offer"})
    yield saved.after("approve_offer", STATE)
    saved.clear()


def body_of(source: Checkpoint, **changes: Any) -> dict[str, Any]:
    edit = {"approved": {"replace": False}}
    return {"checkpoint": source.id, "edit": edit, "reason": "To see.", **changes}


def path_of(checkpoint: Checkpoint) -> str:
    return f"runs/{checkpoint.run_id}/branches"


def branches() -> int:
    return Run.objects.filter(kind=RunKind.BRANCH).count()


def test_one_branch_a_key(acme: World, call: Call, token: str, approved: Checkpoint) -> None:
    sent = {"token": token, "key": "branch-1", "body": body_of(approved)}
    first, again = (call("post", path_of(approved), **sent) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (first.json()["kind"], first.json()["mode"]) == ("branch", "simulation")
    other = {**sent, "body": body_of(approved, reason="Another.")}
    refused = call("post", path_of(approved), **other)
    assert (refused.status_code, refused.json()["code"]) == (422, "key_reused")
    assert branches() == 1


def test_a_long_number_arrives_with_every_digit(
    acme: World, call: Call, token: str, approved: Checkpoint
) -> None:
    edit = {"customer": {"replace": {"id": "cus_000003", "exact": EXACT + 1}}}
    answer = call("post", path_of(approved), token=token, body=body_of(approved, edit=edit))
    assert answer.status_code == 201, answer.json()
    assert newest(Run.objects.get(id=answer.json()["id"]))["customer"]["exact"] == EXACT + 1


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"reason": " "}, 422, "reason"),
        ({"mode": "evidence"}, 422, "mode"),
        ({"mode": "live"}, 403, None),
        ({"edit": {}}, 422, "edit"),
        ({"edit": {"approved": {"replace": True}}}, 422, "edit"),
        ({"edit": {"approved": {}}}, 422, None),
        ({"edit": {"approved": {"repalce": False}}}, 422, "edit.approved.repalce"),
        ({"edit": {"aproved": {"replace": False}}}, 422, None),
        ({"edit": {"approved": {"replace": "no"}}}, 422, "approved"),
        ({"edit": {"approved": False}}, 422, "edit.approved"),
        ({"as_node": "reply"}, 422, "as_node"),
        ({"checkpoint": "cp_nowhere"}, 404, None),
        ({"checkpoint": "cp_\x00"}, 400, "checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    acme: World,
    call: Call,
    token: str,
    approved: Checkpoint,
    changes: dict[str, Any],
    status: int,
    field: str | None,
) -> None:
    answer = call("post", path_of(approved), token=token, body=body_of(approved, **changes))
    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.json()
    assert branches() == 0


def test_who_may_and_whose(acme: World, call: Call, approved: Checkpoint) -> None:
    other = make_world("other")
    for token, status in (
        (token_for(acme, acme.operator, Scope.START, Scope.READ), 403),
        (token_for(acme, acme.auditor), 403),
        (token_for(other, other.operator), 404),
        ("sbx_unknown", 401),
    ):
        answer = call("post", path_of(approved), token=token, body=body_of(approved))
        assert answer.status_code == status, answer.json()
    assert branches() == 0
    allowed = call(
        "post",
        path_of(approved),
        token=token_for(acme, acme.developer, Scope.BRANCH),
        body=body_of(approved, mode="live"),
    )
    assert (allowed.status_code, allowed.json()["mode"]) == (201, "live")
