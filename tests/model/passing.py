"""Time, the sweep, look-ups, and what receivers do by themselves."""

from __future__ import annotations

import uuid
from collections.abc import Callable
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
from effects.states import ApprovalStatus, Dedup, Outcome, SubState
from tests.model import faults
from tests.model.drawing import DEATHS, HELD_UP, MOMENTS, STOPS, VIEWS, WAITS, WHICH, some_intent
from tests.model.errands import Errand, Stop
from tests.model.faults import Fault, View
from tests.model.machine import Intent, rule
from tests.model.sending import Sending

#: What a sender and the one that overtakes it meet: mostly an honest receiver, so that there is something to be late for.
_MEETS = st.sampled_from([Fault.NONE] * 4 + [*faults.LOST, *faults.UNSENT, *faults.REFUSED])
MEETS_TWO = st.tuples(_MEETS, _MEETS)
#: Whether a look-up comes between them.
LOOKS = st.none() | VIEWS


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
        until = self.judge.rows.moment(intent.effect_id, moment)
        seconds = max(0.0, (until - self.clock.now).total_seconds()) + 0.01 if until else 0.5
        self.step("wait", f"{seconds:g} seconds pass, just past “{intent.called}”'s {moment}")
        self.outside.pass_time(seconds)

    @precondition(lambda self: self.in_flight())
    @rule(which=WHICH)
    def take_for_lost(self, which: int) -> None:
        """The lease of a sender that is held up, or dead, runs out, and the sweep finds that."""
        found = self.in_flight()
        intent = found[which % len(found)]
        self.step(
            "take for lost",
            f"the lease of “{intent.called}” runs out, and the sweep takes its sender for lost",
        )
        self._past_its_lease(intent)

    @precondition(lambda self: bool(self.may_be_overtaken()) or self.sendable() > 0)
    @rule(
        which=WHICH,
        at=st.sampled_from(list(Stop)),
        meets=MEETS_TWO,
        looks=LOOKS,
        stops=HELD_UP,
        goes_on=st.booleans(),
    )
    def overtake(
        self,
        which: int,
        at: Stop,
        meets: tuple[Fault, Fault],
        looks: View | None,
        stops: frozenset[Stop],
        goes_on: bool,
    ) -> None:
        """A sender that is held up is taken for lost, and another one sends. *goes_on*: then the first one wakes up.

        *looks*: what the receiver shows if it is asked between the two, long after the first send. Without it the
        second comes by the key, or not at all.
        """
        first = self._held_up_sender(which, at, meets[0])
        if first is None:
            return
        intent = next(one for one in self.intents if one.effect_id == first.effect_id)
        self._past_its_lease(intent)
        self.the_ledger_is_right()
        if looks is not None:
            promise = contract(intent.effect_type)
            self.outside.pass_time(promise.lease + promise.settle)
            self._looks(looks)
            self.story[-1] += f"; long after that it is looked up at a receiver {looks}"
            self.the_ledger_is_right()
        waited = self._until_due(intent)
        fault = self.bearable(meets[1], intent.effect_type)
        self.story.append(f"— {waited}the run visits it again; if it sends, it meets a receiver {fault}")
        second = self.visited(intent, fault, stops)
        if second.attempt_id is not None:
            self.figures.overtaken[f"{first.stands}, by one that {_became(second)}"] += 1
        if goes_on:
            self.the_ledger_is_right()
            self.story.append(f"— the first one goes on, held up {first.stands} so far")
            self.go_on(first)

    def _held_up_sender(self, which: int, at: Stop, fault: Fault) -> Errand | None:
        """One that is held up already; or a run's, that is now, if it sends anything and gets as far as that."""
        found = self.may_be_overtaken()
        if found:
            first = found[which % len(found)]
            self.step("overtake", f"{first.words} stays held up, and is taken for lost")
            return first
        sendable = [one for one in self.intents if self.rank(one) == 0]
        # Most often one that is sent again by its key: it is the second sender that this is about.
        sendable.sort(key=lambda one: contract(one.effect_type).dedup != Dedup.KEY)
        intent = sendable[which % len(sendable)]
        fault = self.bearable(fault, intent.effect_type)
        waited = self._until_due(intent)
        self.step(
            "overtake",
            f"{waited}the run visits “{intent.called}”; if it sends, it meets a receiver {fault}, is held up, and is "
            "taken for lost",
        )
        first = self.visited(intent, fault, frozenset({at}))
        self.the_ledger_is_right()
        return first if first in self.may_be_overtaken() else None

    def may_be_overtaken(self) -> list[Errand]:
        """Senders that are held up and hold their effects, where a run may visit those again."""
        rows = self.judge.before
        visited = {one.effect_id for one in self.intents if not one.run.over}
        return [
            one
            for one in self.waiting
            if rows is not None
            and one.effect_id in visited
            and one.attempt_id in rows["attempt"]
            and rows["attempt"][one.attempt_id]["outcome"] == Outcome.SENDING
            and rows["effect"][one.effect_id]["sub_state"] == SubState.IN_FLIGHT
        ]

    def _past_its_lease(self, intent: Intent) -> None:
        lease = self.judge.rows.moment(intent.effect_id, "lease_until")
        assert lease is not None
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


def _became(errand: Errand) -> str:
    return "is held up, too" if errand.stands is not None else "gets through"


def duties_of_the_ledger() -> list[Callable[[], object]]:
    """What the sweep does for the ledger, all but the look-ups: a duty that is added there is done here.

    All but the high-water mark, too: it is kept outside of the database, where nothing of an example may stay.
    """
    return [
        duty
        for duty in Sweep().duties
        if duty.__module__.startswith("effects.") and duty is not restored.keep_mark
    ]
