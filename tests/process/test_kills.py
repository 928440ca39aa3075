"""SIGKILL of a real worker of the stack at every point where progress and effect can part, and its own way back.

The receiver's records are the witness. What else a kill may hit (natural keys, mails, half requests, look-ups, the broker's
ack) is tried in tests/battery, where no lease has to be waited for.
"""

from __future__ import annotations

import pytest

from effects.models import Effect
from runs.models import Execution, Run
from runs.states import ExecutionOutcome
from tests.people import World
from tests.process.journeys import Receiver, begin, reaches
from tests.stack import Stack

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
