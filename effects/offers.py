"""What a person may order about an effect now, what it takes, and for each other act the reason in words.

One function, asked by the page, the command, bulk recover and the worker alike, the worker again at execution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db.models import BooleanField, Case, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Now

from console.access import Actor
from console.models import Capability
from effects.contracts import EffectContract, UnknownType, contract, contracts
from effects.fresh import fresh_runs, why_blocked
from effects.models import Effect, Observation, Order, Review, Stop
from effects.models.command import ORIGINAL_WAS
from effects.selectors import PROBE_RUN, granted, probed, repeatable_by_key, standing_stops, stops_it
from effects.states import (
    OPEN_ORDERS,
    OVERRIDABLE,
    Dedup,
    EffectStatus,
    OrderKind,
    ReviewReason,
    SubState,
)
from effects.wires import HttpWire


@dataclass(frozen=True)
class Offer:
    """One act. *reason* says why it is not offered; empty: it is.

    *needs_second*: another person has to agree before anything is sent. *overrides*: nothing proves that the receiver
    does not have it, so both say in words that they accept a second one, and the id is typed. *says*: what it does.
    *warnings*: what may go wrong, in plain words.
    """

    kind: OrderKind
    reason: str = ""
    needs_second: bool = False
    overrides: bool = False
    says: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def offered(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Known:
    """What the rows say of an effect, read at one moment by the database's clock.

    *instead*: another effect that people have sent, or are about to send, in its place; its id, or empty.
    *window_open* and *probed*: of a key that may not go again, what of it is not the reason.
    *permitted*: the irreversible types that its run may send; None where it is no live replay or branch.
    """

    effect: Effect
    promise: EffectContract | None
    repeatable: bool
    window_open: bool
    probed: bool
    granted: bool
    reviews: frozenset[str]
    order: Order | None
    looked: Observation | None
    stops: tuple[Stop, ...]
    instead: str
    permitted: frozenset[str] | None

    @property
    def can_be_asked(self) -> bool:
        wire = self.promise.wire if self.promise else None
        return isinstance(wire, HttpWire) and wire.look_up is not None


def known_of(effect: Effect, *, but: Order | None = None) -> Known:
    """Read it. *but*: an open order that does not count, because it is the one that asks."""
    return next(iter(known_of_many(Effect.objects.filter(id=effect.id), but=but)))


def known_of_many(effects: QuerySet[Effect], *, but: Order | None = None) -> list[Known]:
    """The same of several effects of one workspace, in a few queries, however many they are."""
    yes, no = Value(True), Value(False)
    read = list(
        effects.annotate(
            by_key=Case(When(repeatable_by_key(), then=yes), default=no, output_field=BooleanField()),
            window_open=Case(When(key_until__gt=Now(), then=yes), default=no, output_field=BooleanField()),
            was_probed=Case(When(probed(), then=yes), default=no, output_field=BooleanField()),
            covered=Case(When(granted(), then=yes), default=no, output_field=BooleanField()),
            instead=Coalesce(_sent_for(OuterRef("pk")), _sent_after(OuterRef("successor_of"))),
        ).select_related("receiver", "command", "successor_of")
    )
    ids = [effect.id for effect in read]
    reviews = _reviews_of(ids)
    looks = _looks_since_sending(ids)
    open_orders = Order.objects.filter(sends__in=ids, status__in=OPEN_ORDERS).select_related("asked_by")
    by_effect = {order.sends_id: order for order in open_orders.exclude(id=but.id if but else "")}
    stops = list(standing_stops(read[0].workspace_id)) if read else []
    fresh = fresh_runs({effect.run_id for effect in read})
    return [
        Known(
            effect=effect,
            promise=_promise_of(effect.effect_type),
            repeatable=bool(effect.by_key),
            window_open=bool(effect.window_open),
            probed=bool(effect.was_probed),
            granted=bool(effect.covered),
            reviews=frozenset(reviews.get(effect.id, ())),
            order=by_effect.get(effect.id),
            looked=looks.get(effect.id),
            stops=tuple(stop for stop in stops if stops_it(stop, effect)),
            instead=effect.instead or "",
            permitted=fresh.get(effect.run_id),
        )
        for effect in read
    ]


def _sent_for(original: OuterRef) -> Subquery:
    """A successor of *original* that exists, or may come to."""
    return Subquery(
        Effect.objects.filter(successor_of=original).exclude(status=EffectStatus.FAILED).values("id")[:1]
    )


def _sent_after(original: OuterRef) -> Subquery:
    """The same, made after the effect that asks, which is a successor of *original* itself."""
    later = Effect.objects.filter(successor_of=original, created_at__gt=OuterRef("created_at"))
    return Subquery(later.exclude(status=EffectStatus.FAILED).values("id")[:1])


def _reviews_of(ids: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for effect_id, reason in Review.objects.filter(effect__in=ids, closed_at=None).values_list(
        "effect_id", "reason"
    ):
        found.setdefault(str(effect_id), []).append(reason)
    return found


def _looks_since_sending(ids: list[str]) -> dict[str, Observation]:
    """The newest look-up of each that was made after its last sending: an older one is an answer about the past."""
    looks = (
        Observation.objects.filter(effect__in=ids, kind="look_up")
        .filter(Q(effect__last_sent_at=None) | Q(at__gt=F("effect__last_sent_at")))
        .order_by("at", "id")
    )
    return {look.effect_id: look for look in looks}


def _promise_of(effect_type: str) -> EffectContract | None:
    try:
        return contract(effect_type)
    except UnknownType:
        return None


def offers(effect: Effect, actor: Actor | None = None, *, but: Order | None = None) -> dict[OrderKind, Offer]:
    """Every act with its reason. Without *actor* as far as the rows go: what the worker asks again at execution."""
    return offers_of(known_of(effect, but=but), actor)


def offers_of(known: Known, actor: Actor | None = None) -> dict[OrderKind, Offer]:
    """The same, of what was read already."""
    return {kind: offer_of(kind, known, actor) for kind in OrderKind}


def offer_of(kind: OrderKind, known: Known, actor: Actor | None = None) -> Offer:
    """One of them."""
    rule = {
        OrderKind.DELIVER_AGAIN: _deliver_again,
        OrderKind.SEND_AS_NEW: _send_as_new,
        OrderKind.COMPENSATE: _compensate,
    }[kind]
    offer = rule(known)
    if actor is not None and not actor.may(Capability.REPEAT):
        return replace(offer, reason=offer.reason or "Only a releaser may order this.")
    return offer


def _in_the_way(known: Known) -> str:
    """What forbids any sending of or about it."""
    if known.effect.run_id.startswith(PROBE_RUN):
        return "A probe made it, to try the contract. To try it again, run the probe again."
    if known.stops:
        stop = known.stops[0]
        return f"Sending is stopped ({stop}): {stop.reason}"
    if known.order is not None:
        return (
            f"{known.order.asked_by.name} has ordered it already: {known.order.get_kind_display().lower()}."
        )
    if known.effect.sub_state == SubState.IN_FLIGHT:
        return "It is in flight: wait until this attempt has ended."
    return ""


def _blocked(known: Known) -> str:
    return why_blocked(known.effect.effect_type, known.effect.reversibility, known.permitted)


def _deliver_again(known: Known) -> Offer:
    effect, promise = known.effect, known.promise
    no = Offer(OrderKind.DELIVER_AGAIN)
    why = _in_the_way(known) or _not_the_same_promise(known) or _not_to_be_delivered(known) or _blocked(known)
    if why:
        return replace(no, reason=why)
    assert promise is not None
    if effect.sub_state != SubState.UNCERTAIN:
        return replace(
            no,
            says="Sends it, with the same key and the same bytes. Nothing of it exists at the receiver.",
            needs_second=not known.granted,
            warnings=()
            if known.granted
            else ("The approval that it had is over: somebody else has to agree.",),
        )
    if known.repeatable and not known.reviews:
        return replace(
            no,
            says="Sends the same key with the same bytes. The receiver knows the key and answers with what it has.",
        )
    return _deliver_uncertain(known, no)


def _deliver_uncertain(known: Known, no: Offer) -> Offer:
    """Nothing protects a repeat: after a look at the receiver, or, where nobody can be asked, on two people's word."""
    name = known.effect.receiver.name
    if ReviewReason.CACHED_ERROR in known.reviews:
        return replace(
            no,
            reason=f"{name} repeats its old error under this key, so the same key brings the same error. "
            "Send it as a new effect once it is proven that nothing exists.",
        )
    if known.can_be_asked and known.looked is None:
        return replace(no, reason=f"Ask {name} first: nobody has since it was sent.")
    why = _why_not_by_key(known) if known.effect.dedup == Dedup.KEY else _why_no_repeat(known)
    protected = known.effect.dedup == Dedup.KEY and known.window_open and known.probed
    warnings = [why] if protected else [why, "If the first one did arrive, it will exist twice."]
    if known.looked is not None:
        warnings.insert(0, f"When it was last asked: {known.looked.sentence}")
    return replace(
        no,
        says="Sends it although nobody knows whether the first attempt arrived.",
        needs_second=True,
        overrides=True,
        warnings=tuple(warnings),
    )


