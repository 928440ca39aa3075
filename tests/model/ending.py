"""The end of each example: with an honest world and enough time everything is settled, or stands with a person."""

from __future__ import annotations

from functools import partial

from effects import orders
from effects.models import Effect, Order, Review
from effects.selectors import worth_a_visit
from effects.states import ApprovalStatus, Decision, OrderStatus, SubState
from tests.model.deciding import Deciding
from tests.model.faults import View
from tests.model.judge import require, stopped
from tests.model.machine import Intent
from tests.model.ordering import Ordering, Reviewing, Stopping
from tests.model.passing import Passing
from tests.model.rows import Rows


class Ending(Passing, Deciding, Reviewing, Ordering, Stopping):
    #: Rounds that grow fourfold, so that they soon reach past the longest retention.
    rounds_at_most = 24
    longest_round = 20_000.0
    #: How often people come back to what is before them.
    turns_at_most = 5

    def settle_all(self) -> None:
        self.story.append("— now the world is honest, and time passes")
        for number, errand in enumerate(list(self.waiting)):
            if number % 2:
                self.kill(errand)
            else:
                errand.stops = frozenset()
                self.go_on(errand)
        for one in self.outside.taken_to_do_later():
            self.outside.finish(one, done=True)
        self.the_ledger_is_right()
        self._until_people_are_asked()
        self._people_settle_all()

    def _until_people_are_asked(self) -> None:
        for number in range(self.rounds_at_most):
            moving = self._moving()
            if not moving:
                break
            self._until_something_is_due(moving, at_least=min(4.0**number, self.longest_round))
            self.errand("the sweep", self._duties)
            self._looks(View.TRUE)
            self.the_ledger_is_right()
            self._visits(moving)
            self._carry_out_orders()
            self.the_ledger_is_right()
        with self.told():
            moving = self._moving()
            require(not moving, f"it never ends for {[one.called for one in moving]}")

    def _people_settle_all(self) -> None:
        """Whatever stands with people, they can settle: nothing is a dead end."""
        for _ in range(self.turns_at_most):
            if not self._with_people():
                break
            self._people_act()
            self._until_people_are_asked()
        with self.told():
            left = self._with_people()
            require(not left, f"nobody can settle {[one.called for one in left]}")

    def _with_people(self) -> list[Intent]:
        effects = self.judge.rows["effect"]
        return [
            one
            for one in self.everything()
            if effects[one.effect_id]["status"] not in ("completed", "failed")
            and effects[one.effect_id]["sub_state"] != SubState.HELD
        ]

    def _people_act(self) -> None:
        """One turn of everybody at what is before them."""
        # The sweep goes round whether anything moves or not: what nobody decided in time has to be asked anew.
        self.errand("the sweep", self._duties)
        self.the_ledger_is_right()
        self.story.append("— people settle what is before them")
        for stop in self.standing_stops():
            self.lift(stop, "releaser")
        for review in self.open_reviews():
            if Review.objects.filter(id=review, closed_at=None).exists():
                self.settle(review, "releaser", "second_releaser", send=False)
                self.the_ledger_is_right()
        for approval in self.judge.rows["approval"].values():
            if approval["order_id"] is None and approval["status"] == ApprovalStatus.PENDING:
                # Two may both have edited it, and then neither may approve it.
                for by in ("approver", "second_approver", "third_approver"):
                    self.decide_about(approval["id"], Decision.APPROVE, by)
        for order in self.open_orders(OrderStatus.AWAITING_SECOND):
            for by in ("second_releaser", "releaser"):
                self.agree(order, by, agrees=True)
        for intent in self._with_people():
            if not intent.run.over and intent in self.intents:
                self.errand("continue", partial(self.continue_for, intent))
        self.the_ledger_is_right()

    def _visits(self, moving: list[Intent]) -> None:
        """By their runs, where there is something to do for them."""
        worth = set(worth_a_visit(one.effect_id for one in moving).values_list("id", flat=True))
        rows = self.judge.rows
        for one in moving:
            unasked = rows["effect"][one.effect_id]["sub_state"] in (
                SubState.RECORDED,
                SubState.AWAITING_APPROVAL,
            )
            if one in self.intents and not one.run.over and (unasked or one.effect_id in worth):
                self.errand("a visit", partial(self._visit, one), effect_id=one.effect_id)

    def _carry_out_orders(self) -> None:
        found = Order.objects.filter(workspace_id=self.workspace_id, status=OrderStatus.DUE)
        for order in found.order_by("asked_at"):
            self.judge.may_leave_failed.update({order.effect_id, order.sends_id})
            self.errand("an order", partial(orders.execute, order.id), effect_id=order.sends_id)

    def _moving(self) -> list[Intent]:
        """What is neither settled nor with a person."""
        return [one for one in self.everything() if not _at_rest(self.judge.rows, one)]

    def _until_something_is_due(self, moving: list[Intent], *, at_least: float) -> None:
        found = Effect.objects.filter(id__in=[one.effect_id for one in moving])
        moments = [
            moment
            for row in found.values_list("due_at", "lease_until", "final_by")
            for moment in row
            if moment is not None and moment > self.clock.now
        ]
        wait = (min(moments, default=self.clock.now) - self.clock.now).total_seconds()
        self.outside.pass_time(max(wait, at_least))


def _at_rest(rows: Rows, intent: Intent) -> bool:
    effect = rows["effect"][intent.effect_id]
    if effect["status"] in ("completed", "failed") or rows.open_reviews(intent.effect_id):
        return True
    if effect["sub_state"] == SubState.HELD:
        return True
    if stopped(rows, effect) and effect["sub_state"] in (SubState.READY, SubState.BACKOFF):
        return True
    awaits_second = any(
        one["sends_id"] == intent.effect_id and one["status"] == OrderStatus.AWAITING_SECOND
        for one in rows["order"].values()
    )
    asked = {
        one["status"]
        for one in rows.of("approval", intent.effect_id)
        if one["revision"] == effect["revision"]
    }
    is_asked = bool({ApprovalStatus.PENDING, ApprovalStatus.EXPIRED} & asked)
    return awaits_second or (effect["sub_state"] == SubState.AWAITING_APPROVAL and is_asked)
