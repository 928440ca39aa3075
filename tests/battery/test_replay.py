"""The same run again, another run of the same, and what a person repeats."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from console.kernel.errors import AlreadyDone, Forbidden, Invalid
from console.models import AuditEvent
from effects import intents
from effects.commands import repeat
from effects.commands.compensate import compensate
from effects.doubles import NotRecorded
from effects.ledger import Blocked, Refused, Wait
from effects.models import Command, EffectAttempt, Order, WouldHave
from effects.origin import Result
from effects.states import Stance
from runs.authoring import ask_approval, perform, propose
from runs.states import Failure, RunStatus
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.effects.book import Run, at, at_once
from tests.effects.ordering import agree, asked, carry_out, deliver_again, send_as_new
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, workflow_of
from tests.stack import wait_for


@row(
    "58",
    "Evidence, in the ledger: the recording comes back, what would have been sent is a row of its own, nothing is sent",
    rx=((1, 1), (1, 1)),
    stands=("completed", "completed"),
    attempts="completed",
)
def test_58(bench: Bench) -> None:
    """Of the ledger. A node's own stray request is shown in the process that replays: tests/process/test_replays.py."""
    original = bench.propose("battery.offer")
    recorded = bench.perform(original.effect_id)
    assert isinstance(recorded, Result)
    bench.halfway()
    replay = Run(bench.world.workspace.id, stance=Stance.EVIDENCE, lineage={original.effect_id: False})
    again = bench.propose("battery.offer", run=replay)
    assert bench.perform(again.effect_id, run=replay) == recorded
    other = bench.propose("battery.offer", run=replay, amount_minor=7)
    with pytest.raises(NotRecorded):
        bench.perform(other.effect_id, run=replay)
    assert WouldHave.objects.filter(run_id=replay.run_id).count() == 2


@row(
    "59",
    "Continue: a completed effect gives back its stored result",
    rx=((1, 1), (1, 1)),
    stands=("completed", "completed"),
    attempts="completed",
)
def test_59(bench: Bench, engine: Engine) -> None:
    broken = [True]
    references: list[str] = []

    def send(state: State) -> State:
        proposal = propose("battery.offer", command="one", **bench.usual("battery.offer"))
        references.append(perform(proposal).reference)
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": references[-1:]}

    run = engine.run(workflow_of(line(send), effect_types=("battery.offer",)), {"log": []})
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NODE_ERROR)
    bench.halfway()
    assert engine.continue_(run).status == RunStatus.COMPLETED
    [made] = bench.witness.effects()
    assert references == [made["object_id"]] * 2


FRESH: dict[str, Any] = {
    "rx": ((1, 1), (2, 2)),
    "stands": ("completed; pending/awaiting_approval", "2 × completed"),
    "attempts": "2 × completed",
}


@row(
    "60",
    "A live replay, in the ledger: new ids, and every write awaits approval whatever the policy",
    case="a write",
    **FRESH,
)
def test_60(bench: Bench) -> None:
    original = bench.propose("battery.offer")
    assert isinstance(bench.perform(original.effect_id), Result)
    _asked_afresh(bench, "battery.offer", original.effect_id)


def _asked_afresh(bench: Bench, effect_type: str, original: str) -> None:
    """The same intent from a live replay or branch: another effect, which only its own approval sends."""
    replay = Run(bench.world.workspace.id, stance=Stance.FRESH)
    again = bench.propose(effect_type, run=replay)
    assert again.effect_id != original
    assert again.request_hash == bench.effect(original).request_hash
    assert isinstance(bench.perform(again.effect_id, run=replay), Wait)
    approval = bench.ask(again.effect_id, run=replay, interrupt="int_of_the_replay")
    assert isinstance(bench.perform(again.effect_id, run=replay), Wait)
    bench.halfway()
    bench.decide(approval)
    assert isinstance(bench.perform(again.effect_id, run=replay), Result)


@row(
    "60",
    "The same, an irreversible type: blocked until a releaser permits it",
    case="irreversible",
    rx=(1, 1),
    stands="completed; pending/ready",
    attempts="completed",
)
def test_60_irreversible(bench: Bench) -> None:
    original = bench.propose("battery.mail")
    assert isinstance(bench.perform(original.effect_id), Result)
    replay = Run(bench.world.workspace.id, stance=Stance.FRESH)
    again = bench.propose("battery.mail", run=replay)
    bench.decide(bench.ask(again.effect_id, run=replay, interrupt="int_of_the_replay"))
    with pytest.raises(Blocked, match="cannot be undone"):
        bench.perform(again.effect_id, run=replay)


@row(
    "61",
    "A branch after an approved step, in the ledger: the original approval does not count",
    **FRESH,
)
def test_61(bench: Bench) -> None:
    original = bench.approved("battery.asked_offer")
    assert isinstance(bench.perform(original.id), Result)
    _asked_afresh(bench, "battery.asked_offer", original.id)


