"""A node that made an effect and, run again, no longer asks for it: what a person may do, on the real engine."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound
from console.models import AuditEvent
from effects import ledger
from effects.commands.settle_review import settle_review
from effects.models import Effect, Review
from effects.states import ApprovalStatus, EffectStatus, ReviewOutcome, ReviewReason, SubState
from runs.authoring import ask_approval, perform
from runs.availability import OperatorCommand, availability
from runs.commands.settle_dropped import Act, choices_of, settle_dropped
from runs.commands.stop import cancel
from runs.models import Run
from runs.states import Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.recovering import Killed, die_and_take_back
from tests.engine.workflows import State, line, nothing, offer, workflow_of

TYPES = ("test.asked_offer", "test.offer_by_key")


def forgetful(*goes: Callable[[], Any] | None) -> Any:
    """A workflow whose node does in each go what is said there, and raises after the first; later it asks for nothing."""
    left = list(goes)

    def forgets(state: State) -> State:
        does = left.pop(0) if left else None
        if does is not None:
            does()
        if len(left) == len(goes) - 1:
            raise ValueError("after its effect")
        return {"log": ["went on"]}

    return workflow_of(line(forgets, nothing), effect_types=TYPES)


def unsent() -> None:
    offer()


def sent() -> None:
    perform(offer())


def awaiting() -> None:
    ask_approval(offer(kind="test.asked_offer"))


def drop(engine: Engine, makes: Callable[[], Any], *then: Callable[[], Any] | None) -> tuple[Run, Effect]:
    """A run that has failed because its node, run again, did not ask for what it had made; and the effect."""
    run = comes_by(engine, engine.run(forgetful(makes, None, *then), {"log": []}))
    return run, Effect.objects.filter(run_id=run.id).earliest("created_at")


def comes_by(engine: Engine, run: Run) -> Run:
    """A failed run is continued; to one that waits its worker comes once more, as when something has changed."""
    if run.status == RunStatus.FAILED:
        return engine.continue_(run)
    Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)
    return engine.go(run)


def settle(engine: Engine, run: Run, effect: Effect, act: Act, *, token: str = "") -> Run:
    return settle_dropped(
        engine.world.actor(engine.world.operator),
        run.id,
        effect.id,
        act=act,
        reason="The customer has it in writing",
        token=token or str(uuid.uuid4()),
    )


def is_dropped(run: Run, effect: Effect) -> Review:
    assert (run.status, run.failure, run.failure_of) == (
        RunStatus.FAILED,
        Failure.OBLIGATION_DROPPED,
        "forgets",
    ), run.failure_text
    [review] = effect.reviews.filter(closed_at=None)
    assert review.reason == ReviewReason.NOT_ASKED_AGAIN
    return review


def test_one_that_was_sent_is_accepted_as_it_stands_and_its_node_goes_on(engine: Engine) -> None:
    run, effect = drop(engine, sent)
    review = is_dropped(run, effect)
    assert effect.status == EffectStatus.COMPLETED
    with pytest.raises(AlreadyDone, match="Cancel the effect is not possible: the receiver has it"):
        settle(engine, run, effect, Act.CANCEL)

    run = settle(engine, run, effect, Act.ACCEPT)
    assert (run.status, run.failure) == (RunStatus.QUEUED, "")
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["went on"]
    assert len(engine.made(effect)) == 1
    review.refresh_from_db()
    assert (review.settled_as, review.settled_by) == (ReviewOutcome.STANDS, engine.world.operator)
    [event] = AuditEvent.objects.filter(subject=run.id, verb="run.dropped_settled")
    assert event.detail["effect"] == effect.id
    assert "accepted as it stands" in event.sentence


def test_one_that_was_never_sent_is_cancelled_and_nothing_is_sent(engine: Engine) -> None:
    run, effect = drop(engine, unsent)
    review = is_dropped(run, effect)
    with pytest.raises(AlreadyDone, match="Accept as it stands is not possible: nothing of it was sent"):
        settle(engine, run, effect, Act.ACCEPT)

    run = engine.go(settle(engine, run, effect, Act.CANCEL))

    assert run.status == RunStatus.COMPLETED, run.failure_text
    effect.refresh_from_db()
    assert (effect.status, effect.sub_state, effect.tries) == (EffectStatus.FAILED, SubState.CANCELLED, 0)
    assert (
        effect.problem == f"Cancel the effect by {engine.world.operator.name}: The customer has it in writing"
    )
    assert engine.made(effect) == []
    review.refresh_from_db()
    assert (review.settled_as, review.settled_by) == (ReviewOutcome.NOT_DONE, engine.world.operator)


def test_one_that_awaits_its_approval_is_cancelled_and_its_request_leaves_the_queue(engine: Engine) -> None:
    run, effect = drop(engine, awaiting)
    is_dropped(run, effect)
    [approval] = engine.asked(run)
    assert effect.sub_state == SubState.AWAITING_APPROVAL

    run = engine.go(settle(engine, run, effect, Act.CANCEL))

    assert run.status == RunStatus.COMPLETED, run.failure_text
    approval.refresh_from_db()
    assert approval.status == ApprovalStatus.CLOSED
    assert approval.ended_why == f"The effect was cancelled by {engine.world.operator.name}"


def test_one_that_is_approved_meanwhile_is_not_sent_and_can_still_be_cancelled(engine: Engine) -> None:
    run, effect = drop(engine, awaiting)
    [approval] = engine.asked(run)
    engine.decide(approval)
    run.refresh_from_db()
    effect.refresh_from_db()
    assert (run.status, effect.sub_state, effect.tries) == (RunStatus.FAILED, SubState.READY, 0)

    run = engine.go(settle(engine, run, effect, Act.CANCEL))

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.made(effect) == []


def test_one_that_may_have_been_done_is_never_cancelled_here(engine: Engine) -> None:
    """Accepted, it stays uncertain: the ledger goes on finding out, and this run does not send it."""
    fault(engine, "drop_after_commit")
    run, effect = drop(engine, sent)
    is_dropped(run, effect)
    assert effect.sub_state == SubState.UNCERTAIN
    with pytest.raises(AlreadyDone, match="it may have been done"):
        settle(engine, run, effect, Act.CANCEL)

    run = engine.go(settle(engine, run, effect, Act.ACCEPT))

    assert run.status == RunStatus.COMPLETED, run.failure_text
    effect.refresh_from_db()
    assert (effect.status, effect.sub_state, effect.tries) == (EffectStatus.PENDING, SubState.UNCERTAIN, 1)


def fault(engine: Engine, kind: str) -> None:
    placed = httpx.post(f"{engine.receiver}/_faults", json={"account": engine.world.account, "kind": kind})
    placed.raise_for_status()


def test_one_in_flight_waits_for_its_attempt(engine: Engine) -> None:
    """The worker was lost while it sent; what becomes of it is not known yet, and nobody says it in advance."""

    def killed() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "_deliver", dies)
            perform(offer())

    def dies(*_: Any) -> Any:
        raise Killed

    run = die_and_take_back(engine, engine.begin(forgetful(killed, None), {"log": []}))
    run = engine.go(run)
    effect = Effect.objects.get(run_id=run.id)
    is_dropped(run, effect)
    assert effect.sub_state == SubState.IN_FLIGHT
    for act in Act:
        with pytest.raises(AlreadyDone, match="it is in flight: wait until this attempt has ended"):
            settle(engine, run, effect, act)
    [choice] = choices_of(run)
    assert all(choice.reasons.values())


def test_continue_lets_the_node_ask_again_after_all(engine: Engine) -> None:
    """Its review is closed by the Continue, so that nothing holds the effect back."""
    run, effect = drop(engine, unsent, sent)
    review = is_dropped(run, effect)
    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert len(engine.made(effect)) == 1
    review.refresh_from_db()
    assert review.closed_why == f"Continued by {engine.world.operator.name}: its node runs again."


def test_continue_without_a_word_about_it_opens_the_question_anew(engine: Engine) -> None:
    run, effect = drop(engine, unsent)
    first = is_dropped(run, effect)
    run = engine.continue_(run)
    assert is_dropped(run, effect) != first
    assert effect.reviews.count() == 2
    run = engine.go(settle(engine, run, effect, Act.CANCEL))
    assert run.status == RunStatus.COMPLETED, run.failure_text


def test_of_several_the_run_goes_on_with_the_last(engine: Engine) -> None:
    def both() -> None:
        perform(offer("sent"))
        offer("unsent")

    run, first = drop(engine, both)
    second = Effect.objects.exclude(id=first.id).get(run_id=run.id)
    assert {choice.effect.id for choice in choices_of(run)} == {first.id, second.id}
    run = settle(engine, run, first, Act.ACCEPT)
    assert run.status == RunStatus.FAILED
    with pytest.raises(AlreadyDone, match="it is settled"):
        settle(engine, run, first, Act.ACCEPT)
    run = engine.go(settle(engine, run, second, Act.CANCEL))
    assert run.status == RunStatus.COMPLETED, run.failure_text


def test_the_same_form_twice_does_it_once_and_another_is_told(engine: Engine) -> None:
    run, effect = drop(engine, sent)
    token = str(uuid.uuid4())
    for _ in range(2):
        settle(engine, run, effect, Act.ACCEPT, token=token)
    with pytest.raises(KeyReused):
        settle(engine, run, effect, Act.CANCEL, token=token)
    with pytest.raises(
        AlreadyDone, match="Nothing is to be settled here: no node of it has dropped an effect"
    ):
        settle(engine, run, effect, Act.ACCEPT)
    assert AuditEvent.objects.filter(subject=run.id, verb="run.dropped_settled").count() == 1


def test_bad_input_changes_nothing(engine: Engine) -> None:
    run, effect = drop(engine, sent)
    operator = engine.world.actor(engine.world.operator)
    other, foreign = drop(engine, sent)
    for effect_id, reason, refusal in (
        (effect.id, "   ", Invalid),
        (effect.id, "x" * 301, Invalid),
        (foreign.id, "why not", NotFound),
        ("eff_nothing", "why not", NotFound),
    ):
        with pytest.raises(refusal):
            settle_dropped(
                operator, run.id, effect_id, act=Act.ACCEPT, reason=reason, token=str(uuid.uuid4())
            )
    world = engine.world
    for person in (world.viewer, world.approver, world.auditor, world.releaser, world.administrator):
        with pytest.raises(Forbidden):
            settle_dropped(
                world.actor(person), run.id, effect.id, act=Act.ACCEPT, reason="x", token=str(uuid.uuid4())
            )
    is_dropped(run, effect)
    is_dropped(other, foreign)


def test_a_cancelled_run_leaves_no_question_about_what_it_dropped(engine: Engine) -> None:
    run, effect = drop(engine, unsent)
    review = is_dropped(run, effect)
    run = cancel(engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4()))
    assert run.status == RunStatus.CANCELLED
    review.refresh_from_db()
    effect.refresh_from_db()
    assert review.closed_why == f"The run was cancelled by {engine.world.operator.name}."
    assert effect.sub_state == SubState.CANCELLED


def test_what_a_releaser_settles_on_the_review_desk_is_no_debt_either(engine: Engine) -> None:
    run, effect = drop(engine, sent)
    review = is_dropped(run, effect)
    settle_review(
        engine.world.actor(engine.world.releaser),
        review.id,
        outcome=ReviewOutcome.STANDS,
        reason="Seen at the receiver",
        token=str(uuid.uuid4()),
    )
    run.refresh_from_db()
    assert choices_of(run) == []
    operator = engine.world.actor(engine.world.operator)
    assert availability(run, operator)[OperatorCommand.CONTINUE].available
    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
