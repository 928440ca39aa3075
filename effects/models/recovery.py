"""Bulk recover: many effects, one order of a person, one verdict for each."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.models.effect import Effect
from effects.models.order import Order
from effects.states import ItemState, RecoveryStatus, Verdict


class Recovery(models.Model):
    """Works through its items in the background, at most *per_minute*, until it is done or stopped."""

    id = PrefixedId("rcy")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="recoveries")
    filters = models.JSONField(help_text="the filter of the effect log that chose its items")
    reason = models.TextField()
    per_minute = models.IntegerField()
    status = models.CharField(max_length=10, choices=RecoveryStatus.choices, default=RecoveryStatus.RUNNING)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())
    token = models.CharField(max_length=60, unique=True)
    next_at = models.DateTimeField(db_default=Now(), help_text="the next item is due")
    stopped_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="recovery_has_reason"),
            models.CheckConstraint(condition=Q(per_minute__gte=1), name="recovery_has_rate"),
        ]
        indexes = [
            models.Index(  # the sweep
                fields=["next_at"], condition=Q(status=RecoveryStatus.RUNNING), name="recovery_running"
            )
        ]

    def __str__(self) -> str:
        return self.id


class RecoveryItem(models.Model):
    """One effect of a recovery: the verdict of the dry run, and what was done. Each is done once, however often tried."""

    recovery = models.ForeignKey(Recovery, on_delete=models.PROTECT, related_name="items")
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=12, choices=Verdict.choices)
    why = models.TextField(help_text="the verdict in words")
    state = models.CharField(max_length=10, choices=ItemState.choices, default=ItemState.WAITING)
    order = models.ForeignKey(Order, null=True, on_delete=models.PROTECT, related_name="+")
    came_of_it = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["recovery", "effect"], name="recovery_item_once")]
        indexes = [
            models.Index(
                fields=["recovery", "id"], condition=Q(state=ItemState.WAITING), name="recovery_item_waiting"
            )
        ]

    def __str__(self) -> str:
        return f"{self.recovery_id} {self.effect_id}"
