"""Continue, Ask again, Pause and Cancel: each asks with what it will do, and does it on POST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import AlreadyDone, Refusal
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from runs.commands.ask_again import ask_again as ask_run_again
from runs.commands.ask_again import questions_of
from runs.commands.continue_run import continue_run, preview
from runs.commands.stop import cancel as cancel_run
from runs.commands.stop import pause as pause_run
from runs.models import Run
from runs.selectors import run_seen_by
from runs.views.consequences import of_ask_again, of_cancel, of_continue, of_pause

_asks_and_does = require_http_methods(["GET", "HEAD", "POST"])


def see_other(request: HttpRequest, address: str) -> HttpResponse:
    """On to the page that shows what was done. htmx takes the whole page there, not a fragment."""
    if request.headers.get("HX-Request"):
        response = HttpResponse(status=204)
        response["HX-Redirect"] = address
        return response
    return SeeOther(address)


@_asks_and_does
@in_workspace(Capability.RUN)
def continue_(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """What is kept, what runs, what may go out; then the same run goes on."""
    run = run_seen_by(actor, run_id)
    if request.method == "POST":
        token = LeverForm.token_of(request.POST)
        return _pull(
            request, actor, run, "continue", lambda: continue_run(actor, run_id, token=token), "Continued"
        )
    return _ask(request, run, "continue")


@_asks_and_does
@in_workspace(Capability.RUN)
def ask_again(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """Take back the answer that made its node fail; people are asked in another round."""
    run = run_seen_by(actor, run_id)
    if request.method == "POST":
        token = LeverForm.token_of(request.POST)
        return _pull(
            request, actor, run, "ask_again", lambda: ask_run_again(actor, run_id, token=token), "Asked again"
        )
    return _ask(request, run, "ask_again")


@_asks_and_does
@in_workspace(Capability.RUN)
def pause(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """Stop at the next safe point, to go on later."""
    run = run_seen_by(actor, run_id)
    if request.method == "POST":
        token = LeverForm.token_of(request.POST)
        return _pull(
            request, actor, run, "pause", lambda: pause_run(actor, run_id, token=token), "Pause asked for"
        )
    return _ask(request, run, "pause")


@_asks_and_does
@in_workspace(Capability.RUN)
def cancel(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """End the run for good: says first what is cancelled with it, and what was sent and stays."""
    run = run_seen_by(actor, run_id)
    if request.method == "POST":
        token = LeverForm.token_of(request.POST)
        return _pull(
            request, actor, run, "cancel", lambda: cancel_run(actor, run_id, token=token), "Cancel asked for"
        )
    return _ask(request, run, "cancel")


def _pull(
    request: HttpRequest, actor: Actor, run: Run, verb: str, command: Callable[[], Run], words: str
) -> HttpResponse:
    try:
        command()
    except AlreadyDone as refusal:
        return _ask(request, run, verb, refusal)
    messages.success(request, f"{words} by {actor.user.name}.")
    return see_other(request, reverse("run", args=[actor.workspace.id, run.id]))


def _ask(request: HttpRequest, run: Run, verb: str, refusal: Refusal | None = None) -> HttpResponse:
    said: dict[str, Callable[[Run], dict[str, Any]]] = {
        "continue": lambda run: of_continue(preview(run)),
        "ask_again": lambda run: of_ask_again(run, questions_of(run)),
        "pause": of_pause,
        "cancel": of_cancel,
    }
    context = {
        "run": run,
        "consequences": said[verb](run),
        "refusal": refusal,
        "form_token": new_token(),
        "action": request.path,
        "back": reverse("run", args=[run.workspace_id, run.id]),
        "nav": "runs",
    }
    return render(request, f"runs/{verb}.html", context, status=refusal.status if refusal else 200)
