"""What the receiver answers, or does not: refusals, time-outs, lies, repeats, and news that comes later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now
from django.http import HttpResponse

from console.models import BulkStatus
from demo.receiver.loopback import Request
from effects import ledger
from effects.commands import bulk_recover
from effects.ledger import Refused, Visit, Wait
from effects.models import Effect, Recovery, Review
from effects.origin import Result
from effects.receivers.exchange import exchange
from effects.states import Verdict
from runs.states import RunStatus
from tests.battery.bench import Bench
from tests.battery.proxies import doubling
from tests.battery.rows import row
from tests.battery.sending import sends
from tests.effects.book import Run, Witness
from tests.effects.ordering import agree, carry_out, send_as_new
from tests.effects.postbox import Letterbox, Postbox, forward, messages_of, new_secret, webhooks_of
from tests.engine.conftest import Engine
from tests.people import make_world
from tests.stack import Stack, free_port, wait_for


@row(
    "13",
    "Connection refused for an hour: not sent, held, the run failed (receiver_unreachable); Continue sends it",
    case="a run",
    rx=((0, 0), (1, 1)),
    stands=("pending/held", "completed"),
    attempts="not_sent ×8, completed",
)
def test_13_run(bench: Bench, engine: Engine) -> None:
    bench.point(f"http://127.0.0.1:{free_port()}")
    run = engine.begin(sends(bench, "battery.offer"), {"log": []})
    run = bench.goes_on(run, engine.go)
    assert (run.status, run.failure, run.failure_of) == (RunStatus.FAILED, "receiver_unreachable", "crm")
    bench.halfway()
    bench.point(bench.witness.receiver)
    assert engine.continue_(run).status == RunStatus.COMPLETED


@pytest.mark.usefixtures("lengthy_begun")
@row(
    "13",
    "400 effects of as many runs, held the same way: recovered in bulk by sweep and workers, each sent once",
    case="400",
    rx=((0, 0), (400, 400)),
    stands=("400 × pending/held", "400 × completed"),
    attempts="400 × not_sent, completed",
)
def test_13_bulk(bench: Bench, stack: Stack) -> None:
    bench.point(f"http://127.0.0.1:{free_port()}")
    runs = [Run(bench.world.workspace.id) for _ in range(400)]
    ids = [bench.propose("test.slow_offer", run=run).effect_id for run in runs]
    for run, effect_id in zip(runs, ids, strict=True):
        assert isinstance(ledger.perform(run, effect_id, Visit()), Wait)
    mine = Effect.objects.filter(id__in=ids)
    mine.update(give_up_at=Now() - timedelta(seconds=1))
    wait_for("the sweep to hold them", lambda: mine.filter(sub_state="held").count() == 400)
    bench.note()
    bench.halfway()
    bench.point(bench.witness.receiver)

    releaser = bench.world.actor(bench.world.releaser)
    plan = bulk_recover.dry_run(releaser, {"sub_state": "held"})
    assert (plan.count(Verdict.DELIVER), len(plan.items)) == (400, 400)
    recovery = bulk_recover.start(
        releaser,
        {"sub_state": "held"},
        digest=plan.digest,
        reason="The CRM is back.",
        per_minute=bulk_recover.FASTEST,
        token=f"recover {bench.world.workspace.id}",
    )

    def ended() -> bool:
        """At its rate it takes 40 s; here it is always late, and takes as many in a turn as it may."""
        running = Recovery.objects.filter(id=recovery.id, status=BulkStatus.RUNNING)
        return not running.update(next_at=Now() - timedelta(hours=1))

    wait_for("the recovery to end", ended, within=180)
    wait_for("all to be sent", lambda: mine.filter(status="completed").count() == 400, within=180)
    bench.note()
    bench.logs += [process.log for process in stack.processes.values()]


@row(
    "15",
    "A 500 that the receiver keeps, before it did anything, K: review; a linked successor is sent once",
    rx=((0, 1), (1, 2)),
    stands=("pending/uncertain, in review: cached_error", "completed; failed/cancelled"),
    attempts="completed; unknown",
)
def test_15(bench: Bench) -> None:
    proposal = bench.propose("battery.proving_offer")
    bench.witness.order("cached_500")
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    bench.time_passes()
    bench.sweep()
    assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    bench.halfway()
    order = send_as_new(bench, proposal.effect_id)
    assert not order.overrides, "it is proven that nothing of the first one exists"
    with transaction.atomic():
        agree(bench, order)
    carry_out(order)
    followed = bench.perform(proposal.effect_id)
    assert isinstance(followed, Result)
    assert followed.effect_id == order.sends_id
    first, second = bench.witness.requests()
    assert (first["key"], second["key"]) == (proposal.effect_id, order.sends_id)


@row(
    "16",
    "429 with Retry-After: comes back when it was told, and is sent once more",
    rx=((0, 1), (1, 2)),
    stands=("pending/backoff", "completed"),
    attempts="not_sent, completed",
)
def test_16(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("429", retry_after=120)
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    bench.halfway()
    assert bench.seconds_to_wait(proposal.effect_id) == pytest.approx(120, abs=5)
    assert isinstance(bench.perform_now(proposal.effect_id), Result)


@row(
    "17",
    "409 in progress three times, then 200: waits with the same key, not a failure",
    rx=((0, 3), (1, 4)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown ×3, completed",
)
def test_17(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("409_in_progress", times=3, retry_after=2)
    for _ in range(3):
        assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    bench.halfway()
    assert isinstance(bench.perform_now(proposal.effect_id), Result)
    assert len({(one["key"], one["body"]) for one in bench.witness.requests()}) == 1


@contextmanager
def letterbox(bench: Bench, takes: Callable[[Postbox, Request], int] | None = None) -> Iterator[Box]:
    """A real address for the receiver's webhooks. What comes is kept until the row forwards it, or *takes* it at once."""
    postbox = Postbox(bench)
    bench.other_secrets.append(postbox.secret.removeprefix("whsec_"))
    box = Letterbox((lambda request: takes(postbox, request)) if takes else None)
    try:
        yield Box(postbox, box)
    finally:
        box.stop()


