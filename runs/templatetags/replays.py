"""What every page of a replay or branch says first: what it is, and what it is not."""

from __future__ import annotations

from typing import Any

from django import template

from runs.models import Run

register = template.Library()


@register.inclusion_tag("runs/_banner.html")
def run_banner(run: Run | str, *, short: bool = False) -> dict[str, Any]:
    """The banner of a replay or branch: kind, mode, where it comes from, who launched it and why. Nothing for an original.

    *run*: the run, or its id where a page knows no more of it. *short*: one line, for the pages of what belongs to it.
    """
    found = run if isinstance(run, Run) else _read(run)
    return {"run": found if found is not None and found.parent_run is not None else None, "short": short}


def _read(run_id: str) -> Run | None:
    return (
        Run.objects.select_related("parent_run", "parent_checkpoint", "starter")
        .defer("input")
        .filter(id=run_id)
        .first()
    )
