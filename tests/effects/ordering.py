"""What a releaser and a second person do, as the tests of orders say it."""

from __future__ import annotations

import uuid
from typing import Any

from console.models import User
from effects import approvals, orders
from effects.commands import repeat
from effects.models import Approval, ApprovalDecision, Effect, Order
from effects.states import ApprovalStatus, Decision
from tests.effects.book import Book

WORDS = "I accept that there may be two of them."


def deliver_again(book: Book, effect_id: str, **given: Any) -> Order:
    return repeat.deliver_again(book.world.actor(book.world.releaser), effect_id, **asked(effect_id, given))


def send_as_new(book: Book, effect_id: str, **given: Any) -> Order:
    return repeat.send_as_new(book.world.actor(book.world.releaser), effect_id, **asked(effect_id, given))


def asked(effect_id: str, given: dict[str, Any]) -> dict[str, Any]:
    """A form filled in as it must be, but for what *given* says."""
    usual = {
        "reason": "The customer is waiting.",
        "token": uuid.uuid4().hex,
        "typed_id": effect_id,
        "accepts": WORDS,
    }
    return {**usual, **given}


def request_of(order: Order) -> Approval:
    """The open request to the second person."""
    return Approval.objects.get(order=order, status=ApprovalStatus.PENDING)


def agree(book: Book, order: Order, by: User | None = None, **given: Any) -> ApprovalDecision:
    return decide(book, order, Decision.APPROVE, by, **given)


def decide(
    book: Book, order: Order, decision: Decision, by: User | None = None, **given: Any
) -> ApprovalDecision:
    request = request_of(order)
    return approvals.decide(
        book.world.actor(by or book.world.approver),
        request.id,
        **{
            "decision": decision,
            "payload_hash": request.payload_hash,
            "version": request.version,
            "token": uuid.uuid4().hex,
            "reason": "I accept a second one, too.",
            **given,
        },
    )


def carry_out(order: Order) -> str:
    """What a worker does that hears the bell."""
    return orders.execute(order.id, worker_id="wrk_of_a_test")


def refreshed(order: Order) -> Order:
    return Order.objects.select_related("sends", "effect").get(id=order.id)


def successors(effect_id: str) -> list[Effect]:
    return list(Effect.objects.filter(successor_of=effect_id).order_by("created_at"))
