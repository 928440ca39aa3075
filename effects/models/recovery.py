"""Bulk recover: many effects, one order of a person, one verdict for each."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from console.models import Bulk, BulkItem, ItemState
from console.models.identity import PrefixedId
from console.models.workspace import Workspace
from effects.models.effect import Effect
from effects.models.order import Order
from effects.states import Verdict


class Recovery(Bulk):
    """One order to deliver again, or to look up, what the filter chose."""

    id = PrefixedId("rcy")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="recoveries")
    filters = models.JSONField(help_text="the filter of the effect log that chose its items")


class RecoveryItem(BulkItem):
    """One effect of a recovery: the verdict of the dry run, and what was done."""

    recovery = models.ForeignKey(Recovery, on_delete=models.PROTECT, related_name="items")
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=12, choices=Verdict.choices)
    why = models.TextField(help_text="the verdict in words")
    order = models.ForeignKey(Order, null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["recovery", "effect"], name="recovery_item_once")]
        indexes = [
            models.Index(
                fields=["recovery", "id"], condition=Q(state=ItemState.WAITING), name="recovery_item_waiting"
            )
        ]

    def __str__(self) -> str:
        return f"{self.recovery_id} {self.effect_id}"
