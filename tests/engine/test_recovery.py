"""What the sweep does with runs whose worker is gone, whose step ran too long, or that were asked to stop.

Leases and deadlines are ended by editing the row: nothing here waits for a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from langgraph.types import interrupt

from console.models import AuditEvent
from effects.models import Approval, Effect
from effects.states import ApprovalStatus, Asked, Decision
from runs import execution, moves, recovery
from runs.authoring import ask_approval, perform
from runs.commands import stop
from runs.commands.continue_run import continue_run
from runs.engine.advance import Ended
from runs.engine.saver import FencedSaver
from runs.models import Execution, Run, Step
from runs.states import Cause, ExecutionOutcome, Failure, RunStatus, StepOutcome
from tests.engine.conftest import Engine
from tests.engine.recovering import Killed, die, die_and_take_back, take_back
from tests.engine.workflows import State, beside, line, offer


def dying(times: int, ran: list[str]) -> Callable[[State], State]:
    """A node that ends its worker the first *times* times."""

    def node(state: State) -> State:
        ran.append("node")
        if len(ran) <= times:
            raise Killed
        return {"log": ["node"]}

    return node


# --- lost workers -----------------------------------------------------------------------------------------------------


def test_a_run_of_a_lost_worker_is_queued_and_goes_on_where_it_was(engine: Engine) -> None:
    ran: list[str] = []

    def first(state: State) -> State:
        return {"log": ["first"]}

    run = engine.begin(line(first, dying(1, ran)), {"log": []})
    run = die_and_take_back(engine, run)

    assert (run.status, run.next_cause, run.losses) == (RunStatus.QUEUED, Cause.RECOVERY, 1)
    assert (run.lease_until, run.worker_id) == (None, "")
    lost = Execution.objects.get(run=run)
    assert (lost.outcome, lost.note) == (ExecutionOutcome.LOST, "Lost while in node.")
    assert Step.objects.get(run=run, node="node").outcome == StepOutcome.LOST
    run = engine.go(run)
    assert engine.state_of(run)["log"] == ["first", "node"]
    assert ran == ["node", "node"]
    assert [one.cause for one in run.executions.order_by("fence")] == [Cause.START, Cause.RECOVERY]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_killed_between_a_steps_writes_and_its_checkpoint(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """All that the step's tasks gave is saved, its checkpoint is not: the run goes on, and is not taken for finished."""
    put, put_writes, written = FencedSaver.put, FencedSaver.put_writes, threading.Event()
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        return {"log": ["first"]}

    def second(state: State) -> State:
        ran.append("second")
        return {"log": ["second"]}

    def writes(self: FencedSaver, *args: Any) -> None:
        put_writes(self, *args)
        written.set()

    def dies(self: FencedSaver, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if metadata["step"] == step:
            assert written.wait(10)
            raise Killed
        written.clear()
        return put(self, config, checkpoint, metadata, versions)

    run = engine.begin(line(first, second), {"log": []})
    with monkeypatch.context() as patch:
        patch.setattr(FencedSaver, "put_writes", writes)
        patch.setattr(FencedSaver, "put", dies)
        run = die_and_take_back(engine, run)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED
    assert ran == ["first", "second"]
    assert engine.state_of(run)["log"] == ["first", "second"]


def test_the_third_loss_without_progress_fails_the_run(engine: Engine) -> None:
    run = engine.begin(line(dying(9, [])))
    for losses in (1, 2):
        run = die_and_take_back(engine, run)
        assert (run.status, run.losses) == (RunStatus.QUEUED, losses)
    run = die_and_take_back(engine, run)

    assert (run.status, run.failure, run.failure_of) == (RunStatus.FAILED, Failure.WORKER_LOST, "node")
    assert "3 times" in run.failure_text


def test_continue_after_three_losses_counts_from_nothing(engine: Engine) -> None:
    run = engine.begin(line(dying(4, [])))
    for _ in range(3):
        run = die_and_take_back(engine, run)
    continue_run(engine.world.actor(engine.world.operator), run.id, token="again")
    run = die_and_take_back(engine, run)

    assert (run.status, run.losses) == (RunStatus.QUEUED, 1)
    assert engine.go(run).status == RunStatus.COMPLETED


def test_progress_starts_the_count_again(engine: Engine) -> None:
    """A new checkpoint or a settled effect: a long run on a poor machine is not a broken one."""
    ran: list[str] = []

    def lost_twice(name: str) -> Callable[[State], State]:
        def node(state: State) -> State:
            ran.append(name)
            if ran.count(name) <= 2:
                raise Killed
            return {"log": [name]}

        node.__name__ = name
        return node

    run = engine.begin(line(lost_twice("first"), lost_twice("second")), {"log": []})
    seen = []
    for _ in range(4):
        run = die_and_take_back(engine, run)
        seen.append((run.status, run.losses))

    assert seen == [
        (RunStatus.QUEUED, 1),
        (RunStatus.QUEUED, 2),
        (RunStatus.QUEUED, 1),
        (RunStatus.QUEUED, 2),
    ]
    assert engine.go(run).status == RunStatus.COMPLETED


def test_a_settled_effect_is_progress(engine: Engine) -> None:
    """The node is the same, the checkpoint is the same; but the effect has been made in between."""
    ran: list[str] = []

    def sends(state: State) -> State:
        ran.append("sends")
        proposal = offer()
        if len(ran) == 2:
            perform(proposal)
        if len(ran) < 4:
            raise Killed
        return {"log": [perform(proposal).status]}

    run = engine.begin(line(sends), {"log": []})
    losses = []
    for _ in range(3):
        run = die_and_take_back(engine, run)
        losses.append(run.losses)

    assert losses == [1, 1, 2]
    assert engine.go(run).status == RunStatus.COMPLETED
    effect = Effect.objects.get(run_id=run.id)
    assert (effect.tries, len(engine.made(effect))) == (1, 1)


def test_a_worker_lost_after_the_last_checkpoint_leaves_nothing_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the graph's end and the settling: taken up again, the run is completed and no node runs."""
    ran: list[str] = []

    def only(state: State) -> State:
        ran.append("only")
        return {}

    def die_before_settling(*_: Any) -> str:
        raise Killed

    run = engine.begin(line(only))
    with monkeypatch.context() as patch:
        patch.setattr(execution, "settle", die_before_settling)
        run = die_and_take_back(engine, run)

    assert engine.go(run).status == RunStatus.COMPLETED
    assert ran == ["only"]


def test_a_live_lease_is_left_alone(engine: Engine) -> None:
    run, _ = engine.claim(engine.begin(line(dying(0, []))))
    recovery.recover_lost()
    run.refresh_from_db()

    assert (run.status, run.losses) == (RunStatus.RUNNING, 0)


def test_a_worker_that_comes_back_after_its_loss_changes_nothing(engine: Engine) -> None:
    """Its fence is still the row's until the next claim: the status is what refuses it."""
    run, _ = engine.claim(engine.begin(line(dying(0, []))))
    take_back(run)

    assert execution.settle(run, Ended(finished=True)) == "fenced out"
    assert not moves.hold_for_effect(run.id, run.fence)
    assert not moves.begin_step(run.id, run.fence, seconds=9, sibling=False)
    assert moves.renew(run.id, run.fence, lease=timedelta(seconds=9)) is None
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED


def test_the_audit_names_a_loss_and_its_node(engine: Engine) -> None:
    run = die_and_take_back(engine, engine.begin(line(dying(1, []))))

    event = AuditEvent.objects.get(run_id=run.id, verb="run.lost")
    assert (event.actor_name, event.detail["node"]) == ("system:sweep", "node")


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_a_step_past_its_deadline_fails_the_run_and_is_no_loss(engine: Engine) -> None:
    """The sweep reads the deadline first."""
    run = die(engine, engine.begin(line(dying(1, []))))
    Run.objects.filter(id=run.id).update(
        step_deadline=Now() - timedelta(seconds=1), lease_until=Now() - timedelta(seconds=2)
    )
    recovery.recover_lost()
    run.refresh_from_db()

    assert (run.status, run.failure, run.failure_of) == (RunStatus.FAILED, Failure.STEP_DEADLINE, "node")
    assert "node" in run.failure_text
    assert run.losses == 0
    assert Execution.objects.get(run=run).outcome == ExecutionOutcome.OVERRAN
    assert engine.continue_(run).status == RunStatus.COMPLETED


def test_a_lease_is_never_renewed_past_the_steps_deadline(engine: Engine) -> None:
    run, _ = engine.claim(engine.begin(line(dying(0, []))))
    assert moves.begin_step(run.id, run.fence, seconds=5, sibling=False)
    assert moves.renew(run.id, run.fence, lease=timedelta(hours=1)) is not None
    run.refresh_from_db()
    assert run.lease_until == run.step_deadline

    Run.objects.filter(id=run.id).update(step_deadline=Now() - timedelta(seconds=1))
    assert moves.renew(run.id, run.fence, lease=timedelta(hours=1)) is None
    assert moves.past_its_deadline(run.id, run.fence)


# --- asked to stop ----------------------------------------------------------------------------------------------------


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled_with_all_that_was_unsent(engine: Engine) -> None:
    """The open approval is closed and the unsent effect cancelled, in the same transaction."""

    def asks(state: State) -> State:
        ask_approval(offer(kind="test.asked_offer"))
        return {}

    def waits(state: State) -> State:
        interrupt("go on?")
        return {}

    run = engine.run(beside(asks, waits))
    assert run.status == RunStatus.WAITING_APPROVAL
    question = next(approval for approval in engine.asked(run) if approval.asks == Asked.QUESTION)
    engine.decide(question, Decision.RESPOND, answer="yes")
    run, _ = engine.claim(run)
    stop.cancel(engine.world.actor(engine.world.operator), run.id, token="form")
    run.refresh_from_db()
    assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
    run = take_back(run)

    assert (run.status, run.cancel_requested) == (RunStatus.CANCELLED, False)
    assert run.ended_at is not None
    assert set(Approval.objects.filter(run_id=run.id).values_list("asks", "status")) == {
        ("effect", ApprovalStatus.CLOSED),
        ("question", ApprovalStatus.DECIDED),
    }
    effect = Effect.objects.get(run_id=run.id)
    assert (effect.status, effect.sub_state) == ("failed", "cancelled")


def test_a_lost_run_that_was_to_be_paused_is_paused(engine: Engine) -> None:
    run, _ = engine.claim(engine.begin(line(dying(0, []))))
    stop.pause(engine.world.actor(engine.world.operator), run.id, token="form")
    run = take_back(run)

    assert (run.status, run.pause_requested) == (RunStatus.PAUSED, False)
    assert engine.continue_(run).status == RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("flag", "status"), [("cancel_requested", RunStatus.CANCELLED), ("pause_requested", RunStatus.PAUSED)]
)
def test_a_queued_run_that_was_asked_to_stop_is_not_claimed_but_stopped(
    engine: Engine, flag: str, status: RunStatus
) -> None:
    ran: list[str] = []
    run = engine.begin(line(dying(0, ran)))
    Run.objects.filter(id=run.id).update(**{flag: True, "stopped_by": "Operator"})

    assert execution.execute(run.id) == "not due"
    recovery.honour_requests()
    run.refresh_from_db()

    assert run.status == status
    assert not run.cancel_requested
    assert not run.pause_requested
    assert ran == []


