"""The Celery application: a doorbell for workers. Tasks carry ids only, keep no results, and decide nothing."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from celery import Celery
from celery.signals import worker_init, worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings

app = Celery("signalbox")
app.conf.update(settings.CELERY)
app.autodiscover_tasks(["runs", "effects"])


#: Set in the environment of a replayer: it takes runs in evidence and simulation, each in a child of its own.
REPLAYER = "SIGNALBOX_REPLAYER"


def worker_queues(*, replayer: bool = False) -> list[str]:
    """The queue of orders, and those of the workflow versions that this deployment holds: their doorbells reach it.

    A replayer listens to the replays of those versions and to nothing else.
    """
    from console.doorbell import ORDERS, queue_of
    from runs.engine.registry import workflows

    if replayer:
        return [queue_of(name, apart=True) for name in workflows()]
    return [ORDERS, *(queue_of(name) for name in workflows())]


def _begin(**_: Any) -> None:
    """Register this process. What can't be registered ends it: Celery would log the error and go on without."""
    from runs.execution import begin_process

    try:
        begin_process(apart=_is_replayer())
    except Exception as error:
        raise SystemExit(f"signalbox: the worker can't start: {error}") from error


def _is_replayer() -> bool:
    return bool(os.environ.get(REPLAYER))


def _stay(sender: Any, **_: Any) -> None:
    """A replayer has no thread beside the one that runs its tasks: between two of them Celery's timer shows it alive."""
    if _is_replayer():
        from runs.execution import show_alive, this_process

        sender.timer.call_repeatedly(2.0, show_alive, (this_process(),))


def _drain(**_: Any) -> None:
    from runs.apart import drain_child
    from runs.execution import drain_process

    drain_process()
    drain_child()


def _end(**_: Any) -> None:
    from runs.execution import end_process

    end_process()


worker_init.connect(_begin)
worker_ready.connect(_stay)
worker_shutting_down.connect(_drain)
worker_shutdown.connect(_end)
