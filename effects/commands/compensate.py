"""Compensate: an effect of a type of its own that takes another one back, linked to it and never more than it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Sum

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid
from console.models import Capability
from effects import intents
from effects.commands.repeat import check_words, ordered_by_form, place
from effects.contracts import Compensates, EffectContract, Payload, contract
from effects.fresh import fresh_runs, why_blocked
from effects.models import Effect, Order
from effects.offers import compensations_of, offers
from effects.selectors import effect_seen_by, payload_of, revision_of
from effects.states import EffectStatus, OrderKind


def compensate(
    actor: Actor, effect_id: str, *, effect_type: str, payload: dict[str, Any], reason: str, token: str
) -> Order:
    """Order an effect of *effect_type* that takes *effect_id* back. A second person approves it before it is sent.

    The sum of what was taken back, and is about to be, never passes the original's amount; one without an amount is
    taken back once. Raises as effects.commands.repeat.deliver_again. A refusal is recorded in the audit trail.
    """
    with audit.refusals_recorded(actor, "order.not_taken", effect_id):
        return _compensate(actor, effect_id, effect_type, payload, reason, token)


def _compensate(
    actor: Actor, effect_id: str, effect_type: str, payload: dict[str, Any], reason: str, token: str
) -> Order:
    actor.require(Capability.REPEAT)
    seen = effect_seen_by(actor, effect_id)
    promise = contract(effect_type)
    plain = promise.validated(_naming(seen, promise, payload))
    with transaction.atomic():
        # The original's row orders all that take from it.
        original = Effect.objects.select_for_update().get(id=seen.id)
        if earlier := ordered_by_form(actor, OrderKind.COMPENSATE, original, token):
            return earlier
        offer = offers(original, actor)[OrderKind.COMPENSATE]
        if not offer.offered:
            raise AlreadyDone(offer.reason)
        permitted = fresh_runs([original.run_id]).get(original.run_id)
        if why := why_blocked(promise.type, promise.reversibility, permitted):
            raise AlreadyDone(why)
        check_words(original, offer, reason=reason, typed_id="", accepts="")
        amount = _amount(original, promise, plain)
        sends = intents.record_ordered(original, promise, plain, compensates=original, amount_minor=amount)
        return place(actor, offer, original, sends, reason=reason, token=token)


def _naming(original: Effect, promise: EffectContract, payload: dict[str, Any]) -> dict[str, Any]:
    """*payload* with the original's own number at the receiver where the contract wants it: it can't name another."""
    takes = promise.compensates
    return {**payload, takes.reference: original.provider_reference} if takes and takes.reference else payload


def _amount(original: Effect, promise: EffectContract, payload: Payload) -> int | None:
    """What it takes back, in minor units; None for a compensation of the whole. Refuses more than is left."""
    takes = promise.compensates
    if takes is None or promise not in compensations_of(original.effect_type):
        raise Invalid(
            f"{promise.type} is not declared to take back {original.effect_type}.", field="effect_type"
        )
    if not takes.amount:
        if _not_failed(original).exists():
            raise AlreadyDone("It has been taken back already, or is about to be.")
        return None
    amount = _whole(promise.recipient_of(payload, takes.amount), takes.amount)
    if left_to_compensate(original, takes) < amount:
        left = left_to_compensate(original, takes)
        raise Invalid(
            f"{takes.amount} is more than is left of the original: {left} of {original_amount(original, takes)}.",
            field=takes.amount,
        )
    return amount


def original_amount(original: Effect, takes: Compensates) -> int:
    """The original's amount in minor units, from the bytes that were sent."""
    payload = payload_of(original, revision_of(original))
    path = takes.original_amount or takes.amount
    said = contract(original.effect_type).recipient_of(payload if isinstance(payload, dict) else {}, path)
    return _whole(said, path)


def left_to_compensate(original: Effect, takes: Compensates) -> int:
    """What may still be taken back, in minor units: those that are about to be count as taken."""
    taken = _not_failed(original).aggregate(sum=Sum("amount_minor"))["sum"] or 0
    return original_amount(original, takes) - int(taken)


def _not_failed(original: Effect) -> Any:
    return original.compensations.exclude(status=EffectStatus.FAILED)


def _whole(text: str, path: str) -> int:
    """Amounts are whole minor units above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise Invalid(f"{path} is not a whole number of minor units above 0.", field=path)
    return int(text)
