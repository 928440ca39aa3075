"""What trying a contract against its receiver showed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from effects.models.receiver import Receiver


class Probe(models.Model):
    """One finished probe of (effect type, contract version, receiver's account). Append-only; the newest one counts.

    *cases*: one entry for each of the seeds' failure cases: name, passed, what was seen.
    """

    id = PrefixedId("prb")
    receiver = models.ForeignKey(Receiver, on_delete=models.PROTECT, related_name="probes")
    account = models.CharField(max_length=120, help_text="the receiver's account when it was tried")
    effect_type = models.CharField(max_length=80)
    contract_version = models.IntegerField()
    passed = models.BooleanField()
    cases = models.JSONField()
    began_at = models.DateTimeField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(cases=[]), name="probe_tried_something")]
        indexes = [
            models.Index(  # every repeat
                fields=["receiver", "effect_type", "contract_version", "account", "-at"], name="probe_newest"
            )
        ]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.effect_type} {self.contract_version} at {self.account}"
