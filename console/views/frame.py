"""The context of the page frame: who is here, where they may go, and what waits for them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from console.access import Actor
from console.models import Capability, Workspace
from effects.selectors import inbox, standing_stops


def frame(request: HttpRequest) -> dict[str, Any]:
    """The context of the page frame, on every page that has an actor."""
    actor: Actor | None = getattr(request, "actor", None)
    if actor is None:
        return {}
    return {
        "actor": actor,
        "workspace": actor.workspace,
        "workspaces": Workspace.objects.filter(memberships__user=actor.user).exclude(id=actor.workspace.id),
        "roles": ", ".join(sorted(role.label for role in actor.roles)),
        "badges": {"approvals": inbox(actor).count()},
        # Asked for only where the banner stands: a fragment has none.
        "stopped_now": standing_stops(actor.workspace.id),
        "live_url": _live_url(actor),
        "may": {capability.value: actor.may(capability) for capability in Capability},
    }


def _live_url(actor: Actor) -> str:
    try:
        return reverse("live", args=[actor.workspace.id])
    except NoReverseMatch:
        return ""
