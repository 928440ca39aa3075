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
    node_hashes = models.JSONField(default=dict, help_text="node → hash of its source")
    migrates = models.JSONField(
        default=dict, help_text="earlier version → what its declared migration does, in words"
    )
    masks = models.JSONField(default=list, help_text="protected paths of the state")
    effect_types = models.JSONField(default=list)
    needs_conversation = models.BooleanField(default=False)
    step_seconds = models.FloatField()
    first_seen = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="workflow_version_once")]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class SharedPath(models.Model):
    """A file that a node of this version was seen to write by a path of its own, and the run that it was first seen in.

    Every run writes there, replays and branches too: the later one overwrites what the earlier one refers to.
    """

    workflow = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="shared_paths")
    node = models.CharField(max_length=200)
    path = models.CharField(max_length=500)
    run_id = models.CharField(max_length=40)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workflow", "node", "path"], name="shared_path_once_a_version")
        ]

    def __str__(self) -> str:
        return f"{self.node} writes {self.path}"
