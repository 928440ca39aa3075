"""A releaser's clicks on the Repeat screen, and what a second person then finds."""

from __future__ import annotations

import html
import re
from typing import Any

from django.test import Client

from effects.models import Approval, Effect, Order
from effects.states import ApprovalStatus

WHY = "The customer is waiting for it."
WORDS = "I accept that there may be two of them."


def address(effect: Effect, verb: str = "") -> str:
    return f"/w/{effect.workspace_id}/effects/{effect.id}/{f'{verb}/' if verb else ''}"


def form_at(page: Any, action: str) -> dict[str, str] | None:
    """The hidden fields of the page's form that posts to *action*; None where there is no such form."""
    for attributes, body in re.findall(r"<form([^>]*)>(.*?)</form>", page.content.decode(), re.DOTALL):
        if f'action="{action}"' in attributes:
            hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', body)
            return {name: html.unescape(value) for name, value in hidden}
    return None


def carried(client: Client, effect: Effect, verb: str) -> dict[str, str]:
    """What the act's form carries unseen. Who is shown none sends what they would have to guess."""
    found = form_at(client.get(address(effect, "repeat")), address(effect, verb))
    return found or {"form_token": "0" * 32, "seen": ""}


def press(client: Client, effect: Effect, verb: str, **typed: str) -> Any:
    """Open the screen, fill in the act's form as it must be, but for what *typed* says, and press its button."""
    usual = {"reason": WHY, "typed_id": effect.id, "accepts": WORDS}
    return client.post(address(effect, verb), {**carried(client, effect, verb), **usual, **typed})


def order_of(effect: Effect) -> Order:
    return Order.objects.select_related("sends", "effect").get(effect=effect)


def request_of(order: Order) -> Approval:
    """The second person's request."""
    return Approval.objects.get(order=order, status=ApprovalStatus.PENDING)