@dataclass
class Box:
    """The product's own address for webhooks of the receiver, and what the receiver has posted."""

    postbox: Postbox
    letters: Letterbox

    @property
    def told(self) -> dict[str, Any]:
        """For a fault order of the receiver: whom it tells, and how it signs."""
        return {"webhook_url": self.letters.url, "secret": self.postbox.secret}

    def forward(self) -> HttpResponse:
        """The next one, byte for byte."""
        answer = forward(self.postbox, self.letters.next())
        assert answer.status_code == 200, answer.content
        return answer


@row(
    "18",
    "202, then a webhook of final failure: failed/refused",
    rx=((0, 1), (0, 1)),
    stands=("accepted", "failed/refused"),
    attempts="accepted",
)
def test_18(bench: Bench) -> None:
    with letterbox(bench) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("202_webhook", final="failed", reason="no seats left", delay=0, **box.told)
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        bench.halfway()
        box.forward()
    with pytest.raises(Refused, match="no seats left"):
        bench.perform(proposal.effect_id)


@row(
    "19",
    "202 and silence: a review past the deadline, never failed; a webhook a day later closes it",
    rx=((1, 1), (1, 1)),
    stands=("accepted, in review: deadline_passed", "completed"),
    attempts="accepted",
)
def test_19(bench: Bench) -> None:
    with letterbox(bench) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("202_webhook", final="completed", delay=0, **box.told)
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        wait_for("the receiver to have made it", lambda: bench.witness.effects())
        day = timedelta(days=1)
        Effect.objects.filter(id=proposal.effect_id).update(final_by=Now() - day, last_sent_at=Now() - day)
        bench.sweep()
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        bench.halfway()
        box.forward()
    review = Review.objects.get(effect=proposal.effect_id)
    assert (review.reason, review.closed_at is None, review.settled_by) == ("deadline_passed", False, None)
    assert isinstance(bench.perform(proposal.effect_id), Result)


@row(
    "20",
    "The webhook comes before the HTTP answer: completed once, the answer is an observation",
    rx=(1, 1),
    stands="completed",
    attempts="accepted",
)
def test_20(bench: Bench) -> None:
    stood: list[tuple[str, str]] = []

    def take(postbox: Postbox, request: Request) -> int:
        stood.append(bench.standing(proposal.effect_id))
        return forward(postbox, request).status_code

    with letterbox(bench, take) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("202_webhook", webhook_first=True, **box.told)
        assert isinstance(bench.perform(proposal.effect_id), Result)
    assert stood == [("pending", "in_flight")]
    seen = bench.effect(proposal.effect_id).observations.order_by("id")
    assert [one.kind for one in seen] == ["webhook", "late_answer"]


@row(
    "21",
    "The webhook comes twice, with a new event id each: one move, two observations",
    rx=(1, 1),
    stands="completed",
    attempts="accepted",
)
def test_21(bench: Bench) -> None:
    with letterbox(bench) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("202_webhook", final="completed", delay=0, copies=2, **box.told)
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        box.forward()
        once = Effect.objects.filter(id=proposal.effect_id).values().get()
        box.forward()
    assert Effect.objects.filter(id=proposal.effect_id).values().get() == once
    assert webhooks_of(proposal.effect_id) == ["found", "found"]
    first, second = messages_of(proposal.effect_id)
    assert first.message_id != second.message_id
    assert "Accepted → Completed" in first.came_of_it
    assert "Nothing moved" in second.came_of_it