@row(
    "61b",
    "A live branch whose natural-key look-up finds the original's object, in the ledger: mismatch, not adopted",
    rx=((1, 2), (1, 2)),
    stands=("completed; pending/uncertain", "completed; pending/uncertain, in review: mismatch"),
    attempts="completed; unknown",
)
def test_61b(bench: Bench) -> None:
    original = bench.propose("battery.customer_ticket")
    assert isinstance(bench.perform(original.effect_id), Result)
    branch = Run(bench.world.workspace.id, stance=Stance.FRESH)
    again = bench.propose("battery.customer_ticket", run=branch)
    bench.decide(bench.ask(again.effect_id, run=branch, interrupt="int_of_the_branch"))
    bench.witness.order("drop_before")
    assert isinstance(bench.perform(again.effect_id, run=branch), Wait)
    bench.halfway()
    bench.time_passes()
    bench.sweep()
    assert isinstance(bench.perform(again.effect_id, run=branch), Wait)
    assert bench.effect(again.effect_id).provider_reference == ""


@row(
    "62",
    "The same task asks the model again and gets a fresh tool_call_id: the same effect",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_62(bench: Bench) -> None:
    payload = bench.usual("battery.offer")
    first = intents.propose(bench.run, "battery.offer", "offer:0", payload, at(tool_call_id="call_1"))
    again = intents.propose(bench.run, "battery.offer", "offer:0", payload, at(tool_call_id="call_2"))
    assert again == first
    assert Command.objects.get(effect=first.effect_id).tool_call_id == "call_2"
    assert isinstance(bench.perform(first.effect_id), Result)


@row(
    "62b",
    "The node runs again and asks for nothing: obligation_dropped, the effect kept for a person",
    rx=(0, 0),
    stands="pending/ready, in review: not_asked_again",
    attempts="",
)
def test_62b(bench: Bench, engine: Engine) -> None:
    asked: list[str] = []

    def forgets(state: State) -> State:
        if not asked:
            payload = bench.usual("battery.asked_offer")
            asked.append(propose("battery.asked_offer", command="one", **payload).effect_id)
            ask_approval(asked[0])
        return {"log": ["nothing to do"]}

    run = engine.run(workflow_of(line(forgets), effect_types=("battery.asked_offer",)), {"log": []})
    [approval] = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)
    assert (run.status, run.failure, run.failure_of) == (
        RunStatus.FAILED,
        Failure.OBLIGATION_DROPPED,
        "forgets",
    )
    assert asked[0] in run.failure_text


# What a person repeats


@row(
    "64",
    "Repeat by people who may not: refused in words, recorded, nothing sent",
    case="without",
    rx=(1, 1),
    stands="pending/uncertain",
    attempts="unknown",
)
def test_64_without(bench: Bench) -> None:
    effect_id = _lost_by_key(bench)
    world = bench.world
    others = [
        world.viewer,
        world.operator,
        world.approver,
        world.auditor,
        world.developer,
        world.administrator,
    ]
    for person in others:
        for order in (repeat.deliver_again, repeat.send_as_new):
            with pytest.raises(Forbidden):
                order(world.actor(person), effect_id, **asked(effect_id, {}))
    assert not Order.objects.filter(workspace=world.workspace).exists()
    refusals = AuditEvent.objects.filter(workspace=world.workspace, verb="order.not_taken", subject=effect_id)
    assert refusals.count() == 2 * len(others)


