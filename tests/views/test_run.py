"""The Run page: state in words, levers for whom, the journal, what stands open, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from console.models import AuditEvent, User
from effects.models import Effect
from effects.states import EffectStatus, Outcome, SubState
from runs.models import Run
from runs.states import Cause, ExecutionOutcome, RunStatus, StepOutcome
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def page(run: Run, query: str = "") -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/{query}"


def html(client: Client, run: Run, query: str = "") -> str:
    response = client.get(page(run, query))
    assert response.status_code == 200
    return response.content.decode()


def lever(client: Client, run: Run, label: str) -> Any:
    found = [one for one in client.get(page(run)).context["levers"] if one.label.startswith(label)]
    assert len(found) == 1, [one.label for one in client.get(page(run)).context["levers"]]
    return found[0]


@pytest.fixture
def waiting(acme: World) -> Run:
    """A run that waits for the Sales approvers to decide about its offer."""
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL, fence=1)
    claim = rows.execution(run)
    for number, node in enumerate(("classify", "find_customer", "draft_offer"), start=1):
        rows.step(claim, node, number)
    rows.step(claim, "approve_offer", 4, outcome=StepOutcome.PAUSED)
    rows.approval(acme, run, rows.effect(acme, run), group="Sales approvers")
    return run


@pytest.mark.parametrize(
    "role", ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
)
def test_every_role_sees_it(acme: World, client_of: ClientOf, waiting: Run, role: str) -> None:
    shown = html(client_of(getattr(acme, role)), waiting)
    assert "Waiting for approval" in shown
    assert "Sales approvers" in shown


def test_others_do_not(acme: World, client: Client, client_of: ClientOf, waiting: Run) -> None:
    assert client_of(make_world("other").operator).get(page(waiting)).status_code == 404
    assert client.get(page(waiting)).status_code == 302
    in_mine = page(waiting).replace(waiting.workspace_id, make_world("more").workspace.id)
    assert client_of(acme.operator).get(in_mine).status_code == 404


@pytest.mark.parametrize(
    "rest", ["runs/run_0/", "runs/run_00000000000000000000000000/", "runs/%00/", "runs/x/continue/"]
)
def test_what_is_no_run_is_not_there(acme: World, client_of: ClientOf, rest: str) -> None:
    assert client_of(acme.operator).get(f"/w/{acme.workspace.id}/{rest}").status_code == 404


def test_decide_is_the_primary_lever_of_who_may_and_says_why_not_to_others(
    acme: World, client_of: ClientOf, waiting: Run
) -> None:
    may = lever(client_of(acme.approver), waiting, "Decide")
    assert (may.look, may.reason) == ("primary", "")
    may_not = lever(client_of(acme.operator), waiting, "Decide")
    assert "do not let you decide" in may_not.reason
    assert lever(client_of(acme.operator), waiting, "Continue").reason == "it waits for a decision"
    assert lever(client_of(acme.operator), waiting, "Cancel").reason == ""
    assert lever(client_of(acme.viewer), waiting, "Cancel").reason


def test_the_starter_may_not_decide_their_own(acme: World, client_of: ClientOf, waiting: Run) -> None:
    rows.change(waiting, starter=acme.approver)
    assert lever(client_of(acme.approver), waiting, "Decide").reason.startswith("four eyes")
    assert lever(client_of(acme.second_approver), waiting, "Decide").reason == ""


def test_a_failed_run_says_its_cause_first_and_offers_continue(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(
        rows.run_in(acme), RunStatus.FAILED, failure_text="Traceback\n  frame\nValueError: no price"
    )
    claim = rows.execution(run, outcome=ExecutionOutcome.FAILED)
    failing = rows.step(claim, "draft_offer", 3, outcome=StepOutcome.FAILED, problem="ValueError: no price")
    client = client_of(acme.operator)
    shown = html(client, run)
    assert shown.index("ValueError: no price") < shown.index('class="journal"')
    assert f"?show={failing.id}" in shown
    assert lever(client, run, "Continue").look == "primary"


def test_a_protected_value_is_hidden_in_errors_and_input(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(
        rows.run_in(acme), RunStatus.FAILED, failure_text=f"LookupError: nobody is {rows.EMAIL}"
    )
    claim = rows.execution(run, outcome=ExecutionOutcome.FAILED)
    step = rows.step(claim, "find_customer", 2, outcome=StepOutcome.FAILED, problem=f"nobody is {rows.EMAIL}")
    client = client_of(acme.operator)
    for query in ("", "?part=input", f"?show={step.id}"):
        shown = html(client, run, query)
        assert "LookupError: nobody is" in shown
        assert rows.EMAIL not in shown
    assert "An offer for 40 seats" in html(client, run, "?part=input")


def test_a_recorded_call_is_shown_masked(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    claim = rows.execution(run)
    rows.step(claim, "draft_offer", 3)
    call = rows.recording(
        run,
        "draft_offer",
        3,
        request={"messages": [f"Write to {rows.EMAIL}"]},
        answer={"content": '{"subject": "Offer 1", "body": "Dear Jana, 40 seats"}'},
    )
    shown = html(client_of(acme.viewer), run, f"?show={call.id}")
    assert "Offer 1" in shown
    assert "Write to" in shown
    assert rows.EMAIL not in shown
    assert "Dear Jana" not in shown


def test_a_lost_worker_is_a_break_in_the_step_that_ran_again(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    began = timezone.now() - timedelta(minutes=2)
    lost = rows.execution(run, fence=1, outcome=ExecutionOutcome.LOST)
    rows.step(lost, "create_offer", 5, task="t5", outcome=StepOutcome.LOST, begin=began)
    again = rows.execution(run, fence=2, outcome=ExecutionOutcome.FINISHED, cause=Cause.RECOVERY)
    rows.step(again, "create_offer", 5, task="t5", begin=began + timedelta(minutes=1))
    response = client_of(acme.viewer).get(page(run))
    (row,) = response.context["journal"].rows
    assert row.lost_at is not None
    assert (row.state, row.note) == ("completed", "worker lost")
    assert [bar.kind for bar in row.bars] == ["idle", "idle", "work"]
    assert response.context["losses"] == 1


def test_what_can_still_come_stands_after_what_was(acme: World, client_of: ClientOf, waiting: Run) -> None:
    journal = client_of(acme.viewer).get(page(waiting)).context["journal"].rows
    assert [row.name for row in journal if not row.future] == [
        "classify",
        "find_customer",
        "draft_offer",
        "approve_offer",
    ]
    assert [row.name for row in journal if row.future] == ["create_offer", "decline", "mail_offer", "reply"]
    assert next(row for row in journal if row.current).state == "waiting_approval"


def test_an_effect_is_shown_with_its_attempts_and_its_review(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.WAITING_EFFECT)
    unsure = rows.effect(acme, run, sub=SubState.UNCERTAIN)
    rows.attempt(unsure, Outcome.UNKNOWN, problem="No answer within 10 s")
    rows.review(acme, unsure)
    shown = html(client_of(acme.viewer), run)
    for words in (
        "Uncertain",
        "Unknown",
        "No answer within 10 s",
        "41 ms",
        "In review",
        "crm can&#x27;t be asked",
    ):
        assert words in shown
    assert "766000" in html(client_of(acme.viewer), run, f"?show={unsure.id}")


def test_it_listens_until_nothing_can_change(acme: World, client_of: ClientOf, waiting: Run) -> None:
    client = client_of(acme.viewer)
    assert f'data-live="run:{waiting.id}"' in html(client, waiting)
    done = rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    assert "data-final" in html(client, done)
    assert 'data-live="run:' not in html(client, done)
    cancelled = rows.stands(rows.run_in(acme), RunStatus.CANCELLED)
    rows.effect(acme, cancelled, sub=SubState.UNCERTAIN)
    assert "data-final" not in html(client, cancelled)


def test_a_fragment_is_the_part_that_the_page_holds(acme: World, client_of: ClientOf, waiting: Run) -> None:
    fragment = client_of(acme.viewer).get(page(waiting), headers={"HX-Request": "true"}).content.decode()
    assert fragment.lstrip().startswith('<div id="run"')
    assert "<html" not in fragment


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?part=effects", 200),
        ("?part=checkpoints", 200),
        ("?part=approvals", 200),
        ("?part=messages", 200),
        ("?part=input", 200),
        ("?part=secrets", 400),
        ("?show=nonsense", 404),
        ("?show=stp_00000000000000000000000000", 404),
        ("?show=%00", 400),
    ],
)
def test_its_permalinks(acme: World, client_of: ClientOf, waiting: Run, query: str, status: int) -> None:
    assert client_of(acme.viewer).get(page(waiting, query)).status_code == status


def test_what_belongs_to_another_run_is_not_shown_beside_this_one(
    acme: World, client_of: ClientOf, waiting: Run
) -> None:
    other = rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL)
    theirs = rows.step(rows.execution(other), "classify", 1)
    client = client_of(acme.viewer)
    assert client.get(page(other, f"?show={theirs.id}")).status_code == 200
    assert client.get(page(waiting, f"?show={theirs.id}")).status_code == 404


def test_hostile_text_is_text(acme: World, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    run = rows.stands(rows.run_in(acme, title=evil), RunStatus.FAILED, failure_text=evil, failure_of=evil)
    rows.step(
        rows.execution(run, outcome=ExecutionOutcome.FAILED),
        evil,
        1,
        outcome=StepOutcome.FAILED,
        problem=evil,
    )
    assert "<img" not in html(client_of(acme.viewer), run)


def test_a_pinned_number_of_queries(
    acme: World, client_of: ClientOf, waiting: Run, django_assert_max_num_queries: Any
) -> None:
    claim = rows.execution(waiting, fence=2)
    for n in range(5, 30):
        rows.step(claim, "classify", n)
        rows.attempt(rows.effect(acme, waiting, status=EffectStatus.COMPLETED, sub=SubState.NONE, key=str(n)))
    client = client_of(acme.approver)
    client.get(page(waiting))
    with django_assert_max_num_queries(24):
        assert client.get(page(waiting)).status_code == 200


def test_looking_changes_nothing(acme: World, client_of: ClientOf, waiting: Run) -> None:
    def counts() -> list[tuple[type[Model], int]]:
        return [(model, model._default_manager.count()) for model in (Run, Effect, AuditEvent)]

    before, version = counts(), waiting.version
    client = client_of(acme.operator)
    for rest in ("", "continue/", "pause/", "cancel/", "?part=input", "?part=checkpoints"):
        assert client.get(page(waiting, rest)).status_code == 200
        assert client.head(page(waiting, rest)).status_code == 200
    waiting.refresh_from_db()
    assert (counts(), waiting.version) == (before, version)