def _why_no_repeat(known: Known) -> str:
    """Of what has no key: why sending it again may make a second one."""
    name = known.effect.receiver.name
    return {
        Dedup.NATURAL: f"{name} could not prove that it does not have it.",
        Dedup.QUERY: f"{name} would not notice a repeat.",
        Dedup.NONE: f"{name} cannot tell a repeat from a new request, and can't be asked.",
    }[Dedup(known.effect.dedup)]


def _why_not_by_key(known: Known) -> str:
    """Why a key is not simply used again: the first of these that is so."""
    name = known.effect.receiver.name
    if not known.window_open:
        return (
            "The time in which the key protects a repeat is over: "
            f"{name} may have forgotten it, and take it for a new request."
        )
    if not known.probed:
        return (
            f"Whether {name} knows its keys is not shown: {known.effect.effect_type} was not probed at this account, "
            "or its newest probe has failed."
        )
    if not known.granted:
        return "The approval that it had is over. The key still protects a repeat."
    return f"A review is open ({ReviewReason(min(known.reviews)).label.lower()}). The key still protects a repeat."


def _not_the_same_promise(known: Known) -> str:
    effect, promise = known.effect, known.promise
    if promise is None:
        return f"This deployment has no contract for {effect.effect_type} any more."
    if promise.version != effect.contract_version:
        return (
            f"The contract of {effect.effect_type} is version {promise.version} now; this was asked for under "
            f"version {effect.contract_version} and is not sent under another one."
        )
    if effect.account != effect.receiver.account:
        return f"The account at {effect.receiver.name} has changed since this was asked for."
    return ""