@row(
    "22",
    "Forged webhooks (another secret, an old time, other bytes, no signature, another workspace's): refused, nothing kept",
    rx=(0, 1),
    stands="accepted",
    attempts="accepted",
)
def test_22(bench: Bench) -> None:
    with letterbox(bench) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("202_webhook", final="never")
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        postbox = box.postbox
        said = postbox.about(proposal.effect_id)
        genuine = postbox.headers(json.dumps(said).encode())
        forged = {
            "another secret": postbox.post(said, secret=new_secret()),
            "an old time": postbox.post(said, at=time.time() - 3600),
            "a time to come": postbox.post(said, at=time.time() + 3600),
            "other bytes": postbox.post({**said, "type": "reservation.failed"}, headers={**genuine}),
            "no signature": postbox.post(said, headers={"webhook-signature": None}),
        }
        assert {name: answer.status_code for name, answer in forged.items()} == dict.fromkeys(forged, 401)
    with letterbox(_neighbour(bench)) as other:
        theirs = other.postbox.post(other.postbox.about(proposal.effect_id))
        assert theirs.status_code == 404, theirs.content
    assert webhooks_of(proposal.effect_id) == []
    assert messages_of(proposal.effect_id) == []


def _neighbour(bench: Bench) -> Bench:
    """A workspace of somebody else, at the same receiver."""
    world = make_world("neighbour")
    world.receivers(bench.witness.receiver, bench.witness.smtp_port)
    seen = bench.witness
    return Bench(world, Witness(seen.client, seen.receiver, seen.mail, seen.smtp_port))


@row(
    "24",
    "200 with a wrong amount: a mismatch for a person, no completion, not sent again",
    rx=(1, 1),
    stands="pending/uncertain, in review: mismatch",
    attempts="unknown",
)
def test_24(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("wrong_amount")
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    for _ in range(2):
        bench.time_passes()
        bench.sweep()
        assert isinstance(bench.perform(proposal.effect_id), Wait)


@row(
    "25",
    "A client that retries by itself: the requests are more than the attempts, and the build fails",
    rx=(1, 2),
    stands="completed",
    attempts="completed",
)
def test_25(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is made to retry here; every other row shows that ours does not."""

    def again(*args: Any, **kwargs: Any) -> tuple[int, dict[str, str], bytes]:
        answer = exchange(*args, **kwargs)
        return answer if answer[0] < 500 else exchange(*args, **kwargs)

    monkeypatch.setattr("effects.receivers.http.exchange", again)
    bench.witness.order("500_after")
    assert isinstance(bench.perform(bench.propose("battery.offer").effect_id), Result)
    with pytest.raises(AssertionError, match="2 requests arrived, but the ledger has 1 attempts"):
        bench.check_requests()
    bench.strangers += 1


@row(
    "26",
    "A proxy doubles the POST, K: the receiver tells the repeat",
    case="K",
    rx=(1, 2),
    stands="completed",
    attempts="completed",
)
def test_26_key(bench: Bench) -> None:
    bench.point(bench.proxy(doubling(bench.witness.receiver)).url)
    assert isinstance(bench.perform(bench.propose("battery.offer").effect_id), Result)
    bench.strangers += 1


@row(
    "26",
    "The same, X: two are made; the orphan scan finds the second one, and a person decides",
    case="X",
    rx=(2, 2),
    stands="completed, in review: duplicate_found",
    attempts="completed",
    twice=True,
)
def test_26_none(bench: Bench) -> None:
    bench.point(bench.proxy(doubling(bench.witness.receiver)).url, receiver="desk")
    proposal = bench.propose("battery.marked_ticket")
    assert isinstance(bench.perform(proposal.effect_id), Result)
    bench.strangers += 1
    bench.scan("battery.marked_ticket", "desk")
    references = [one["object_id"] for one in bench.witness.effects()]
    review = Review.objects.get(effect=proposal.effect_id)
    known = bench.effect(proposal.effect_id).provider_reference
    assert {known, review.provider_object} == set(references)


@row(
    "26b",
    "A drip-fed answer: closed at the total deadline, whatever each read took",
    rx=(1, 1),
    stands="pending/uncertain",
    attempts="unknown",
)
def test_26b(bench: Bench) -> None:
    proposal = bench.propose("battery.quick_offer")
    bench.witness.order("drip", interval=0.1)
    began = time.monotonic()
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    assert 0.9 <= time.monotonic() - began <= 2.0, "the total deadline is 1 s"
