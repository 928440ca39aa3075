"""POST /api/v1/runs/{id}/replays: the form's rules, said as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from console.models import AuditEvent
from console.tokens import Scope
from runs.commands import replay as command
from runs.models import Checkpoint, Run
from runs.states import RunStatus
from tests.api.conftest import Call, token_for
from tests.people import World, make_world
from tests.views import rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _copied_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This run has no engine rows to copy: tests/engine/test_replay.py copies real ones."""
    monkeypatch.setattr(command, "copy_checkpoint", lambda checkpoint, run: checkpoint)


@pytest.fixture
def checkpoint(acme: World) -> Checkpoint:
    run = rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    return Checkpoint.objects.create(
        run=run,
        engine_id="1f000001-0000-6000-8000-000000000000",
        fence=1,
        number=0,
        source="loop",
        size=1,
    )


def body_of(at: Checkpoint, **changes: Any) -> dict[str, Any]:
    return {"checkpoint": at.id, **changes}


def path_of(checkpoint: Checkpoint) -> str:
    return f"runs/{checkpoint.run_id}/replays"


def made_of(checkpoint: Checkpoint) -> list[Run]:
    return list(Run.objects.filter(parent_run=checkpoint.run_id))


def test_it_makes_a_run_in_evidence_as_the_tokens_maker(
    acme: World, call: Call, token: str, checkpoint: Checkpoint
) -> None:
    answer = call("post", path_of(checkpoint), token=token, body=body_of(checkpoint, reason="Why?"))
    assert answer.status_code == 201, answer.json()
    (run,) = made_of(checkpoint)
    said = answer.json()
    assert (said["id"], said["kind"], said["mode"], said["status"]) == (
        run.id,
        "replay",
        "evidence",
        "queued",
    )
    assert answer["Location"].endswith(f"/api/v1/runs/{run.id}")
    event = AuditEvent.objects.get(subject=run.id, verb="run.replayed")
    assert (event.on_behalf_of, event.reason) == ("token Ordering system", "Why?")


def test_a_key_is_one_run_and_other_input_under_it_is_refused(
    call: Call, token: str, checkpoint: Checkpoint
) -> None:
    first = call("post", path_of(checkpoint), token=token, key="k1", body=body_of(checkpoint))
    again = call("post", path_of(checkpoint), token=token, key="k1", body=body_of(checkpoint))
    other = call(
        "post", path_of(checkpoint), token=token, key="k1", body=body_of(checkpoint, mode="simulation")
    )
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 422)
    assert first.json() == again.json()
    assert other.json()["code"] == "key_reused"
    assert len(made_of(checkpoint)) == 1


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"mode": "live"}, 422, "reason"),
        ({"mode": "live", "reason": "  "}, 422, "reason"),
        ({"reason": "a\0b"}, 422, "reason"),
        ({"reason": "y" * 301}, 422, "reason"),
        ({"mode": "wild"}, 422, "mode"),
        ({"more": 1}, 422, "more"),
        ({"checkpoint": "cp_\0"}, 400, "checkpoint"),
        ({"checkpoint": "cp_00000000000000000000000000"}, 404, None),
    ],
)
def test_bad_input_is_named_and_makes_nothing(
    acme: World, call: Call, checkpoint: Checkpoint, changes: dict[str, Any], status: int, field: str | None
) -> None:
    token = token_for(acme, acme.developer)
    answer = call("post", path_of(checkpoint), token=token, body=body_of(checkpoint, **changes))
    assert (answer.status_code, answer.json().get("field")) == (status, field)
    assert made_of(checkpoint) == []


@pytest.mark.parametrize(
    ("role", "mode", "status"),
    [
        ("auditor", "evidence", 201),
        ("auditor", "simulation", 403),
        ("operator", "simulation", 201),
        ("operator", "live", 403),
        ("developer", "live", 201),
        ("viewer", "evidence", 403),
    ],
)
def test_a_token_may_no_more_than_its_maker(
    acme: World, call: Call, checkpoint: Checkpoint, role: str, mode: str, status: int
) -> None:
    token = token_for(acme, getattr(acme, role))
    answer = call(
        "post", path_of(checkpoint), token=token, body=body_of(checkpoint, mode=mode, reason="To see.")
    )
    assert answer.status_code == status
    assert len(made_of(checkpoint)) == (1 if status == 201 else 0)


def test_without_the_scope_or_in_another_workspace_there_is_nothing(
    acme: World, call: Call, checkpoint: Checkpoint
) -> None:
    lacking = token_for(acme, acme.developer, Scope.START, Scope.READ)
    refused = call("post", path_of(checkpoint), token=lacking, body=body_of(checkpoint))
    assert (refused.status_code, "runs:replay" in refused.json()["message"]) == (403, True)
    other = make_world("other")
    elsewhere = token_for(other, other.developer)
    assert call("post", path_of(checkpoint), token=elsewhere, body=body_of(checkpoint)).status_code == 404
    another = rows.run_in(acme)
    token = token_for(acme, acme.developer)
    assert (
        call("post", f"runs/{another.id}/replays", token=token, body=body_of(checkpoint)).status_code == 404
    )
    assert made_of(checkpoint) == []


def test_what_retention_removed_is_said(call: Call, token: str, checkpoint: Checkpoint) -> None:
    rows.change(checkpoint.run, recordings_removed_at=checkpoint.at)
    answer = call("post", path_of(checkpoint), token=token, body=body_of(checkpoint))
    assert answer.status_code == 409
    assert "its recordings were removed by retention" in answer.json()["message"]
