"""What a replay in evidence or simulation would have sent. It never has attempts."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from console.models.workspace import Workspace


class WouldHave(models.Model):
    """A kind of its own, so that nothing can take it for an effect: no status, no key, no attempt. Append-only.

    *request_hash* lets it be compared with the original's effect at the same place.
    """

    id = PrefixedId("wld")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+")
    run_id = models.CharField(max_length=40)
    position = models.CharField(max_length=64)
    place = models.JSONField(default=dict)
    node = models.CharField(max_length=200)
    tool_call_id = models.CharField(max_length=200, blank=True)
    stands_for = models.CharField(
        max_length=45, blank=True, help_text="the effect of an earlier run that it is compared with"
    )
    effect_type = models.CharField(max_length=80)
    contract_version = models.IntegerField()
    command_key = models.CharField(max_length=200)
    recipient = models.CharField(max_length=300, help_text="masked where the contract masks it")
    payload = models.BinaryField(help_text="sealed: canonical JSON")
    shown = models.JSONField(help_text="the payload with protected fields masked")
    request_hash = models.CharField(max_length=80)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "run_id", "position", "effect_type", "command_key", "request_hash"],
                name="would_have_once",
            )
        ]
        indexes = [models.Index(fields=["run_id", "created_at"], name="would_have_of_run")]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return self.id
