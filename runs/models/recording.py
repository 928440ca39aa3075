"""What came into a run from outside it: model answers, tool results, facts."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, TextChoices
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from runs.models.run import Run
from runs.states import InputClass


class Recorded(TextChoices):
    MODEL = "model", "Model call"
    TOOL = "tool", "Tool call"
    FACT = "fact", "Fact"


class Recording(models.Model):
    """One answer, found again by (run, position, kind, request, n-th occurrence within the task).

    A row that is *dropped* belongs to a task that raised with neither a command nor a pause: it stays as evidence
    and binds nobody; the task asks anew.
    """

    id = PrefixedId("rec")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="recordings")
    position = models.CharField(max_length=64)
    place = models.JSONField()
    kind = models.CharField(max_length=10, choices=Recorded.choices)
    name = models.CharField(max_length=200, help_text="the model, the tool or the fact")
    input_class = models.CharField(max_length=10, choices=InputClass.choices)
    request_hash = models.CharField(max_length=80)
    nth = models.IntegerField()
    fence = models.IntegerField()
    request = models.BinaryField(help_text="sealed")
    answer = models.BinaryField(help_text="sealed")
    source_version = models.CharField(max_length=120, blank=True)
    source = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="+", help_text="what a replay gave back"
    )
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(db_default=Now())
    dropped_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "position", "kind", "request_hash", "nth"],
                condition=Q(dropped_at__isnull=True),
                name="recording_once",
            )
        ]
        indexes = [models.Index(fields=["run", "ended_at"], name="recording_of_run")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
