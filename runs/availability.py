"""Which operator commands a run offers to a person now, and for each other one the reason in words.

One function, asked by page, API, bulk and worker alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import TextChoices
from django.utils import timezone

from console.access import Actor
from console.models import Capability
from runs.models import Run
from runs.states import FINAL, RunMode, RunStatus


class OperatorCommand(TextChoices):
    CONTINUE = "continue", "Continue"
    PAUSE = "pause", "Pause"
    CANCEL = "cancel", "Cancel"


@dataclass(frozen=True)
class Offer:
    """Whether a command is offered; *reason* says why not."""

    command: OperatorCommand
    reason: str = ""

    @property
    def available(self) -> bool:
        return not self.reason


def availability(run: Run, actor: Actor) -> dict[str, Offer]:
    """Every operator command with its reason; an empty reason means: go."""
    reasons = {
        OperatorCommand.CONTINUE: _continue(run),
        OperatorCommand.PAUSE: _pause(run),
        OperatorCommand.CANCEL: _cancel(run),
    }
    if not actor.may(Capability.RUN):
        reasons = {
            command: reason or "your roles do not let you do this" for command, reason in reasons.items()
        }
    return {command.value: Offer(command, reason) for command, reason in reasons.items()}


def _continue(run: Run) -> str:
    if run.mode != RunMode.LIVE:
        return f"a run in {run.get_mode_display().lower()} is never continued"
    if run.status in FINAL:
        return f"it is {run.get_status_display().lower()}"
    if run.cancel_requested:
        return "it is being cancelled"
    if run.status in (RunStatus.PAUSED, RunStatus.FAILED) or nobody_works_on(run):
        return ""
    return {
        RunStatus.QUEUED: "it waits for a worker and goes on by itself",
        RunStatus.RUNNING: "a worker is on it",
        RunStatus.WAITING_APPROVAL: "it waits for a decision",
        RunStatus.WAITING_EFFECT: "it waits for an effect and goes on by itself",
    }[RunStatus(run.status)]


def nobody_works_on(run: Run) -> bool:
    """It should be worked on and no live lease is on it."""
    if run.status == RunStatus.RUNNING:
        return run.lease_until is not None and run.lease_until < timezone.now()
    return run.status == RunStatus.QUEUED and (timezone.now() - run.status_since).total_seconds() > 30


def _pause(run: Run) -> str:
    if run.status in FINAL:
        return f"it is {run.get_status_display().lower()}"
    if run.status in (RunStatus.PAUSED, RunStatus.FAILED):
        return f"it is {run.get_status_display().lower()} already"
    return "it is being cancelled" if run.cancel_requested else "it is pausing" if run.pause_requested else ""


def _cancel(run: Run) -> str:
    if run.status in FINAL:
        return f"it is {run.get_status_display().lower()}"
    return "it is being cancelled" if run.cancel_requested else ""
