"""Bulk Continue: many runs, one order of a person, each continued at most once by it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from console.models import Bulk, BulkItem, ItemState
from console.models.identity import PrefixedId
from console.models.workspace import Workspace
from runs.models.run import Run


class BulkContinue(Bulk):
    """One order to continue what the filter of the Runs page chose."""

    id = PrefixedId("blk")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="bulk_continues")
    filters = models.JSONField(help_text="the filters of the Runs page that chose its runs")


class BulkContinueItem(BulkItem):
    """One run of it. *version*: the run's when it was shown; one that has moved since is left alone."""

    bulk = models.ForeignKey(BulkContinue, on_delete=models.PROTECT, related_name="items")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="+")
    version = models.IntegerField(help_text="of the run as the dry run showed it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bulk", "run"], name="bulk_continue_item_once")]
        indexes = [
            models.Index(
                fields=["bulk", "id"],
                condition=Q(state=ItemState.WAITING),
                name="bulk_continue_item_waiting",
            )
        ]

    def __str__(self) -> str:
        return f"{self.bulk_id} {self.run_id}"
