"""What stands open beside the journal: the step, call, effect, approval or checkpoint that ``?show=`` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from console.kernel.errors import NotFound
from console.kernel.ids import kind_of
from effects.models import Effect
from effects.selectors import revision_of
from runs.inspection import differences, exchange_of, state_of
from runs.models import Checkpoint, Execution, Recording, Run, Step
from runs.states import StepOutcome
from runs.views.journal import STEP_STATES, Record, Task


@dataclass(frozen=True)
class Beside:
    """A template of runs/beside/ and what it shows. *id* is empty when nothing is chosen: the run itself is described."""

    template: str
    id: str = ""
    context: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Go:
    """One go of a step, with the claim it was part of."""

    step: Step
    execution: Execution | None

    @property
    def state(self) -> str:
        return STEP_STATES.get(StepOutcome(self.step.outcome), "waiting")

    @property
    def seconds(self) -> float | None:
        return lasted(self.step.started_at, self.step.ended_at)


@dataclass(frozen=True)
class Call:
    """One recorded call and how long its answer took."""

    recording: Recording

    @property
    def seconds(self) -> float | None:
        return lasted(self.recording.started_at, self.recording.ended_at)


def lasted(begin: datetime, end: datetime | None) -> float | None:
    return (end - begin).total_seconds() if end else None


def beside(record: Record, tasks: Sequence[Task], show: str) -> Beside:
    """Raises NotFound for an id that is nothing of this run."""
    if not show:
        return Beside("runs/beside/about.html")
    opened = _OPENERS.get(kind_of(show) or "", _nothing)(record, tasks, show)
    if opened is None:
        raise NotFound(f"{show} is nothing of this run.")
    return opened


def _nothing(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001 - one signature for all
    return None


def _step(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:
    task = next((task for task in tasks if any(go.id == show for go in task.goes)), None)
    if task is None:
        return None
    executions = {execution.id: execution for execution in record.executions}
    context = {
        "task": task,
        "goes": [Go(go, executions.get(go.execution_id)) for go in task.goes],
        "calls": [Call(recording) for recording in task.recordings],
    }
    return Beside("runs/beside/step.html", show, context)


def _recording(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001
    if not any(recording.id == show for recording in record.recordings):
        return None
    recording = record.run.recordings.get(id=show)
    context = {
        "recording": recording,
        "call": Call(recording),
        "exchange": exchange_of(recording, record.run),
    }
    return Beside("runs/beside/recording.html", show, context)


def _effect(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001
    effect = next((effect for effect in record.effects if effect.id == show), None)
    if effect is None:
        return None
    context = {"effect": effect, "payload": revision_of(effect).shown}
    return Beside("runs/beside/effect.html", show, context)


def _approval(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001
    approval = next((approval for approval in record.approvals if approval.id == show), None)
    return None if approval is None else Beside("runs/beside/approval.html", show, {"approval": approval})


def _checkpoint(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001
    checkpoint = checkpoint_of(record.run, show)
    if checkpoint is None:
        return None
    return Beside(
        "runs/beside/checkpoint.html", show, {"checkpoint": checkpoint, "state": state_of(checkpoint)}
    )


def checkpoint_of(run: Run, checkpoint_id: str) -> Checkpoint | None:
    checkpoint = run.checkpoints.filter(id=checkpoint_id).first()
    if checkpoint is not None:
        checkpoint.run = run
    return checkpoint


def _would_have(record: Record, tasks: Sequence[Task], show: str) -> Beside | None:  # noqa: ARG001
    would_be = next((one for one in record.would_be if one.row.id == show), None)
    if would_be is None:
        return None
    original = Effect.objects.filter(id=would_be.row.stands_for, workspace_id=record.run.workspace_id).first()
    changes = differences(revision_of(original).shown, would_be.row.shown) if original else []
    context = {"would_be": would_be, "original": original, "changes": changes}
    return Beside("runs/beside/would_have.html", show, context)


_OPENERS = {
    "stp": _step,
    "rec": _recording,
    "eff": _effect,
    "apr": _approval,
    "cp": _checkpoint,
    "wld": _would_have,
}
