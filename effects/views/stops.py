"""The kill switch: what is stopped, by whom and why; set it, and lift it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.kernel.errors import Forbidden, NotFound, Refusal
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from effects.commands.stop_sending import lift_stop, stop_sending
from effects.forms import LiftForm, StopForm
from effects.models import Receiver, Stop
from effects.selectors import effects_seen_by, held_up_by, standing_stops, stops_seen_by
from effects.states import StopScope
from effects.views.addresses import is_fragment
from effects.views.section import section_of

#: How many that were lifted are shown.
LIFTED = 20
COUNTED = 1_000


@dataclass(frozen=True)
class Standing:
    """A kill switch that is on. *held_up*: how many effects it keeps from being sent now."""

    stop: Stop
    held_up: str
    form: LiftForm
    tried: bool = False
    token: str = field(default_factory=new_token)


@require_safe
@in_workspace()
def stops(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What is stopped now, and what was."""
    return _shown(request, actor)


@require_safe
@in_workspace()
def banner(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What every page of the workspace says while something is stopped: the part that it asks for anew."""
    return render(request, "stops/_banner.html", {"stopped_now": standing_stops(actor.workspace.id)})


@require_POST
@in_workspace()
def stop_set(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Stop sending to a receiver, of a type, or at all."""
    form = StopForm(request.POST, targets=_targets(actor))
    token = LeverForm.token_of(request.POST)
    form.is_valid()
    try:
        scope, target = form.chosen()
        stop = stop_sending(actor, scope=scope, target=target, reason=form.text("reason"), token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _shown(request, actor, typed=form, refusal=refusal)
    messages.success(
        request,
        f"Stopped: {stop}. Nothing further is sent of it; what is in flight finishes and is recorded.",
    )
    return SeeOther(reverse("stops", args=[actor.workspace.id]))


@require_POST
@in_workspace()
def stop_lift(request: HttpRequest, actor: Actor, stop_id: str) -> HttpResponse:
    """Let sending go on. Runs that it paused wait for Continue."""
    form = LiftForm(request.POST, stop_id=stop_id)
    token = LeverForm.token_of(request.POST)
    form.is_valid()
    try:
        stop = lift_stop(actor, stop_id, reason=form.cleaned_data.get("reason", ""), token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        if refusal.field == "reason" and "reason" not in form.errors:
            form.add_error("reason", refusal.message)
        return _shown(request, actor, lifting=(stop_id, form), refusal=refusal)
    messages.success(request, f"Sending may go on: {stop}. Runs that it paused wait for Continue.")
    return SeeOther(reverse("stops", args=[actor.workspace.id]))


def _targets(actor: Actor) -> list[tuple[str, str]]:
    """What a person may choose, as the form's values and words: everything, each receiver, each effect type in use."""
    names = sorted(set(Receiver.objects.filter(workspace=actor.workspace).values_list("name", flat=True)))
    types = sorted(set(effects_seen_by(actor).order_by().values_list("effect_type", flat=True).distinct()))
    return [
        (StopScope.WORKSPACE.value, "Everything that this workspace sends"),
        *((f"{StopScope.RECEIVER.value}:{name}", f"The receiver {name}") for name in names),
        *((f"{StopScope.TYPE.value}:{one}", f"The effect type {one}") for one in types),
    ]


def _shown(
    request: HttpRequest,
    actor: Actor,
    *,
    typed: StopForm | None = None,
    lifting: tuple[str, LiftForm] | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    if typed is not None and refusal is not None:
        typed.refuse(refusal)
    context: dict[str, Any] = {
        **section_of(actor, "stops"),
        "standing": [_standing(stop, lifting) for stop in standing_stops(actor.workspace.id)],
        "lifted": stops_seen_by(actor).filter(lifted_at__isnull=False).order_by("-lifted_at")[:LIFTED],
        "form": typed or StopForm(targets=_targets(actor)),
        "may_stop": actor.may(Capability.REPEAT),
        "token": new_token(),
        "refusal": refusal,
    }
    template = "stops/_stops.html" if is_fragment(request) else "stops/stops.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _standing(stop: Stop, lifting: tuple[str, LiftForm] | None) -> Standing:
    tried = lifting is not None and lifting[0] == stop.id
    form = lifting[1] if lifting is not None and tried else LiftForm(stop_id=stop.id)
    held = held_up_by(stop)[: COUNTED + 1].count()
    return Standing(stop, str(held) if held <= COUNTED else f"more than {COUNTED}", form, tried)
