"""What a node made and no longer asked for: says of each what a person may do about it, and does it on POST."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import AlreadyDone, BadRequest, Invalid, Refusal
from console.models import Capability
from console.pages import LeverForm, in_workspace, new_token
from runs.availability import OperatorCommand, availability
from runs.commands.settle_dropped import LONGEST_REASON, REFUSED, Act, Choice, choices_of, settle_dropped
from runs.models import Run
from runs.selectors import run_seen_by
from runs.views.levers import see_other


class DroppedForm(forms.Form):
    """Of one effect: which, which of the two acts, and why."""

    effect = forms.CharField(max_length=45)
    act = forms.ChoiceField(choices=Act.choices)
    reason = forms.CharField(
        max_length=LONGEST_REASON, strip=True, widget=forms.Textarea(attrs={"class": "input", "rows": 2})
    )


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace(Capability.RUN)
def dropped(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """One form for each dropped effect; with the last that is settled the run goes on."""
    run = run_seen_by(actor, run_id)
    if request.method != "POST":
        offer = availability(run, actor)[OperatorCommand.SETTLE_DROPPED]
        return _page(request, run, None if offer.available else offer.refusal(REFUSED), status=200)
    token = LeverForm.token_of(request.POST)
    given = DroppedForm(request.POST)
    given.is_valid()
    if "effect" in given.errors or "act" in given.errors:
        raise BadRequest("This form was not made here. Open it again.", field="act")
    act, effect_id = Act(given.cleaned_data["act"]), given.cleaned_data["effect"]
    reason = str(given.cleaned_data.get("reason", request.POST.get("reason", "")))
    try:
        settle_dropped(actor, run_id, effect_id, act=act, reason=reason, token=token)
    except Invalid as refusal:
        given.add_error("reason", refusal.message) if "reason" not in given.errors else None
        return _page(request, run, None, status=refusal.status, tried=given)
    except AlreadyDone as refusal:
        return _page(request, run_seen_by(actor, run_id), refusal, status=refusal.status, tried=given)
    done = {Act.ACCEPT: "Accepted as it stands", Act.CANCEL: "Cancelled"}[act]
    messages.success(request, f"{done} by {actor.user.name}.")
    return see_other(request, reverse("run", args=[run.workspace_id, run.id]))


def _page(
    request: HttpRequest, run: Run, refusal: Refusal | None, *, status: int, tried: DroppedForm | None = None
) -> HttpResponse:
    context = {
        "run": run,
        "items": [_item(choice, tried) for choice in choices_of(run)],
        "refusal": refusal,
        "action": request.path,
        "back": reverse("run", args=[run.workspace_id, run.id]),
        "nav": "runs",
    }
    return render(request, "runs/dropped.html", context, status=status)


_LOOKS = {Act.ACCEPT: ("shield-check", False), Act.CANCEL: ("circle-slash", True)}


def _item(choice: Choice, tried: DroppedForm | None) -> dict[str, Any]:
    own = tried if tried is not None and tried.data.get("effect") == choice.effect.id else None
    return {
        "choice": choice,
        "token": new_token(),
        "form": own or DroppedForm(auto_id=f"{choice.effect.id}_%s"),
        "offered": not all(choice.reasons.values()),
        "acts": [
            {
                "value": act.value,
                "label": str(act.label),
                "reason": choice.reasons[act],
                "icon": icon,
                "danger": danger,
            }
            for act, (icon, danger) in _LOOKS.items()
        ],
    }
