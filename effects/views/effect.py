"""One effect: why it was meant, what was tried, what is known, what people ordered; and two small acts about it.

Values are masked for everybody.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.kernel.errors import Forbidden, Invalid, NotFound, Refusal
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace
from effects.commands.ask_receiver import ask_receiver
from effects.commands.repeat import withdraw
from effects.forms import WithdrawForm
from effects.models import Effect, LookRequest, Order
from effects.selectors import effect_seen_by
from effects.views.acts import levers_of
from effects.views.addresses import is_fragment
from effects.views.orders import Withdrawing, links_of, orders_of
from effects.views.record import record_of


@require_safe
@in_workspace()
def effect(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """One effect with everything that is known of it."""
    return shown(request, actor, effect_seen_by(actor, effect_id))


def shown(
    request: HttpRequest,
    actor: Actor,
    found: Effect,
    *,
    refusal: Refusal | None = None,
    withdrawing: Withdrawing | None = None,
) -> HttpResponse:
    """The effect's page; with the *refusal* of what was tried on it just now, in its words and with its status."""
    orders = orders_of(found, actor, withdrawing)
    context: dict[str, Any] = {
        "nav": "effects",
        **record_of(found),
        "levers": levers_of(found, actor),
        "orders": orders,
        "made_by": next((row.order for row in orders if not row.about_this), None),
        "links": links_of(found),
        "refusal": refusal,
    }
    template = "effects/_effect.html" if is_fragment(request) else "effects/effect.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


@require_POST
@in_workspace()
def ask(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """Ask the receiver now: one look-up is queued. Back to the page that it was asked on."""
    found = effect_seen_by(actor, effect_id)
    token = LeverForm.token_of(request.POST)
    try:
        asked = ask_receiver(actor, effect_id, token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return shown(request, actor, found, refusal=refusal)
    messages.info(request, _asked(actor, found, asked, by_this_form=asked.token == token))
    back = "effect_repeat" if request.POST.get("back") == "repeat" else "effect"
    return SeeOther(reverse(back, args=[actor.workspace.id, found.id]))


def _asked(actor: Actor, effect: Effect, asked: LookRequest, *, by_this_form: bool) -> str:
    receiver = effect.receiver.name
    if by_this_form:
        return f"{actor.user.name} asked {receiver}. What it says will stand here."
    who = asked.asked_by.name if asked.asked_by else "Signalbox"
    return f"{who} has asked {receiver} already. What it says will stand here."


@require_POST
@in_workspace()
def order_withdraw(request: HttpRequest, actor: Actor, order_id: str) -> HttpResponse:
    """Take back an order of which nothing was sent."""
    form = WithdrawForm(request.POST, order_id=order_id)
    token = LeverForm.token_of(request.POST)
    valid = form.is_valid()
    try:
        if not valid and actor.may(Capability.REPEAT):
            raise Invalid(str(form.errors["reason"][0]), field="reason")
        order = withdraw(actor, order_id, reason=form.cleaned_data.get("reason", ""), token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _not_withdrawn(request, actor, order_id, form, refusal)
    messages.success(request, f"{order.get_kind_display()}: {_sentence(order.outcome)}")
    return SeeOther(reverse("effect", args=[actor.workspace.id, order.effect_id]))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _not_withdrawn(
    request: HttpRequest, actor: Actor, order_id: str, form: WithdrawForm, refusal: Refusal
) -> HttpResponse:
    order = Order.objects.filter(id=order_id, workspace=actor.workspace).first()
    if order is None:
        raise NotFound(f"There is no order {order_id} here.")
    if refusal.field == "reason" and "reason" not in form.errors:
        form.add_error("reason", refusal.message)
    found = effect_seen_by(actor, order.effect_id)
    return shown(request, actor, found, refusal=refusal, withdrawing=Withdrawing(order.id, form))
