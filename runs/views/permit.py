"""Permit an irreversible type on a live replay or branch: a releaser's alone. The run is continued afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid
from console.models import Capability
from console.pages import LeverForm, in_workspace, new_token
from effects.contracts import contracts
from effects.models import Effect
from runs.availability import OperatorCommand, availability
from runs.commands.permit_type import irreversible_types, permit_type
from runs.forms import PermitForm
from runs.models import Run, TypePermit
from runs.selectors import run_seen_by
from runs.views.levers import see_other


@dataclass(frozen=True)
class Choice:
    """One irreversible type of the workflow. *stopped*: the run failed for an effect of it."""

    effect_type: str
    title: str
    receiver: str
    permit: TypePermit | None
    stopped: Effect | None


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace(Capability.PERMIT)
def permit(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """GET names the types, and for which one the run stopped; POST permits one of them, on this run alone."""
    run = run_seen_by(actor, run_id)
    if request.method != "POST":
        return _ask(request, actor, run)
    token = LeverForm.token_of(request.POST)
    form = PermitForm.read(request.POST)
    try:
        made = permit_type(
            actor,
            run_id,
            form.cleaned_data["effect_type"],
            reason=form.cleaned_data["reason"],
            token=token,
        )
    except (AlreadyDone, Invalid) as refusal:
        return _ask(request, actor, run, form=form, refusal=refusal)
    messages.success(
        request,
        f"{made.effect_type} permitted by {made.by.name}. Nothing is sent before the run is continued and each "
        "effect is approved.",
    )
    return see_other(request, reverse("run", args=[actor.workspace.id, run.id]))


def _ask(
    request: HttpRequest,
    actor: Actor,
    run: Run,
    *,
    form: PermitForm | None = None,
    refusal: AlreadyDone | Invalid | None = None,
) -> HttpResponse:
    offer = availability(run, actor)[OperatorCommand.PERMIT_TYPE]
    field = refusal.field if refusal else None
    context: dict[str, Any] = {
        "run": run,
        "choices": choices_of(run),
        "offer": offer,
        "chosen": form.cleaned_data["effect_type"] if form else "",
        "reason": form.cleaned_data["reason"] if form else "",
        "errors": {field: refusal.message} if refusal and field else {},
        "refusal": None if field else refusal,
        "form_token": new_token(),
        "action": request.path,
        "back": reverse("run", args=[actor.workspace.id, run.id]),
        "nav": "runs",
    }
    return render(request, "runs/permit.html", context, status=refusal.status if refusal else 200)


def choices_of(run: Run) -> list[Choice]:
    """The irreversible types of the run's workflow, each with its permit and with what the run stopped at."""
    permits = {row.effect_type: row for row in run.permits.select_related("by")}
    failed_for = Effect.objects.filter(id=run.failure_effect, run_id=run.id).first()
    return [
        Choice(
            effect_type=one,
            title=contracts()[one].title,
            receiver=contracts()[one].receiver,
            permit=permits.get(one),
            stopped=failed_for if failed_for and failed_for.effect_type == one else None,
        )
        for one in irreversible_types(run)
    ]
