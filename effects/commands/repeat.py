"""Repeat external effect: deliver again, send as a new effect, withdraw. Privileged, and never part of a replay."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, KeyReused, NotFound
from console.models import Capability
from effects import approvals, intents, second_person
from effects.contracts import contract
from effects.models import Approval, Effect, Order
from effects.offers import Offer, offers
from effects.orders import ring
from effects.second_person import tell
from effects.selectors import effect_seen_by, payload_of, revision_of
from effects.states import ApprovalStatus, OrderKind, OrderStatus

#: Fewer characters than this are no words in which a person accepts a risk.
LEAST_WORDS = 15


def deliver_again(
    actor: Actor, effect_id: str, *, reason: str, token: str, typed_id: str = "", accepts: str = ""
) -> Order:
    """Order the same effect again: same id, same key, same bytes. The same *token* again returns the first order.

    Due at once where the key protects it or nothing of it exists; otherwise a second person has to agree, the id is
    typed and the risk accepted in words. Raises Forbidden, NotFound, AlreadyDone (409, with the reason in words),
    Invalid (422, with the field), KeyReused. A refusal is recorded in the audit trail.
    """
    with audit.refusals_recorded(actor, "order.not_taken", effect_id):
        return _order(
            actor,
            OrderKind.DELIVER_AGAIN,
            effect_id,
            reason=reason,
            token=token,
            typed_id=typed_id,
            accepts=accepts,
        )


def send_as_new(
    actor: Actor, effect_id: str, *, reason: str, token: str, typed_id: str = "", accepts: str = ""
) -> Order:
    """Order a linked successor with an id and a key of its own. Always with a second person and a fresh approval.

    Its original is completed or proven absent; otherwise both people accept in words that there may be two. Raises as
    :func:`deliver_again`.
    """
    with audit.refusals_recorded(actor, "order.not_taken", effect_id):
        return _order(
            actor,
            OrderKind.SEND_AS_NEW,
            effect_id,
            reason=reason,
            token=token,
            typed_id=typed_id,
            accepts=accepts,
        )


def withdraw(actor: Actor, order_id: str, *, reason: str, token: str) -> Order:
    """Take back an order of which nothing was sent: by who gave it, or another releaser."""
    with audit.refusals_recorded(actor, "order.not_withdrawn", order_id), transaction.atomic():
        actor.require(Capability.REPEAT)
        # The request before the order, as a decision locks them: otherwise the two could wait for each other.
        asked = Approval.objects.filter(
            order=order_id, workspace=actor.workspace, status=ApprovalStatus.PENDING
        )
        list(asked.select_for_update(of=("self",)).values_list("id", flat=True))
        order = (
            Order.objects.select_for_update(of=("self",))
            .select_related("effect", "sends")
            .filter(id=order_id, workspace=actor.workspace)
            .first()
        )
        if order is None:
            raise NotFound(f"There is no order {order_id} here.")
        if audit.done_by_form(order.id, "order.withdrawn", token):
            return order
        if not reason.strip():
            raise Invalid("Say why you withdraw it.", field="reason")
        outcome = f"Withdrawn by {actor.user.name}: {reason}"
        if order.attempts or not second_person.end_order(order, OrderStatus.WITHDRAWN, outcome):
            raise AlreadyDone("It has been carried out, or has ended, already.")
        _record(actor, order, "withdrawn", outcome, token=token, reason=reason)
    order.refresh_from_db()
    return order


def _order(
    actor: Actor, kind: OrderKind, effect_id: str, *, reason: str, token: str, typed_id: str, accepts: str
) -> Order:
    actor.require(Capability.REPEAT)
    seen = effect_seen_by(actor, effect_id)
    if earlier := ordered_by_form(actor, kind, seen, token):
        return earlier
    with transaction.atomic():
        effect = Effect.objects.select_for_update().get(id=seen.id)
        # Again under the lock: two tabs of one form may have come at once.
        if earlier := ordered_by_form(actor, kind, effect, token):
            return earlier
        offer = offers(effect, actor)[kind]
        if not offer.offered:
            raise AlreadyDone(offer.reason)
        check_words(effect, offer, reason=reason, typed_id=typed_id, accepts=accepts)
        sends = effect if kind == OrderKind.DELIVER_AGAIN else _successor(effect)
        return place(actor, offer, effect, sends, reason=reason, token=token, accepts=accepts)


def ordered_by_form(actor: Actor, kind: OrderKind, effect: Effect, token: str) -> Order | None:
    """The order that this form has made already. KeyReused where its token made another one."""
    earlier = Order.objects.select_related("effect", "sends").filter(token=token).first()
    if earlier is None:
        return None
    if (earlier.kind, earlier.effect_id, earlier.asked_by_id) != (kind, effect.id, actor.user.id):
        raise KeyReused("This form was used for another order. Open the page again.")
    return earlier


def check_words(effect: Effect, offer: Offer, *, reason: str, typed_id: str, accepts: str) -> None:
    """What a person has to write for this act. Raises Invalid with the field."""
    if not reason.strip():
        raise Invalid("Say why.", field="reason")
    if not offer.overrides:
        return
    if typed_id.strip() != effect.id:
        raise Invalid(
            "Type the effect's id, exactly: it is the one that may come to exist twice.", field="typed_id"
        )
    if len(accepts.strip()) < LEAST_WORDS:
        raise Invalid("Say in your own words that you accept the risk of a second one.", field="accepts")


def place(
    actor: Actor, offer: Offer, effect: Effect, sends: Effect, *, reason: str, token: str, accepts: str = ""
) -> Order:
    """Write the order, and ring for it or ask the second person. Inside the command's transaction, effect locked."""
    try:
        with transaction.atomic():
            order = Order.objects.create(
                workspace=actor.workspace,
                kind=offer.kind,
                effect=effect,
                sends=sends,
                status=OrderStatus.AWAITING_SECOND if offer.needs_second else OrderStatus.DUE,
                asked_by=actor.user,
                reason=reason.strip(),
                token=token,
                overrides=offer.overrides,
                accepts=accepts.strip() if offer.overrides else "",
                needs_second=offer.needs_second,
            )
    except IntegrityError:
        raise AlreadyDone("Somebody else has ordered it just now. Look at it again.") from None
    if offer.needs_second:
        _ask_second(actor, order, sends)
    else:
        ring(order)
    _record(
        actor,
        order,
        "placed",
        f"{offer.kind.label}, ordered by {actor.user.name}: {reason.strip()}",
        token=token,
        reason=reason,
    )
    return order


