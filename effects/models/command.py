"""The agent's intent: the *why* of an effect."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import Workspace

#: In the place of a command that an order made: where its original stood when people were asked about it.
ORIGINAL_WAS = "original_was"


class Command(models.Model):
    """Made once for (run, position, effect type, command key).

    *machine_hash* is the request hash of the payload that the machine last proposed under it: `propose` compares
    with that, so that a person's edit stands while the machine asks for the same.
    """

    id = PrefixedId("cmd")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+")
    run_id = models.CharField(max_length=40)
    position = models.CharField(max_length=64, help_text="hash of the place in the graph")
    place = models.JSONField(default=dict, help_text="that place, readable: namespaces, step, node, path")
    effect_type = models.CharField(max_length=80)
    command_key = models.CharField(max_length=200)
    node = models.CharField(max_length=200)
    tool = models.CharField(max_length=120, blank=True)
    tool_call_id = models.CharField(max_length=200, blank=True)
    arguments = models.BinaryField(help_text="sealed: the raw arguments")
    recording_id = models.CharField(max_length=40, blank=True, help_text="the model answer that led to it")
    machine_hash = models.CharField(max_length=80)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "run_id", "position", "effect_type", "command_key"], name="command_once"
            )
        ]
        indexes = [
            models.Index(fields=["run_id", "tool_call_id"], name="command_of_tool_call"),  # the tools node
        ]

    def __str__(self) -> str:
        return self.id
