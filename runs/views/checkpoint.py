"""The Checkpoint page: the state as a tree, what changed in it, what comes next, what waits beside it; and it as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.errors import NotFound
from console.pages import in_workspace
from runs.anatomy import MAX_DOWNLOAD, anatomy_of, as_file, broken
from runs.availability import availability
from runs.inspection import state_of
from runs.models import Checkpoint, Run
from runs.selectors import run_seen_by
from runs.views.beside import checkpoint_of
from runs.views.reading import neighbours_of
from runs.views.replay import branches_in, offers_in, reason_against, why_no_branch


@require_safe
@in_workspace()
def checkpoint(request: HttpRequest, actor: Actor, run_id: str, checkpoint_id: str) -> HttpResponse:
    """One checkpoint. A state that can't be read is a notice on the page, never a fault."""
    run = run_seen_by(actor, run_id)
    found = _found(run, checkpoint_id)
    earlier, later = neighbours_of(found)
    state = state_of(found)
    at_fault = broken(found, run) if state.problem or state.bad_fields or later is None else None
    offers = availability(run, actor)
    context = {
        "run": run,
        "checkpoint": found,
        "state": state,
        "anatomy": anatomy_of(found),
        "earlier": earlier,
        "later": later,
        "replay_off": reason_against(offers_in(offers)),
        "branch_off": reason_against(branches_in(offers)) or why_no_branch(found),
        "broken": at_fault,
        "branch_url": branch_url(run, at_fault.last_valid if at_fault else None),
        "most_in_file": MAX_DOWNLOAD,
        "nav": "runs",
    }
    return render(request, "runs/checkpoint.html", context)


@require_safe
@in_workspace()
def state_file(
    request: HttpRequest,  # noqa: ARG001 - one signature for all
    actor: Actor,
    run_id: str,
    checkpoint_id: str,
) -> StreamingHttpResponse:
    """The state as JSON, masked as on the page, field by field; what is left out is named at its end."""
    run = run_seen_by(actor, run_id)
    found = _found(run, checkpoint_id)
    response = StreamingHttpResponse(_as_they_come(as_file(found)), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{found.id}.json"'
    return response


async def _as_they_come(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is made only when the one before has gone out: the server's loop would else gather them all."""
    take = sync_to_async(lambda: next(pieces, None))
    while (piece := await take()) is not None:
        yield piece


def _found(run: Run, checkpoint_id: str) -> Checkpoint:
    found = checkpoint_of(run, checkpoint_id)
    if found is None:
        raise NotFound(f"There is no checkpoint {checkpoint_id} in this run.")
    return found


def branch_url(run: Run, checkpoint: Checkpoint | None) -> str:
    """Where a branch is made from a checkpoint; empty without one, or where branches are not made."""
    if checkpoint is None:
        return ""
    try:
        return reverse("branch", args=[run.workspace_id, run.id, checkpoint.id])
    except NoReverseMatch:
        return ""
