"""What connects messages with one customer or case."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, TextChoices
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import Workspace


class Direction(TextChoices):
    INBOUND = "inbound", "From the customer"
    OUTBOUND = "outbound", "To the customer"
    NOTE = "note", "Note"


class Conversation(models.Model):
    id = PrefixedId("conv")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="conversations")
    subject = models.CharField(max_length=200)
    customer_ref = models.CharField(max_length=120)
    customer_name = models.CharField(max_length=160)
    channel = models.CharField(max_length=30, blank=True)
    language = models.CharField(max_length=8, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="conversation_newest"),
            models.Index(fields=["workspace", "customer_ref"], name="conversation_of_customer"),
        ]

    def __str__(self) -> str:
        return self.subject


class Message(models.Model):
    """One message. What a run posts carries its run and a key, so that a node that runs again posts once."""

    id = PrefixedId("msg")
    conversation = models.ForeignKey(Conversation, on_delete=models.PROTECT, related_name="messages")
    direction = models.CharField(max_length=10, choices=Direction.choices)
    author = models.CharField(max_length=160)
    text = models.TextField()
    at = models.DateTimeField(db_default=Now())
    run_id = models.CharField(max_length=40, blank=True)
    would_be = models.BooleanField(
        default=False, help_text="a simulation would have posted it: it is part of no conversation"
    )
    post_key = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "post_key"], condition=~Q(post_key=""), name="message_posted_once"
            )
        ]
        indexes = [models.Index(fields=["conversation", "at"], name="message_of_conversation")]

    def __str__(self) -> str:
        return self.text[:80]
