"""The Run page: one run on one screen. What is open beside it, and which part is shown, stand in the address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import Actor
from console.pages import in_workspace
from effects.states import EffectStatus
from runs.anatomy import broken_end
from runs.availability import availability
from runs.forms import PageChoice
from runs.inspection import compared
from runs.models import Divergence, Run
from runs.selectors import run_seen_by, workers_holding
from runs.states import APART, FINAL, ExecutionOutcome, RunStatus, StepOutcome
from runs.views import reading
from runs.views.beside import beside
from runs.views.checkpoint import branch_url
from runs.views.journal import Record, Task, journal, tasks_of
from runs.views.lineage import family_of, tree_of
from runs.views.replay import branches_in, offers_in, reason_against
from runs.views.runs import took
from runs.views.turn import levers, turn_of


@require_safe
@in_workspace()
def run(request: HttpRequest, actor: Actor, run_id: str) -> HttpResponse:
    """Everything about one run; the fragment alone for htmx. ``?part=`` and ``?show=`` are its permalinks."""
    seen = run_seen_by(actor, run_id)
    choice = PageChoice.read(request.GET)
    record = reading.record_of(seen)
    family = family_of(seen)
    context = {
        **_head(record, actor),
        **_body(record, choice),
        **reading.part(record, choice.chosen_part, family),
        "family": family,
        "lineage": tree_of(seen, family),
        "nav": "runs",
    }
    return render(request, "runs/_run.html" if request.htmx else "runs/run.html", context)  # type: ignore[attr-defined]


def _head(record: Record, actor: Actor) -> dict[str, Any]:
    run = record.run
    at_fault = broken_end(run) if run.status == RunStatus.FAILED else None
    holders = workers_holding(run).count() if run.status == RunStatus.QUEUED else None
    offers = availability(run, actor)
    divergence = divergence_of(run)
    return {
        "run": run,
        "final": is_final(record),
        "took": took(run),
        "levers": levers(record, actor, offers),
        "replay_off": reason_against(offers_in(offers)),
        "branch_off": reason_against(branches_in(offers)),
        "turn": turn_of(record, timezone.now(), workers=holders),
        "reviews": reading.open_reviews(run),
        "executions": record.executions,
        "broken": at_fault,
        "branch_url": branch_url(run, at_fault.last_valid if at_fault else None),
        "losses": sum(execution.outcome == ExecutionOutcome.LOST for execution in record.executions),
        "divergence": divergence,
        "compared": compared(divergence) if divergence else None,
    }


def divergence_of(run: Run) -> Divergence | None:
    """Where a run that replays left its recording; nothing else has one."""
    if run.mode not in APART:
        return None
    found = Divergence.objects.select_related("recorded__run__workflow").filter(run=run).first()
    if found is not None:
        found.run = run
    return found


def _body(record: Record, choice: PageChoice) -> dict[str, Any]:
    tasks = tasks_of(record)
    base = f"?part={choice.chosen_part}&" if choice.chosen_part else "?"
    rows = journal(record, tasks, timezone.now(), show=choice.chosen_id, base=base)
    return {
        "journal": rows,
        "cause": cause_of(record, tasks, base),
        "beside": beside(record, tasks, choice.chosen_id),
        "base": base,
        "without_show": base.rstrip("&"),
    }


def cause_of(record: Record, tasks: Sequence[Task], base: str) -> dict[str, str]:
    """The error's last line, the step it happened in, and the rest of the text to fold away."""
    failed = [task for task in tasks if task.last.outcome == StepOutcome.FAILED]
    of = record.run.failure_of
    task = next((task for task in reversed(failed) if task.last.node == of), failed[-1] if failed else None)
    text = record.run.failure_text.strip()
    last = text.splitlines()[-1].strip() if text else ""
    return {
        "error": last,
        "frames": text if "\n" in text else "",
        "step": task.last.node if task else "",
        "href": f"{base}show={task.last.id}" if task else "",
    }


def is_final(record: Record) -> bool:
    """Nothing of it can change by itself any more: the page stops listening."""
    return record.run.status in FINAL and not any(
        effect.unresolved or effect.status == EffectStatus.ACCEPTED for effect in record.effects
    )
