"""The journal of a run: one row a task, its goes on a compressed time line, and what it asked of models and people.

Rows of the database in, rows of templates/components/journal.html out. Nothing here reads the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from console.kernel.timeline import Axis, compress
from effects.models import Approval, Effect, EffectAttempt
from effects.states import ApprovalStatus, Outcome
from runs.models import Execution, Recorded, Recording, Run, Step
from runs.states import FINAL, RunStatus, StepOutcome
from runs.views.would_be import WouldBe

#: What a run can still reach is shown up to so many rows.
MAX_FUTURE = 12

#: A step's outcome as the words' table of steps calls it; a step at a pause depends on its run.
STEP_STATES = {
    StepOutcome.RUNNING: "running",
    StepOutcome.DONE: "completed",
    StepOutcome.FAILED: "failed",
    StepOutcome.LOST: "lost",
}
_WAITS = {
    RunStatus.WAITING_APPROVAL: "waiting_approval",
    RunStatus.WAITING_EFFECT: "waiting_effect",
    RunStatus.CANCELLED: "cancelled",
}
_ATTEMPT_BAR = {Outcome.UNKNOWN: "unsure", Outcome.REFUSED: "bad", Outcome.NOT_SENT: "idle"}


@dataclass(frozen=True)
class Pill:
    """A small label at a step: what it asked, sent or was told."""

    text: str
    icon: str = ""
    href: str = ""
    effect: bool = False


@dataclass(frozen=True)
class Bar:
    """A stretch of the time line, in percent."""

    x: float
    width: float
    kind: str
    title: str = ""
    word: str = ""


@dataclass
class Row:
    """One task of the graph, through all its goes, or a node that has not begun."""

    no: str
    name: str
    state: str
    id: str = ""
    href: str = ""
    note: str = ""
    took: timedelta | None = None
    current: bool = False
    failing: bool = False
    future: bool = False
    pills: list[Pill] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    lost_at: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Journal:
    axis: Axis
    rows: list[Row]
    now: float | None


@dataclass
class Task:
    """The goes of one task, oldest first, and what belongs to it."""

    goes: list[Step]
    recordings: list[Recording] = field(default_factory=list)
    asked: list[Effect] = field(default_factory=list)
    sent: list[tuple[Effect, EffectAttempt]] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)

    @property
    def first(self) -> Step:
        return self.goes[0]

    @property
    def last(self) -> Step:
        return self.goes[-1]

    def covers(self, moment: datetime) -> bool:
        """Whether it was under way at that moment, or stood at a pause between two goes."""
        return self.first.started_at <= moment and (
            self.last.ended_at is None or moment <= self.last.ended_at
        )

    def at_work(self, moment: datetime) -> bool:
        return any(
            go.started_at <= moment and (go.ended_at is None or moment <= go.ended_at) for go in self.goes
        )


@dataclass(frozen=True)
class Record:
    """Everything that the page has read about a run. Its free texts are veiled; *veil* does the same to others."""

    run: Run
    executions: Sequence[Execution]
    steps: Sequence[Step]
    recordings: Sequence[Recording]
    effects: Sequence[Effect]
    approvals: Sequence[Approval]
    veil: Callable[[str], str]
    would_be: Sequence[WouldBe] = ()


def tasks_of(record: Record) -> list[Task]:
    """The run's tasks in the order of their first go, each with the calls, effects and requests that belong to it."""
    tasks: dict[tuple[str, str], Task] = {}
    for step in record.steps:
        tasks.setdefault((step.namespace, step.task_id), Task([])).goes.append(step)
    several = list(tasks.values())
    for recording in record.recordings:
        _give(
            several,
            recording.place,
            recording.started_at,
            lambda task, r=recording: task.recordings.append(r),
        )
    for effect in record.effects:
        place = {**effect.command.place, "node": effect.command.node}
        _give(several, place, effect.created_at, lambda task, e=effect: task.asked.append(e))
        for attempt in effect.attempts.all():
            at_work = next((task for task in several if task.at_work(attempt.started_at)), None)
            if at_work is not None:
                at_work.sent.append((effect, attempt))
    for approval in record.approvals:
        _give(
            several,
            {"node": approval.node},
            approval.created_at,
            lambda task, a=approval: task.approvals.append(a),
        )
    return several


