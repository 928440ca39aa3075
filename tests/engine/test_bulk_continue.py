"""Bulk Continue at the real engine: exactly the runs that it showed go on, each once, however often it is tried."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from console.bulk import Form
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, Stale
from console.models import AuditEvent, BulkStatus, ItemState, Membership
from effects.models import Effect
from runs.authoring import ask_approval, perform
from runs.commands import bulk_continue, stop
from runs.commands.continue_run import continue_run
from runs.models import BulkContinue, BulkContinueItem, Run
from runs.states import Cause, RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, offer, workflow_of


@dataclass
class Outage:
    """Eight runs of one workflow, of which five may be continued: a service that their last node needs was away."""

    engine: Engine
    name: str
    away: bool = True
    visits: Counter[str] = field(default_factory=Counter)
    runs: list[Run] = field(default_factory=list)

    @property
    def filters(self) -> dict[str, str]:
        return {"workflow": self.name}

    @property
    def failed(self) -> list[Run]:
        return self.runs[:5]

    def plan(self, by: Any = None) -> bulk_continue.DryRun:
        return bulk_continue.dry_run(self.engine.world.actor(by or self.engine.world.operator), self.filters)

    def begin(self, by: Any = None, **given: Any) -> BulkContinue:
        usual = {
            "digest": self.plan().digest,
            "reason": "The price service was away.",
            "per_minute": 600,
            "token": uuid.uuid4().hex,
        }
        actor = self.engine.world.actor(by or self.engine.world.operator)
        return bulk_continue.start(actor, self.filters, Form(**{**usual, **given}))

    def take_along(self) -> None:
        """What the workers do with everything that is queued now."""
        for run in Run.objects.filter(id__in=[run.id for run in self.runs], status=RunStatus.QUEUED):
            self.engine.go(run)

    def continued(self) -> Counter[str]:
        """How often each was continued, by the audit trail."""
        ids = [run.id for run in self.runs]
        return Counter(
            AuditEvent.objects.filter(verb="run.continued", subject__in=ids).values_list("subject", flat=True)
        )


@pytest.fixture
def outage(engine: Engine) -> Outage:
    found = Outage(engine, f"bulk_{uuid.uuid4().hex[:8]}")

    def sends(state: State) -> State:
        return {"log": [perform(offer(f"{state['value']}")).status]}

    def asks(state: State) -> State:
        if state["value"] == 5:
            proposal = offer("asked", kind="test.asked_offer")
            ask_approval(proposal)
            perform(proposal)
        return {}

    def prices(state: State) -> State:
        found.visits[str(state["value"])] += 1
        if found.away and state["value"] < 5:
            raise ConnectionError("The price service does not answer.")
        return {"log": ["priced"]}

    workflow = workflow_of(line(sends, asks, prices), name=found.name, version="1")
    for number in range(8):
        run = engine.begin(workflow, {"log": [], "value": number})
        # The last one waits in the queue still.
        found.runs.append(run if number == 7 else engine.go(run))
    return found


def turn(bulk: BulkContinue) -> None:
    """One turn of the sweep, with the bulk Continue due."""
    BulkContinue.objects.filter(id=bulk.id).update(next_at=Now())
    bulk_continue.work()


def whole(bulk: BulkContinue) -> BulkContinue:
    for _ in range(BulkContinueItem.objects.filter(bulk=bulk).count() + 1):
        turn(bulk)
    return BulkContinue.objects.get(id=bulk.id)


def states_of(bulk: BulkContinue) -> dict[str, tuple[str, str]]:
    items = BulkContinueItem.objects.filter(bulk=bulk)
    return {item.run_id: (item.state, item.came_of_it) for item in items}


def test_the_dry_run_says_run_by_run_what_would_be_done(outage: Outage) -> None:
    plan = outage.plan()
    by_run = {item.run.id: item for item in plan.items}
    assert plan.eligible == 5
    for run in outage.failed:
        assert (by_run[run.id].why, by_run[run.id].nodes) == ("", ["prices"])
        assert by_run[run.id].effects == [], "its offer is made already, and is never made again"
    asked, waits = outage.runs[5], outage.runs[7]
    assert by_run[asked.id].why == "It waits for a decision."
    assert by_run[waits.id].why == "It waits for a worker and goes on by itself."
    assert outage.runs[6].id not in by_run, "it is completed"


def test_exactly_those_go_on_and_each_once(outage: Outage) -> None:
    bulk = outage.begin()
    outage.away = False
    assert whole(bulk).status == BulkStatus.DONE
    assert outage.continued() == Counter({run.id: 1 for run in outage.failed})
    outage.take_along()
    assert {Run.objects.get(id=run.id).status for run in outage.failed} == {RunStatus.COMPLETED}
    assert [outage.visits[str(number)] for number in range(5)] == [2] * 5
    for run in outage.failed:
        assert [one.cause for one in run.executions.order_by("fence")] == [Cause.START, Cause.CONTINUE]
        (effect,) = Effect.objects.filter(run_id=run.id)
        assert (effect.tries, len(outage.engine.made(effect))) == (1, 1)
    assert Run.objects.get(id=outage.runs[5].id).status == RunStatus.WAITING_APPROVAL
    event = AuditEvent.objects.get(verb="run.continued", subject=outage.failed[0].id)
    assert (event.actor, event.reason) == (bulk.by, "Bulk Continue: The price service was away.")


def test_a_killed_sweep_continues_none_twice(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a run was continued and before it was noted; by then that run has failed once more."""
    bulk = outage.begin()
    real = continue_run

    def then_killed(*args: Any, **given: Any) -> Run:
        real(*args, **given)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(bulk_continue, "continue_run", then_killed)
        with pytest.raises(SystemExit):
            turn(bulk)
    outage.take_along()
    first = outage.failed[0]
    assert Run.objects.get(id=first.id).status == RunStatus.FAILED
    assert whole(bulk).status == BulkStatus.DONE
    assert outage.continued() == Counter({run.id: 1 for run in outage.failed})
    assert states_of(bulk)[first.id] == (ItemState.DONE, "Continued.")


