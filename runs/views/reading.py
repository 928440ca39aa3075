"""What the Run page reads: a fixed number of queries, whatever the run has been through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import Prefetch, Q, QuerySet

from effects.models import Approval, Effect, EffectAttempt, Observation, Review
from effects.selectors import open_reviews as reviews_of_run
from runs.inspection import Veil, input_shown
from runs.models import Checkpoint, Message, Run, Step
from runs.selectors import run_approvals
from runs.states import StepOutcome
from runs.views.journal import Record
from runs.views.lineage import Family
from runs.views.would_be import would_be_of

#: A page holds so much of a run; the newest are kept, and the page says that there is more.
MAX_STEPS = 400
MAX_ROWS = 200


def record_of(run: Run) -> Record:
    """Everything about a run that its page tells, with protected values hidden in every free text of it."""
    record = Record(
        run=run,
        executions=list(run.executions.order_by("fence")[:MAX_STEPS]),
        steps=steps_of(run),
        recordings=list(run.recordings.defer("request", "answer").order_by("started_at")[:MAX_STEPS]),
        effects=list(effects_of(run)[:MAX_ROWS]),
        approvals=list(approvals_of(run)[:MAX_ROWS]),
        veil=Veil(run),
        would_be=would_be_of(run, most=MAX_ROWS),
    )
    _hide(record)
    return record


def _hide(record: Record) -> None:
    """Errors and notes are written by code that knows no masks: what is protected is taken out of them here."""
    veil = record.veil
    record.run.failure_text = veil(record.run.failure_text)
    for step in record.steps:
        step.problem, step.said = veil(step.problem), veil(step.said)
    for execution in record.executions:
        execution.note = veil(execution.note)
    for effect in record.effects:
        effect.problem = veil(effect.problem)
        for attempt in effect.attempts.all():
            attempt.problem = veil(attempt.problem)
        for observation in effect.observations.all():
            observation.sentence = veil(observation.sentence)


def steps_of(run: Run) -> list[Step]:
    """The newest steps, oldest first."""
    return list(run.steps.order_by("-started_at", "-id")[:MAX_STEPS])[::-1]


def effects_of(run: Run) -> QuerySet[Effect]:
    return (
        Effect.objects.filter(run_id=run.id, workspace_id=run.workspace_id)
        .select_related("command", "receiver")
        .defer("command__arguments", "answer")
        .prefetch_related(
            Prefetch("attempts", EffectAttempt.objects.order_by("n")),
            Prefetch("observations", Observation.objects.order_by("at", "id")),
        )
        .order_by("created_at", "id")
    )


def approvals_of(run: Run) -> QuerySet[Approval]:
    return (
        run_approvals(run)
        .select_related("simulated_for")
        .defer("body")
        .prefetch_related("decisions__by")
        .order_by("created_at", "id")
    )


def open_reviews(run: Run) -> list[Review]:
    return list(reviews_of_run(run.id).order_by("opened_at")[:MAX_ROWS])


def checkpoints_of(run: Run) -> QuerySet[Checkpoint]:
    """Newest first; the engine's ids sort by time."""
    return run.checkpoints.order_by("-engine_id", "-id")


def messages_of(run: Run) -> list[Message]:
    """The newest messages of the run's conversation, oldest first; with what this run itself would have posted."""
    return list(_messages(run).order_by("-at", "-id")[:MAX_ROWS])[::-1]


def _messages(run: Run) -> QuerySet[Message]:
    return Message.objects.filter(
        Q(would_be=False) | Q(run_id=run.id), conversation__isnull=False, conversation=run.conversation
    )


def part(record: Record, name: str, family: Family) -> dict[str, Any]:
    """What the tabs say, and the rows of the part that is open: the effects where there are any, else the checkpoints."""
    run = record.run
    counts = {
        "checkpoints": run.checkpoints.count(),
        "effects": len(record.effects) + len(record.would_be),
        "approvals": len(record.approvals),
        "messages": _messages(run).count(),
        "lineage": len(family.runs),
    }
    chosen = name or ("effects" if record.effects or record.would_be else "checkpoints")
    tabs = [
        {"label": label, "count": counts.get(key), "href": f"?part={key}", "current": key == chosen}
        for key, label in PARTS.items()
    ]
    return {"tabs": tabs, "part": chosen, **_rows(record, chosen)}


PARTS = {
    "checkpoints": "Checkpoints",
    "effects": "Effects",
    "approvals": "Approvals",
    "messages": "Messages",
    "lineage": "Lineage",
    "input": "Input",
}


def _rows(record: Record, chosen: str) -> dict[str, Any]:
    run = record.run
    if chosen == "checkpoints":
        return {"checkpoints": with_their_nodes(list(checkpoints_of(run)[:MAX_ROWS]), record.steps)}
    if chosen == "messages":
        return {"thread": [message_row(message, [record.veil], run) for message in messages_of(run)]}
    if chosen == "input":
        return {"given": input_shown(run)}
    return {"effects": record.effects, "would_be": record.would_be, "approvals": record.approvals}


def with_their_nodes(
    checkpoints: list[Checkpoint], steps: Sequence[Step]
) -> list[tuple[Checkpoint, list[str]]]:
    """Each checkpoint with the nodes whose work it was saved after."""
    ran: dict[tuple[str, int], set[str]] = {}
    for step in steps:
        if step.outcome == StepOutcome.DONE:
            ran.setdefault((step.namespace, step.number), set()).add(step.node)
    return [(one, sorted(ran.get((one.namespace, one.number), ()))) for one in checkpoints]


_ROLES = {"inbound": "customer", "outbound": "agent", "note": "system"}


def message_row(
    message: Message, veils: Sequence[Callable[[str], str]], run: Run | None = None
) -> dict[str, Any]:
    """A message as templates/components/message.html shows it, with what *veils* hide taken out."""
    mine = run is not None and message.run_id == run.id
    author, text = message.author, message.text
    for veil in veils:
        author, text = veil(author), veil(text)
    return {
        "role": _ROLES[message.direction],
        "author": author,
        "text": text,
        "at": message.at,
        "note": "from this run" if mine else "",
        "run_id": message.run_id,
    }


def neighbours_of(checkpoint: Checkpoint) -> tuple[Checkpoint | None, Checkpoint | None]:
    """The checkpoints of the same graph before and after it."""
    same = Checkpoint.objects.filter(run_id=checkpoint.run_id, namespace=checkpoint.namespace)
    return (
        same.filter(engine_id__lt=checkpoint.engine_id).order_by("-engine_id").first(),
        same.filter(engine_id__gt=checkpoint.engine_id).order_by("engine_id").first(),
    )