def _give(tasks: Iterable[Task], place: dict[str, object], at: datetime, give: object) -> None:
    """To the task at that place that was under way then; else to the newest one of that node that had begun."""
    fitting = [
        task
        for task in tasks
        if task.first.node == place.get("node") and place.get("step", task.first.number) == task.first.number
    ]
    best = next((task for task in fitting if task.covers(at)), None)
    begun = [task for task in fitting if task.first.started_at <= at]
    chosen = best or (begun[-1] if begun else None)
    if chosen is not None and callable(give):
        give(chosen)


def journal(
    record: Record, tasks: Sequence[Task], now: datetime, *, show: str = "", base: str = "?"
) -> Journal:
    """The rows and their axis. *show* is the id of the step that stands open beside it, *base* what links begin with."""
    run = record.run
    live = run.status not in (*FINAL, RunStatus.FAILED, RunStatus.PAUSED)
    end = now if live else max(run.status_since, run.ended_at or run.status_since)
    axis = compress(_work(record), run.created_at, end, live=live)
    rows = [_row(record, task, axis, end, show, base) for task in tasks]
    return Journal(axis, rows + _future(record, tasks), axis.at(now) if live else None)


def _work(record: Record) -> list[tuple[datetime, datetime]]:
    """When something was done: goes that were not lost with their worker, and sends."""
    now = max((step.started_at for step in record.steps), default=record.run.created_at)
    goes = [
        (step.started_at, step.ended_at or now) for step in record.steps if step.outcome != StepOutcome.LOST
    ]
    sends = [
        (attempt.started_at, attempt.ended_at or now)
        for effect in record.effects
        for attempt in effect.attempts.all()
    ]
    return goes + sends


def _row(record: Record, task: Task, axis: Axis, end: datetime, show: str, base: str) -> Row:
    run, last = record.run, task.last
    state = _state(run, task)
    open_ = state in ("running", "waiting", "waiting_approval", "waiting_effect")
    failing = run.status == RunStatus.FAILED and last.outcome == StepOutcome.FAILED
    lost = [go for go in task.goes if go.outcome == StepOutcome.LOST and go.ended_at]
    return Row(
        no=str(last.number),
        id=f"step-{task.first.id}",
        name=_name(task.first),
        state=state,
        href=f"{base}show={task.first.id}",
        note=_note(task),
        took=(end if open_ else last.ended_at or end) - task.first.started_at,
        current=show in {go.id for go in task.goes} or (not show and open_),
        failing=failing,
        pills=_pills(task, base),
        bars=_bars(task, axis, end, state),
        lost_at=axis.at(lost[-1].ended_at) if lost and lost[-1].ended_at else None,
        error=_last_line(last.problem) if failing else "",
    )


def _state(run: Run, task: Task) -> str:
    outcome = StepOutcome(task.last.outcome)
    if outcome != StepOutcome.PAUSED:
        return STEP_STATES[outcome]
    return _WAITS.get(RunStatus(run.status), "waiting")


def _name(step: Step) -> str:
    """The node, after the subgraphs it stands in."""
    above = [segment.split(":")[0] for segment in step.namespace.split("|") if segment]
    return " › ".join([*above, step.node])


def _note(task: Task) -> str:
    goes, lost = len(task.goes), sum(go.outcome == StepOutcome.LOST for go in task.goes)
    if lost:
        return "worker lost" if lost == 1 else f"worker lost {lost} times"
    if goes > 2:
        return f"{goes} goes"
    return task.last.said if task.last.outcome == StepOutcome.RUNNING else ""


