"""The outside systems that a workspace may send to."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, TextChoices
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import Workspace


class Standing(TextChoices):
    LIVE = "live", "Live"
    ISOLATED = "isolated", "Isolated"


class Receiver(models.Model):
    """A configured outside system. The secret itself is never stored: *secret_name* says which setting holds it."""

    id = PrefixedId("rcv")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="receivers")
    name = models.CharField(max_length=60)
    account = models.CharField(max_length=120, help_text="the account at the receiver that we act as")
    standing = models.CharField(max_length=10, choices=Standing.choices)
    base_url = models.CharField(max_length=300, help_text="https://…, or smtp://host:port")
    hosts = ArrayField(models.CharField(max_length=200), help_text="the only hosts it may be spoken to at")
    secret_name = models.CharField(max_length=60, blank=True)
    clock_ahead = models.FloatField(
        null=True,
        help_text="seconds by which its clock differs from the database's; null: no more than is reckoned with",
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "name", "standing"], name="receiver_once"),
            models.CheckConstraint(condition=Q(standing__in=Standing.values), name="receiver_standing"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.account})"
