"""Repeat external effect: one screen with all that is known, and two acts. Each act is one POST of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.kernel.errors import Forbidden, Invalid, NotFound, Refusal, Stale
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace
from effects.commands import repeat as commands
from effects.commands.preview import preview_of
from effects.forms import OrderForm
from effects.models import Effect, Order
from effects.offers import Offer, offers
from effects.selectors import effect_seen_by
from effects.states import OrderKind, OrderStatus
from effects.views.acts import acts_of, asking_of, mark_of
from effects.views.addresses import is_fragment
from effects.views.comparison import Comparison, comparison_of
from effects.views.orders import links_of, orders_of
from effects.views.payload import Cell, Sheet
from effects.views.record import record_of

_COMMANDS: dict[OrderKind, Callable[..., Order]] = {
    OrderKind.DELIVER_AGAIN: commands.deliver_again,
    OrderKind.SEND_AS_NEW: commands.send_as_new,
}


@require_safe
@in_workspace()
def repeat(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """What is known of it, and what each act would do. Whoever sees the effect sees this; a releaser may act."""
    return _shown(request, actor, effect_seen_by(actor, effect_id))


@require_POST
@in_workspace(Capability.EVIDENCE)
def preview(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """What its receiver has now, against what would be sent, masked. The receiver is asked now; nothing is sent."""
    found = effect_seen_by(actor, effect_id)
    seen = Comparison(
        reverse("effect_preview", args=[actor.workspace.id, found.id]), found, preview_of(found)
    )
    if is_fragment(request):
        return render(request, "effects/_preview.html", {"comparison": seen})
    return _shown(request, actor, found, comparison=seen)


@require_POST
@in_workspace()
def deliver_again(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """The same effect once more: same id, same key, same bytes."""
    return _ordered(request, actor, effect_id, OrderKind.DELIVER_AGAIN)


@require_POST
@in_workspace()
def send_as_new(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """A linked successor with an id and a key of its own."""
    return _ordered(request, actor, effect_id, OrderKind.SEND_AS_NEW)


def _ordered(request: HttpRequest, actor: Actor, effect_id: str, kind: OrderKind) -> HttpResponse:
    """Form, command, redirect; or the screen again, fresh, with what was typed and the refusal beside it."""
    effect = effect_seen_by(actor, effect_id)
    token = LeverForm.token_of(request.POST)
    offer = offers(effect, actor)[kind]
    form = OrderForm(request.POST, name=kind.value, overrides=offer.overrides)
    try:
        _check(actor, form, offer, token)
        order = _COMMANDS[kind](
            actor,
            effect_id,
            reason=form.text("reason"),
            token=token,
            typed_id=form.text("typed_id"),
            accepts=form.text("accepts"),
        )
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        now = effect_seen_by(actor, effect_id)
        return _shown(request, actor, now, tried=kind, typed=form, refusal=refusal)
    messages.success(request, told(order))
    return SeeOther(reverse("effect", args=[actor.workspace.id, effect.id]))


def _check(actor: Actor, form: OrderForm, offer: Offer, token: str) -> None:
    """What the form itself can say. Who may, and whether it may be done, the command says, and records.

    A form that has done its act already is the command's, too: it answers with what the form did.
    """
    valid = form.is_valid()
    if not actor.may(Capability.REPEAT) or not offer.offered or Order.objects.filter(token=token).exists():
        return
    if form.text("seen") != mark_of(offer):
        raise Stale(
            "What is known of it has changed since you opened this page. Read what each act does now, then order it."
        )
    if not valid:
        raise Invalid("Something is missing, or is not as it must be. It is marked below.")


def told(order: Order) -> str:
    """What was ordered, in the words of the audit trail, and what happens next."""
    said = f"{order.get_kind_display()}, ordered by {order.asked_by.name}: {order.reason}"
    following = {
        OrderStatus.AWAITING_SECOND: "A second person is asked now; nothing is sent before they agree.",
        OrderStatus.DUE: "It is sent now.",
    }.get(OrderStatus(order.status), order.outcome)
    return f"{said if said.endswith(('.', '!', '?')) else f'{said}.'} {following}".strip()


def _gist(sheet: Sheet | None, effect: Effect) -> list[Cell]:
    """The few words of the payload by which a person knows it again, but for its recipient."""
    told = [cell for cell in sheet.facts if not cell.is_mask] if sheet else []
    return [cell for cell in told if cell.value and cell.value != effect.recipient][:2]


def _shown(
    request: HttpRequest,
    actor: Actor,
    effect: Effect,
    *,
    tried: OrderKind | None = None,
    typed: OrderForm | None = None,
    refusal: Refusal | None = None,
    comparison: Comparison | None = None,
) -> HttpResponse:
    if typed is not None and refusal is not None:
        typed.refuse(refusal)
    record = record_of(effect)
    orders = orders_of(effect, actor)
    context: dict[str, Any] = {
        "nav": "effects",
        **record,
        "gist": _gist(record["sheet"], effect),
        "acts": acts_of(effect, actor, tried=tried, typed=typed),
        "asking": asking_of(effect, actor),
        "orders": orders,
        "under_way": any(row.is_open for row in orders),
        "links": links_of(effect),
        "refusal": refusal,
        "tried": tried,
        "comparison": comparison or comparison_of(effect, actor),
    }
    template = "effects/_repeat.html" if is_fragment(request) else "effects/repeat.html"
    return render(request, template, context, status=refusal.status if refusal else 200)