def _not_to_be_delivered(known: Known) -> str:
    """Why this very effect is not delivered again from where it stands."""
    effect = known.effect
    if effect.status == EffectStatus.COMPLETED:
        return f"{effect.receiver.name} has it. To have it a second time, send it as a new effect."
    if effect.status == EffectStatus.ACCEPTED:
        return f"{effect.receiver.name} has taken it and has yet to say how it ended."
    if known.instead:
        return f"{known.instead} was sent in its place, or is about to be: there is to be one of them."
    if found := _original_has_come(effect):
        return found
    if effect.compensates_id and effect.status == EffectStatus.FAILED:
        return WITHIN_WHAT_IS_LEFT
    unanswered = known.reviews if effect.sub_state != SubState.UNCERTAIN else known.reviews - set(OVERRIDABLE)
    if unanswered:
        return f"A review is open ({ReviewReason(min(unanswered)).label.lower()}): settle it first."
    return {
        SubState.RECORDED: "It has not been approved yet: its approval decides.",
        SubState.AWAITING_APPROVAL: "It has not been approved yet: its approval decides.",
        SubState.REJECTED: "A person rejected it. To have it all the same, send it as a new effect.",
        SubState.CANCELLED: "It was cancelled. To have it all the same, send it as a new effect.",
    }.get(SubState(effect.sub_state), "")


#: A compensation counts against its original while it may exist, and no more once it failed.
WITHIN_WHAT_IS_LEFT = "It takes back another effect: order that anew there, within what is left of it."


