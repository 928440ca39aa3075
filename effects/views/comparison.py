"""What the receiver has now against what would be sent, as a part of a page that fills itself by one POST."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from console.access import Actor
from console.models import Capability
from effects.commands.preview import Preview, has_preview
from effects.models import Effect


@dataclass(frozen=True)
class Comparison:
    """*action* is where it is asked for; *shown* what came, None before. *mark* stands for what it is about."""

    action: str
    effect: Effect
    shown: Preview | None = None
    revision: int | None = None

    @property
    def mark(self) -> str:
        """A page that refreshes itself keeps what was shown while this stays the same; it is a part of its id."""
        return f"{self.effect.id}-{self.revision or self.effect.revision}"


def comparison_of(effect: Effect, actor: Actor) -> Comparison | None:
    """On the Repeat screen: for who may ask the receiver, where the contract has a preview."""
    if not has_preview(effect.effect_type) or not actor.may(Capability.EVIDENCE):
        return None
    return Comparison(reverse("effect_preview", args=[effect.workspace_id, effect.id]), effect)