def _ask_second(actor: Actor, order: Order, sends: Effect) -> None:
    about = approvals.request_for_effect(sends)
    said = f"{actor.user.name} orders: {order.get_kind_display().lower()}. {order.reason}"
    if order.accepts:
        said += f"\n\nAccepts the risk of a second one: {order.accepts}"
    second_person.open_for_order(
        order,
        sends,
        title=f"{order.get_kind_display()}: {about.title}",
        why=said,
        risk=order.overrides,
    )


def _successor(effect: Effect) -> Effect:
    """The linked successor, with the payload that stands, its own id, key and bytes. It asks for a fresh approval."""
    promise = contract(effect.effect_type)
    payload = payload_of(effect, revision_of(effect))
    plain = promise.validated(payload if isinstance(payload, dict) else {})
    return intents.record_ordered(effect, promise, plain, successor_of=effect)


def _record(actor: Actor, order: Order, what: str, sentence: str, *, token: str, reason: str) -> None:
    audit.record(
        workspace_id=order.workspace_id,
        actor=actor.user,
        verb=f"order.{what}",
        subject=order.id if what == "withdrawn" else order.effect_id,
        run_id=order.effect.run_id,
        reason=reason,
        sentence=sentence,
        token=token,
        order=order.id,
        sends=order.sends_id,
        overrides=order.overrides,
    )
    tell(order)
