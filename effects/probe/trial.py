"""One probe: the cases tried in an order in which each judges only what it is about, and the verdict stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from console import audit
from console.kernel.errors import Refusal
from console.kernel.ids import new_id
from console.kernel.live import announce
from effects import moves, outcomes, receivers
from effects.contracts import Payload
from effects.intents import Conflict
from effects.models import Effect, EffectAttempt, Probe
from effects.probe import asking
from effects.probe.cases import Case, Name, Recovery, cases_of, expected, has_look_up, recovery_of
from effects.probe.standing_in import POLL_S, SLACK_S, StandIn, attempts_of, row, standing
from effects.probe.target import NotProbed, Target, check_not_stopped, harmless
from effects.probe.workers import WorkerFailed, at_once, killed_after
from effects.receivers import Answer
from effects.selectors import PROBE_RUN
from effects.states import UNSENT, Dedup, Outcome

#: A probe that is older than this was broken off: what it left unsent is cancelled.
BROKEN_OFF = timedelta(hours=1)
_TAKEN = (Outcome.COMPLETED, Outcome.ACCEPTED)


@dataclass
class _Notes:
    """What was seen in one case. It has passed where something was seen and nothing of it was wrong."""

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def saw(self, fact: str) -> None:
        self.facts.append(fact)

    def check(self, holds: bool, problem: str) -> bool:
        if not holds:
            self.problems.append(problem)
        return holds

    @property
    def passed(self) -> bool:
        return bool(self.facts) and not self.problems

    @property
    def words(self) -> str:
        return "; ".join(self.problems or self.facts) or "not tried"


@dataclass(frozen=True)
class _Killed:
    """An effect whose sender was killed with the receiver's answer in its hands."""

    effect_id: str
    attempt: EffectAttempt
    answer: Answer


