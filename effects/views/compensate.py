"""Compensate: what a completed effect is taken back with, as the compensation's contract has it, never more than is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.errors import BadRequest, Forbidden, Invalid, NotFound, Refusal
from console.kernel.masking import is_masked
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from console.templatetags.ui import money_words
from effects.commands import compensate as command
from effects.contracts import EffectContract, Payload
from effects.forms import OrderForm, SchemaForm
from effects.models import Effect
from effects.offers import compensations_of, offers
from effects.selectors import effect_seen_by, payload_of, revision_of
from effects.states import OrderKind
from effects.views.orders import links_of
from effects.views.payload import has_masks
from effects.views.record import record_of
from effects.views.repeat import told
from effects.views.telling import act_of


@dataclass(frozen=True)
class Amounts:
    """What the original was for, and what is left of it to be taken back, in minor units."""

    original: int
    left: int
    currency: str

    @property
    def taken(self) -> int:
        return self.original - self.left


@dataclass
class Compensation:
    """The form of one contract that takes the effect back. *carried*: protected fields, as in the original, unseen."""

    promise: EffectContract
    amounts: Amounts | None
    carried: list[str]
    form: SchemaForm
    order: OrderForm = field(default_factory=lambda: OrderForm(name="compensate"))
    token: str = field(default_factory=new_token)

    @property
    def button(self) -> str:
        act = act_of(self.promise.title)
        return f"{act[:1].upper()}{act[1:]}"

    @property
    def reference(self) -> str:
        """The field that names the original, by its title; empty where the contract has none."""
        takes = self.promise.compensates
        rules = self.promise.schema.get("properties", {})
        name = takes.reference if takes else ""
        return str(rules.get(name, {}).get("title") or name)


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace()
def compensate(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """Asks with what, and orders it. ``?type=`` chooses where several contracts take the effect back."""
    effect = effect_seen_by(actor, effect_id)
    if request.method == "POST":
        return _ordered(request, actor, effect)
    asked = request.GET.get("type", "")
    promise = _chosen(effect, asked)
    if asked and promise is None:
        raise BadRequest(f"{asked[:80]!r} does not take back {effect.effect_type}.", field="type")
    return _shown(request, actor, effect, _compensation(effect, promise) if promise else None)


def _chosen(effect: Effect, asked: str) -> EffectContract | None:
    """The one asked for, or the first there is; None where there is none such."""
    found = compensations_of(effect.effect_type)
    return next((one for one in found if asked in ("", one.type)), None)


def _compensation(effect: Effect, promise: EffectContract, data: Any = None) -> Compensation:
    """Its form, filled in with what the original says under the same names; the amount with what is left."""
    shown = revision_of(effect).shown
    original = shown if isinstance(shown, dict) else {}
    carried = [name for name in _names(promise) if _is_carried(promise, name, original.get(name))]
    amounts = _amounts(effect, promise, original)
    given = {
        name: original[name] for name in _names(promise) if name in original and not has_masks(original[name])
    }
    takes = promise.compensates
    if amounts is not None and takes is not None and takes.amount in _names(promise):
        given[takes.amount] = amounts.left
    asked = frozenset(_names(promise)) - {*carried, takes.reference if takes else ""}
    form = SchemaForm(promise.schema, data, given=given, only=asked)
    if amounts is not None and takes is not None and takes.amount in form.fields:
        most = money_words(amounts.left, amounts.currency) if amounts.currency else amounts.left
        form.fields[takes.amount].help_text = f"At most {amounts.left}: {most} is left of it."
    return Compensation(promise, amounts, carried, form)


def _names(promise: EffectContract) -> list[str]:
    return list(promise.schema.get("properties", {}))


def _is_carried(promise: EffectContract, name: str, value: Any) -> bool:
    """Protected in the original and in the compensation too: it goes from one to the other without being shown."""
    return is_masked(value) and is_masked(promise.shown({name: "?"})[name])


def _amounts(effect: Effect, promise: EffectContract, original: Payload) -> Amounts | None:
    takes = promise.compensates
    if takes is None or not takes.amount:
        return None
    currency = original.get("currency")
    try:
        return Amounts(
            command.original_amount(effect, takes),
            command.left_to_compensate(effect, takes),
            currency if isinstance(currency, str) else "",
        )
    except Invalid:
        return None


def _ordered(request: HttpRequest, actor: Actor, effect: Effect) -> HttpResponse:
    token = LeverForm.token_of(request.POST)
    effect_type = request.POST.get("effect_type", "")
    promise = _chosen(effect, effect_type) if effect_type else None
    typed = _compensation(effect, promise, request.POST) if promise else None
    if typed is not None:
        typed.order = OrderForm(request.POST, name="compensate")
    try:
        order = command.compensate(
            actor,
            effect.id,
            effect_type=effect_type,
            payload=_payload(actor, effect, typed),
            reason=typed.order.text("reason") if typed else "",
            token=token,
        )
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _refused(request, actor, effect, typed, refusal)
    messages.success(request, told(order))
    return SeeOther(reverse("effect", args=[actor.workspace.id, effect.id]))


def _payload(actor: Actor, effect: Effect, typed: Compensation | None) -> Payload:
    """What was typed, with what is carried over. Raises Invalid where it can't be read."""
    if typed is None:
        return {}
    readable = typed.form.is_valid(), typed.order.is_valid()
    if not actor.may(Capability.REPEAT):
        return {}  # the command says so, and records it
    if not all(readable):
        raise Invalid("Something is missing, or is not as it must be. It is marked below.")
    original = payload_of(effect, revision_of(effect))
    carried = {name: original[name] for name in typed.carried} if isinstance(original, dict) else {}
    return {**typed.form.value(), **carried}


def _refused(
    request: HttpRequest, actor: Actor, effect: Effect, typed: Compensation | None, refusal: Refusal
) -> HttpResponse:
    if (
        typed is not None
        and isinstance(refusal, Invalid)
        and typed.form.is_valid()
        and typed.order.is_valid()
    ):
        typed.form.refuse(refusal)
    again = typed or next((_compensation(effect, one) for one in compensations_of(effect.effect_type)), None)
    return _shown(request, actor, effect, again, refusal=refusal)


def _shown(
    request: HttpRequest,
    actor: Actor,
    effect: Effect,
    compensation: Compensation | None,
    *,
    refusal: Refusal | None = None,
) -> HttpResponse:
    context: dict[str, Any] = {
        "nav": "effects",
        **record_of(effect),
        "offer": offers(effect, actor)[OrderKind.COMPENSATE],
        "compensation": compensation,
        "several": compensations_of(effect.effect_type),
        "links": links_of(effect),
        "refusal": refusal,
    }
    return render(request, "effects/compensate.html", context, status=refusal.status if refusal else 200)