def _pills(task: Task, base: str) -> list[Pill]:
    pills = []
    for kind, icon in ((Recorded.MODEL, "bot"), (Recorded.TOOL, "wrench"), (Recorded.FACT, "file-text")):
        calls = [recording for recording in task.recordings if recording.kind == kind]
        if calls:
            text = calls[0].name if kind != Recorded.MODEL else "model"
            more = f" ×{len(calls)}" if len(calls) > 1 else ""
            pills.append(Pill(text + more, icon, f"{base}show={calls[-1].id}"))
    sent = {effect.id for effect, _ in task.sent}
    for effect in task.asked:
        if effect.id not in sent:
            pills.append(
                Pill(f"{effect.effect_type} · {effect.dedup}", "file-text", f"{base}show={effect.id}")
            )
    for effect in {effect.id: effect for effect, _ in task.sent}.values():
        attempts = [attempt for one, attempt in task.sent if one.id == effect.id]
        icon = "circle-question-mark" if effect.unresolved else "send"
        more = f" ×{len(attempts)}" if len(attempts) > 1 else ""
        pills.append(
            Pill(f"{effect.effect_type} · {effect.dedup}{more}", icon, f"{base}show={effect.id}", effect=True)
        )
    pills += [
        Pill(_approval_words(approval), "user-round-check", f"{base}show={approval.id}")
        for approval in task.approvals[-1:]
    ]
    return pills


def _approval_words(approval: Approval) -> str:
    if approval.status == ApprovalStatus.DECIDED:
        return approval.ended_why or "decided"
    if approval.status == ApprovalStatus.PENDING:
        return approval.asked_of or "any approver"
    return approval.get_status_display().lower()


def _bars(task: Task, axis: Axis, end: datetime, state: str) -> list[Bar]:
    bars = []
    for go, after in zip(task.goes, [*task.goes[1:], None], strict=True):
        bars.append(_go_bar(go, axis, end))
        until = (
            after.started_at
            if after
            else end
            if state in ("waiting_approval", "waiting_effect", "waiting")
            else None
        )
        if (
            until
            and go.ended_at
            and until > go.ended_at
            and go.outcome in (StepOutcome.PAUSED, StepOutcome.LOST)
        ):
            x, width = axis.span(go.ended_at, until)
            bars.append(Bar(x, width, _gap(task, go)))
    for effect, attempt in task.sent:
        x, width = axis.span(attempt.started_at, attempt.ended_at or end)
        title = f"{effect.effect_type}, attempt {attempt.n}: {attempt.get_outcome_display().lower()}"
        bars.append(Bar(x, width, _ATTEMPT_BAR.get(Outcome(attempt.outcome), "effect"), title))
    return bars


def _go_bar(go: Step, axis: Axis, end: datetime) -> Bar:
    x, width = axis.span(go.started_at, go.ended_at or end)
    kind = {StepOutcome.FAILED: "bad", StepOutcome.LOST: "idle"}.get(StepOutcome(go.outcome), "work")
    return Bar(x, width, kind, f"{go.node}: {go.get_outcome_display().lower()}")


def _gap(task: Task, go: Step) -> str:
    """Whose turn it was after this go: a person's, while a request of the task was open; else a machine's."""
    if go.outcome == StepOutcome.LOST:
        return "idle"
    asked = any(
        go.ended_at and (approval.ended_at is None or approval.ended_at > go.ended_at)
        for approval in task.approvals
    )
    return "turn" if asked else "wait"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _future(record: Record, tasks: Sequence[Task]) -> list[Row]:
    """The nodes that can still come, in the order of the graph; none once the run has ended."""
    if record.run.status in FINAL:
        return []
    edges = record.run.workflow.topology.get("edges", [])
    had = {task.first.node for task in tasks if not task.first.namespace}
    at = [tasks[-1].first.node] if tasks else ["__start__"]
    rows: list[Row] = []
    while at and len(rows) < MAX_FUTURE:
        here = at.pop(0)
        for edge in edges:
            node = edge["target"]
            if edge["source"] == here and node not in had and not node.startswith("__"):
                had.add(node)
                at.append(node)
                note = "perhaps" if edge.get("conditional") else ""
                rows.append(Row(no="", name=node, state="pending", future=True, note=note))
    return rows[:MAX_FUTURE]
