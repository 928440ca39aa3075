"""Time, the sweep, look-ups, and what receivers do by themselves."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from hypothesis import strategies as st
from hypothesis.stateful import precondition

from console.management.commands.sweep import Sweep
from effects import approvals, moves, reconcile, restored
from effects.commands import ask_receiver
from effects.contracts import contract
from effects.models import Approval
from effects.states import ApprovalStatus
from tests.model.drawing import DEATHS, MOMENTS, STOPS, VIEWS, WAITS, WHICH, some_intent
from tests.model.errands import Stop
from tests.model.faults import View
from tests.model.machine import Intent, rule
from tests.model.sending import Sending


class Passing(Sending):
    """Time, the sweep, and the look-ups."""

    @rule(seconds=WAITS)
    def pass_time(self, seconds: float) -> None:
        self.step("pass time", f"{seconds:g} seconds pass")
        self.outside.pass_time(seconds)

    @precondition(some_intent)
    @rule(which=WHICH, moment=MOMENTS)
    def wait_for(self, which: int, moment: str) -> None:
        intent = self.intent(which)
        until: datetime | None = getattr(self.effect(intent), moment)
        seconds = max(0.0, (until - self.clock.now).total_seconds()) + 0.01 if until else 0.5
        self.step("wait", f"{seconds:g} seconds pass, just past “{intent.called}”'s {moment}")
        self.outside.pass_time(seconds)

    @precondition(lambda self: self.in_flight())
    @rule(which=WHICH)
    def take_for_lost(self, which: int) -> None:
        """The lease of a sender that is held up, or dead, runs out, and the sweep finds that."""
        found = self.in_flight()
        intent = found[which % len(found)]
        lease = self.effect(intent).lease_until
        assert lease is not None
        self.step(
            "take for lost",
            f"the lease of “{intent.called}” runs out, and the sweep takes its sender for lost",
        )
        self.outside.pass_time(max(0.0, (lease - self.clock.now).total_seconds()) + 0.01)
        self.errand("the sweep", self._duties)

    def in_flight(self) -> list[Intent]:
        return self._standing_at("in_flight")

    @rule(view=VIEWS, dies=DEATHS)
    def sweep(self, view: View, dies: int | None) -> None:
        self.step("sweep", f"the sweep goes round and asks a receiver {view}")
        errand = self.errand("the sweep", self._duties, dies_before=dies)
        if not errand.killed:
            self._looks(view)

    def _duties(self) -> None:
        for duty in duties_of_the_ledger():
            duty()
        self._expire()
        self._cancel_left_over()

    def _expire(self) -> None:
        late = Approval.objects.filter(
            workspace_id=self.workspace_id, status=ApprovalStatus.PENDING, expires_at__lte=Now()
        )
        for approval_id in list(late.values_list("id", flat=True)):
            with transaction.atomic():
                approvals.expire(approval_id)

    def _cancel_left_over(self) -> None:
        """As `runs.recovery.cancel_left_over` does."""
        for run in self.runs:
            if run.over:
                with transaction.atomic():
                    moves.cancel_unsent(run.run_id)

    def _looks(self, view: View, **more: Any) -> None:
        ours = {intent.effect_id: intent for intent in self.everything()}
        for look, due in (
            (reconcile.look, reconcile.looks_due),
            (reconcile.answer_question, reconcile.questions_due),
        ):
            for effect_id in due():
                if effect_id in ours:
                    self._look(ours[effect_id], view, look=look, **more)

    def _look(
        self, intent: Intent, view: View, *, look: Callable[[str], str] = reconcile.look, **more: Any
    ) -> None:
        before = self.outside.looks
        self.errand(
            f"the look-up of {intent.called}",
            lambda: look(intent.effect_id),
            effect_id=intent.effect_id,
            view=view,
            **more,
        )
        if self.outside.looks > before and view != View.TRUE:
            self.figures.views[view] += 1

    @precondition(lambda self: self.look_ups_to_come())
    @rule(which=WHICH, view=VIEWS, stops=STOPS, dies=DEATHS, late=st.booleans())
    def look(self, which: int, view: View, stops: frozenset[Stop], dies: int | None, late: bool) -> None:
        """*late*: when what the receiver says would prove something."""
        to_come = self.look_ups_to_come()
        intent = to_come[which % len(to_come)]
        waited = self._until_due(intent)
        if late:
            promise = contract(intent.effect_type)
            self.outside.pass_time(promise.lease + promise.settle)
            waited = "long after the last send "
        self.step("look", f"{waited}“{intent.called}” is looked up, if it is due, at a receiver {view}")
        if intent.effect_id in reconcile.looks_due():
            self._look(intent, view, stops=stops, dies_before=dies)

    @precondition(some_intent)
    @rule(which=WHICH, by=st.sampled_from(["operator", "releaser"]))
    def ask_receiver(self, which: int, by: str) -> None:
        """A person wants to know, wherever the effect stands; the sweep asks."""
        intent = self.by_trouble(which)
        self.step("ask", f"the {by} wants the receiver asked about “{intent.called}”")
        self.command(
            "ask",
            lambda: ask_receiver.ask_receiver(
                self.setting.people[by], intent.effect_id, token=str(uuid.uuid4())
            ),
        )

    def look_ups_to_come(self) -> list[Intent]:
        return self._standing_at("uncertain", "accepted")

    def _standing_at(self, *standings: str) -> list[Intent]:
        """The intents whose effects stood at one of these sub-states, or statuses without any, after the last step."""
        rows = self.judge.before
        return [
            one
            for one in self.everything()
            if rows is not None
            and (rows["effect"][one.effect_id]["sub_state"] or rows["effect"][one.effect_id]["status"])
            in standings
        ]

    @precondition(lambda self: self.outside.prunable())
    @rule()
    def prune_keys(self) -> None:
        self.step("prune", "the receivers forget the keys whose retention is over")
        self.outside.prune()

    @precondition(lambda self: bool(self.outside.taken_to_do_later()))
    @rule(which=WHICH, done=st.booleans())
    def finish_later(self, which: int, done: bool) -> None:
        later = self.outside.taken_to_do_later()
        one = later[which % len(later)]
        self.step(
            "finish",
            f"the receiver {'does' if done else 'fails'} what it had taken, {self.named(one.delivery.effect_id)}",
        )
        self.outside.finish(one, done=done)


def duties_of_the_ledger() -> list[Callable[[], object]]:
    """What the sweep does for the ledger, all but the look-ups: a duty that is added there is done here.

    All but the high-water mark, too: it is kept outside of the database, where nothing of an example may stay.
    """
    return [
        duty
        for duty in Sweep().duties
        if duty.__module__.startswith("effects.") and duty is not restored.keep_mark
    ]
