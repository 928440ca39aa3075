"""SIGKILL of a real worker at every point where progress and effect can part. The receiver's records are the witness."""

from __future__ import annotations

import pytest

from effects.models import Effect, EffectAttempt, Review
from effects.states import Outcome, ReviewReason
from runs.models import Execution, Run
from runs.states import ExecutionOutcome
from tests.people import World
from tests.process.journeys import Receiver, begin, reaches
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.process


def _killed(run: Run) -> bool:
    return Execution.objects.filter(run=run, outcome=ExecutionOutcome.LOST).exists()


#: Where it is killed → attempts of the effect, offers made / offer requests received.
BY_KEY = {
    "before_intent_commits": (["completed"], 1, 1),
    "after_intent_commits": (["completed"], 1, 1),
    "after_attempt_commits": (["unknown", "completed"], 1, 1),
    "after_receiver_commits": (["unknown", "completed"], 1, 2),
    "after_result_is_saved": (["completed"], 1, 1),
    "after_checkpoint": (["completed"], 1, 1),
}


@pytest.mark.parametrize("point", BY_KEY)
def test_killed_with_an_idempotency_key(stack: Stack, live: World, point: str) -> None:
    attempts, made, received = BY_KEY[point]
    run = begin(live, "test_offers", makes=["offer"], kill=point, subject="killed")

    reaches(run, "completed")

    assert _killed(run)
    receiver = Receiver(stack, live.account)
    assert len(receiver.effects()) == made
    requests = receiver.requests()
    assert len(requests) == received
    assert len({(one["key"], one["body_sha256"]) for one in requests}) == 1
    effect = Effect.objects.get(run_id=run.id)
    assert [one.outcome for one in effect.attempts.order_by("n")] == attempts
    assert effect.status == "completed"
    assert effect.provider_reference == receiver.effects()[0]["object_id"]


#: By natural key: an unknown outcome is looked up, and only proven absence is sent again.
BY_NATURAL_KEY = {
    "before_intent_commits": (["completed"], 1, 1),
    "after_intent_commits": (["completed"], 1, 1),
    "after_attempt_commits": (["unknown", "completed"], 1, 1),
    "after_receiver_commits": (["unknown"], 1, 1),
    "after_result_is_saved": (["completed"], 1, 1),
    "after_checkpoint": (["completed"], 1, 1),
}


@pytest.mark.parametrize("point", BY_NATURAL_KEY)
def test_killed_with_a_natural_key(stack: Stack, live: World, point: str) -> None:
    attempts, made, received = BY_NATURAL_KEY[point]
    run = begin(live, "test_offers", makes=["ticket"], kill=point, subject="killed")

    reaches(run, "completed")

    assert _killed(run)
    receiver = Receiver(stack, live.account)
    assert (len(receiver.effects()), len(receiver.requests())) == (made, received)
    effect = Effect.objects.get(run_id=run.id)
    assert [one.outcome for one in effect.attempts.order_by("n")] == attempts
    assert effect.provider_reference == receiver.effects()[0]["object_id"]
    if "unknown" in attempts:
        assert effect.observations.filter(kind="look_up").exists()
        assert len(receiver.requests("GET")) >= 1


@pytest.mark.parametrize("point", ["after_attempt_commits", "after_receiver_commits"])
def test_a_mail_killed_in_its_window_goes_to_review(stack: Stack, live: World, point: str) -> None:
    to = f"{live.workspace.id}-{point.replace('_', '-')}"
    run = begin(live, "test_offers", makes=["mail"], kill=point, subject=to)

    wait_for("a review", lambda: Review.objects.filter(effect__run_id=run.id, closed_at=None).first())
    reaches(run, "waiting_effect")

    review = Review.objects.get(effect__run_id=run.id)
    assert review.reason == ReviewReason.UNQUERYABLE
    sent = Receiver(stack, live.account).mails(f"{to}@harborpine.example")
    assert len(sent) == (1 if point == "after_receiver_commits" else 0)
    assert [one.outcome for one in EffectAttempt.objects.filter(effect=review.effect)] == [Outcome.UNKNOWN]


@pytest.mark.parametrize("what", ["offer", "ticket", "mail"])
def test_killed_before_the_brokers_ack(stack: Stack, live: World, what: str) -> None:
    """The run has settled; the broker delivers its message again, and that does nothing."""
    to = f"{live.workspace.id}-{what}"
    run = begin(live, "test_offers", makes=[what], kill="before_ack", subject=to)
    reaches(run, "completed")
    wait_for("the worker to be killed", lambda: (stack.folder / "crashes" / run.id).exists())
    before = (run.version, run.fence, run.checkpoints.count())

    crashing = stack.processes["crashing"]
    wait_for("the redelivery", lambda: crashing.says(f"run {run.id}: not due"))
    again = begin(live, "test_slow", seconds=0, subject="after")
    reaches(again, "completed")

    run.refresh_from_db()
    assert (run.version, run.fence, run.checkpoints.count()) == before
    assert Execution.objects.filter(run=run).count() == 1
    receiver = Receiver(stack, live.account)
    if what == "mail":
        assert len(receiver.mails(f"{to}@harborpine.example")) == 1
    else:
        assert len([one for one in receiver.effects() if one["external_id"].startswith("eff_")]) == 2