def _original_has_come(effect: Effect) -> str:
    """A successor of what was not there rests on that; two people were asked about one, not about a second one."""
    original = effect.successor_of
    was = effect.command.place.get(ORIGINAL_WAS, EffectStatus.COMPLETED)
    if original is None or was == EffectStatus.COMPLETED:
        return ""
    if original.status in (EffectStatus.COMPLETED, EffectStatus.ACCEPTED) and was != original.status:
        return (
            f"{original.receiver.name} has the original ({original.id}), which it had not when this was ordered. "
            "Look at it, and order again if there are to be two."
        )
    if original.sub_state == SubState.IN_FLIGHT:
        return f"The original ({original.id}) is in flight: wait until this attempt has ended."
    return ""


def _send_as_new(known: Known) -> Offer:
    effect, promise = known.effect, known.promise
    no = Offer(OrderKind.SEND_AS_NEW, needs_second=True)
    if promise is None:
        return replace(no, reason=f"This deployment has no contract for {effect.effect_type} any more.")
    why = (
        _in_the_way(known) or _successor_in_the_way(effect) or _not_to_be_sent_anew(known) or _blocked(known)
    )
    if why:
        return replace(no, reason=why)
    new = "Makes a linked effect with an id and a key of its own, and sends that."
    if effect.status == EffectStatus.COMPLETED:
        return replace(
            no, says=new, warnings=(f"{effect.receiver.name} has the first one: afterwards there are two.",)
        )
    if effect.status == EffectStatus.FAILED:
        return replace(no, says=f"{new} Of this one nothing exists.")
    if effect.absent_at is not None:
        return replace(
            no, says=f"{new} It is proven that nothing of this one exists; it is closed as cancelled."
        )
    return replace(
        no,
        says=new,
        overrides=True,
        warnings=(
            f"Nobody knows whether {effect.receiver.name} has the first one.",
            "If it has, there will be two. Both people accept that in words.",
        ),
    )


def _successor_in_the_way(effect: Effect) -> str:
    under_way = effect.successors.filter(status__in=[EffectStatus.PENDING, EffectStatus.ACCEPTED]).first()
    return f"Its successor {under_way.id} is under way." if under_way else ""


def _not_to_be_sent_anew(known: Known) -> str:
    effect = known.effect
    if blocking := known.reviews & {
        ReviewReason.MISMATCH,
        ReviewReason.DUPLICATE_FOUND,
        ReviewReason.CONTRADICTION,
    }:
        return f"A review is open ({ReviewReason(min(blocking)).label.lower()}): settle it first."
    if effect.compensates_id:
        return WITHIN_WHAT_IS_LEFT
    if known.repeatable and not known.reviews:
        return "Its key still protects a repeat: deliver this one again. A second one is not needed."
    if effect.status == EffectStatus.PENDING and effect.sub_state != SubState.UNCERTAIN:
        return "It was never sent: deliver this one, or cancel it. A second one is not needed."
    if effect.sub_state == SubState.UNCERTAIN and known.can_be_asked and known.looked is None:
        return f"Ask {effect.receiver.name} first: nobody has since it was sent."
    return ""


def compensations_of(effect_type: str) -> list[EffectContract]:
    """The contracts whose effects take one of this type back."""
    return [
        promise
        for promise in contracts().values()
        if promise.compensates and promise.compensates.type == effect_type
    ]


def _compensate(known: Known) -> Offer:
    effect = known.effect
    no = Offer(OrderKind.COMPENSATE, needs_second=True)
    takes_back = compensations_of(effect.effect_type)
    if not takes_back:
        return replace(no, reason="No contract says how an effect of this type is taken back.")
    blocked = [why_blocked(one.type, one.reversibility, known.permitted) for one in takes_back]
    if all(blocked):
        return replace(no, reason=blocked[0])
    if known.stops or effect.run_id.startswith(PROBE_RUN):
        return replace(no, reason=_in_the_way(known))
    if effect.status != EffectStatus.COMPLETED:
        return replace(no, reason="Only what the receiver has can be taken back; this is not completed.")
    return replace(
        no, says="Makes an effect of its own that takes this one back, and sends it once approved."
    )
