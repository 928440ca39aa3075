"""A run that stands at a pause, made without an engine: the rows that a worker would have left."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from console.kernel.canonical import JSONValue
from console.models import User
from effects import approvals
from effects.approvals import Pause, Request, request_for_effect
from effects.intents import Why, propose
from effects.models import Approval, Effect
from effects.states import Asked, Decision, Stance
from runs.commands.start import start
from runs.models import Run, WorkflowVersion
from tests.people import World

_numbers = itertools.count(1)

OFFER: dict[str, Any] = {
    "customer_id": "cus_000003",
    "subject": "Offer for 40 seats",
    "lines": [{"sku": "SEAT", "description": "Team seat", "quantity": 40, "unit_minor": 14_400}],
    "amount_minor": 576_000,
    "currency": "EUR",
}
MAIL: dict[str, Any] = {
    "to": "jana@brueckner.example",
    "subject": "Your offer",
    "body": "Dear Jana, the secret discount is 12 percent.",
    "customer_id": "cus_000003",
}
TICKET: dict[str, Any] = {
    "customer_id": "cus_000003",
    "subject": "Printer prints nothing",
    "description": "Since this morning.",
    "priority": "low",
}


@dataclass(frozen=True)
class HeldByNobody:
    """An origin that is always ours: no worker holds anything in these tests."""

    workspace_id: str
    run_id: str
    customer_ref: str = "cus_000003"
    name: str = "test"
    worker_id: str = "wrk_test"
    stance: Stance = Stance.LIVE
    permitted_types: frozenset[str] = frozenset()

    def hold(self) -> None:
        return None

    def check_permitted(self) -> None:
        return None

    def earlier(self, position: str, effect_type: str, command_key: str) -> None:
        return None

    def inherited(self, effect_id: str) -> None:
        return None

    def intended_before(self, would_have_id: str) -> None:
        return None


def paused_run(world: World, *, starter: User | None = None) -> Run:
    """A run of the sales agent that waits for approval."""
    run, _ = start(
        world.actor(starter or world.operator),
        workflow=WorkflowVersion.objects.get(name="sales_offer_agent"),
        conversation=world.conversation,
        given={"email": "jana@brueckner.example", "request": "Please send an offer."},
        token=f"asking-{next(_numbers)}",
    )
    Run.objects.filter(id=run.id).update(status="waiting_approval")
    run.refresh_from_db()
    return run


def intend(world: World, run: Run, effect_type: str, payload: dict[str, Any], *, call: str = "") -> Effect:
    """An effect that the run has proposed."""
    if not world.workspace.receivers.exists():
        world.receivers("http://127.0.0.1:9", 9)
    number = next(_numbers)
    why = Why(
        position=f"p{number}",
        place={},
        node="approve_offer",
        tool="open_ticket" if call else "",
        tool_call_id=call,
    )
    made = propose(HeldByNobody(world.workspace.id, run.id), effect_type, f"k{number}", payload, why)
    return Effect.objects.get(id=made.effect_id)


def asked(
    world: World,
    effect_type: str = "crm.create_offer",
    payload: dict[str, Any] | None = None,
    *,
    run: Run | None = None,
) -> Approval:
    """An open request for an effect: an offer of 5,760.00 EUR unless said otherwise."""
    run = run or paused_run(world)
    effect = intend(world, run, effect_type, payload or OFFER)
    return opened(run, request_for_effect(effect))


def asked_action(world: World, payload: dict[str, Any] | None = None, *, run: Run | None = None) -> Approval:
    """An open request of an agent, to open a ticket: approve, edit or reject."""
    run = run or paused_run(world)
    given = payload or TICKET
    effect = intend(world, run, "desk.open_ticket", given, call=f"call{next(_numbers)}")
    allows = (Decision.APPROVE, Decision.EDIT, Decision.REJECT)
    about = request_for_effect(effect)
    body: JSONValue = {"name": "open_ticket", "args": given}
    return opened(
        run, Request(Asked.ACTION, about.title, body, allows, effect_id=effect.id, why="It is broken.")
    )


def asked_tool(world: World, args: dict[str, Any], *allows: Decision) -> Approval:
    """An open request of an agent about a tool that no contract speaks of."""
    return opened(
        paused_run(world), Request(Asked.ACTION, "Use the tool grep", {"name": "grep", "args": args}, allows)
    )


def questioned(world: World, schema: Any = None) -> Approval:
    """An open question."""
    body: JSONValue = {"question": "Which colour?", "hint": "They asked for a dark one."}
    return opened(
        paused_run(world),
        Request(Asked.QUESTION, "Which colour?", body, (Decision.RESPOND,), answer_schema=schema),
    )


def opened(run: Run, request: Request) -> Approval:
    number = next(_numbers)
    pause = Pause(
        workspace_id=run.workspace_id,
        run_id=run.id,
        checkpoint_id="",
        workflow=str(run.workflow),
        fingerprint=run.fingerprint,
        node="approve_offer",
        interrupt_id=f"interrupt{number}",
        interrupt_hash="sha256:0",
    )
    approvals.open_for(pause, [request])
    return Approval.objects.get(run_id=run.id, interrupt_id=f"interrupt{number}")


def due_in(approval: Approval, **delta: float) -> None:
    """Move a request's due time, and keep its expiry after it."""
    due = timezone.now() + timedelta(**delta)
    Approval.objects.filter(id=approval.id).update(
        due_at=due, expires_at=max(due, timezone.now()) + timedelta(days=1)
    )


def expire(approval: Approval) -> None:
    """Its time is over, and no sweep has come by yet."""
    Approval.objects.filter(id=approval.id).update(expires_at=timezone.now() - timedelta(seconds=1))
