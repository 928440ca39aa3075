"""Ask the receiver now: queue a look-up. The sweep asks; nothing is sent that has an effect."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, KeyReused
from console.kernel.live import announce
from console.models import Capability
from effects.contracts import contract
from effects.models import Effect, LookRequest
from effects.selectors import effect_seen_by
from effects.states import EffectStatus
from effects.wires import HttpWire


def why_not(effect: Effect) -> str:
    """Why the receiver can't be asked about it, in words; empty when it can."""
    wire = contract(effect.effect_type).wire
    polled = isinstance(wire, HttpWire) and wire.poll and effect.status == EffectStatus.ACCEPTED
    if not polled and not (isinstance(wire, HttpWire) and wire.look_up):
        return f"{effect.receiver.name} can't be asked: its contract has no look-up."
    return ""


def ask_receiver(actor: Actor, effect_id: str, *, token: str) -> LookRequest:
    """Queue one look-up of an effect, wherever it stands. The same form again, or one that is queued, is that one.

    Raises Forbidden, NotFound, Invalid where nobody can be asked.
    """
    actor.require(Capability.EVIDENCE)
    effect = effect_seen_by(actor, effect_id)
    if problem := why_not(effect):
        raise Invalid(problem)
    try:
        with transaction.atomic():
            asked = LookRequest.objects.create(effect=effect, asked_by=actor.user, token=token)
            audit.record(
                workspace_id=effect.workspace_id,
                actor=actor.user,
                verb="receiver.asked",
                subject=effect.id,
                run_id=effect.run_id,
                sentence=f"{actor.user.name} asked {effect.receiver.name} about {effect.effect_type}",
                token=token,
            )
            announce(effect.workspace_id, f"effect:{effect.id}")
    except IntegrityError:
        if LookRequest.objects.filter(token=token).exclude(effect=effect).exists():
            raise KeyReused("This form was used for another effect. Open the page again.") from None
        found = (
            LookRequest.objects.filter(token=token, effect=effect).first()
            or LookRequest.objects.filter(effect=effect, ended_at=None).first()
        )
        if found is None:
            raise AlreadyDone("It was asked just now. Look at what it said.") from None
        return found
    return asked
