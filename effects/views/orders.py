"""What people ordered about an effect, and the effects that it is linked to by that, as its pages show them."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db.models import Prefetch, Q

from console.access import Actor
from console.models import Capability
from console.pages import new_token
from effects.forms import WithdrawForm
from effects.models import Approval, ApprovalDecision, Effect, Order
from effects.states import OPEN_ORDERS, ApprovalStatus, Decision

#: An effect is ordered about a few times at most; of more the newest are shown.
MOST = 50


@dataclass(frozen=True)
class OrderRow:
    """One order. *about_this*: it was given about the page's effect; otherwise it is what sends it.

    *request*: the second person's, where it still waits. *agreed*: what they said when they agreed.
    """

    order: Order
    about_this: bool
    request: Approval | None
    agreed: ApprovalDecision | None
    withdraw: WithdrawForm | None
    tried: bool = False
    token: str = field(default_factory=new_token)

    @property
    def is_open(self) -> bool:
        return self.order.status in OPEN_ORDERS


@dataclass(frozen=True)
class Withdrawing:
    """A withdrawal that was refused: the form as it was typed, to be shown again at its order."""

    order_id: str
    form: WithdrawForm


def orders_of(effect: Effect, actor: Actor, withdrawing: Withdrawing | None = None) -> list[OrderRow]:
    """Those given about *effect*, and the one that made it; the newest first."""
    asked = Approval.objects.defer("body").order_by("-created_at")
    found = (
        Order.objects.filter(Q(effect=effect) | Q(sends=effect))
        .select_related("asked_by", "second_by", "effect", "sends__receiver")
        .defer("effect__answer", "sends__answer")
        .prefetch_related(Prefetch("approvals", asked), "approvals__decisions__by")
        .order_by("-asked_at", "-id")
    )
    return [_row(order, effect, actor, withdrawing) for order in found[:MOST]]


def _row(order: Order, effect: Effect, actor: Actor, withdrawing: Withdrawing | None) -> OrderRow:
    asked = list(order.approvals.all())
    decisions = [decision for approval in asked for decision in approval.decisions.all()]
    tried = withdrawing is not None and withdrawing.order_id == order.id
    return OrderRow(
        order=order,
        about_this=order.effect_id == effect.id,
        request=next((one for one in asked if one.status == ApprovalStatus.PENDING), None),
        agreed=next((one for one in decisions if one.decision == Decision.APPROVE), None),
        withdraw=withdrawing.form if withdrawing and tried else _withdrawing(order, actor),
        tried=tried,
    )


def _withdrawing(order: Order, actor: Actor) -> WithdrawForm | None:
    """The form to take it back; None where it is too late for that, or not for this person."""
    offered = order.status in OPEN_ORDERS and not order.attempts and actor.may(Capability.REPEAT)
    return WithdrawForm(order_id=order.id) if offered else None


@dataclass(frozen=True)
class Link:
    """Another effect, and what it is to this one, in words."""

    word: str
    effect: Effect


def links_of(effect: Effect) -> list[Link]:
    """The effects that it was sent in the place of, or takes back, and those that do so for it; the oldest first."""
    linked = Effect.objects.filter(
        Q(id__in=[one for one in (effect.successor_of_id, effect.compensates_id) if one])
        | Q(successor_of=effect)
        | Q(compensates=effect)
    )
    found = linked.select_related("receiver").defer("answer").order_by("created_at", "id")
    return [Link(_word(effect, other), other) for other in found[:MOST]]


def _word(effect: Effect, other: Effect) -> str:
    if other.id == effect.successor_of_id:
        return "Sent in the place of"
    if other.id == effect.compensates_id:
        return "Takes back"
    return "Successor" if other.successor_of_id == effect.id else "Taken back by"
