"""What a replay or a branch keeps beside its run: where it stopped following the recording, and what it is permitted."""

from __future__ import annotations

from django.db import models
from django.db.models import TextChoices
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from console.models.workspace import User
from runs.models.recording import Recording
from runs.models.run import Checkpoint, Run
from runs.models.workflow import WorkflowVersion


class Asked(TextChoices):
    """What a run in evidence asked for that its recording does not hold."""

    MODEL = "model", "A model"
    TOOL = "tool", "A tool"
    FACT = "fact", "A fact"
    EFFECT = "effect", "An effect's result"
    MESSAGE = "message", "A message"
    DECISION = "decision", "A decision"
    REQUEST = "request", "A request of its own"


class Divergence(models.Model):
    """The call at which a run in evidence left its recording: what was asked, and what was recorded there. Append-only.

    *recorded* and *recorded_effect* name what the recording holds at the same place, if anything.
    """

    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="divergence")
    node = models.CharField(max_length=200)
    place = models.JSONField(default=dict)
    kind = models.CharField(max_length=10, choices=Asked.choices)
    name = models.CharField(max_length=200, help_text="the model, tool, fact, effect type or address")
    asked = models.BinaryField(help_text="sealed")
    recorded = models.ForeignKey(Recording, null=True, on_delete=models.PROTECT, related_name="+")
    recorded_effect = models.CharField(max_length=45, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.run_id}"


class TypePermit(models.Model):
    """A releaser permits one irreversible type on one live replay or branch. Append-only."""

    id = PrefixedId("prm")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="permits")
    effect_type = models.CharField(max_length=80)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=300)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "effect_type"], name="type_permitted_once_a_run"),
            models.CheckConstraint(condition=~models.Q(reason=""), name="type_permitted_for_a_reason"),
        ]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.effect_type} on {self.run_id}"


class BranchEdit(models.Model):
    """What a branch changed of the state it was made from. Append-only.

    *as_node* is the node whose output the edited state counts as; *edit* holds the changed fields as they were given.
    """

    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="branch_edit")
    as_node = models.CharField(max_length=200)
    edit = models.BinaryField(help_text="sealed: field → what was done to it")
    next_nodes = models.JSONField(default=list, help_text="what came next after the edit, as it was shown")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"edit of {self.run_id}"


class StateMigration(models.Model):
    """A run went from one version of its workflow to another, by a declared migration of its state. Append-only.

    *checkpoint* is the one that the migration made: the first of the new version.
    """

    id = PrefixedId("mig")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="migrations")
    source = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="+")
    target = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="+")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.run_id}: {self.source} → {self.target}"
