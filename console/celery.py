"""The Celery application: a doorbell for workers. Tasks carry ids only, keep no results, and decide nothing."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from celery import Celery
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from django.conf import settings

app = Celery("signalbox")
app.conf.update(settings.CELERY)
app.autodiscover_tasks(["runs", "effects"])


def worker_queues() -> list[str]:
    """The queue of orders, and those of the workflow versions that this deployment holds: their doorbells reach it."""
    from console.doorbell import ORDERS, queue_of
    from runs.engine.registry import workflows

    return [ORDERS, *(queue_of(name) for name in workflows())]


def _begin(**_: Any) -> None:
    """Register this process. What can't be registered ends it: Celery would log the error and go on without."""
    from runs.execution import begin_process

    try:
        begin_process()
    except Exception as error:
        raise SystemExit(f"signalbox: the worker can't start: {error}") from error


def _drain(**_: Any) -> None:
    from runs.execution import drain_process

    drain_process()


def _end(**_: Any) -> None:
    from runs.execution import end_process

    end_process()


worker_init.connect(_begin)
worker_shutting_down.connect(_drain)
worker_shutdown.connect(_end)
