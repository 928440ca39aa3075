"""Intents, and the visits of their runs: with every fault that a delivery can meet."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import precondition

from effects import approvals, intents, ledger
from effects.intents import Conflict, TooManyChanges, Why
from effects.ledger import Visit, Wait
from effects.models import Effect
from effects.states import Decision, EffectStatus
from tests.model import faults
from tests.model.drawing import (
    AMOUNTS,
    DEATHS,
    KIND,
    SOON,
    STOPS,
    WHICH,
    some_intent,
    somebody_held_up,
    something_moves,
)
from tests.model.errands import Errand, Stop
from tests.model.faults import Fault
from tests.model.judge import require
from tests.model.machine import Core, Intent, first, rule


class Proposing(Core):
    @first(kinds=st.lists(KIND, min_size=2, max_size=4))
    def begin(self, kinds: list[int]) -> None:
        for kind in kinds:
            self._intend(kind, 0, 1000, None)

    @precondition(
        lambda self: len(self.intents) < self.intents_at_most and self.sendable() < self.sendable_at_most
    )
    @rule(kinds=st.lists(KIND, min_size=1, max_size=2), run=st.integers(0, 1), amount=AMOUNTS, dies=DEATHS)
    def propose(self, kinds: list[int], run: int, amount: int, dies: int | None) -> None:
        for kind in kinds:
            self._intend(kind, run, amount, dies)

    def _intend(self, number: int, run: int, amount: int, dies: int | None) -> None:
        origin = self.runs[run]
        kind = self.kinds[number % len(self.kinds)]
        made = Intent(
            called=f"{kind.removeprefix('model.')} {len(self.intents) + 1}",
            effect_id="",
            effect_type=kind,
            run=origin,
            key=f"command {len(self.intents) + 1}",
            amount=amount,
        )
        self.step("propose", f"run {run + 1} proposes “{made.called}” of {amount}")
        errand = self.errand("propose", partial(self._propose, made, amount), dies_before=dies)
        if errand.result is not None:
            made.effect_id = errand.result.effect_id
            self.intents.append(made)
            self.judge.commanded[made.effect_id] = origin.run_id

    def _propose(self, intent: Intent, amount: int) -> intents.Proposal:
        payload = {"customer_id": "cus_000001", "amount_minor": amount}
        why = Why(position="a place", place={"node": "send"}, node="send")
        return intents.propose(intent.run, intent.effect_type, intent.key, payload, why)

    @precondition(some_intent)
    @rule(which=WHICH, amount=AMOUNTS, dies=DEATHS)
    def propose_again(self, which: int, amount: int, dies: int | None) -> None:
        intent = self.intent(which)
        same = amount == intent.amount
        self.step(
            "propose again", f"“{intent.called}” is proposed again, {'the same' if same else f'as {amount}'}"
        )
        before = self.effect(intent)
        errand = self.errand("propose again", lambda: self._propose(intent, amount), dies_before=dies)
        if isinstance(errand.error, Conflict) or (same and not errand.killed):
            # A refusal, or nothing new: not a byte of the original changes.
            self.judge.must_stay.add(intent.effect_id)
        if before.tries or before.status != EffectStatus.PENDING:
            refused = same or errand.killed or errand.error is not None
            with self.told():
                require(refused, f"another payload for {intent.called} was taken after it had been sent")
        if errand.result is not None:
            with self.told():
                require(errand.result.effect_id == intent.effect_id, "the same command made another effect")
            intent.amount = amount
        if isinstance(errand.error, TooManyChanges):
            self.judge.must_stay.discard(intent.effect_id)


class Sending(Core):
    def _visit(self, intent: Intent, *, again: bool = False) -> Any:
        """What a node's `perform` does, and the engine at a pause: it asks for the approval that is lacking."""
        outcome = ledger.perform(intent.run, intent.effect_id, Visit())
        if isinstance(outcome, Wait):
            self._ask(intent, again=again)
        return outcome

    def _ask(self, intent: Intent, *, again: bool) -> None:
        effect = Effect.objects.get(id=intent.effect_id)
        if not (effect.needs_approval and approvals.can_still_be_asked(effect)):
            return
        asked = approvals.request_for_effect(effect)
        request = replace(asked, allows=(Decision.APPROVE, Decision.REJECT, Decision.EDIT))
        with transaction.atomic():
            intent.run.hold()
            approvals.open_for(self._pause(intent, effect), [request], again=again)

    def _until_due(self, intent: Intent) -> str:
        """A run comes back when there is something to do, or at any time. Returns that it waited, for the story."""
        due = self.judge.rows.moment(intent.effect_id, "due_at")
        wait = (due - self.clock.now).total_seconds() if due else 0
        if wait <= 0:
            return ""
        self.outside.pass_time(wait)
        return f"{wait:g} seconds later "

    def _pause(self, intent: Intent, effect: Effect) -> approvals.Pause:
        return approvals.Pause(
            workspace_id=self.workspace_id,
            run_id=intent.run.run_id,
            checkpoint_id="cp_of_the_model",
            workflow="model@1",
            fingerprint="fp",
            node="send",
            interrupt_id=f"int_{intent.effect_id}",
            interrupt_hash=f"{effect.revision} {effect.request_hash}"[:80],
        )

    def _meets(
        self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool, dies: int | None = None
    ) -> None:
        intent = self.intent(which)
        fault = self.bearable(fault, intent.effect_type)
        waited = "" if soon else self._until_due(intent)
        self.step(
            "visit", f"{waited}the run visits “{intent.called}”; if it sends, it meets a receiver {fault}"
        )
        self.visited(intent, fault, stops, dies)

    def visited(
        self, intent: Intent, fault: Fault, stops: frozenset[Stop], dies: int | None = None
    ) -> Errand:
        return self.errand(
            f"the visit to “{intent.called}”",
            lambda: self._visit(intent),
            effect_id=intent.effect_id,
            fault=fault,
            stops=stops,
            dies_before=dies,
        )

    @precondition(some_intent)
    @rule(which=WHICH, stops=STOPS, dies=DEATHS, soon=SOON)
    def visit(self, which: int, stops: frozenset[Stop], dies: int | None, soon: bool) -> None:
        self._meets(which, Fault.NONE, stops, soon, dies)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.UNSENT), stops=STOPS, soon=SOON)
    def visit_unsent(self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool) -> None:
        self._meets(which, fault, stops, soon)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.REFUSED), stops=STOPS, soon=SOON)
    def visit_refused(self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool) -> None:
        self._meets(which, fault, stops, soon)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.LOST), stops=STOPS, dies=DEATHS, soon=SOON)
    def visit_lost(
        self, which: int, fault: Fault, stops: frozenset[Stop], dies: int | None, soon: bool
    ) -> None:
        self._meets(which, fault, stops, soon, dies)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.FAILING), stops=STOPS, soon=SOON)
    def visit_failing(self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool) -> None:
        self._meets(which, fault, stops, soon)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.ODD), stops=STOPS, soon=SOON)
    def visit_odd(self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool) -> None:
        self._meets(which, fault, stops, soon)

    @precondition(something_moves)
    @rule(which=WHICH, fault=st.sampled_from(faults.ACCEPTED), stops=STOPS, soon=SOON)
    def visit_accepted(self, which: int, fault: Fault, stops: frozenset[Stop], soon: bool) -> None:
        self._meets(which, fault, stops, soon)

    @precondition(somebody_held_up)
    @rule(which=WHICH)
    def go_on_at_last(self, which: int) -> None:
        errand = self.waiting[which % len(self.waiting)]
        self.step("go on", f"{errand.words} goes on, held up {errand.stands} so far")
        self.go_on(errand)

    @precondition(somebody_held_up)
    @rule(which=WHICH)
    def kill_it(self, which: int) -> None:
        errand = self.waiting[which % len(self.waiting)]
        self.step("kill", f"{errand.words} is killed, held up {errand.stands}")
        self.kill(errand)
