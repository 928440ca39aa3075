"""The kill switch: what nothing further is sent to."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.states import StopScope


class Stop(models.Model):
    """While it stands nothing of its scope is sent. What was in flight finishes and is recorded.

    *target*: the receiver's name or the effect type; empty for the whole workspace. *needs_scan*: set by the product
    itself after a restore; it can be lifted only once every receiver that can list was scanned for orphans.
    """

    id = PrefixedId("sto")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="stops")
    scope = models.CharField(max_length=10, choices=StopScope.choices)
    target = models.CharField(max_length=80, blank=True)
    reason = models.TextField()
    needs_scan = models.BooleanField(default=False)
    by = models.ForeignKey(
        User, null=True, on_delete=models.PROTECT, related_name="+", help_text="null: the product"
    )
    at = models.DateTimeField(db_default=Now())
    lifted_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    lifted_at = models.DateTimeField(null=True)
    lifted_why = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(scope=StopScope.WORKSPACE, target="")
                | (~Q(scope=StopScope.WORKSPACE) & ~Q(target="")),
                name="stop_names_its_target",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="stop_has_reason"),
            models.UniqueConstraint(
                fields=["workspace", "scope", "target"],
                condition=Q(lifted_at__isnull=True),
                name="stop_one_standing",
            ),
        ]
        indexes = [
            models.Index(  # every claim, every page
                fields=["workspace"], condition=Q(lifted_at__isnull=True), name="stop_standing"
            )
        ]
        triggers = [
            pgtrigger.Trigger(
                name="lifted_is_final",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__lifted_at__isnull=False),
                func="RAISE EXCEPTION 'stop % was lifted and can never change', OLD.id;",
            ),
            pgtrigger.Protect(name="stop_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        """What is stopped, as it reads within a sentence."""
        said = {StopScope.RECEIVER: f"the receiver {self.target}", StopScope.TYPE: f"the type {self.target}"}
        return said.get(StopScope(self.scope), "everything")
