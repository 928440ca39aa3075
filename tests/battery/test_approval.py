"""What people allow, for which bytes and until when; and what they may not."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from console.kernel.canonical import canonicalise, request_hash
from console.kernel.errors import AlreadyDone, Forbidden
from console.models import Group, Role, User
from console.tokens import Scope
from effects import contracts as deployment
from effects.commands.stop_sending import lift_stop, stop_sending
from effects.contracts import contracts
from effects.ledger import Wait
from effects.models import Approval, ApprovalDecision, Effect
from effects.origin import Result
from effects.states import ApprovalStatus, Decision, StopScope
from effects.wires import HttpWire
from runs import recovery
from runs.authoring import ask_approval, perform, propose
from runs.models import Run
from runs.states import Failure, RunStatus
from tests.api.conftest import token_for
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.battery.sending import asks, sends
from tests.battery.test_answers import letterbox
from tests.effects.book import at_once
from tests.engine.conftest import Engine
from tests.engine.workflows import State, beside, line, workflow_of
from tests.stack import free_port, wait_for

EDITABLE = (Decision.APPROVE, Decision.EDIT, Decision.REJECT)


@row(
    "66c",
    "A person edits, a second one approves: sent once, with the edited bytes",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_66c(bench: Bench) -> None:
    approval = bench.ask(bench.propose("battery.asked_offer").effect_id, allows=EDITABLE)
    bench.decide(approval, Decision.EDIT, answer={"amount_minor": 850})
    second = bench.newest()
    with pytest.raises(Forbidden, match="Four eyes"):
        bench.decide(second)
    bench.decide(second, by=bench.world.second_approver)
    assert isinstance(bench.perform(second.effect_id or ""), Result)
    [made] = bench.witness.effects()
    assert made["document"]["amount_minor"] == 850


@row(
    "66d",
    "Attempt 1 times out (the effect is made), attempt 2 gets 401: uncertain, never failed; the look completes it",
    case="401",
    rx=((1, 2), (1, 2)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown, refused",
)
def test_66d_unauthorized(bench: Bench) -> None:
    _refused_after_unknown(bench, "401")


@row(
    "66d",
    "The same, attempt 2 gets 429",
    case="429",
    rx=((1, 2), (1, 2)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown, not_sent",
)
def test_66d_too_many(bench: Bench) -> None:
    _refused_after_unknown(bench, "429")


def _refused_after_unknown(bench: Bench, answer: str) -> None:
    proposal = bench.propose("battery.quick_offer")
    bench.witness.order("hang_after_commit", seconds=3)
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    bench.witness.order(answer)
    assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    bench.halfway()
    bench.make_due(proposal.effect_id)
    assert bench.look(proposal.effect_id) == "found"


@row(
    "66e",
    "A 503 “unprocessed”, then a webhook “created”: completed, not sent again",
    rx=((1, 1), (1, 1)),
    stands=("pending/backoff", "completed"),
    attempts="not_sent",
)
def test_66e(bench: Bench) -> None:
    with letterbox(bench) as box:
        proposal = bench.propose("battery.seats")
        bench.witness.order("503_unprocessed", final="completed", delay=0, **box.told)
        assert isinstance(bench.perform(proposal.effect_id), Wait)
        wait_for("the receiver to have made it", lambda: bench.witness.effects())
        bench.halfway()
        box.forward()
    assert isinstance(bench.perform(proposal.effect_id), Result)


@row(
    "66f",
    "The approval expires, Continue asks again, round 2: sent once after that",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_66f(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    [first] = engine.asked(run)
    Approval.objects.filter(id=first.id).update(expires_at=Now() - timedelta(seconds=1))
    recovery.expire_approvals()
    run.refresh_from_db()
    assert run.status == RunStatus.PAUSED
    bench.halfway()
    run = engine.continue_(run)
    [second] = engine.asked(run)
    assert (second.round, second.interrupt_id) == (2, first.interrupt_id)
    with pytest.raises(AlreadyDone):
        engine.decide(first)
    engine.decide(second)
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "66g",
    "Approved on a failed run: stored with its grant, nothing runs until Continue",
    rx=((0, 0), (1, 1)),
    stands=("pending/ready", "completed"),
    attempts="completed",
)
def test_66g(bench: Bench, engine: Engine) -> None:
    broken = [True]

    def ask(state: State) -> State:
        proposal = propose("battery.asked_offer", command="one", **bench.usual("battery.asked_offer"))
        ask_approval(proposal)
        return {"log": [perform(proposal).status]}

    def fail(state: State) -> State:
        # Not before the other has paused, or there would be nobody to ask.
        wait_for("the pause to be saved", lambda: run.steps.filter(node="ask", outcome="paused").exists())
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {}

    run = engine.begin(workflow_of(beside(ask, fail), effect_types=("battery.asked_offer",)), {"log": []})
    run = engine.go(run)
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NODE_ERROR)
    [approval] = engine.asked(run)
    engine.decide(approval)
    bench.sweep()
    assert engine.go(run).status == RunStatus.FAILED
    bench.halfway()
    assert engine.continue_(run).status == RunStatus.COMPLETED


@row(
    "67",
    "The payload is edited after the approval: void, nothing is sent before the next one",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_67(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    bench.propose("battery.asked_offer", amount_minor=900)
    assert isinstance(bench.perform(effect.id), Wait)
    again = bench.ask(effect.id, interrupt=f"for {effect.id}")
    assert (again.round, again.revision, again.status) == (2, 2, "pending")
    assert isinstance(bench.perform(effect.id), Wait)
    bench.halfway()
    bench.decide(again)
    assert isinstance(bench.perform(effect.id), Result)
    [made] = bench.witness.effects()
    assert made["document"]["amount_minor"] == 900


@row(
    "68",
    "Two tabs approve at once: one decision, the other is told",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_68(bench: Bench) -> None:
    approval = bench.ask(bench.propose("battery.asked_offer").effect_id)
    approver = bench.world.approver
    answers = at_once(2, lambda _: bench.decide(approval, by=approver))
    assert sorted(type(one).__name__ for one in answers) == ["AlreadyDone", "ApprovalDecision"]
    assert ApprovalDecision.objects.filter(approval=approval).count() == 1
    assert isinstance(bench.perform(approval.effect_id or ""), Result)


@row(
    "69",
    "Approve against reject, approve first: it is sent, the other is told who decided",
    case="approve",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_69_approve(bench: Bench) -> None:
    _against(bench, Decision.APPROVE, Decision.REJECT)


@row(
    "69",
    "Reject first: nothing is sent, the other is told who decided",
    case="reject",
    rx=(0, 0),
    stands="failed/rejected_by_person",
    attempts="",
)
def test_69_reject(bench: Bench) -> None:
    _against(bench, Decision.REJECT, Decision.APPROVE)


def _against(bench: Bench, first: Decision, second: Decision) -> None:
    """Both have it before them, one is faster."""
    approval = bench.ask(bench.propose("battery.asked_offer").effect_id)
    bench.decide(approval, first, reason="As I see it.")
    with pytest.raises(AlreadyDone, match="by Approver"):
        bench.decide(approval, second, by=bench.world.second_approver, reason="I don't.")
    assert isinstance(bench.perform(approval.effect_id or ""), Result)


def _both(bench: Bench, user: User) -> User:
    """An approver who may also start runs, or an operator who may also approve."""
    user.memberships.update(roles=[Role.OPERATOR, Role.APPROVER])
    Group.objects.get_or_create(workspace=bench.world.workspace, name="Sales approvers")[0].members.add(user)
    return user


def _refused_then_sent(bench: Bench, engine: Engine, run: Run, involved: User) -> None:
    """The command refuses *involved*, changes nothing by it, and takes somebody else's decision."""
    [approval] = engine.asked(run)
    with pytest.raises(Forbidden, match="Four eyes"):
        engine.decide(approval, by=involved)
    bench.halfway()
    engine.decide(approval, by=bench.world.second_approver)
    assert engine.go(run).status == RunStatus.COMPLETED


