"""Runs while people stop, settle, repeat, or lose a right: the run's status says it, and the receiver's records prove it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from console.models import Group, Membership, Role
from effects import orders
from effects.commands import repeat, stop_sending
from effects.commands.settle_review import settle_review
from effects.models import Approval, Effect, Order, Review, Stop
from effects.states import ApprovalStatus, Decision, ReviewOutcome, StopScope
from runs import recovery
from runs.authoring import ask_approval, perform
from runs.models import Run
from runs.states import Failure, RunStatus
from tests.effects.ordering import WORDS
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, offer


def sends(state: State) -> State:
    return {"log": [perform(offer()).reference]}


def asks(state: State) -> State:
    proposal = offer(kind="test.asked_offer")
    ask_approval(proposal)
    return {"log": [perform(proposal).reference]}


@pytest.fixture
def stopped(engine: Engine) -> Iterator[Stop]:
    """Sending to the CRM is stopped; lifted at the end, since the workspace is everybody's."""
    releaser = engine.world.actor(engine.world.releaser)
    stop = stop_sending.stop_sending(
        releaser, scope=StopScope.RECEIVER, target="crm", reason="It doubles things.", token=uuid.uuid4().hex
    )
    yield stop
    if Stop.objects.filter(id=stop.id, lifted_at=None).exists():
        lift(engine, stop)


def lift(engine: Engine, stop: Stop) -> None:
    stop_sending.lift_stop(
        engine.world.actor(engine.world.releaser), stop.id, reason="Mended.", token=uuid.uuid4().hex
    )


def effect_of(run: Run) -> Effect:
    return Effect.objects.get(run_id=run.id, successor_of=None)


def order_fault(engine: Engine, kind: str) -> None:
    placed = httpx.post(f"{engine.receiver}/_faults", json={"account": engine.world.account, "kind": kind})
    placed.raise_for_status()


def test_a_kill_switch_pauses_the_run_and_continue_sends_once_it_is_lifted(
    engine: Engine, stopped: Stop
) -> None:
    run = engine.run(line(sends), {"log": []})
    assert run.status == RunStatus.PAUSED
    assert "Sending was stopped by Releaser (the receiver crm): It doubles things." in run.failure_text
    assert engine.made(effect_of(run)) == []
    assert engine.continue_(run).status == RunStatus.PAUSED, "while it is on nothing is sent"
    lift(engine, stopped)
    assert engine.continue_(run).status == RunStatus.COMPLETED
    assert len(engine.made(effect_of(run))) == 1


def test_a_run_that_waits_to_try_again_is_paused_by_it_too(engine: Engine) -> None:
    order_fault(engine, "429")
    run = engine.run(line(sends), {"log": []})
    assert run.status == RunStatus.WAITING_EFFECT
    stop = stop_sending.stop_sending(
        engine.world.actor(engine.world.releaser),
        scope=StopScope.TYPE,
        target="test.offer_by_key",
        reason="Wrong prices.",
        token=uuid.uuid4().hex,
    )
    try:
        Effect.objects.filter(run_id=run.id).update(due_at="2026-01-01T00:00Z")
        recovery.wake()
        run.refresh_from_db()
        assert run.status == RunStatus.PAUSED
        assert "Wrong prices." in run.failure_text
        assert effect_of(run).tries == 1
    finally:
        lift(engine, stop)
    assert engine.continue_(run).status == RunStatus.COMPLETED
    assert len(engine.made(effect_of(run))) == 1


def test_what_a_releaser_settles_as_done_takes_the_run_along(engine: Engine) -> None:
    order_fault(engine, "500_before")
    run = engine.run(line(sends), {"log": []})
    assert run.status == RunStatus.WAITING_EFFECT
    effect = effect_of(run)
    review = Review.objects.create(
        workspace_id=run.workspace_id, effect=effect, reason="unqueryable", sentence="Nobody knows."
    )
    recovery.wake()
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_EFFECT, "nothing moves under a review"
    settle_review(
        engine.world.actor(engine.world.releaser),
        review.id,
        outcome=ReviewOutcome.DONE,
        reason="It is there.",
        evidence="off_by_phone",
        token=uuid.uuid4().hex,
    )
    recovery.wake()
    run = engine.go(run)
    assert run.status == RunStatus.COMPLETED
    assert engine.state_of(run)["log"] == ["off_by_phone"]


