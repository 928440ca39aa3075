"""What a worker does with a person's order: look again at everything, send once, say what became of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from console import audit, doorbell
from console.access import actor_in
from console.kernel.errors import NotFound
from console.models import Capability, User
from effects import durability, fresh, ledger, moves, origin
from effects.ledger import Blocked
from effects.models import Effect, Order, Review
from effects.moves import orders
from effects.offers import Offer, offers
from effects.origin import OriginLost, Unpermitted
from effects.second_person import ORDER_TASK, close_what_it_leaves, end_order, tell
from effects.selectors import due
from effects.states import EffectStatus, OrderKind, OrderStatus, Stance, SubState

logger = logging.getLogger(__name__)

#: A due order that no worker has taken for this long is rung for again.
RING_AGAIN = timedelta(seconds=2)
#: No more of them are rung for in one turn of the sweep.
A_TURN = 200


@dataclass(frozen=True)
class OrderOrigin(origin.Origin):
    """A person's order as the origin of a sending: it holds the order's row, whatever the run's status."""

    order: Order
    customer_ref: str = ""
    worker_id: str = ""

    @property
    def workspace_id(self) -> str:
        return self.order.workspace_id

    @property
    def run_id(self) -> str:
        return self.order.sends.run_id

    @property
    def name(self) -> str:
        return self.order.id

    @property
    def stance(self) -> Stance:
        """Its run's: an order opens no way around what a live replay or branch may not send."""
        return Stance.FRESH if self.run_id in fresh.fresh_runs([self.run_id]) else Stance.LIVE

    @property
    def permitted_types(self) -> frozenset[str]:
        return fresh.fresh_runs([self.run_id]).get(self.run_id, frozenset())

    def hold(self) -> None:
        if not orders.hold(self.order.id):
            raise OriginLost(f"the order {self.order.id} is not due any more")

    def check_permitted(self) -> None:
        """Who gave the order and who seconded it must both still be allowed to: rights are those of now."""
        _check(self.order.asked_by, self.order, Capability.REPEAT, "gave this order")
        if self.order.second_by is not None:
            _check(self.order.second_by, self.order, Capability.SECOND, "agreed to this order")


def _check(person: User, order: Order, capability: Capability, did: str) -> None:
    try:
        may = actor_in(person, order.workspace_id).may(capability)
    except NotFound:
        may = False
    if not may:
        raise Unpermitted(f"{person.name}, who {did}, may no longer do this. Nothing was sent.")


def execute(order_id: str, *, worker_id: str = "") -> str:
    """Carry out a due order as far as one visit goes; what it found, for the log.

    It is asked again whether the act may be done now, by the same function as on the page. The order ends when its
    effect is settled or stands with a person; while the effect waits to be tried again the sweep rings for it.
    """
    order = (
        Order.objects.select_related("asked_by", "second_by", "sends", "effect", "workspace")
        .filter(id=order_id, status=OrderStatus.DUE)
        .first()
    )
    if order is None:
        return "not due"
    if refusal := _refusal(order):
        return _refuse(order, refusal)
    try:
        _prepare(order)
        effect = ledger.deliver_by_order(OrderOrigin(order, worker_id=worker_id), order)
    except OriginLost:
        return "taken"
    except (Unpermitted, Blocked) as refused:
        return _refuse(order, refused.message)
    return _conclude(order, effect)


def _refusal(order: Order) -> str:
    """Why it may not be carried out now. What it has sent already is not judged anew: its outcome is awaited."""
    if order.attempts:
        return ""
    if order.kind == OrderKind.DELIVER_AGAIN:
        offer = offers(order.effect, but=order)[OrderKind.DELIVER_AGAIN]
        return offer.reason or _weaker(order, offer)
    if stops := offers(order.sends, but=order)[OrderKind.DELIVER_AGAIN].reason:
        return stops
    return _original_moved(order)


def _weaker(order: Order, offer: Offer) -> str:
    """What it takes has grown since it was ordered: a window closed, a look found nothing to go by."""
    if offer.overrides and not order.overrides:
        return "What protects a repeat is over since this was ordered. Order it again, with a second person."
    return ""


def _original_moved(order: Order) -> str:
    """A successor or a compensation rests on where its original stood."""
    original = Effect.objects.get(id=order.effect_id)
    if order.kind == OrderKind.COMPENSATE:
        return "" if original.status == EffectStatus.COMPLETED else "The original is not completed any more."
    known = original.status in (EffectStatus.COMPLETED, EffectStatus.FAILED) or original.absent_at is not None
    if not known and not order.overrides:
        return "It is not proven any more that nothing of the original exists."
    if original.status == EffectStatus.COMPLETED and order.overrides:
        return "The original has been found at the receiver since. Look at it, and order again if there are to be two."
    return ""


