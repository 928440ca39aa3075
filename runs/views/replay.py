"""Replay from checkpoint: what it would do in each mode, node by node, and the form that launches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import Forbidden, NotFound, Refusal
from console.pages import in_workspace, new_token
from runs.availability import Offer, availability
from runs.commands.branch import COMMANDS as BRANCH_COMMANDS
from runs.commands.replay import COMMANDS, replay
from runs.commands.replay_preview import Preview, preview
from runs.forms import ReplayChoice, ReplayForm
from runs.models import Checkpoint, Run
from runs.selectors import checkpoint_seen_by, run_seen_by
from runs.states import RunMode
from runs.views.levers import see_other

#: The safest first; a mode that acts on the outside world is never preselected.
ORDER = (RunMode.EVIDENCE, RunMode.SIMULATION, RunMode.LIVE)
PRESELECTED = (RunMode.EVIDENCE, RunMode.SIMULATION)

_REACHES = {
    RunMode.EVIDENCE: "Everything comes from the recording. Nothing outside is called, and no effect is made.",
    RunMode.SIMULATION: "Doubles answer for the tools that act. It may reach isolated receivers; nothing real is sent.",
    RunMode.LIVE: "Real reads and model calls. Effects are real, under ids of their own, each with a fresh approval.",
}


@dataclass(frozen=True)
class Mode:
    """One of the three as the form offers it; with a *reason* it stands there and can't be chosen."""

    mode: RunMode
    href: str
    chosen: bool
    reason: str

    @property
    def label(self) -> str:
        return str(self.mode.label)

    @property
    def reaches(self) -> str:
        return _REACHES[self.mode]


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace()
def replay_from(request: HttpRequest, actor: Actor, run_id: str, checkpoint_id: str) -> HttpResponse:
    """GET says what a replay of this checkpoint would do in the mode of ``?mode=``; POST launches it, once a form."""
    source = run_seen_by(actor, run_id)
    checkpoint = checkpoint_seen_by(actor, run_id, checkpoint_id)
    offers = offers_in(availability(source, actor))
    if request.method == "POST":
        form = ReplayForm.read(request.POST)
        try:
            run, _ = replay(actor, run_id, checkpoint_id, **form.asked)
        except (Forbidden, NotFound):
            raise
        except Refusal as refusal:
            return _ask(request, actor, source, checkpoint, form, offers, refusal)
        messages.success(request, f"{COMMANDS[form.asked['mode']].label}: launched by {actor.user.name}.")
        return see_other(request, reverse("run", args=[actor.workspace.id, run.id]))
    if all(offer.forbidden for offer in offers.values()):
        raise Forbidden(f"This run can't be replayed: {next(iter(offers.values())).reason}.")
    return _ask(request, actor, source, checkpoint, ReplayChoice.read(request.GET), offers)


def offers_in(offers: Mapping[str, Offer]) -> dict[RunMode, Offer]:
    """Of all that a run offers to a person, its replay in each mode."""
    return {mode: offers[COMMANDS[mode]] for mode in ORDER}


def branches_in(offers: Mapping[str, Offer]) -> dict[RunMode, Offer]:
    """The same of Create branch."""
    return {mode: offers[command] for mode, command in BRANCH_COMMANDS.items()}


def why_no_branch(checkpoint: Checkpoint) -> str:
    """What of the checkpoint itself keeps a branch from being made of it, as the command says it at more length."""
    if checkpoint.namespace:
        return "it is a graph's inside a step: edit the graph around it"
    return "it is the input: start a run with new input instead" if checkpoint.number < 0 else ""


def reason_against(offers: dict[RunMode, Offer]) -> str:
    """Why the lever is off: empty while one mode is offered. What the run lacks is said before what the person lacks."""
    if any(offer.available for offer in offers.values()):
        return ""
    of_the_run = [offer.reason for offer in offers.values() if not offer.forbidden]
    return (of_the_run or [offer.reason for offer in offers.values()])[0]


def _ask(
    request: HttpRequest,
    actor: Actor,
    source: Run,
    checkpoint: Checkpoint,
    choice: ReplayChoice,
    offers: dict[RunMode, Offer],
    refusal: Refusal | None = None,
) -> HttpResponse:
    mode = choice.chosen_mode or _preselected(offers)
    checkpoint.run = source
    shown = preview(source, checkpoint, mode, models_asked=choice.models_asked)
    beside = refusal.field == "reason" if refusal else False
    context: dict[str, Any] = {
        "run": source,
        "checkpoint": checkpoint,
        "modes": [Mode(one, f"?mode={one.value}", one == mode, offers[one].reason) for one in ORDER],
        "mode": mode,
        "preview": shown,
        "offer": offers[mode],
        "may_launch": offers[mode].available and not shown.refusals,
        "workers": _workers(shown),
        "reason": choice.typed,
        "reason_error": refusal.message if refusal and beside else "",
        "refusal": None if beside else refusal,
        "form_token": new_token(),
        "back": reverse("checkpoint", args=[actor.workspace.id, source.id, checkpoint.id]),
        "nav": "runs",
    }
    template = "runs/_replay.html" if _is_fragment(request) else "runs/replay.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _preselected(offers: dict[RunMode, Offer]) -> RunMode:
    return next((mode for mode in PRESELECTED if offers[mode].available), RunMode.EVIDENCE)


def _workers(shown: Preview) -> str:
    """Who would take it, in words."""
    word = "worker" if shown.mode == RunMode.LIVE else "replayer"
    if not shown.workers:
        return f"no {word} that is alive holds it: the new run is queued and waits until one is there"
    return f"held by {shown.workers} {word}{'' if shown.workers == 1 else 's'}"


def _is_fragment(request: HttpRequest) -> bool:
    return request.method == "GET" and bool(request.htmx)  # type: ignore[attr-defined]
