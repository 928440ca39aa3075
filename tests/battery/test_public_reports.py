"""What people reported of other systems: an effect made twice, lost, or told wrongly. The source stands with each row."""

from __future__ import annotations

import html
import re
import uuid
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from django.test import Client, override_settings
from langgraph.types import interrupt

from console.kernel.errors import Invalid
from console.models import User
from effects.ledger import Refused, Wait
from effects.models import ApprovalDecision
from effects.origin import Result
from effects.states import Decision
from runs.authoring import ask_approval, perform, propose
from runs.commands.continue_run import continue_run
from runs.commands.stop import cancel
from runs.states import RunStatus
from runs.tasks import advance
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.battery.sending import asks, sends
from tests.battery.test_killed import everything, killed, recovered
from tests.battery.workers import Nursery
from tests.effects.book import at_once
from tests.effects.ordering import agree, carry_out, deliver_again, send_as_new
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, workflow_of
from tests.stack import wait_for


@row(
    "C01",
    "Work before a pause ran again at each resume: three pauses and answers, one request",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_C01(bench: Bench, engine: Engine) -> None:
    """langgraph#6792, #7780."""

    def send(state: State) -> State:
        proposal = propose("battery.offer", command="one", **bench.usual("battery.offer"))
        made = perform(proposal).reference
        return {"log": [made, *(interrupt(f"{question}?") for question in ("one", "two", "three"))]}

    run = engine.run(workflow_of(line(send), effect_types=("battery.offer",)), {"log": []})
    for answer in ("1", "2", "3"):
        assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
        run = engine.answer(run, answer)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    [made] = bench.witness.effects()
    assert engine.state_of(run)["log"] == [made["object_id"], "1", "2", "3"]


@row(
    "C03",
    "Killed after the receiver replied, before the checkpoint commits: after Continue one effect",
    rx=((1, 1), (1, 1)),
    stands=("completed", "completed"),
    attempts="completed",
)
def test_C03(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    """langgraph#8039, #8234."""
    run = killed(bench, nursery, "offer", "after_result_is_saved")
    assert run.checkpoints.filter(nodes__contains=["send"]).count() == 0
    with override_settings(LOSSES_ALLOWED=1):
        assert recovered(bench, engine, run).status == RunStatus.FAILED
    bench.halfway()
    continue_run(bench.world.actor(bench.world.operator), run.id, token=str(uuid.uuid4()))
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "C15",
    "“Fetch failed” though the call was accepted, K: pending, then the same key and one effect",
    case="K",
    rx=((1, 1), (1, 2)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown, completed",
)
def test_C15_key(bench: Bench) -> None:
    """trinity#914."""
    proposal = bench.propose("battery.quick_offer")
    bench.witness.order("hang_after_commit", seconds=3)
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    bench.halfway()
    assert isinstance(bench.perform_now(proposal.effect_id), Result)


@row(
    "C15",
    "The same, N: no second request; a look-up completes it",
    case="N",
    rx=((1, 1), (1, 1)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown",
)
def test_C15_natural(bench: Bench) -> None:
    proposal = bench.propose("battery.quick_ticket")
    bench.witness.order("hang_after_commit", seconds=3)
    assert isinstance(bench.perform(proposal.effect_id), Wait)
    assert isinstance(bench.perform_now(proposal.effect_id), Wait)
    bench.halfway()
    bench.time_passes()
    bench.sweep()
    assert isinstance(bench.perform(proposal.effect_id), Result)


@row(
    "C16",
    "A new key on each retry charged twice: retries carry the same key and bytes, only a new effect has its own",
    rx=((1, 2), (2, 3)),
    stands=("completed", "2 × completed"),
    attempts="completed; unknown, completed",
)
def test_C16(bench: Bench) -> None:
    """square-mcp-server#31, stripe-ruby#503."""
    proposal = bench.propose("battery.offer")
    bench.witness.order("drop_after_commit")
    bench.perform(proposal.effect_id)
    assert isinstance(bench.perform_now(proposal.effect_id), Result)
    bench.halfway()
    order = send_as_new(bench, proposal.effect_id)
    with transaction.atomic():
        agree(bench, order)
    carry_out(order)
    first, again, new = bench.witness.requests()
    assert (first["key"], first["body"]) == (again["key"], again["body"])
    assert (first["key"], new["key"]) == (proposal.effect_id, order.sends_id)
    for one, other in ((proposal.effect_id, order.sends_id), (order.sends_id, proposal.effect_id)):
        page = read(bench, bench.world.releaser, f"effects/{one}/")
        assert one in page
        assert other in page, "the one effect's page does not lead to the other"


@row(
    "C17",
    "There was no way to repeat just one call: Repeat wants a reason, sends one request, starts no later node",
    rx=((0, 1), (1, 2)),
    stands=("failed/refused", "completed"),
    attempts="refused, completed",
)
def test_C17(bench: Bench, engine: Engine) -> None:
    """temporal#741."""
    ran: list[str] = []

    def send(state: State) -> State:
        proposal = propose("battery.offer", command="one", **bench.usual("battery.offer"))
        with suppress(Refused):
            perform(proposal)
        return {}

    def after(state: State) -> State:
        ran.append("after")
        return {}

    bench.witness.order("401")
    run = engine.run(workflow_of(line(send, after), effect_types=("battery.offer",)), {"log": []})
    [effect] = bench.effects
    before = run.steps.count()
    bench.halfway()
    with pytest.raises(Invalid, match="Say why"):
        deliver_again(bench, effect.id, reason=" ")
    carry_out(deliver_again(bench, effect.id))
    bench.sweep()
    assert (ran, run.steps.count()) == (["after"], before)
    assert "Attempt 2" in read(bench, bench.world.releaser, f"effects/{effect.id}/")


@row(
    "C18",
    "Cancel stopped only the display: no effect starts after it, one already sent is shown as sent before cancel",
    rx=(1, 1),
    stands="completed; failed/cancelled",
    attempts="completed",
)
def test_C18(bench: Bench, engine: Engine) -> None:
    """hermes-webui#241, archetype#836."""

    def two(state: State) -> State:
        first, second = (
            propose("battery.offer", command=key, **bench.usual("battery.offer")) for key in ("one", "two")
        )
        perform(first)
        cancel(bench.world.actor(bench.world.operator), run.id, token="cancel")
        perform(second)
        return {}

    run = engine.begin(workflow_of(line(two), effect_types=("battery.offer",)), {"log": []})
    run = engine.go(run)
    assert run.status == RunStatus.CANCELLED
    shown = read(bench, bench.world.operator, f"runs/{run.id}/")
    assert "sent before cancel" in shown
    assert shown.count("sent before cancel") == 1


def read(bench: Bench, user: User, path: str) -> str:
    """A page of the workspace as it reads: without tags, white space as one blank."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    page = client.get(f"/w/{bench.world.workspace.id}/{path}")
    assert page.status_code == 200
    main = page.content.decode().partition("<main")[2]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


@row(
    "C19",
    "20 approve forms posted at once: one success, nineteen 409, one decision, one request",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_C19(bench: Bench, engine: Engine) -> None:
    """Archon#2113."""
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    here = f"/w/{bench.world.workspace.id}/approvals/{approval.id}/"
    people = [bench.world.approver, bench.world.second_approver]
    forms = [_form(here, people[number % 2]) for number in range(20)]
    answers = at_once(20, lambda number: forms[number][0].post(f"{here}approve/", forms[number][1]))
    codes = sorted(getattr(answer, "status_code", 0) for answer in answers)
    assert codes == [303] + [409] * 19, answers
    assert ApprovalDecision.objects.filter(approval=approval).count() == 1
    assert engine.go(run).status == RunStatus.COMPLETED


def _form(here: str, user: User) -> tuple[Client, dict[str, str]]:
    """A person's own page of the request, and what its form carries."""
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    page = client.get(here).content.decode()
    found = {
        name: re.search(rf'name="{name}" value="([^"]*)"', page)
        for name in ("payload_hash", "version", "token")
    }
    return client, {name: match[1] for name, match in found.items() if match}


@row(
    "C20",
    "A rejected tool call was executed: no request, and a decision with who, when and why",
    rx=(0, 0),
    stands="failed/rejected_by_person",
    attempts="",
)
def test_C20(bench: Bench, engine: Engine) -> None:
    """langchain#37093."""
    run = engine.run(asks(bench), {"log": []})
    [approval] = engine.asked(run)
    engine.decide(approval, Decision.REJECT, reason="Not this customer")
    assert engine.go(run).status == RunStatus.COMPLETED
    decision = ApprovalDecision.objects.get(approval=approval)
    assert (decision.by, decision.reason) == (bench.world.approver, "Not this customer")
    assert decision.at is not None


@row(
    "C21",
    "An approval was a plain flag: other arguments at execution send nothing and are asked about anew",
    rx=((0, 0), (1, 1)),
    stands=("pending/awaiting_approval", "completed"),
    attempts="completed",
)
def test_C21(bench: Bench, engine: Engine) -> None:
    """pydantic-ai#5536, #6968."""
    amounts = [700, 900]

    def ask(state: State) -> State:
        payload = bench.payload("battery.asked_offer", amount_minor=amounts[0])
        proposal = propose("battery.asked_offer", command="one", **payload)
        ask_approval(proposal)
        return {"log": [perform(proposal).status]}

    run = engine.run(workflow_of(line(ask), effect_types=("battery.asked_offer",)), {"log": []})
    [first] = engine.asked(run)
    engine.decide(first)
    amounts.pop(0)
    run = engine.go(run)
    [second] = engine.asked(run)
    assert (second.round, second.revision) == (2, 2)
    assert second.payload_hash != first.payload_hash
    bench.halfway()
    engine.decide(second)
    assert engine.go(run).status == RunStatus.COMPLETED
    [made] = bench.witness.effects()
    assert made["document"]["amount_minor"] == 900


@row(
    "C31",
    "The connection dropped before the ack, and the whole job ran again: a finished run's message changes nothing",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_C31(bench: Bench, engine: Engine) -> None:
    """A public blog on Celery."""
    run = engine.run(sends(bench, "battery.offer"), {"log": []})
    before = everything(run)
    for _ in range(3):
        advance(run.id)
    assert everything(run) == before


@row(
    "C58",
    "Retry said success without checking: accepted, under way and confirmed are three different words, each true",
    rx=(2, 3),
    stands="accepted; 2 × completed",
    attempts="accepted; 2 × completed",
)
def test_C58(bench: Bench) -> None:
    """camunda#63192."""
    accepted, under_way, confirmed = (bench.propose("battery.offer", key=key) for key in ("a", "u", "c"))
    bench.witness.order("202_webhook", final="never")
    bench.perform(accepted.effect_id)
    bench.perform(confirmed.effect_id)
    bench.witness.order("slow", seconds=0.7)
    shown = at_once(2, lambda number: [bench.perform, _while_under_way(bench)][number](under_way.effect_id))
    words = [
        _standing(bench, accepted.effect_id),
        str(shown[1]),
        _standing(bench, confirmed.effect_id),
    ]
    assert [word.split()[0] for word in words] == ["Accepted", "In", "Completed"], words
    assert "has not yet said how it ended" in words[0]
    assert "is sending it" in words[1]
    assert "confirmed it" in words[2]


def _while_under_way(bench: Bench) -> Any:
    def look(effect_id: str) -> str:
        wait_for("it to be under way", lambda: bench.standing(effect_id) == ("pending", "in_flight"))
        return _standing(bench, effect_id)

    return look


def _standing(bench: Bench, effect_id: str) -> str:
    """Where the effect's page says that it stands."""
    page = read(bench, bench.world.viewer, f"effects/{effect_id}/")
    return page.partition(effect_id)[2]


@row(
    "C59",
    "An approved tool ran again on a later turn: the same arguments in a later command need their own approval",
    rx=(1, 1),
    stands="completed; pending/recorded",
    attempts="completed",
)
def test_C59(bench: Bench) -> None:
    """agent-framework#6851."""
    first = bench.approved("battery.asked_offer", key="one")
    assert isinstance(bench.perform(first.id), Result)
    second = bench.propose("battery.asked_offer", key="two")
    assert second.request_hash == first.request_hash
    assert isinstance(bench.perform(second.effect_id), Wait)


#: Whatever the receiver does with a request, it was one request.
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("500_before", {}),
    ("500_after", {}),
    ("503_unprocessed", {}),
    ("429", {}),
    ("409_in_progress", {}),
    ("401", {}),
    ("malformed", {}),
    ("drop_before", {}),
    ("drop_before", {"reset": True}),
    ("drop_after_commit", {}),
    ("drop_after_commit", {"reset": True}),
    ("202_webhook", {"final": "never"}),
]


@row(
    "C62",
    "A library's hidden retry made extra requests: whatever the receiver answers, a request an attempt",
    rx=(4, 12),
    stands="accepted; failed/refused; 2 × pending/backoff; 8 × pending/uncertain",
    attempts="accepted; 2 × not_sent; refused; 8 × unknown",
)
def test_C62(bench: Bench) -> None:
    """stripe-php#637, crewAI#7449."""
    for number, (fault, options) in enumerate(FAULTS):
        proposal = bench.propose("battery.offer", key=f"{number}")
        bench.witness.order(fault, **options)
        bench.refusal(proposal.effect_id)
        assert len(bench.witness.requests()) == number + 1, fault
