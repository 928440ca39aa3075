"""What every bulk act has in its row: one order of a person for many subjects, and one item for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q, TextChoices
from django.db.models.functions import Now

from console.models.workspace import User, Workspace


class BulkStatus(TextChoices):
    RUNNING = "running", "Running"
    STOPPED = "stopped", "Stopped"
    DONE = "done", "Done"


class ItemState(TextChoices):
    WAITING = "waiting", "Waiting"
    DONE = "done", "Done"
    SKIPPED = "skipped", "Left alone"
    STOPPED = "stopped", "Not reached"


class Bulk(models.Model):
    """Works through its items in the background, at most *per_minute*, until it is done or stopped."""

    reason = models.TextField()
    per_minute = models.IntegerField()
    status = models.CharField(max_length=10, choices=BulkStatus.choices, default=BulkStatus.RUNNING)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())
    token = models.CharField(max_length=60, unique=True)
    next_at = models.DateTimeField(db_default=Now(), help_text="the next item is due")
    stopped_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField(null=True)

    if TYPE_CHECKING:  # each kind has its own
        id: models.CharField[str, str]
        workspace: models.ForeignKey[Workspace, Workspace]
        workspace_id: str
        filters: models.JSONField[dict[str, str], dict[str, str]]
        items: Any  # the items' own manager

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="%(class)s_has_reason"),
            models.CheckConstraint(condition=Q(per_minute__gte=1), name="%(class)s_has_rate"),
        ]
        indexes = [
            models.Index(  # the sweep
                fields=["next_at"], condition=Q(status=BulkStatus.RUNNING), name="%(class)s_running"
            )
        ]

    def __str__(self) -> str:
        return self.id


class BulkItem(models.Model):
    """One subject of a bulk act, and what was done. Each is done once, however often it is tried."""

    state = models.CharField(max_length=10, choices=ItemState.choices, default=ItemState.WAITING)
    came_of_it = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True
