"""Orders of people, carried out by a real worker while the run is over: the receiver's own records say how often."""

from __future__ import annotations

import uuid

import pytest

from console.models import BulkStatus
from effects.commands import bulk_recover, repeat, stop_sending
from effects.models import Approval, Effect, Order, Recovery
from effects.states import ApprovalStatus, OrderStatus, StopScope
from runs.states import RunStatus
from tests.people import World
from tests.process.journeys import Receiver, approve, begin, reaches
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.process


def ended(order: Order) -> Order:
    """Wait until a worker has carried it out."""

    def look() -> bool:
        order.refresh_from_db()
        return order.status in (OrderStatus.DONE, OrderStatus.REFUSED)

    wait_for(f"{order.id} to be carried out", look)
    return order


def test_a_successor_of_a_completed_runs_effect_is_sent_once_by_a_worker(live: World, stack: Stack) -> None:
    receiver = Receiver(stack, live.account)
    run = reaches(begin(live, "test_offers", makes=["offer"], kill="", subject="twice"), RunStatus.COMPLETED)
    original = Effect.objects.get(run_id=run.id)
    order = repeat.send_as_new(
        live.actor(live.releaser), original.id, reason="They want two.", token=uuid.uuid4().hex
    )
    assert len(receiver.effects()) == 1
    approve(live, Approval.objects.get(order=order, status=ApprovalStatus.PENDING))
    assert ended(order).status == OrderStatus.DONE, order.outcome
    made = receiver.effects()
    assert [one["external_id"] for one in made] == [original.id, order.sends_id]
    assert len(receiver.requests()) == 2
    run.refresh_from_db()
    assert run.status == RunStatus.COMPLETED


def test_after_an_outage_all_that_was_held_is_recovered_in_bulk_once_each(live: World, stack: Stack) -> None:
    receiver = Receiver(stack, live.account)
    releaser = live.actor(live.releaser)
    stop = stop_sending.stop_sending(
        releaser, scope=StopScope.RECEIVER, target="crm", reason="An outage.", token=uuid.uuid4().hex
    )
    runs = [
        reaches(
            begin(live, "test_offers", makes=["offer"], kill="", subject=f"held up {n}"), RunStatus.PAUSED
        )
        for n in range(5)
    ]
    assert receiver.requests() == []
    stop_sending.lift_stop(releaser, stop.id, reason="It is over.", token=uuid.uuid4().hex)
    plan = bulk_recover.dry_run(releaser, {"receiver__name": "crm"})
    assert plan.eligible == 5
    started = bulk_recover.start(
        releaser,
        {"receiver__name": "crm"},
        digest=plan.digest,
        reason="After the outage.",
        per_minute=600,
        token=uuid.uuid4().hex,
    )
    wait_for(
        "the recovery to be done",
        lambda: Recovery.objects.filter(id=started.id, status=BulkStatus.DONE).exists(),
    )
    for order in Order.objects.filter(workspace=live.workspace, kind="deliver_again"):
        assert ended(order).status == OrderStatus.DONE, order.outcome
    ids = {Effect.objects.get(run_id=run.id).id for run in runs}
    assert {one["external_id"] for one in receiver.effects()} == ids
    assert len(receiver.effects()) == len(receiver.requests()) == 5