def _prepare(order: Order) -> None:
    """Put the effect where it may be sent from; and close an original whose absence is proven in its successor's place."""
    with transaction.atomic():
        held = orders.hold(order.id)
        if held is None:
            raise OriginLost(f"the order {order.id} is not due any more")
        sends = Effect.objects.select_for_update().get(id=order.sends_id)
        if sends.sub_state in (SubState.HELD, SubState.REFUSED) and not held.attempts:
            moves.make_ready_by_order(sends.id, granted_by=None, valid=timedelta())
        if order.kind == OrderKind.SEND_AS_NEW:
            moves.cancel_proven_absent(order.effect_id, why=f"Sent anew as {sends.id}.")


def _refuse(order: Order, reason: str) -> str:
    with transaction.atomic():
        if end_order(order, OrderStatus.REFUSED, reason):
            _record(order, "refused", f"{order.get_kind_display()} was not carried out: {reason}")
    return f"refused: {reason}"


def _conclude(order: Order, effect: Effect) -> str:
    """End the order when nothing more comes of it by itself."""
    if effect.sub_state in (SubState.RECORDED, SubState.AWAITING_APPROVAL):
        # Nobody is asked about an order twice: whoever wants it sent orders it anew.
        return _refuse(order, f"The approval that it had is over. {effect.problem}".strip())
    outcome = _outcome(effect)
    if outcome is None:
        return f"waits: {effect.sub_state or effect.status}"
    with transaction.atomic():
        if orders.end(order.id, OrderStatus.DONE, outcome, leaving=(OrderStatus.DUE,)):
            close_what_it_leaves(order, why=outcome)
            _record(order, "done", f"{order.get_kind_display()}: {outcome}")
    return outcome


def _outcome(effect: Effect) -> str | None:
    """In words, what became of it; None while it will be tried again by itself."""
    receiver = effect.receiver.name
    if effect.status == EffectStatus.COMPLETED:
        return f"{receiver} has it as {effect.provider_reference}."
    if effect.status == EffectStatus.ACCEPTED:
        return f"{receiver} has taken it; its final result is awaited."
    if effect.status == EffectStatus.FAILED:
        return f"Nothing was made: {effect.problem}"
    if effect.sub_state == SubState.HELD:
        unsent = f"{receiver} could not be reached; nothing was sent."
        original = effect.successor_of_id or effect.compensates_id
        return (
            f"{unsent} It is cancelled; to have it all the same, order it anew from {original}."
            if original
            else unsent
        )
    if effect.sub_state == SubState.UNCERTAIN and Effect.objects.filter(_in_review(), id=effect.id).exists():
        return f"Whether {receiver} has it is not known: {effect.problem}"
    return None


def _in_review() -> Exists:
    """It stands with a person. Until then looks go on, and one that proves it absent makes it the order's to send."""
    return Exists(Review.objects.filter(effect=OuterRef("pk"), closed_at=None))


def _record(order: Order, what: str, sentence: str) -> None:
    audit.record(
        workspace_id=order.workspace_id,
        actor="system:worker",
        verb=f"order.{what}",
        subject=order.id,
        run_id=order.effect.run_id,
        sentence=sentence,
        on_behalf_of=order.asked_by.name,
        effect=order.effect_id,
        sends=order.sends_id,
    )
    tell(order)


def ring(order: Order) -> None:
    """Ring a worker once this transaction commits."""
    doorbell.ring_on_commit(ORDER_TASK, [order.id], queue=doorbell.ORDERS)


def ring_again() -> int:
    """Due orders that nobody took, or whose effect is due for another try; none that this database might forget."""
    waits = Effect.objects.filter(sub_state__in=[SubState.BACKOFF, SubState.UNCERTAIN]).exclude(
        due() | Q(_in_review())
    )
    rung = 0
    forgets = Effect.objects.filter(durability.held_back())
    found = Order.objects.filter(status=OrderStatus.DUE).exclude(sends__in=waits).exclude(sends__in=forgets)
    # Who was rung for longest ago comes first: those that can't be carried out now keep no other from its turn.
    turns = found.order_by(F("rung_at").asc(nulls_first=True), "asked_at")
    for order_id in turns.values_list("id", flat=True)[:A_TURN]:
        if orders.ring_due(order_id, after=RING_AGAIN):
            if not doorbell.ring(ORDER_TASK, [order_id], queue=doorbell.ORDERS):
                break
            rung += 1
    return rung
