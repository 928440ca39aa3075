"""The Checkpoint page: the state as a tree, what changed in it, and what comes next."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.errors import NotFound
from console.pages import in_workspace
from runs.inspection import state_of
from runs.selectors import run_seen_by
from runs.views.beside import checkpoint_of
from runs.views.reading import neighbours_of


@require_safe
@in_workspace()
def checkpoint(request: HttpRequest, actor: Actor, run_id: str, checkpoint_id: str) -> HttpResponse:
    """One checkpoint. A state that can't be read is a notice on the page, never a fault."""
    run = run_seen_by(actor, run_id)
    found = checkpoint_of(run, checkpoint_id)
    if found is None:
        raise NotFound(f"There is no checkpoint {checkpoint_id} in this run.")
    earlier, later = neighbours_of(found)
    context = {
        "run": run,
        "checkpoint": found,
        "state": state_of(found),
        "earlier": earlier,
        "later": later,
        "nav": "runs",
    }
    return render(request, "runs/checkpoint.html", context)
