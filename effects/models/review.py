"""What only a person can settle about an effect."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.models.effect import Effect
from effects.models.receiver import Receiver
from effects.states import ReviewOutcome, ReviewReason


class Review(models.Model):
    """While one is open no machine move of its effect may happen, except exact positive evidence.

    For an irreversible type a releaser proposes how to settle it and a second person confirms that.
    """

    id = PrefixedId("rev")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="reviews")
    effect = models.ForeignKey(Effect, null=True, on_delete=models.PROTECT, related_name="reviews")
    provider_object = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=20, choices=ReviewReason.choices)
    sentence = models.TextField()
    opened_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    closed_why = models.TextField(blank=True)
    receiver = models.ForeignKey(
        Receiver, null=True, on_delete=models.PROTECT, related_name="+", help_text="of an orphan"
    )
    proposed_as = models.CharField(max_length=10, choices=ReviewOutcome.choices, blank=True)
    proposed_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    proposed_at = models.DateTimeField(null=True)
    proposed_why = models.TextField(blank=True)
    evidence = models.CharField(
        max_length=200, blank=True, help_text="the receiver's reference that shows it"
    )
    settled_as = models.CharField(max_length=10, choices=ReviewOutcome.choices, blank=True)
    settled_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    confirmed_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect", "reason"],
                condition=Q(closed_at__isnull=True),
                name="review_one_open_a_reason",
            ),
            # One orphan is reviewed once.
            models.UniqueConstraint(
                fields=["receiver", "provider_object"],
                condition=Q(receiver__isnull=False),
                name="review_one_an_orphan",
            ),
            models.CheckConstraint(
                condition=Q(confirmed_by__isnull=True) | ~Q(confirmed_by=models.F("settled_by")),
                name="review_second_is_another",
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

        triggers = [
            pgtrigger.Trigger(
                name="closed_is_final",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__closed_at__isnull=False),
                func="RAISE EXCEPTION 'review % is closed and can never change', OLD.id;",
            ),
            pgtrigger.Protect(name="review_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return self.sentence
