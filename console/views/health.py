"""Whether Signalbox can work: for a load balancer in one word, for people on Home in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db import Error, connection
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import Actor
from console.models import Worker
from effects import durability
from effects.models import Receiver
from runs.models import Run
from runs.selectors import ALIVE, runs_seen_by
from runs.states import RunStatus

#: The sweep's advisory lock, as console.management.commands.sweep takes it: whoever holds it is sweeping.
SWEEP_LOCK = 7_206_150_017
#: A row that is queued for longer than this while workers are alive is late.
LATE = timedelta(seconds=10)
COUNTED = 100
BROKER_SECONDS = 0.3


@require_safe
def health(request: HttpRequest) -> JsonResponse:  # noqa: ARG001
    """200 when the database answers, 503 otherwise. Says nothing else: nobody has to log in for it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return JsonResponse({"status": "unavailable", "database": "unreachable"}, status=503)
    return JsonResponse({"status": "ok", "database": "ok"})


@dataclass(frozen=True)
class Health:
    """What works now. *versions* counts the workers that hold each workflow version.

    *clocks*: the receivers whose clock differs from the database's by more than key windows reckon with.
    *forgets*: why Postgres may lose what it has confirmed, so that nothing irreversible is sent; empty when it may not,
    or when it is not *judged*.
    """

    versions: dict[str, int]
    workers: int
    queued: int
    oldest: datetime | None
    broker: bool
    sweep: bool
    forgets: str
    clocks: list[Receiver]
    judged: bool
    now: datetime

    @property
    def late(self) -> bool:
        return self.oldest is not None and self.now - self.oldest > LATE


def health_of(actor: Actor) -> Health:
    """Workers are the deployment's; the queue is the workspace's own. Four queries and one ping."""
    versions, workers = _workers()
    queued = runs_seen_by(actor).filter(status=RunStatus.QUEUED)
    waiting = list(queued.order_by("status_since").values_list("status_since", flat=True)[:COUNTED])
    return Health(
        versions=versions,
        workers=workers,
        queued=len(waiting),
        oldest=waiting[0] if waiting else None,
        broker=_broker_answers(),
        sweep=_somebody_sweeps(),
        forgets=durability.problem(),
        clocks=list(Receiver.objects.filter(workspace=actor.workspace, clock_ahead__isnull=False)),
        judged=settings.DURABLE_ONLY,
        now=timezone.now(),
    )


def alive_versions() -> set[str]:
    """Every ``name@version#fingerprint`` that a worker which is alive holds."""
    rows = Worker.objects.filter(stopped_at=None, last_seen__gt=Now() - ALIVE).values_list(
        "versions", flat=True
    )
    return {version for versions in rows[:500] for version in versions}


def _workers() -> tuple[dict[str, int], int]:
    rows = list(
        Worker.objects.filter(stopped_at=None, last_seen__gt=Now() - ALIVE).values_list(
            "versions", flat=True
        )[:500]
    )
    counts: dict[str, int] = {}
    for versions in rows:
        for version in versions:
            name = version.partition("#")[0].replace("@", " ")
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items())), len(rows)


def _somebody_sweeps() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND ((classid::bigint << 32) | objid::bigint) = %s"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))",
            [SWEEP_LOCK],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


def _broker_answers() -> bool:
    """Our own Redis, asked with a short patience: without it the sweep still moves every run."""
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=BROKER_SECONDS, socket_timeout=BROKER_SECONDS
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def queued_without_worker(actor: Actor) -> list[Run]:
    """Queued runs whose version no living worker holds: they wait for a deployment, not for their turn."""
    queued = (
        runs_seen_by(actor)
        .filter(status=RunStatus.QUEUED)
        .select_related("workflow", "conversation")
        .defer("input")
    )
    alive = alive_versions()
    return [
        run
        for run in queued.order_by("status_since")[:COUNTED]
        if f"{run.workflow.name}@{run.workflow.version}#{run.fingerprint}" not in alive
    ]
