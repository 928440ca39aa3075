"""Which operator commands a run offers to a person now, and for each other one the reason in words.

One function and one table of reasons, asked by page, API, bulk and worker alike; docs/commands.md is made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import TextChoices
from django.utils import timezone

from console.access import Actor
from console.kernel.errors import AlreadyDone, Forbidden, Refusal
from console.models import Capability
from runs import versions
from runs.models import Run
from runs.states import APART, FINAL, Failure, RunKind, RunMode, RunStatus


class OperatorCommand(TextChoices):
    CONTINUE = "continue", "Continue"
    PAUSE = "pause", "Pause"
    CANCEL = "cancel", "Cancel"
    ASK_AGAIN = "ask_again", "Ask again"
    SETTLE_DROPPED = "settle_dropped", "Accept as it stands or cancel the effect"
    REPLAY_EVIDENCE = "replay_evidence", "Replay in evidence"
    REPLAY_SIMULATION = "replay_simulation", "Replay in simulation"
    REPLAY_LIVE = "replay_live", "Replay live"
    BRANCH_SIMULATION = "branch_simulation", "Create branch in simulation"
    BRANCH_LIVE = "branch_live", "Create branch live"
    MIGRATE = "migrate", "Migrate the state"
    PERMIT_TYPE = "permit_type", "Permit an irreversible type"


#: What a person must hold for each.
NEEDS: dict[OperatorCommand, Capability] = {
    OperatorCommand.CONTINUE: Capability.RUN,
    OperatorCommand.PAUSE: Capability.RUN,
    OperatorCommand.CANCEL: Capability.RUN,
    OperatorCommand.ASK_AGAIN: Capability.RUN,
    OperatorCommand.SETTLE_DROPPED: Capability.RUN,
    OperatorCommand.REPLAY_EVIDENCE: Capability.EVIDENCE,
    OperatorCommand.REPLAY_SIMULATION: Capability.SIMULATE,
    OperatorCommand.REPLAY_LIVE: Capability.LIVE,
    OperatorCommand.BRANCH_SIMULATION: Capability.SIMULATE,
    OperatorCommand.BRANCH_LIVE: Capability.LIVE,
    OperatorCommand.MIGRATE: Capability.LIVE,
    OperatorCommand.PERMIT_TYPE: Capability.PERMIT,
}


@dataclass(frozen=True)
class Offer:
    """Whether a command is offered; *reason* says why not, *forbidden* that it is for want of a role."""

    command: OperatorCommand
    reason: str = ""
    forbidden: bool = False

    @property
    def available(self) -> bool:
        return not self.reason

    def refusal(self, words: str) -> Refusal:
        """What a command raises that is not offered: 403 for want of a role, else 409 with what is the case."""
        kind = Forbidden if self.forbidden else AlreadyDone
        return kind(f"{words}: {self.reason}.")


def availability(run: Run, actor: Actor, *, alive: versions.Alive | None = None) -> dict[str, Offer]:
    """Every operator command with its reason; an empty reason means: go.

    *alive*: the workers that are there, for who asks of many runs at once; read anew without it.
    """
    there = versions.alive() if alive is None else alive
    return {command.value: offer_of(command, run, actor, alive=there) for command in OperatorCommand}


def offer_of(command: OperatorCommand, run: Run, actor: Actor, *, alive: versions.Alive) -> Offer:
    """One of them."""
    if not actor.may(NEEDS[command]):
        return Offer(command, f"your roles do not let you {NEEDS[command].label}", forbidden=True)
    reason = next((reason for rule in _RULES[command] if (reason := rule(run))), "")
    if not reason and command in _EXECUTES:
        # The version check: workers that hold only another version are no reason to guess.
        reason = versions.in_the_way(run, alive, apart=_EXECUTES[command])
    return Offer(command, reason)


#: What executes the run's workflow, and whether in a replayer.
_EXECUTES: dict[OperatorCommand, bool] = {
    OperatorCommand.CONTINUE: False,
    OperatorCommand.ASK_AGAIN: False,
    OperatorCommand.SETTLE_DROPPED: False,
    OperatorCommand.REPLAY_EVIDENCE: True,
    OperatorCommand.REPLAY_SIMULATION: True,
    OperatorCommand.REPLAY_LIVE: False,
    OperatorCommand.BRANCH_SIMULATION: True,
    OperatorCommand.BRANCH_LIVE: False,
}


#: Each says in words why a command is not offered, or nothing. The first that speaks is the reason.
Rule = Callable[[Run], str]


def _not_apart(run: Run) -> str:
    return f"a run in {run.get_mode_display().lower()} is never continued" if run.mode in APART else ""


def _not_final(run: Run) -> str:
    if run.status == RunStatus.DIVERGED:
        return "it has diverged"
    return f"it is {run.get_status_display().lower()}" if run.status in FINAL else ""


def _not_cancelling(run: Run) -> str:
    return "it is being cancelled" if run.cancel_requested else ""


def _nobody_on_it(run: Run) -> str:
    """Continue is for a run that stands still, or that nobody works on although somebody should."""
    if run.status in (RunStatus.PAUSED, RunStatus.FAILED) or nobody_works_on(run):
        return ""
    return {
        RunStatus.QUEUED: "it waits for a worker and goes on by itself",
        RunStatus.RUNNING: "a worker is on it",
        RunStatus.WAITING_APPROVAL: "it waits for a decision",
        RunStatus.WAITING_EFFECT: "it waits for an effect and goes on by itself",
    }[RunStatus(run.status)]


#: A queued run that no worker has taken for this long may be continued.
LONG_QUEUED = timedelta(seconds=30)


def nobody_works_on(run: Run) -> bool:
    """It should be worked on and no live lease is on it."""
    if run.status == RunStatus.RUNNING:
        return run.lease_until is not None and run.lease_until < timezone.now()
    return run.status == RunStatus.QUEUED and timezone.now() - run.status_since > LONG_QUEUED


def _goes(run: Run) -> str:
    if run.status == RunStatus.PAUSED:
        return "it is paused already"
    if run.status == RunStatus.FAILED:
        return "it has failed: it stands still already"
    return "it is pausing" if run.pause_requested else ""


def _goes_on_later(run: Run) -> str:
    """Continue is what a pause waits for, and there is none for these."""
    if run.mode not in APART:
        return ""
    return f"a run in {run.get_mode_display().lower()} is never continued, so a pause would be its end: cancel it"


def _failed_on_an_answer(run: Run) -> str:
    failed = run.status == RunStatus.FAILED and run.failure == Failure.NODE_ERROR and run.failed_on_answer
    return "" if failed else "no answer made a node of it fail"


def _dropped_an_obligation(run: Run) -> str:
    dropped = run.status == RunStatus.FAILED and run.failure == Failure.OBLIGATION_DROPPED
    return "" if dropped else "no node of it has dropped an effect"


def _evidence_is_kept(run: Run) -> str:
    if run.mode == RunMode.EVIDENCE:
        return "it is evidence itself: replay the run that it follows"
    if run.mode == RunMode.SIMULATION:
        return "what a simulation is told did not happen, so there is no evidence of it"
    return "its recordings were removed by retention" if run.recordings_removed_at else ""


def _may_be_simulated(run: Run) -> str:
    return "it is evidence itself: use the run that it follows" if run.mode == RunMode.EVIDENCE else ""


def _may_be_live(run: Run) -> str:
    if run.mode == RunMode.SIMULATION:
        return "its state holds what doubles answered, which is not so outside"
    return _may_be_simulated(run)


def _stands_still(run: Run) -> str:
    still = run.status in (RunStatus.PAUSED, RunStatus.FAILED)
    return "" if still else "it does not stand still: pause it first"


def _blocks_types(run: Run) -> str:
    if run.mode != RunMode.LIVE or run.kind == RunKind.ORIGINAL:
        return "only a live replay or branch blocks irreversible types"
    return ""


_RULES: dict[OperatorCommand, tuple[Rule, ...]] = {
    OperatorCommand.CONTINUE: (_not_apart, _not_final, _not_cancelling, _nobody_on_it),
    OperatorCommand.PAUSE: (_not_final, _not_cancelling, _goes, _goes_on_later),
    OperatorCommand.CANCEL: (_not_final, _not_cancelling),
    OperatorCommand.ASK_AGAIN: (_not_apart, _not_cancelling, _failed_on_an_answer),
    OperatorCommand.SETTLE_DROPPED: (_not_apart, _not_cancelling, _dropped_an_obligation),
    OperatorCommand.REPLAY_EVIDENCE: (_evidence_is_kept,),
    OperatorCommand.REPLAY_SIMULATION: (_may_be_simulated,),
    OperatorCommand.REPLAY_LIVE: (_may_be_live,),
    OperatorCommand.BRANCH_SIMULATION: (_may_be_simulated,),
    OperatorCommand.BRANCH_LIVE: (_may_be_live,),
    OperatorCommand.MIGRATE: (_not_apart, _not_final, _not_cancelling, _stands_still),
    OperatorCommand.PERMIT_TYPE: (_blocks_types,),
}
