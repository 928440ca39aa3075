"""Where an order stands: one conditional UPDATE each. False means that somebody else moved it first."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F, Q
from django.db.models.functions import Now

from console.models import User
from effects.models import Order
from effects.states import OPEN_ORDERS, OrderStatus


def second(order_id: str, *, by: User) -> bool:
    """awaiting_second → due: another person than the one who ordered it has agreed."""
    return bool(
        Order.objects.filter(id=order_id, status=OrderStatus.AWAITING_SECOND)
        .exclude(asked_by=by)
        .update(status=OrderStatus.DUE, second_by=by, second_at=Now())
    )


def end(
    order_id: str, status: OrderStatus, outcome: str, *, leaving: tuple[OrderStatus, ...] = OPEN_ORDERS
) -> bool:
    """awaiting_second / due → done, refused or withdrawn, with what became of it in words."""
    return bool(
        Order.objects.filter(id=order_id, status__in=leaving).update(
            status=status, outcome=outcome, ended_at=Now()
        )
    )


def count_attempt(order_id: str) -> bool:
    """One delivery was made by it. In the transaction of the claim: what it overrides, it overrides once."""
    return bool(Order.objects.filter(id=order_id, status=OrderStatus.DUE).update(attempts=F("attempts") + 1))


def hold(order_id: str) -> Order | None:
    """Lock the order's row until the transaction ends, and read it as it is now; None when it is not due any more."""
    return Order.objects.select_for_update().filter(id=order_id, status=OrderStatus.DUE).first()


def ring_due(order_id: str, *, after: timedelta) -> bool:
    """Whether it is time to ring for a due order again; marks that it was."""
    return bool(
        Order.objects.filter(id=order_id, status=OrderStatus.DUE)
        .filter(Q(rung_at__isnull=True) | Q(rung_at__lt=Now() - after))
        .update(rung_at=Now())
    )
