"""What a person ordered about an effect: deliver it again, send it as a new one, or compensate it."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.models.effect import Effect
from effects.states import OPEN_ORDERS, OrderKind, OrderStatus


class Order(models.Model):
    """The origin of a sending that no run made. Sent by an effects task of its own, whatever the run's status.

    *effect* is the one it was ordered about, *sends* the one that is sent: the same for a repeat, the linked successor
    or the compensation otherwise. *attempts* counts the deliveries it has made: what it overrides, it overrides once.
    """

    id = PrefixedId("ord")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="orders")
    kind = models.CharField(max_length=15, choices=OrderKind.choices)
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="orders")
    sends = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="sent_by_orders")
    status = models.CharField(max_length=15, choices=OrderStatus.choices)
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    reason = models.TextField()
    token = models.CharField(max_length=100, unique=True, help_text="of the form, or of the recovery's item")
    overrides = models.BooleanField(
        default=False, help_text="nothing proves that the receiver does not have it: two people accept that"
    )
    accepts = models.TextField(blank=True, help_text="the words in which the first of them accepts it")
    needs_second = models.BooleanField()
    second_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    second_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    rung_at = models.DateTimeField(null=True)
    outcome = models.TextField(blank=True, help_text="what became of it, in words")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="order_has_reason"),
            models.CheckConstraint(
                condition=Q(status__in=list(OPEN_ORDERS), ended_at__isnull=True)
                | (~Q(status__in=list(OPEN_ORDERS)) & Q(ended_at__isnull=False)),
                name="order_ended_has_time",
            ),
            # Four eyes: what needs a second person is not due without one, and that is somebody else.
            models.CheckConstraint(
                condition=Q(needs_second=False) | Q(second_by__isnull=False) | ~Q(status__in=["due", "done"]),
                name="order_due_has_second",
            ),
            models.CheckConstraint(
                condition=Q(second_by__isnull=True) | ~Q(second_by=models.F("asked_by")),
                name="order_second_is_another",
            ),
            # Double click, Back, two tabs, two people: one order at a time.
            models.UniqueConstraint(
                fields=["sends"], condition=Q(status__in=list(OPEN_ORDERS)), name="order_one_open_an_effect"
            ),
        ]
        indexes = [
            models.Index(  # the sweep and the doorbell
                fields=["asked_at"], condition=Q(status=OrderStatus.DUE), name="order_due"
            ),
            models.Index(fields=["effect", "asked_at"], name="order_of_effect"),
        ]
        triggers = [
            pgtrigger.Trigger(
                name="ended_order_is_final",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
                func="RAISE EXCEPTION 'order % has ended and can never change', OLD.id;",
            ),
            pgtrigger.Protect(name="order_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.effect_id}"
