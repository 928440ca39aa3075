"""What the ledger knows of its own database, and the scans for what a receiver has and the ledger lacks."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.models.receiver import Receiver
from effects.states import ScanStatus


class OrphanScan(models.Model):
    """One pass over what a receiver lists: objects that carry our ids and have no row become reviews."""

    id = PrefixedId("scan")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="orphan_scans")
    receiver = models.ForeignKey(Receiver, on_delete=models.PROTECT, related_name="orphan_scans")
    effect_type = models.CharField(max_length=80)
    since = models.DateTimeField(help_text="from when on the receiver's objects are looked at")
    status = models.CharField(max_length=10, choices=ScanStatus.choices, default=ScanStatus.DUE)
    asked_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    token = models.CharField(max_length=100, unique=True)
    lease_until = models.DateTimeField(null=True)
    page = models.TextField(
        blank=True, help_text="where the receiver's list goes on; empty: at its beginning"
    )
    looked_at = models.IntegerField(default=0, help_text="how many objects")
    found = models.IntegerField(default=0, help_text="how many orphans")
    elsewhere = models.IntegerField(default=0, help_text="how many that carry an id of another workspace")
    problem = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["asked_at"],
                condition=Q(status__in=[ScanStatus.DUE, ScanStatus.RUNNING]),
                name="orphan_scan_due",
            ),
            models.Index(fields=["workspace", "-asked_at"], name="orphan_scan_newest"),
        ]
        triggers = [  # what it has seen lifts a stop
            pgtrigger.Trigger(
                name="ended_scan_is_final",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
                func="RAISE EXCEPTION 'orphan scan % has ended and can never change', OLD.id;",
            ),
            pgtrigger.Protect(name="scan_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return self.id


class LedgerMark(models.Model):
    """The one row that says which database this ledger was written in. Another one means: restored from a back-up."""

    id = models.IntegerField(primary_key=True, default=1)
    system_identifier = models.CharField(max_length=30)
    timeline = models.IntegerField()
    database_oid = models.BigIntegerField()
    checked_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="ledger_mark_is_one")]

    def __str__(self) -> str:
        return f"{self.system_identifier}/{self.timeline}"