@row(
    "64",
    "Repeat by a releaser: one more request with the same key and bytes, a further attempt of the same effect",
    case="with",
    rx=((1, 1), (1, 2)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown, completed",
)
def test_64_with(bench: Bench) -> None:
    effect_id = _lost_by_key(bench)
    bench.halfway()
    order = deliver_again(bench, effect_id)
    bench.make_due(effect_id)
    carry_out(order)
    first, second = bench.witness.requests()
    assert (first["key"], first["body"]) == (second["key"], second["body"])
    assert EffectAttempt.objects.filter(effect=effect_id).latest("n").origin == order.id


@row(
    "64",
    "A double click and two tabs at once: one order, one more request",
    case="double click",
    rx=((1, 1), (1, 2)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown, completed",
)
def test_64_double_click(bench: Bench) -> None:
    effect_id = _lost_by_key(bench)
    assert bench.world.releaser
    bench.halfway()
    bench.make_due(effect_id)
    clicks = at_once(4, lambda number: deliver_again(bench, effect_id, token=f"tab {number // 2}"))
    placed = {one.id for one in clicks if isinstance(one, Order)}
    assert len(placed) == 1, clicks
    assert {type(one) for one in clicks} <= {Order, AlreadyDone}
    orders = at_once(4, lambda _: carry_out(Order.objects.get(workspace=bench.world.workspace)))
    assert not [one for one in orders if isinstance(one, Exception)], orders


def _lost_by_key(bench: Bench) -> str:
    """Made, and the answer lost; its key is good for a repeat."""
    proposal = bench.propose("battery.offer")
    bench.witness.order("drop_after_commit")
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    return proposal.effect_id


@row(
    "65",
    "Repeat while it is in flight: refused",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_65(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    bench.witness.order("slow", seconds=0.7)
    assert bench.world.releaser

    def while_in_flight() -> None:
        wait_for("it to be in flight", lambda: bench.standing(proposal.effect_id) == ("pending", "in_flight"))
        for order in (deliver_again, send_as_new):
            with pytest.raises(AlreadyDone, match="in flight"):
                order(bench, proposal.effect_id)

    work = [lambda: bench.perform(proposal.effect_id), while_in_flight]
    answers = at_once(2, lambda number: work[number]())
    assert isinstance(answers[0], Result), answers
    assert answers[1] is None, answers


@row(
    "66",
    "Compensated in parts: never past the original's amount",
    case="amount",
    rx=(2, 2),
    stands="2 × completed",
    attempts="2 × completed",
)
def test_66_amount(bench: Bench) -> None:
    proposal = bench.propose("battery.offer", amount_minor=1000)
    bench.perform(proposal.effect_id)
    with pytest.raises(Invalid, match="1000 of 1000"):
        _compensate(bench, proposal.effect_id, "battery.credit", amount_minor=1001)
    order = _compensate(bench, proposal.effect_id, "battery.credit", amount_minor=700)
    with pytest.raises(Invalid, match="300 of 1000"):
        _compensate(bench, proposal.effect_id, "battery.credit", amount_minor=301)
    _agreed_and_sent(bench, order)
    with pytest.raises(Invalid, match="300 of 1000"):
        _compensate(bench, proposal.effect_id, "battery.credit", amount_minor=301)


@row(
    "66",
    "Compensated as a whole: never twice",
    case="twice",
    rx=(2, 2),
    stands="2 × completed",
    attempts="2 × completed",
)
def test_66_twice(bench: Bench) -> None:
    proposal = bench.propose("battery.ticket")
    bench.perform(proposal.effect_id)
    order = _compensate(bench, proposal.effect_id, "battery.withdrawal")
    with pytest.raises(AlreadyDone):
        _compensate(bench, proposal.effect_id, "battery.withdrawal")
    _agreed_and_sent(bench, order)
    with pytest.raises(AlreadyDone, match="taken back already"):
        _compensate(bench, proposal.effect_id, "battery.withdrawal")


def _agreed_and_sent(bench: Bench, order: Order) -> None:
    with transaction.atomic():
        agree(bench, order)
    carry_out(order)


def _compensate(bench: Bench, effect_id: str, effect_type: str, amount_minor: int = 1) -> Order:
    payload = {"customer_id": "cus_000001", "amount_minor": amount_minor, "reason": bench.protected}
    return compensate(
        bench.world.actor(bench.world.releaser),
        effect_id,
        effect_type=effect_type,
        payload=payload,
        reason="It was too much.",
        token=uuid.uuid4().hex,
    )


@row(
    "66h",
    "Repeat of a completed run's effect: really sent, whatever the run's status",
    rx=((0, 1), (1, 2)),
    stands=("failed/refused", "completed"),
    attempts="refused, completed",
)
def test_66h(bench: Bench, engine: Engine) -> None:
    def send(state: State) -> State:
        proposal = propose("battery.offer", command="one", **bench.usual("battery.offer"))
        with suppress(Refused):
            perform(proposal)
        return {"log": ["went on without"]}

    bench.witness.order("401")
    run = engine.run(workflow_of(line(send), effect_types=("battery.offer",)), {"log": []})
    assert run.status == RunStatus.COMPLETED
    [effect] = bench.effects
    bench.halfway()
    assert "has it as" in carry_out(deliver_again(bench, effect.id))
    run.refresh_from_db()
    assert (run.status, run.executions.count()) == (RunStatus.COMPLETED, 1)


@row(
    "66b",
    "A migration shifts positions, in the ledger: a completed effect keeps its id and gives back its result",
    rx=((1, 1), (1, 1)),
    stands=("completed", "completed"),
    attempts="completed",
)
def test_66b(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    first = bench.perform(proposal.effect_id)
    bench.halfway()
    Command.objects.filter(effect=proposal.effect_id).update(position="a place that was moved")
    again = bench.propose("battery.offer", position="a place that was moved")
    assert again.effect_id == proposal.effect_id
    assert bench.perform(again.effect_id) == first
