"""Migrate the state: shows what a declared migration makes of it, and does it on POST. The run then stands for Continue."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, Refusal, Stale
from console.models import Capability
from console.pages import LeverForm, in_workspace, new_token
from runs.commands.migrate import migrate, preview, targets_of
from runs.models import Run
from runs.selectors import run_seen_by
from runs.views.levers import see_other


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace(Capability.LIVE)
def migrate_(request: HttpRequest, actor: Actor, run_id: str, version: str) -> HttpResponse:
    """GET shows the difference and what would come next; POST stores it as a checkpoint of the run's own."""
    run = run_seen_by(actor, run_id)
    if request.method != "POST":
        return _ask(request, actor, run, version)
    token = LeverForm.token_of(request.POST)
    try:
        moved = migrate(actor, run_id, version, token=token, shown_next=request.POST.getlist("shown_next"))
    except (AlreadyDone, Invalid, Stale) as refusal:
        return _ask(request, actor, run, version, refusal)
    messages.success(
        request, f"State migrated to {moved.workflow} by {actor.user.name}. Continue goes on under it."
    )
    return see_other(request, reverse("run", args=[actor.workspace.id, run.id]))


def _ask(
    request: HttpRequest, actor: Actor, run: Run, version: str, refusal: Refusal | None = None
) -> HttpResponse:
    shown = preview(actor, run.id, version)
    context: dict[str, Any] = {
        "run": run,
        "shown": shown,
        "refusal": refusal,
        "form_token": new_token(),
        "action": request.path,
        "back": reverse("run", args=[actor.workspace.id, run.id]),
        "nav": "runs",
    }
    return render(request, "runs/migrate.html", context, status=refusal.status if refusal else 200)


def ways_out(run: Run) -> list[tuple[str, str]]:
    """The versions to which a run that no worker can take may be migrated: each with the address of its page."""
    return [
        (f"{one.name} {one.version}", reverse("run_migrate", args=[run.workspace_id, run.id, one.version]))
        for one in targets_of(run)
    ]
