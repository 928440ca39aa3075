"""How many workers hold a workflow, for the pages that offer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models.functions import Now

from console.models import Worker
from runs.models import WorkflowVersion
from runs.selectors import ALIVE, held


@dataclass(frozen=True)
class Holders:
    """A workflow version and the number of workers that are alive and hold it."""

    workflow: WorkflowVersion
    workers: int


def holders_of(workflows: Sequence[WorkflowVersion]) -> list[Holders]:
    """In the order given; one query."""
    alive = Worker.objects.filter(stopped_at=None, last_seen__gt=Now() - ALIVE).values_list(
        "versions", flat=True
    )
    several = list(alive[:500])
    return [
        Holders(workflow, sum(held(workflow, workflow.fingerprint) in versions for versions in several))
        for workflow in workflows
    ]
