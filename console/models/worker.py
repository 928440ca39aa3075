"""The worker processes that have said they are there."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now

from console.models.identity import PrefixedId


class Worker(models.Model):
    """One worker process: which workflow versions it holds and when it was last heard of."""

    id = PrefixedId("wrk")
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    replayer = models.BooleanField(
        default=False, help_text="takes replays and branches in evidence and simulation, and nothing else"
    )
    versions = ArrayField(models.CharField(max_length=200), help_text="name@version#fingerprint")
    started_at = models.DateTimeField(db_default=Now())
    last_seen = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["-last_seen"], name="worker_alive"),  # health, Continue's preview
            GinIndex(fields=["versions"], name="worker_holds"),
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