def test_what_is_settled_as_not_done_fails_the_run_saying_so(engine: Engine) -> None:
    order_fault(engine, "500_before")
    run = engine.run(line(sends), {"log": []})
    review = Review.objects.create(
        workspace_id=run.workspace_id, effect=effect_of(run), reason="unqueryable", sentence="Nobody knows."
    )
    settle_review(
        engine.world.actor(engine.world.releaser),
        review.id,
        outcome=ReviewOutcome.NOT_DONE,
        reason="They deleted the request.",
        token=uuid.uuid4().hex,
    )
    recovery.wake()
    run = engine.go(run)
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.EFFECT_REFUSED)
    assert "They deleted the request." in run.failure_text


def test_a_successor_of_a_refused_effect_takes_the_run_along(engine: Engine) -> None:
    order_fault(engine, "401")
    run = engine.run(line(sends), {"log": []})
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.EFFECT_REFUSED)
    original = effect_of(run)
    order = repeat.send_as_new(
        engine.world.actor(engine.world.releaser),
        original.id,
        reason="The credentials are right now.",
        token=uuid.uuid4().hex,
    )
    request = Approval.objects.get(order=order)
    engine.decide(request)
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED, "an order is not the run's business"
    assert "has it as" in orders.execute(order.id)
    new = Effect.objects.get(successor_of=original)
    assert len(engine.made(new)) == 1
    assert engine.made(original) == []


def test_a_repeat_on_a_completed_run_is_really_sent(engine: Engine) -> None:
    """effects.md, battery 66h."""
    run = engine.run(line(sends), {"log": []})
    assert run.status == RunStatus.COMPLETED
    original = effect_of(run)
    order = repeat.send_as_new(
        engine.world.actor(engine.world.releaser),
        original.id,
        reason="They want it twice.",
        token=uuid.uuid4().hex,
    )
    engine.decide(Approval.objects.get(order=order))
    recovery.cancel_left_over()
    assert "has it as" in orders.execute(order.id)
    assert len(engine.made(Order.objects.get(id=order.id).sends)) == 1
    run.refresh_from_db()
    assert run.status == RunStatus.COMPLETED


def test_who_started_it_and_may_no_longer_sends_nothing_and_somebody_else_continues(engine: Engine) -> None:
    """effects.md: permissions are checked again at sending, of the run's principal as they are now."""
    leaving = engine.world.person(f"leaving{uuid.uuid4().hex[:6]}", Role.OPERATOR)
    run = engine.begin(line(sends), {"log": []})
    Run.objects.filter(id=run.id).update(starter=leaving)
    Membership.objects.filter(user=leaving).update(roles=[Role.VIEWER])
    run = engine.go(run)
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NOT_PERMITTED)
    assert "may no longer run anything here" in run.failure_text
    assert engine.made(effect_of(run)) == []
    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED
    assert len(engine.made(effect_of(run))) == 1


def test_an_approver_who_lost_the_role_before_it_was_sent_is_asked_for_again(engine: Engine) -> None:
    """effects.md, battery 71: permission taken away between approve and execute."""
    run = engine.run(line(asks), {"log": []})
    (request,) = engine.asked(run)
    leaving = engine.world.person(f"leaving{uuid.uuid4().hex[:6]}", Role.APPROVER)
    group, _ = Group.objects.get_or_create(workspace=engine.world.workspace, name="Sales approvers")
    group.members.add(leaving)
    engine.decide(request, Decision.APPROVE, by=leaving)
    Membership.objects.filter(user=leaving).delete()
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    assert engine.made(effect_of(run)) == []
    (again,) = engine.asked(run)
    assert again.round == 2
    assert "is no longer a member here" in again.why
    engine.decide(again)
    run = engine.go(run)
    assert run.status == RunStatus.COMPLETED
    assert len(engine.made(effect_of(run))) == 1
    assert Approval.objects.filter(run_id=run.id, status=ApprovalStatus.PENDING).count() == 0


def test_an_orders_request_does_not_make_its_run_wait(engine: Engine) -> None:
    order_fault(engine, "429")
    run = engine.run(line(sends), {"log": []})
    effect = effect_of(run)
    Effect.objects.filter(id=effect.id).update(grant_until=None)
    order = repeat.deliver_again(
        engine.world.actor(engine.world.releaser),
        effect.id,
        reason="Now, please.",
        token=uuid.uuid4().hex,
        typed_id=effect.id,
        accepts=WORDS,
    )
    recovery.wake()
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_EFFECT
    Effect.objects.filter(id=effect.id).update(due_at=None)
    assert "has it as" in orders.execute(order.id)
    recovery.wake()
    assert engine.go(run).status == RunStatus.COMPLETED
    assert len(engine.made(effect)) == 1
