"""GET /api/v1/runs/{id}: how a run stands, for tokens of its workspace."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent
from console.tokens import Scope
from runs.models import Run
from tests.api.conftest import Call, start_of, token_for
from tests.people import World, make_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(acme: World, call: Call, token: str) -> Run:
    return Run.objects.get(id=call("post", "runs", token=token, body=start_of(acme)).json()["id"])


def test_it_says_how_the_run_stands(run: Run, call: Call, token: str) -> None:
    answer = call("get", f"runs/{run.id}", token=token)
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["status"], answer.json()["failure"]) == (
        run.id,
        "queued",
        None,
    )


def test_it_says_why_a_run_failed(run: Run, call: Call, token: str) -> None:
    Run.objects.filter(id=run.id).update(
        status="failed",
        failure="node_error",
        failure_text="Nobody has the address ada@example.org.",
        failure_of="draft",
    )
    failure = call("get", f"runs/{run.id}", token=token).json()["failure"]
    # What the node raised may hold protected values: the API says the failure in its own words.
    assert failure == {
        "code": "node_error",
        "message": "The code of step draft raised an error.",
        "of": "draft",
    }


@pytest.mark.parametrize("run_id", ["run_none", "x" * 300, "%00", "run_%F0%9F%98%80", "..%2f"])
def test_an_id_that_there_is_not_is_refused_as_json(run: Run, call: Call, token: str, run_id: str) -> None:
    answer = call("get", f"runs/{run_id}", token=token)
    assert answer.status_code in (400, 404)
    assert answer.json()["code"] in ("not_found", "bad_request")


def test_another_workspace_s_run_is_not_there(acme: World, run: Run, call: Call, token: str) -> None:
    other = make_world("other")
    theirs = token_for(other, other.operator)
    assert call("get", f"runs/{run.id}", token=token).status_code == 200
    assert call("get", f"runs/{run.id}", token=theirs).status_code == 404


def test_scopes_are_apart(acme: World, run: Run, call: Call) -> None:
    assert call("get", f"runs/{run.id}", token=token_for(acme, acme.operator, Scope.START)).status_code == 403
    assert call("get", f"runs/{run.id}", token=token_for(acme, acme.viewer, Scope.READ)).status_code == 200


def test_reading_writes_no_event_and_takes_few_queries(
    run: Run, call: Call, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    before: Any = (AuditEvent.objects.count(), Run.objects.get(id=run.id).version)
    # The token, its maker's roles, the run, that the token was used; and the workers that are there, for the commands.
    with django_assert_num_queries(5):
        call("get", f"runs/{run.id}", token=token)
    assert (AuditEvent.objects.count(), Run.objects.get(id=run.id).version) == before