def test_two_sweeps_at_once_continue_none_twice(outage: Outage) -> None:
    bulk = outage.begin()
    BulkContinue.objects.filter(id=bulk.id).update(next_at="2026-01-01T00:00Z")
    together = threading.Barrier(2)

    def sweep() -> None:
        try:
            together.wait(10)
            bulk_continue.work()
        finally:
            connection.close()

    sweeps = [threading.Thread(target=sweep) for _ in range(2)]
    for one in sweeps:
        one.start()
    for one in sweeps:
        one.join(30)
    whole(bulk)
    assert outage.continued() == Counter({run.id: 1 for run in outage.failed})
    assert {states_of(bulk)[run.id] for run in outage.failed} == {(ItemState.DONE, "Continued.")}


def test_one_that_somebody_continued_meanwhile_is_left_alone(outage: Outage) -> None:
    """Whether it still waits for its worker, is through, or has failed once more."""
    bulk = outage.begin()
    operator = outage.engine.world.actor(outage.engine.world.operator)
    queued, failed_again, completed, *rest = outage.failed
    for run in (failed_again, completed):
        continue_run(operator, run.id, token=uuid.uuid4().hex)
        outage.away = run == failed_again
        outage.engine.go(run)
    continue_run(operator, queued.id, token=uuid.uuid4().hex)
    whole(bulk)
    said = states_of(bulk)
    cant = "This run can't be continued: it"
    assert said[queued.id] == (ItemState.SKIPPED, f"{cant} waits for a worker and goes on by itself.")
    assert said[completed.id] == (ItemState.SKIPPED, f"{cant} is completed.")
    assert said[failed_again.id] == (
        ItemState.SKIPPED,
        "This run has moved since it was shown: look at it again on its own page.",
    )
    assert {said[run.id] for run in rest} == {(ItemState.DONE, "Continued.")}
    assert outage.continued() == Counter({run.id: 1 for run in outage.failed})


def test_it_keeps_to_its_rate_and_can_be_stopped(outage: Outage) -> None:
    bulk = outage.begin(per_minute=6)
    assert bulk_continue.work() == 1
    assert bulk_continue.work() == 0, "the next one is due ten seconds later"
    operator = outage.engine.world.actor(outage.engine.world.operator)
    assert bulk_continue.KIND.stop(operator, bulk.id).status == BulkStatus.STOPPED
    turn(bulk)
    assert sum(outage.continued().values()) == 1
    states = Counter(state for state, _ in states_of(bulk).values())
    assert states == {ItemState.DONE: 1, ItemState.STOPPED: 4, ItemState.SKIPPED: 2}
    with pytest.raises(AlreadyDone, match="stopped already"):
        bulk_continue.KIND.stop(operator, bulk.id)


def test_the_right_is_asked_again_for_each_run(outage: Outage) -> None:
    world = outage.engine.world
    person = world.person(f"leaver_{uuid.uuid4().hex[:6]}", *world.actor(world.operator).roles)
    bulk = outage.begin(by=person, per_minute=6)
    turn(bulk)
    Membership.objects.filter(user=person).update(roles=["viewer"])
    ended = whole(bulk)
    assert (ended.status, ended.stopped_by) == (BulkStatus.STOPPED, None)
    assert sum(outage.continued().values()) == 1


def test_the_same_form_is_the_same_bulk_continue(outage: Outage) -> None:
    token = uuid.uuid4().hex
    first = outage.begin(token=token)
    whole(first)
    assert outage.begin(token=token, digest="of another time").id == first.id
    other = outage.engine.world.person(f"other_{token[:6]}", *outage.engine.world.actor(first.by).roles)
    with pytest.raises(KeyReused):
        outage.begin(by=other, token=token)


def test_what_was_shown_is_what_is_done(outage: Outage) -> None:
    shown = outage.plan().digest
    stop.cancel(
        outage.engine.world.actor(outage.engine.world.operator), outage.failed[0].id, token=uuid.uuid4().hex
    )
    with pytest.raises(Stale, match="have moved"):
        outage.begin(digest=shown)
    assert not BulkContinue.objects.filter(filters=outage.filters).exists()


def test_a_run_that_goes_on_by_itself_makes_no_list_stale(outage: Outage) -> None:
    """It is left alone before and after: nothing else would be done."""
    shown = outage.plan().digest
    outage.engine.go(outage.runs[7])
    assert outage.plan().digest == shown


@pytest.mark.parametrize(
    ("given", "field"),
    [({"reason": " "}, "reason"), ({"per_minute": 0}, "per_minute"), ({"per_minute": 601}, "per_minute")],
)
def test_bad_input_starts_nothing(outage: Outage, given: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        outage.begin(**given)
    assert refusal.value.field == field
    assert not BulkContinue.objects.filter(filters=outage.filters).exists()


def test_only_who_may_run_starts_one(outage: Outage) -> None:
    with pytest.raises(Forbidden):
        outage.begin(by=outage.engine.world.auditor)
    assert AuditEvent.objects.filter(verb="bulk.not_started", actor=outage.engine.world.auditor).exists()
    assert outage.plan(by=outage.engine.world.auditor).eligible == 0


def test_with_nothing_to_continue_none_is_started(outage: Outage) -> None:
    whole(outage.begin())
    with pytest.raises(AlreadyDone, match="No run here can be continued"):
        outage.begin()