class Trial:
    """One probe of one target: `begin`, `recover`, `judge`, then `record`.

    Several may begin before the first recovers, so that they wait for their leases together. It can be killed at any
    moment and begun anew: what it leaves are effects of its own, which the ledger looks after like all others.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.id = new_id("prb")
        self._run = StandIn(target, self.id)
        self._new_run = StandIn(target, new_id("prb"))
        self._promise = self._run.promise
        self._notes = {name: _Notes() for name in cases_of(self._promise)}
        self._began_at = timezone.now()
        self._last_sent = time.monotonic()
        self._first: Effect | None = None
        self._killed: _Killed | None = None
        self._others: dict[Name, Effect] = {}

    @property
    def cases(self) -> list[Case]:
        return [
            Case(name, expected(name, self._promise), notes.words, notes.passed)
            for name, notes in self._notes.items()
        ]

    @property
    def passed(self) -> bool:
        return all(case.passed for case in self.cases)

    def begin(self) -> None:
        """Everything but what has to wait. Raises NotProbed when a kill switch is on."""
        check_not_stopped(self.target)
        self._cancel_what_was_broken_off()
        with self._tidied_up_when_broken_off():
            self._killed_after_intent()
            if self._first is None:
                return
            self._ask_for(self._first)
            self._kill_after_commit()
            self._two_workers()
            self._same_input_in_a_new_run(self._first)
            self._change_input(self._first)

    def recover(self) -> None:
        """The killed sender's lease ends, and what it left is recovered."""
        with self._tidied_up_when_broken_off():
            if self._killed is not None:
                self._recover(self._killed)

    def judge(self) -> None:
        """The receiver is asked for everything that was made, once whatever there is has to be seen."""
        with self._tidied_up_when_broken_off():
            if self._first is not None:
                self._let_settle()
                self._judge_all(self._first)
        self._cancel_unsent()

    def _judge_all(self, first: Effect) -> None:
        for name, effect in self._others.items():
            self._judge(name, effect)
        if self._promise.dedup == Dedup.KEY:
            self._judge(Name.CHANGED_INPUT, first, "afterwards")
        if Name.SECOND_CREATE in self._notes:
            self._judge(Name.SECOND_CREATE, first, "afterwards")

    def record(self) -> Probe:
        """Store the verdict and its event. From here on it counts, until a newer one does."""
        target, failed = self.target, [case.title for case in self.cases if not case.passed]
        came_of_it = f"failed: {'; '.join(failed)}" if failed else "passed"
        with transaction.atomic():
            probe = Probe.objects.create(
                id=self.id,
                receiver=target.receiver,
                account=target.receiver.account,
                effect_type=self._promise.type,
                contract_version=self._promise.version,
                passed=not failed,
                cases=[case.stored() for case in self.cases],
                began_at=self._began_at,
            )
            audit.record(
                workspace_id=target.workspace.id,
                actor="system:shell",
                verb="probe.failed" if failed else "probe.passed",
                subject=probe.id,
                sentence=f"{self._promise.type} {self._promise.version} was probed at {target.receiver.name} "
                f"({target.receiver.account}) and {came_of_it}",
            )
            announce(target.workspace.id, "effects")
        return probe

    # The cases

    def _killed_after_intent(self) -> None:
        notes, payload = self._notes[Name.KILLED_AFTER_INTENT], self._payload("intent")
        with self._failures(Name.KILLED_AFTER_INTENT):
            intent = killed_after(partial(self._run.propose, "intent", payload), within=SLACK_S)
            proposal = self._run.propose("intent", payload)
            notes.check(
                proposal.effect_id == intent.effect_id, "the worker after the killed one made another effect"
            )
            effect = self._run.bring_about(proposal.effect_id)
            self._last_sent = time.monotonic()
            if notes.check(self._run.is_done(effect), standing(effect)):
                self._first = effect
                notes.check(attempts_of(effect) == 1, f"{attempts_of(effect)} attempts")
                notes.saw(f"the same effect, 1 attempt, {self._named(effect)}")

    def _kill_after_commit(self) -> None:
        notes, payload = self._notes[Name.KILLED_AFTER_COMMIT], self._payload("commit")

        def send() -> tuple[str, EffectAttempt, Answer]:
            effect_id = self._run.propose("commit", payload).effect_id
            return effect_id, *self._run.send_unsettled(effect_id)

        with self._failures(Name.KILLED_AFTER_COMMIT):
            effect_id, attempt, answer = killed_after(send, within=self._run.patience + SLACK_S)
            if notes.check(
                answer.outcome in _TAKEN,
                f"the killed sender had no usable answer: {answer.problem or answer.outcome}",
            ):
                self._killed = _Killed(effect_id, attempt, answer)
        self._last_sent = time.monotonic()

    def _two_workers(self) -> None:
        notes = self._notes[Name.TWO_WORKERS]
        with self._failures(Name.TWO_WORKERS):
            effect_id = self._run.propose("workers", self._payload("workers")).effect_id
            work = partial(self._run.result_of, effect_id)
            one, other = at_once([work, work], within=self._run.patience + SLACK_S)
            effect = row(effect_id)
            attempts = attempts_of(effect)
            same = notes.check(one == other, f"one saw {one or 'nothing'}, the other {other or 'nothing'}")
            if notes.check(attempts == 1, f"{attempts} attempts") and same:
                notes.saw(f"1 attempt, and both saw {one or 'the same'}")
                self._others[Name.TWO_WORKERS] = effect
        self._last_sent = time.monotonic()

    def _same_input_in_a_new_run(self, first: Effect) -> None:
        notes = self._notes[Name.NEW_RUN]
        with self._failures(Name.NEW_RUN):
            proposal = self._new_run.propose("intent", self._payload("intent"))
            effect = self._new_run.bring_about(proposal.effect_id)
            notes.check(effect.id != first.id and effect.key != first.key, "it got the id of the first run's")
            if notes.check(self._run.is_done(effect), standing(effect)):
                reference = effect.provider_reference
                notes.check(
                    not reference or reference != first.provider_reference,
                    f"{self.target.receiver.name} gave {reference} for both: no second object",
                )
                notes.saw(f"another id, another key, {self._named(effect)}")
                self._others[Name.NEW_RUN] = effect
        self._last_sent = time.monotonic()

    def _ask_for(self, first: Effect) -> None:
        """The look-up finds what was just made within the settle time, and by nothing but its id."""
        if Name.LOOK_UP not in self._notes:
            self._judge(Name.KILLED_AFTER_INTENT, first)
            return
        notes, promise = self._notes[Name.LOOK_UP], self.target.promise
        with self._failures(Name.LOOK_UP):
            finding, after = asking.found_in_time(promise, first, self._last_sent)
            if not notes.check(
                finding.found in asking.THERE,
                f"not found {after:.1f} s after it was sent: {finding.sentence}",
            ):
                return
            notes.check(
                not asking.differ(first, finding.reference, first.provider_reference),
                f"found {finding.reference}, but {first.provider_reference} was made",
            )
            notes.saw(f"found {after:.1f} s after it was sent")
            for words in asking.found_by_other_ids(promise, first):
                notes.check(False, f"asked for {words}")
            notes.saw("nothing under ids that never were")
            self._judge(Name.KILLED_AFTER_INTENT, first)

    def _change_input(self, first: Effect) -> None:
        """In the ledger before and after completion; and at the receiver, where its own promise is to refuse it."""
        notes, changed = self._notes[Name.CHANGED_INPUT], self._payload("changed")
        with self._failures(Name.CHANGED_INPUT):
            if self._killed is not None:
                self._must_conflict(
                    notes, "commit", self._killed.effect_id, changed, "before it is completed"
                )
            self._must_conflict(notes, "intent", first.id, changed, "after it is completed")
            if self._promise.dedup == Dedup.KEY:
                self._must_refuse(notes, first, changed)
        if Name.SECOND_CREATE in self._notes:
            with self._failures(Name.SECOND_CREATE):
                self._must_refuse(self._notes[Name.SECOND_CREATE], first, changed)
        self._last_sent = time.monotonic()

    def _must_conflict(
        self, notes: _Notes, command: str, effect_id: str, changed: Payload, when: str
    ) -> None:
        before = row(effect_id)
        try:
            self._run.propose(command, changed)
        except Conflict:
            after = row(effect_id)
            same = (after.revision, after.request_hash) == (before.revision, before.request_hash)
            notes.check(same, f"{when} it was refused, but the intent was changed all the same")
            notes.saw(f"refused {when}")
        else:
            notes.check(False, f"{when} the ledger took the changed input")

    def _must_refuse(self, notes: _Notes, effect: Effect, changed: Payload) -> None:
        """Send the receiver another request under the effect's key. The ledger never would, so no attempt stands for
        it; the effect's observations say what was done.
        """
        check_not_stopped(self.target)
        receiver = self.target.receiver.name
        moves.observe(
            effect,
            "probe",
            "sent",
            f"A probe sends {receiver} another request under this key, to be refused.",
        )
        answer = self._answer_to(effect, self._promise.wire.render(changed, key=effect.key))
        refused = _refuses(answer)
        said = answer.problem or f"{answer.status} {answer.reference}".strip()
        moves.observe(
            effect,
            "probe",
            "refused" if refused else "not_refused",
            f"{receiver} {'refused' if refused else 'did not refuse'} it: {said}.",
            status=answer.status,
        )
        notes.check(refused, f"{receiver} did not refuse the changed input: {said}")
        notes.saw(f"{receiver} refused it ({answer.status})")

    def _answer_to(self, effect: Effect, request: bytes) -> Answer:
        """The receiver's answer; asked to wait, or not reached, it is tried again for a while."""
        ends = time.monotonic() + self._run.patience
        while True:
            answer = receivers.deliver(
                self._promise, effect, request, send_by=self._promise.lease - self._promise.deadline
            )
            if answer.outcome != Outcome.NOT_SENT or time.monotonic() > ends:
                return answer
            time.sleep(min(answer.retry_after or POLL_S, self._run.patience))

    def _recover(self, killed: _Killed) -> None:
        """Its lease ends, and what the ledger may do by itself is done: repeat, look, or open a review."""
        notes, way = self._notes[Name.KILLED_AFTER_COMMIT], recovery_of(self._promise)
        with self._failures(Name.KILLED_AFTER_COMMIT):
            effect = self._run.bring_about(killed.effect_id)
            self._last_sent = time.monotonic()
            attempts = attempts_of(effect)
            if way == Recovery.REVIEW:
                reviewed = effect.reviews.filter(closed_at=None).first()
                notes.check(reviewed is not None, f"no review: {standing(effect)}")
                notes.check(attempts == 1, f"{attempts} attempts")
                notes.saw(f"a review ({reviewed.get_reason_display() if reviewed else ''}), 1 attempt")
                self._settle_by_late_answer(effect, killed)
                return
            if not notes.check(self._run.is_done(effect), standing(effect)):
                return
            reference = effect.provider_reference
            notes.check(
                not asking.differ(effect, reference, killed.answer.reference),
                f"the killed sender had made {killed.answer.reference}, now it is {reference}",
            )
            if way == Recovery.LOOK:
                notes.check(attempts == 1, f"{attempts} attempts")
            of_each = f"{attempts} attempts, the same result" if attempts > 1 else "1 attempt"
            notes.saw(f"{of_each}, {self._named(effect)}")
            self._others[Name.KILLED_AFTER_COMMIT] = effect

    def _settle_by_late_answer(self, effect: Effect, killed: _Killed) -> None:
        """The probe knows what the killed sender knew: it is told to the ledger as a late answer, and closes the review."""
        outcomes.settle(effect, killed.attempt, self.target.promise, killed.answer)
        self._others[Name.KILLED_AFTER_COMMIT] = row(effect.id)

    def _judge(self, name: Name, effect: Effect, when: str = "") -> None:
        """How many there are is the receiver's to say; where it can't be asked, the case says that."""
        notes, receiver = self._notes[name], self.target.receiver.name
        with self._failures(name):
            if not has_look_up(self._promise):
                notes.saw(f"{receiver} can't be asked how many there are{f' {when}' if when else ''}")
                return
            finding = asking.settled_finding(self.target.promise, effect)
            there = notes.check(
                finding.found in asking.THERE, f"{when or 'asked'}, {receiver} says: {finding.sentence}"
            )
            if there and notes.check(
                not asking.differ(effect, finding.reference, effect.provider_reference),
                f"{receiver} has {finding.reference}, the ledger {effect.provider_reference}",
            ):
                notes.saw(f"{receiver} has one{f' {when}' if when else ''}, {finding.reference}")

    # What they are made of

    @contextmanager
    def _failures(self, name: Name) -> Iterator[None]:
        """A case that can't be tried to its end has failed, in words; the others are tried all the same."""
        try:
            yield
        except (WorkerFailed, NotProbed) as failed:
            self._notes[name].check(False, str(failed))
        except Refusal as refusal:
            self._notes[name].check(False, refusal.message)

    def _payload(self, case: str) -> Payload:
        """The case's harmless object: another one in each case and each probe, the same one within a case."""
        return harmless(self._promise, f"{self.id.replace('_', '-')}-{case}")

    def _let_settle(self) -> None:
        """Until everything that was sent has to be visible: a second object may be found later than the first."""
        if has_look_up(self._promise):
            time.sleep(max(0.0, self._last_sent + self._promise.settle - time.monotonic()))

    def _named(self, effect: Effect) -> str:
        return effect.provider_reference or "no reference of the receiver's"

    @contextmanager
    def _tidied_up_when_broken_off(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._cancel_unsent()
            raise

    def _cancel_unsent(self) -> None:
        self._run.cancel_unsent()
        self._new_run.cancel_unsent()

    def _cancel_what_was_broken_off(self) -> None:
        left = Effect.objects.filter(
            run_id__startswith=PROBE_RUN,
            receiver=self.target.receiver,
            effect_type=self._promise.type,
            sub_state__in=UNSENT,
            created_at__lt=Now() - BROKEN_OFF,
        )
        for run_id in set(left.values_list("run_id", flat=True)[:1000]):
            moves.cancel_unsent(run_id)


def _refuses(answer: Answer) -> bool:
    """A 4xx that says no to this very request: neither "wait" nor "still working on it"."""
    return (
        answer.status[:1] == "4" and answer.status not in ("408", "425", "429") and answer.retry_after is None
    )
