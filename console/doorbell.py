"""Ring a worker by task name. The row is the queue: a lost ring only means that the sweep rings again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

#: A ring that no worker has heard in so many seconds is forgotten: the sweep rings again for what is still due.
EXPIRES_S = 600

#: A client of its own, with sub-second time-outs and no retry: a hung broker never hangs a click.
_bell = Celery("doorbell", broker=settings.REDIS_URL, set_as_current=False)
_bell.conf.update(
    task_ignore_result=True,
    task_create_missing_queues=True,
    broker_connection_timeout=0.5,
    broker_transport_options={
        "socket_connect_timeout": 0.5,
        "socket_timeout": 0.5,
        "retry_on_timeout": False,
        "max_retries": 0,
    },
)


#: The queue of people's orders: every worker listens, since an effect needs no workflow's code.
ORDERS = "orders"


def queue_of(workflow: str, *, apart: bool = False) -> str:
    """The queue of one workflow version: only workers that hold ``name@version`` listen to it.

    *apart*: its runs in evidence and simulation, which replayers take.
    """
    return f"replays.{workflow}" if apart else f"runs.{workflow}"


def ring(task: str, args: Sequence[str], *, queue: str) -> bool:
    """Ring now. False when the broker can't be reached in time; the sweep will ring again."""
    try:
        _bell.send_task(
            task, args=list(args), queue=queue, retry=False, ignore_result=True, expires=EXPIRES_S
        )
    except (OperationalError, OSError) as error:
        logger.warning(
            "the doorbell of %s did not ring (%s); the sweep rings again", queue, type(error).__name__
        )
        return False
    return True


def ring_on_commit(task: str, args: Sequence[str], *, queue: str) -> None:
    """Ring once the row that it is about is committed; never when it is rolled back."""
    transaction.on_commit(partial(ring, task, args, queue=queue), robust=True)