def test_a_pause_of_a_queued_run_says_who_paused_it(engine: Engine) -> None:
    run = engine.begin(line(dying(0, [])))
    Run.objects.filter(id=run.id).update(pause_requested=True, stopped_by="Olga")
    recovery.honour_requests()
    run.refresh_from_db()

    assert (run.stopped_by, run.failure_text) == ("Olga", "Paused by Olga.")


# --- who may take it -------------------------------------------------------------------------------------------------


def test_a_worker_without_the_runs_fingerprint_does_not_claim_it(engine: Engine) -> None:
    """A claim takes only runs whose version it holds, with the code it was made with."""
    run = engine.begin(line(dying(0, [])))
    Run.objects.filter(id=run.id).update(fingerprint="fp1:of-other-code")

    assert execution.execute(run.id) == "not due"
    run.refresh_from_db()
    assert (run.status, run.fence) == (RunStatus.QUEUED, 0)


def test_a_worker_that_does_not_hold_the_version_does_not_claim_it(engine: Engine) -> None:
    run = engine.begin(line(dying(0, [])))
    workflow = engine.process.held.pop(str(run.workflow))

    assert execution.execute(run.id) == "not due"
    engine.process.held[workflow.id] = workflow
    assert engine.go(run).status == RunStatus.COMPLETED


def test_a_draining_process_takes_nothing_new(engine: Engine) -> None:
    run = engine.begin(line(dying(0, [])))
    engine.process.draining.set()
    try:
        assert execution.execute(run.id) == "draining"
    finally:
        engine.process.draining.clear()
    run.refresh_from_db()
    assert (run.status, run.fence) == (RunStatus.QUEUED, 0)


@pytest.mark.parametrize("times", [2, 3])
def test_a_late_or_repeated_message_does_nothing(engine: Engine, times: int) -> None:
    """The row is the queue: the broker may bring a message as often as it likes."""
    run = engine.begin(line(dying(0, [])))
    said = [execution.execute(run.id) for _ in range(times)]

    assert said == ["completed"] + ["not due"] * (times - 1)
    assert Execution.objects.filter(run=run).count() == 1
