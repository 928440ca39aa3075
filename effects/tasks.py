"""Shells around the ledger's work: fetch, call. The row decides everything."""

from __future__ import annotations

import logging

from celery import shared_task

from effects import orders
from effects.second_person import ORDER_TASK

logger = logging.getLogger(__name__)


@shared_task(name=ORDER_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
def deliver(order_id: str) -> None:
    """One visit to an order. A message that comes late, twice, or for one that has ended does nothing."""
    logger.info("order %s: %s", order_id, orders.execute(order_id))
