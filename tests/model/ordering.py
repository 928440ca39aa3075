"""What people do about effects: repeats, successors, compensations, reviews, the kill switch.

They tell the truth about what they see at the receiver, and wait while something may still arrive there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from effects import approvals, orders
from effects.commands import bulk_recover, compensate, repeat, settle_review, stop_sending
from effects.models import Approval, Effect, Order, Review
from effects.states import (
    ApprovalStatus,
    Decision,
    EffectStatus,
    OrderKind,
    ReviewOutcome,
    StopScope,
    Verdict,
)
from tests.model import faults
from tests.model.drawing import DEATHS, STOPS, WHICH, some_intent
from tests.model.errands import Stop
from tests.model.faults import Fault
from tests.model.machine import Core, Intent, rule
from tests.model.promises import RECEIVER

RELEASERS = st.sampled_from(["releaser", "second_releaser"])
SECONDS = st.sampled_from(["second_releaser", "approver", "releaser"])
#: What an order's delivery may meet: mostly an honest receiver.
MEETS = st.sampled_from([Fault.NONE, Fault.NONE, *faults.LOST, *faults.UNSENT, *faults.REFUSED, *faults.ODD])
ACCEPTS = "I accept that there may be two of it."


class Ordering(Core):
    """Repeat external effect, by one person or two, and what a worker does with an order."""

    @precondition(some_intent)
    @rule(which=WHICH, by=RELEASERS)
    def deliver_again(self, which: int, by: str) -> None:
        intent = self.by_trouble(which)
        self.step("order", f"the {called(by)} orders “{intent.called}” to be delivered again")
        self._order(intent, OrderKind.DELIVER_AGAIN, repeat.deliver_again, by)

    @precondition(some_intent)
    @rule(which=WHICH, by=RELEASERS)
    def send_as_new(self, which: int, by: str) -> None:
        intent = self.by_trouble(which)
        self.step("order", f"the {called(by)} orders “{intent.called}” to be sent as a new effect")
        self._order(intent, OrderKind.SEND_AS_NEW, repeat.send_as_new, by)

    def _order(self, intent: Intent, kind: OrderKind, command: Callable[..., Order], by: str) -> None:
        made: list[Order] = []
        words = f"{kind} {intent.called}"
        work = partial(
            command,
            self.setting.people[by],
            intent.effect_id,
            reason="The customer waits.",
            token=str(uuid.uuid4()),
            typed_id=intent.effect_id,
            accepts=ACCEPTS,
        )
        if self.command(words, lambda: made.append(work())):
            self._ordered(made[0], intent)

    @precondition(lambda self: self.compensable())
    @rule(which=WHICH, amount=st.sampled_from([400, 1000, 5000]), by=RELEASERS)
    def compensate(self, which: int, amount: int, by: str) -> None:
        found = self.compensable()
        intent = found[which % len(found)]
        self.step("order", f"the {called(by)} orders {amount} of “{intent.called}” to be taken back")
        made: list[Order] = []
        work = partial(
            compensate.compensate,
            self.setting.people[by],
            intent.effect_id,
            effect_type="model.refund",
            payload={"customer_id": "cus_000001", "amount_minor": amount},
            reason="It was too much.",
            token=str(uuid.uuid4()),
        )
        if self.command(f"compensate {intent.called}", lambda: made.append(work())):
            self._ordered(made[0], intent)

    def compensable(self) -> list[Intent]:
        rows = self.judge.before
        return [
            one
            for one in self.everything()
            if rows is not None
            and one.effect_type == "model.key"
            and rows["effect"][one.effect_id]["status"] == "completed"
        ]

    def _ordered(self, order: Order, original: Intent) -> None:
        """An order that makes an effect of its own makes a new intent, that no run ever visits."""
        if order.sends_id == order.effect_id:
            return
        sends = Effect.objects.get(id=order.sends_id)
        what = "refund" if order.kind == OrderKind.COMPENSATE else "successor"
        made = Intent(
            called=f"{what} {len(self.ordered) + 1} of {original.called}",
            effect_id=sends.id,
            effect_type=sends.effect_type,
            run=original.run,
            key=sends.command_id,
            amount=original.amount,
        )
        self.ordered.append(made)
        self.judge.commanded[made.effect_id] = made.run.run_id

    @precondition(lambda self: self.open_orders("awaiting_second"))
    @rule(which=WHICH, by=SECONDS, agrees=st.sampled_from([True, True, True, False]))
    def second(self, which: int, by: str, agrees: bool) -> None:
        """The second person, about exactly the bytes that the order would send."""
        found = self.open_orders("awaiting_second")
        self.agree(found[which % len(found)], by, agrees=agrees)

    def agree(self, order_id: str, by: str, *, agrees: bool) -> None:
        order = Order.objects.get(id=order_id)
        asked = Approval.objects.filter(order=order, status=ApprovalStatus.PENDING).first()
        verb = "agrees to" if agrees else "rejects"
        self.step("second", f"the {called(by)} {verb} {self._order_called(order)}")
        if asked is None:
            self.story[-1] += " — nobody is asked about it"
            return
        if agrees:
            # One that was refused for good is made ready by this, with the grant.
            self.judge.may_leave_failed.add(order.sends_id)
        self.command(
            "second",
            lambda: approvals.decide(
                self.setting.people[by],
                asked.id,
                decision=Decision.APPROVE if agrees else Decision.REJECT,
                payload_hash=asked.payload_hash,
                version=asked.version,
                token=str(uuid.uuid4()),
                reason=ACCEPTS,
            ),
        )

    def open_orders(self, *statuses: str) -> list[str]:
        rows = self.judge.before
        return [key for key, row in rows["order"].items() if row["status"] in statuses] if rows else []

    def _order_called(self, order: Order) -> str:
        return f"the order “{order.get_kind_display().lower()}” of {self.named(order.effect_id)}"

    @precondition(lambda self: self.open_orders("due", "done"))
    @rule(which=WHICH, fault=MEETS, stops=STOPS, dies=DEATHS)
    def carry_out(self, which: int, fault: Fault, stops: frozenset[Stop], dies: int | None) -> None:
        """A worker takes an order up, the first time or again; one that is done does nothing more."""
        found = self.open_orders("due") or self.open_orders("done")
        order = Order.objects.select_related("sends").get(id=found[which % len(found)])
        fault = self.bearable(fault, order.sends.effect_type)
        self.step(
            "carry out", f"a worker takes up {self._order_called(order)}; it would meet a receiver {fault}"
        )
        self.judge.may_leave_failed.update({order.effect_id, order.sends_id})
        self.errand(
            f"the worker with {self._order_called(order)}",
            lambda: orders.execute(order.id, worker_id="wrk_of_the_model"),
            effect_id=order.sends_id,
            fault=fault,
            stops=stops,
            dies_before=dies,
        )

    @precondition(lambda self: self.open_orders("awaiting_second", "due"))
    @rule(which=WHICH)
    def withdraw(self, which: int) -> None:
        found = self.open_orders("awaiting_second", "due")
        order = Order.objects.get(id=found[which % len(found)])
        self.step("withdraw", f"{self._order_called(order)} is withdrawn")
        self.command(
            "withdraw",
            lambda: repeat.withdraw(
                self.setting.people["releaser"], order.id, reason="Not needed.", token=str(uuid.uuid4())
            ),
        )

    @precondition(some_intent)
    @rule(by=RELEASERS)
    def recover_in_bulk(self, by: str) -> None:
        """Everything that one person may have delivered again or looked up; the sweep then takes it item by item."""
        actor = self.setting.people[by]
        self.step("recover", f"the {called(by)} recovers whatever one person may")
        plan = bulk_recover.dry_run(actor, {})
        self.story[-1] += (
            f" — {plan.count(Verdict.DELIVER)} to be delivered, {plan.count(Verdict.LOOK)} looked up"
        )
        self.command(
            "recover",
            lambda: bulk_recover.start(
                actor,
                {},
                digest=plan.digest,
                reason="After the outage.",
                per_minute=60,
                token=str(uuid.uuid4()),
            ),
        )


class Reviewing(Core):
    """The Review desk, by people who look at the receiver first."""

    @precondition(lambda self: self.open_reviews())
    @rule(which=WHICH, send=st.booleans(), by=RELEASERS, second=SECONDS)
    def settle_review(self, which: int, send: bool, by: str, second: str) -> None:
        """As it is at the receiver. *send*: what was not done is sent now, where that may be."""
        found = self.open_reviews()
        self.settle(found[which % len(found)], by, second, send=send)

    def settle(self, review_id: str, by: str, second: str, *, send: bool) -> None:
        review = Review.objects.select_related("effect").get(id=review_id)
        effect = review.effect
        assert effect is not None
        self.step(
            "review", f"the {called(by)} settles the review ({review.reason}) of {self.named(effect.id)}"
        )
        outcome, evidence = self._truth(effect, send=send)
        if outcome is None:
            self.story[-1] += " — not yet: something may still arrive there"
            return
        self.story[-1] += f" as {outcome}"
        # A failed one that is there after all is completed by them.
        self.judge.may_leave_failed.add(effect.id)
        settled = partial(
            settle_review.settle_review,
            self.setting.people[by],
            review.id,
            outcome=outcome,
            reason="Looked at the receiver.",
            token=str(uuid.uuid4()),
            evidence=evidence,
        )
        if not self.command("settle", settled):
            return
        if Review.objects.filter(id=review.id, closed_at=None).exists():
            self.story[-1] += f"; the {called(second)} confirms"
            agreed = partial(
                settle_review.confirm, self.setting.people[second], review.id, token=str(uuid.uuid4())
            )
            self.command("confirm", agreed)

    def open_reviews(self) -> list[str]:
        rows = self.judge.before
        return [key for key, row in rows["review"].items() if row["closed_at"] is None] if rows else []

    def _truth(self, effect: Effect, *, send: bool) -> tuple[ReviewOutcome | None, str]:
        """How it stands at the receiver, and the number there; None while that may change by itself."""
        held = self.outside.objects_of(effect.id)
        if held and effect.status != EffectStatus.COMPLETED:
            return ReviewOutcome.DONE, held[0].reference
        if self.outside.may_come(effect.id):
            return None, ""
        if effect.status in (EffectStatus.COMPLETED, EffectStatus.FAILED):
            return ReviewOutcome.STANDS, ""
        return (ReviewOutcome.SEND if send else ReviewOutcome.NOT_DONE), ""


class Stopping(Core):
    """The kill switch."""

    @precondition(lambda self: not self.standing_stops())
    @rule(scope=st.sampled_from(list(StopScope)), which=WHICH, by=RELEASERS)
    def stop_sending(self, scope: StopScope, which: int, by: str) -> None:
        kind = self.intent(which).effect_type if self.intents else "model.key"
        target = {StopScope.WORKSPACE: "", StopScope.RECEIVER: RECEIVER, StopScope.TYPE: kind}[scope]
        self.step("stop", f"the {called(by)} stops sending: {scope.label.lower()} {target}".rstrip())
        self.command(
            "stop",
            lambda: stop_sending.stop_sending(
                self.setting.people[by],
                scope=scope,
                target=target,
                reason="Something is wrong.",
                token=str(uuid.uuid4()),
            ),
        )

    @precondition(lambda self: self.standing_stops())
    @rule(by=RELEASERS)
    def lift_stop(self, by: str) -> None:
        self.lift(self.standing_stops()[0], by)

    def lift(self, stop: str, by: str) -> None:
        self.step("lift", f"the {called(by)} lets sending go on")
        self.command(
            "lift",
            lambda: stop_sending.lift_stop(
                self.setting.people[by], stop, reason="It is right again.", token=str(uuid.uuid4())
            ),
        )

    def standing_stops(self) -> list[str]:
        rows = self.judge.before
        return [key for key, row in rows["stop"].items() if row["lifted_at"] is None] if rows else []


def called(name: str) -> str:
    return name.replace("_", " ")
