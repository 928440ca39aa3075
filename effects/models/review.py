"""What only a person can settle about an effect."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import Workspace
from effects.models.effect import Effect
from effects.states import ReviewReason


class Review(models.Model):
    """While one is open no machine move of its effect may happen, except exact positive evidence."""

    id = PrefixedId("rev")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="reviews")
    effect = models.ForeignKey(Effect, null=True, on_delete=models.PROTECT, related_name="reviews")
    provider_object = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=20, choices=ReviewReason.choices)
    sentence = models.TextField()
    opened_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    closed_why = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect", "reason"],
                condition=Q(closed_at__isnull=True),
                name="review_one_open_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(effect__isnull=False) | ~Q(provider_object=""), name="review_names_something"
            ),
        ]
        indexes = [
            models.Index(  # Home
                fields=["workspace", "opened_at"], condition=Q(closed_at__isnull=True), name="review_open"
            )
        ]

    def __str__(self) -> str:
        return self.sentence
