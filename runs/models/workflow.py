"""The versions of workflows that workers have brought."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class WorkflowVersion(models.Model):
    """A named, versioned graph as a worker registered it. Deployed code: it belongs to no workspace.

    Name and version have one fingerprint for ever: the registry refuses another one under the same version.
    """

    name = models.CharField(max_length=80)
    version = models.CharField(max_length=40)
    schema_version = models.IntegerField()
    fingerprint = models.CharField(max_length=80)
    title = models.CharField(max_length=120)
    summary = models.TextField(blank=True)
    topology = models.JSONField(help_text="nodes and edges, as the engine draws them")
    input_schema = models.JSONField()
    state_schema = models.JSONField()
    masks = models.JSONField(default=list, help_text="protected paths of the state")
    effect_types = models.JSONField(default=list)
    needs_conversation = models.BooleanField(default=False)
    step_seconds = models.FloatField()
    first_seen = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="workflow_version_once")]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
