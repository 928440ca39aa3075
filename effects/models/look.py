"""A person's question to a receiver: do you have this one? Worked by the sweep, which asks."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.workspace import User
from effects.models.effect import Effect


class LookRequest(models.Model):
    """Asked of any effect, a settled one too. One at a time for an effect; what came is an observation."""

    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="look_requests")
    asked_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    token = models.CharField(max_length=100, unique=True)
    lease_until = models.DateTimeField(null=True)
    found = models.CharField(max_length=20, blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect"], condition=Q(ended_at__isnull=True), name="look_request_one_open"
            )
        ]
        indexes = [
            models.Index(fields=["asked_at"], condition=Q(ended_at__isnull=True), name="look_request_open")
        ]

    def __str__(self) -> str:
        return f"look at {self.effect_id}"
