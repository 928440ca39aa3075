"""Webhooks that receivers send: where each may knock, and what came."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from console.models.workspace import Workspace
from effects.models.effect import Effect
from effects.models.receiver import Receiver


class HookSource(models.Model):
    """An address, /hooks/<id>, at which one receiver of one workspace tells what became of its commands.

    *secret_name*: the setting that holds the signing secret (``whsec_…``; several, separated by spaces, while one is
    replaced). The secret itself is never stored.
    """

    id = PrefixedId("hook")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="hook_sources")
    receiver = models.ForeignKey(Receiver, on_delete=models.PROTECT, related_name="hook_sources")
    secret_name = models.CharField(max_length=60)
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"webhooks of {self.receiver}"


class HookMessage(models.Model):
    """One signed message that was taken. Append-only: the same message id again is the same message."""

    source = models.ForeignKey(HookSource, on_delete=models.PROTECT, related_name="messages")
    message_id = models.CharField(max_length=200)
    at = models.DateTimeField(db_default=Now())
    signed_at = models.DateTimeField()
    kind = models.CharField(max_length=120, blank=True, help_text="the type that the message names")
    body_hash = models.CharField(max_length=80)
    effect = models.ForeignKey(Effect, null=True, on_delete=models.PROTECT, related_name="hook_messages")
    came_of_it = models.TextField(help_text="what was done with it, in words")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "message_id"], name="hook_message_once")]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return self.message_id