SENT_BY_ANOTHER: dict[str, Any] = {
    "rx": ((0, 0), (1, 1)),
    "stands": ("pending/awaiting_approval", "completed"),
    "attempts": "completed",
}


@row("70", "The starter approves: refused in the command", case="starter", **SENT_BY_ANOTHER)
def test_70_starter(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    _refused_then_sent(bench, engine, run, _both(bench, bench.world.operator))


@row("70", "The editor approves: refused in the command", case="editor", **SENT_BY_ANOTHER)
def test_70_editor(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    Approval.objects.filter(id=approval.id).update(allows=[one.value for one in EDITABLE])
    engine.decide(approval, Decision.EDIT, answer={"amount_minor": 850})
    _refused_then_sent(bench, engine, run, bench.world.approver)


@row(
    "70",
    "The launcher of an ancestor branch approves: refused in the command",
    case="launcher",
    **SENT_BY_ANOTHER,
)
def test_70_launcher(bench: Bench, engine: Engine) -> None:
    """The branch's rows as its launch leaves them: its parent was launched by the approver, it by somebody else."""
    parent = engine.run(workflow_of(line(_nothing)), {"log": []})
    Run.objects.filter(id=parent.id).update(starter=_both(bench, bench.world.approver))
    run = engine.begin(asks(bench), {"log": []})
    Run.objects.filter(id=run.id).update(
        kind="branch",
        starter=bench.world.developer,
        parent_run=parent,
        parent_checkpoint=parent.checkpoints.first(),
        launch_reason="Another amount",
    )
    _refused_then_sent(bench, engine, engine.go(run), bench.world.approver)


def _nothing(state: State) -> State:
    return {}


@row(
    "70",
    "The maker of the token that started it approves: refused in the command",
    case="token",
    **SENT_BY_ANOTHER,
)
def test_70_token(bench: Bench, engine: Engine) -> None:
    maker = _both(bench, bench.world.operator)
    workflow = asks(bench)
    engine.begin(workflow)  # enables it in the workspace; this run is never taken along
    answer = Client().post(
        "/api/v1/runs",
        data=json.dumps({"workflow": workflow.name, "input": {}}),
        content_type="application/json",
        headers={
            "Authorization": f"Bearer {token_for(bench.world, maker, Scope.START)}",
            "Idempotency-Key": str(uuid.uuid4()),
        },
    )
    assert answer.status_code == 201, answer.content
    run = engine.go(Run.objects.get(id=answer.json()["id"]))
    _refused_then_sent(bench, engine, run, maker)


@row(
    "71",
    "The approver's permission is taken away between approve and execute: not sent, asked again",
    case="approver",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_71_approver(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    engine.decide(approval)
    bench.world.approver.memberships.update(roles=[Role.VIEWER])
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    bench.halfway()
    [second] = engine.asked(run)
    engine.decide(second, by=bench.world.second_approver)
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "71",
    "The starter's permission is taken away: the run fails (not_permitted), nothing is sent",
    case="starter",
    rx=(0, 0),
    stands="pending/ready",
    attempts="",
)
def test_71_starter(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    engine.decide(approval)
    bench.world.operator.memberships.update(roles=[Role.VIEWER])
    run = engine.go(run)
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NOT_PERMITTED)
    assert "may no longer" in run.failure_text


@row(
    "72",
    "The grant expires before sending: asked again, and sent by the next grant",
    case="before",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_72_before(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    Effect.objects.filter(id=effect.id).update(grant_until=Now())
    assert isinstance(bench.perform(effect.id), Wait)
    bench.halfway()
    second = bench.ask(effect.id, interrupt=f"for {effect.id}")
    assert (second.round, second.status) == (2, "pending")
    bench.decide(second)
    assert isinstance(bench.perform(effect.id), Result)


@row(
    "72",
    "The grant expires while it is in flight: the attempt stands",
    case="in flight",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_72_in_flight(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    bench.witness.order("slow", seconds=0.7)

    def end_grant() -> None:
        wait_for("the request", lambda: bench.witness.requests())
        assert bench.standing(effect.id) == ("pending", "in_flight")
        Effect.objects.filter(id=effect.id).update(grant_until=Now() - timedelta(seconds=1))

    work = [lambda: bench.perform(effect.id), end_grant]
    answers = at_once(2, lambda number: work[number]())
    assert isinstance(answers[0], Result), answers
    assert answers[1] is None, answers
    assert bench.effect(effect.id).approvals.count() == 1


@row(
    "73",
    "The contract has another version at sending: asked again, naming what changed",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_73(bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine.run(asks(bench), {"log": []})
    [first] = engine.asked(run)
    engine.decide(first)
    known = contracts()
    asked = known["battery.asked_offer"]
    assert isinstance(asked.wire, HttpWire)
    moved = replace(asked, version=2, wire=replace(asked.wire, path="/v1/offers?by=2"))
    monkeypatch.setattr(deployment, "contracts", lambda: {**known, asked.type: moved})
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    bench.halfway()
    [second] = engine.asked(run)
    assert (second.revision, second.contract_version) == (2, 2)
    assert "from version 1 to 2" in second.why
    assert "path of the request" in second.why
    engine.decide(second)
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "74",
    "The digest that the approver is shown is that of the bytes that are sent",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_74(bench: Bench, engine: Engine) -> None:
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    client = Client()
    client.force_login(bench.world.approver, backend="django.contrib.auth.backends.ModelBackend")
    here = f"/w/{bench.world.workspace.id}/approvals/{approval.id}/"
    page = client.get(here).content.decode()
    shown = re.search(r'<code title="(sha256:[0-9a-f]+)">', page)
    assert shown is not None
    carried = {
        name: re.search(rf'name="{name}" value="([^"]*)"', page)[1]  # type: ignore[index]  # the page has a form
        for name in ("payload_hash", "version", "token")
    }
    assert client.post(f"{here}approve/", carried).status_code == 303
    assert engine.go(run).status == RunStatus.COMPLETED
    [request] = bench.witness.requests()
    sent = {name: value for name, value in json.loads(request["body"]).items() if name != "external_id"}
    assert shown[1] == carried["payload_hash"] == request_hash(canonicalise(sent))


@row(
    "75",
    "Two approvals answered out of order: each reaches its own effect",
    rx=((1, 1), (2, 2)),
    stands=("completed; pending/awaiting_approval", "2 × completed"),
    attempts="2 × completed",
)
def test_75(bench: Bench, engine: Engine) -> None:
    def one(state: State) -> State:
        return _asked_and_sent(bench, "one", amount_minor=700)

    def two(state: State) -> State:
        return _asked_and_sent(bench, "two", amount_minor=900)

    run = engine.run(workflow_of(beside(one, two), effect_types=("battery.asked_offer",)), {"log": []})
    first, second = (_asked_about(run, key) for key in ("one", "two"))
    assert first.interrupt_id != second.interrupt_id
    engine.decide(second)
    assert engine.go(run).status == RunStatus.WAITING_APPROVAL
    assert [made["document"]["amount_minor"] for made in bench.witness.effects()] == [900]
    bench.halfway()
    with pytest.raises(AlreadyDone):
        engine.decide(second)
    engine.decide(first)
    assert engine.go(run).status == RunStatus.COMPLETED


def _asked_and_sent(bench: Bench, key: str, **changes: Any) -> State:
    payload = bench.payload("battery.asked_offer", **changes)
    proposal = propose("battery.asked_offer", command=key, **payload)
    ask_approval(proposal)
    return {"log": [perform(proposal).status]}


def _asked_about(run: Run, key: str) -> Approval:
    return Approval.objects.get(
        run_id=run.id, effect__command__command_key=key, status=ApprovalStatus.PENDING
    )


@row(
    "75b",
    "The answer to a pause comes again while a second pause of the same node is open: not delivered to it",
    rx=((0, 0), (2, 2)),
    stands=("pending/awaiting_approval; pending/ready", "2 × completed"),
    attempts="2 × completed",
)
def test_75b(bench: Bench, engine: Engine) -> None:
    def asks_twice(state: State) -> State:
        asked = []
        for key, amount in (("one", 700), ("two", 900)):
            payload = bench.payload("battery.asked_offer", amount_minor=amount)
            asked.append(propose("battery.asked_offer", command=key, **payload))
            ask_approval(asked[-1])
        return {"log": [perform(one).status for one in asked]}

    run = engine.run(workflow_of(line(asks_twice), effect_types=("battery.asked_offer",)), {"log": []})
    first = _asked_about(run, "one")
    engine.decide(first)
    assert engine.go(run).status == RunStatus.WAITING_APPROVAL
    second = _asked_about(run, "two")
    assert second.interrupt_id == first.interrupt_id, "the node's pauses have one id: the row is about that"
    with pytest.raises(AlreadyDone):
        engine.decide(first, by=bench.world.second_approver)
    Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)  # woken by a doorbell of the first answer
    assert engine.go(run).status == RunStatus.WAITING_APPROVAL
    bench.halfway()
    engine.decide(second)
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "76",
    "The kill switch during backoff: nothing further is sent, the run pauses; lifted and continued, sent once",
    rx=((0, 1), (1, 2)),
    stands=("pending/backoff", "completed"),
    attempts="not_sent, completed",
)
def test_76(bench: Bench, engine: Engine) -> None:
    bench.witness.order("429")
    run = engine.run(sends(bench, "battery.offer"), {"log": []})
    assert run.status == RunStatus.WAITING_EFFECT
    releaser = bench.world.actor(bench.world.releaser)
    stop = stop_sending(releaser, scope=StopScope.RECEIVER, target="crm", reason="Looks wrong.", token="stop")
    run = bench.goes_on(run, engine.go)
    assert run.status == RunStatus.PAUSED
    assert "Looks wrong." in run.failure_text
    bench.halfway()
    lift_stop(releaser, stop.id, reason="Looked at.", token="lift")
    run = engine.continue_(run)
    assert bench.goes_on(run, engine.go).status == RunStatus.COMPLETED


@row(
    "76b",
    "Attempt 1 is not sent, attempt 2 comes within the grant: no second approval",
    rx=(1, 1),
    stands="completed",
    attempts="not_sent, completed",
)
def test_76b(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    bench.point(f"http://127.0.0.1:{free_port()}")
    assert isinstance(bench.perform(effect.id), Wait)
    bench.point(bench.witness.receiver)
    assert isinstance(bench.perform_now(effect.id), Result)
    assert bench.effect(effect.id).approvals.count() == 1
