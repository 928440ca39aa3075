"""The second person of an order: asked on the page of approvals, about exactly the bytes that it would send."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Now

from console import doorbell
from console.access import Actor
from console.kernel.crypto import seal_json
from console.kernel.errors import Stale
from console.kernel.live import announce
from console.models import Capability
from effects import moves
from effects.contracts import Asking, contract
from effects.models import Approval, Effect, Order
from effects.moves import orders
from effects.rounds import decided
from effects.states import ApprovalStatus, Asked, Decision, OrderStatus, Reversibility, SubState

#: The worker's task that carries out a person's order.
ORDER_TASK = "effects.deliver"


def may_second(actor: Actor, approval: Approval, involved: frozenset[str]) -> str:
    """A second person for an order: not who gave it, nor who started what it is about."""
    if not actor.may(Capability.SECOND):
        return f"Your roles in {actor.workspace.name} do not let you be the second person here."
    if approval.order is not None and approval.order.asked_by_id == actor.user.id:
        return "Four eyes: you gave this order, so somebody else decides it."
    if actor.user.id in involved:
        return "Four eyes: you started or edited this, so somebody else decides it."
    return ""


#: How long a second person's agreement to an order counts.
ORDER_GRANT = timedelta(hours=1)


def open_for_order(order: Order, effect: Effect, *, title: str, why: str, risk: bool) -> Approval:
    """Ask a second person about an order, on the page of approvals: exactly the bytes of *effect* that it would send.

    *risk*: whoever approves says in words that there may be two. Called in the order's own transaction.
    """
    return Approval.objects.create(
        workspace_id=order.workspace_id,
        run_id=effect.run_id,
        workflow="",
        fingerprint="",
        node=effect.command.node,
        interrupt_id=order.id,
        interrupt_hash=effect.request_hash,
        asks=Asked.EFFECT,
        effect=effect,
        order=order,
        must_say=risk,
        revision=effect.revision,
        contract_version=effect.contract_version,
        payload_hash=effect.request_hash,
        title=title[:200],
        why=why,
        body=seal_json(
            {"effect": effect.id, "revision": effect.revision},
            workspace=order.workspace_id,
            owner=effect.run_id,
        ),
        allows=[Decision.APPROVE.value, Decision.REJECT.value],
        irreversible=effect.reversibility == Reversibility.IRREVERSIBLE,
        due_at=Now() + timedelta(seconds=Asking.due),
        expires_at=Now() + timedelta(seconds=Asking.expires),
    )


def decide_order(actor: Actor, approval: Approval, order: Order, decision: Decision, reason: str) -> None:
    """Approved: the grant for exactly these bytes, and the order is due. Otherwise it ends, and what it made with it."""
    effect = Effect.objects.select_for_update().get(id=approval.effect_id)
    if decision != Decision.APPROVE:
        orders.end(order.id, OrderStatus.REFUSED, f"{decided(decision, actor.user.name)}: {reason}")
        if order.sends_id != order.effect_id:
            moves.reject(
                effect.id,
                revision=approval.revision or effect.revision,
                problem=f"Rejected by {actor.user.name}: {reason}",
            )
        close_what_it_leaves(order, why=f"{decided(decision, actor.user.name)}: {reason}")
        return
    if not _grant_for_order(effect, approval) or not orders.second(order.id, by=actor.user):
        raise Stale("The effect has moved since you opened this. Look at it again.")
    doorbell.ring_on_commit(ORDER_TASK, [order.id], queue=doorbell.ORDERS)


def _grant_for_order(effect: Effect, approval: Approval) -> bool:
    asking = contract(effect.effect_type).asking
    valid = timedelta(seconds=asking.grant) if asking else ORDER_GRANT
    if effect.sub_state in (SubState.RECORDED, SubState.AWAITING_APPROVAL):
        return moves.grant(
            effect.id,
            approval=approval,
            revision=approval.revision or effect.revision,
            request_hash=approval.payload_hash,
            valid=valid,
        )
    if effect.sub_state in (SubState.HELD, SubState.REFUSED):
        return moves.make_ready_by_order(effect.id, granted_by=approval, valid=valid)
    return moves.renew_grant(effect.id, granted_by=approval, valid=valid)


def end_order(order: Order, status: OrderStatus, outcome: str) -> bool:
    """An order is not carried out: it ends, with its open approval and with an unsent effect that only orders send."""
    if not orders.end(order.id, status, outcome):
        return False
    Approval.objects.filter(order=order, status=ApprovalStatus.PENDING).update(
        status=ApprovalStatus.CLOSED, ended_at=Now(), ended_why=outcome[:200], version=F("version") + 1
    )
    close_what_it_leaves(order, why=outcome)
    tell(order)
    return True


def tell(order: Order) -> None:
    """Tell the open pages that show this order."""
    announce(
        order.workspace_id,
        f"effect:{order.effect_id}",
        f"effect:{order.sends_id}",
        f"run:{order.effect.run_id}",
        "effects",
        "approvals",
        "home",
    )


def close_what_it_leaves(order: Order, *, why: str) -> bool:
    """An order has ended, and what only orders send, a successor or a compensation, is unsent: it is cancelled with it.

    In the transaction in which the order ends. No run would send it, so it would wait on nobody's list, stand in the
    way of another successor, and count against what may still be taken back.
    """
    sends = Effect.objects.get(id=order.sends_id)
    made_by_order = bool(sends.successor_of_id or sends.compensates_id)
    return made_by_order and moves.cancel_ordered(sends.id, why=why)
