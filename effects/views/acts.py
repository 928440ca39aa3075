"""What a person may order about an effect, as forms and levers: what each does, who has to agree, and why not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from django.db.models import Q
from django.urls import reverse

from console.access import Actor
from console.models import Capability
from console.pages import new_token
from effects.commands.ask_receiver import why_not
from effects.contracts import UnknownType
from effects.forms import OrderForm
from effects.models import Approval, Effect, LookRequest
from effects.offers import Offer, offers
from effects.selectors import inbox
from effects.states import EffectStatus, OrderKind, SubState
from effects.views.telling import object_of, promise_of

#: Longer recipients are cut on a button; the page says them whole.
RECIPIENT_ON_BUTTON = 40


@dataclass(frozen=True)
class Act:
    """One of the two ways to repeat. *tried*: the form is the one that was refused just now."""

    offer: Offer
    form: OrderForm
    action: str
    button: str
    tried: bool = False
    token: str = field(default_factory=new_token)

    @property
    def seen(self) -> str:
        return mark_of(self.offer)

    @property
    def second(self) -> str:
        """Who else has to agree, in words."""
        if self.offer.needs_second:
            return (
                "A second person has to agree first: an approver, or another releaser. "
                "Nothing is sent before that."
            )
        return "Nobody else has to agree: it is sent as soon as you order it."


def acts_of(
    effect: Effect, actor: Actor, *, tried: OrderKind | None = None, typed: OrderForm | None = None
) -> tuple[Act, Act]:
    """Deliver again, and send as a new effect. *typed*: the form of the one that was refused."""
    offered = offers(effect, actor)
    promise = promise_of(effect.effect_type)
    what = object_of(promise.title) if promise else "it"
    whom = effect.recipient[:RECIPIENT_ON_BUTTON]
    whom = whom if whom == effect.recipient else f"{whom}…"

    def act(kind: OrderKind, name: str, button: str) -> Act:
        offer = offered[kind]
        fresh = OrderForm(name=kind.value, overrides=offer.overrides)
        form = typed if typed is not None and tried == kind else fresh
        return Act(offer, form, reverse(name, args=[effect.workspace_id, effect.id]), button, tried == kind)

    return (
        act(OrderKind.DELIVER_AGAIN, "effect_deliver_again", f"Deliver {what} to {whom} again"),
        act(OrderKind.SEND_AS_NEW, "effect_send_as_new", f"Send {what} to {whom} as a new effect"),
    )


def mark_of(offer: Offer) -> str:
    """What the page told of an act, in a few characters: a form that comes back with another one is out of date."""
    said = "\n".join((offer.says, *offer.warnings, f"{offer.needs_second} {offer.overrides}"))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Asking:
    """“Ask the receiver now”. *reason*: why it can't be asked; *asked*: it is being asked."""

    reason: str
    asked: LookRequest | None
    action: str
    token: str


def asking_of(effect: Effect, actor: Actor) -> Asking:
    asked = LookRequest.objects.filter(effect=effect, ended_at=None).select_related("asked_by").first()
    return Asking(
        reason=_not_asked(effect, actor),
        asked=asked,
        action=reverse("effect_ask", args=[effect.workspace_id, effect.id]),
        token=new_token(),
    )


def _not_asked(effect: Effect, actor: Actor) -> str:
    try:
        why = why_not(effect)
    except UnknownType as unknown:
        why = unknown.message
    if why or actor.may(Capability.EVIDENCE):
        return why
    return "Your roles do not let you ask the receiver."


@dataclass(frozen=True)
class Levers:
    """What can be done about an effect from its page; a reason says why not. *decide*: what waits for this person."""

    repeat: str
    compensate: str
    asking: Asking
    decide: Approval | None


def levers_of(effect: Effect, actor: Actor) -> Levers:
    offered = offers(effect, actor)
    again, new = offered[OrderKind.DELIVER_AGAIN], offered[OrderKind.SEND_AS_NEW]
    # Of what is settled only a new effect may go: what forbids that is the reason, not that the first one can't.
    settled = effect.status == EffectStatus.COMPLETED or effect.sub_state in (
        SubState.REJECTED,
        SubState.CANCELLED,
    )
    return Levers(
        repeat="" if again.offered or new.offered else (new if settled else again).reason,
        compensate=offered[OrderKind.COMPENSATE].reason,
        asking=asking_of(effect, actor),
        decide=inbox(actor).filter(Q(effect=effect) | Q(order__effect=effect)).first(),
    )
