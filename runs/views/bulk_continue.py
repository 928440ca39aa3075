"""Bulk Continue: the dry run, its start, how far it is, its stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.bulk import REASONS, SHOWN, counts_of
from console.kernel.errors import Forbidden, NotFound, Refusal
from console.kernel.paging import keyset
from console.kernel.words import failure_title
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from effects.forms import BulkForm
from effects.views.addresses import is_fragment, paged
from effects.views.telling import titles
from runs.commands import bulk_continue as commands
from runs.forms import RunFilter
from runs.models import BulkContinue, WorkflowVersion
from runs.selectors import workflows_of
from runs.states import Failure, RunKind, RunMode, RunStatus

#: Of one run's effects a row names so many; the rest are counted.
EFFECTS = 3


@require_safe
@in_workspace()
def plan(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What Continue would do with each run that the Runs page's filter leaves. Nothing is done."""
    return _planned(request, actor)


@require_POST
@in_workspace()
def start(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Begin what the dry run showed."""
    typed = BulkForm(request.POST, many="Runs")
    asked = typed.asked(LeverForm.token_of(request.POST))
    try:
        begun = commands.start(actor, RunFilter.read(request.GET).conditions, asked)
    except Refusal as refusal:
        if isinstance(refusal, Forbidden | NotFound):
            raise
        typed.refuse(refusal)
        return _planned(request, actor, typed=typed, refusal=refusal)
    return SeeOther(reverse("bulk", args=[actor.workspace.id, begun.id]))


def _planned(
    request: HttpRequest, actor: Actor, *, typed: BulkForm | None = None, refusal: Refusal | None = None
) -> HttpResponse:
    chosen = RunFilter.read(request.GET)
    found = commands.dry_run(actor, chosen.conditions)
    context: dict[str, Any] = {
        "nav": "runs",
        "query": chosen.address(more=""),
        "chosen": in_words(chosen.conditions, workflows_of(actor)),
        "plan": found,
        "rows": _rows(found.items[:SHOWN]),
        "outside": Counter(effect.what for item in found.continued for effect in item.effects).most_common(),
        "versions": _versions(found.continued),
        **_left_alone(found),
        "form": typed or BulkForm(many="Runs"),
        "may_continue": actor.may(commands.KIND.capability),
        "token": new_token(),
        "refusal": refusal,
    }
    template = "runs/bulk/_plan.html" if is_fragment(request) else "runs/bulk/plan.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _rows(items: list[commands.Planned]) -> list[dict[str, Any]]:
    names = titles()
    return [
        {
            "item": item,
            "failed_by": _failed_by(item),
            "effects": [
                (names.get(one.effect.effect_type, one.effect.effect_type), one)
                for one in item.effects[:EFFECTS]
            ],
            "more": max(len(item.effects) - EFFECTS, 0),
        }
        for item in items
    ]


def _failed_by(item: commands.Planned) -> str:
    parts = (failure_title(item.run.failure), item.run.failure_of) if item.run.failure else ()
    return " · ".join(part for part in parts if part)


def _left_alone(found: commands.DryRun) -> dict[str, Any]:
    why = Counter(item.why for item in found.items if item.why)
    return {
        "skip": sum(why.values()),
        "why_skipped": why.most_common(REASONS),
        "more_reasons": max(len(why) - REASONS, 0),
    }


def _versions(items: list[commands.Planned]) -> list[tuple[str, int, int]]:
    """Each version that would run, how many runs it has here, and how many workers hold it."""
    runs = Counter((str(item.run.workflow), item.workers) for item in items)
    return sorted((version, count, workers) for (version, workers), count in runs.items())


def in_words(filters: Mapping[str, str], workflows: list[WorkflowVersion]) -> list[tuple[str, str]]:
    """A filter of the Runs page as its labels and words."""
    said: dict[str, tuple[str, Mapping[str, str]]] = {
        "status": (
            "Status",
            {**dict(RunStatus.choices), "needs_a_person": "Needs a person", "under_way": "Under way"},
        ),
        "failure": ("Failure", dict(Failure.choices)),
        "of": ("Receiver or step", {}),
        "workflow": ("Workflow", {one.name: one.title for one in workflows}),
        "kind": ("Kind", dict(RunKind.choices)),
        "mode": ("Mode", dict(RunMode.choices)),
        "customer": ("Customer", {}),
        "q": ("Customer or subject", {}),
    }
    return [
        (label, words.get(filters[name], filters[name]))
        for name, (label, words) in said.items()
        if name in filters
    ]


@require_safe
@in_workspace()
def bulks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Those that run and those that were, the newest first."""
    page = keyset(commands.KIND.seen_by(actor), fields=("at", "id"), cursor=request.GET.get("cursor"))
    counts, workflows = counts_of(page.rows), workflows_of(actor)
    context = {
        "nav": "runs",
        "rows": [(one, counts[one.id], in_words(one.filters, workflows)) for one in page.rows],
        **paged(request, page),
    }
    return render(request, "runs/bulk/_list.html" if is_fragment(request) else "runs/bulk/list.html", context)


@require_safe
@in_workspace()
def bulk(request: HttpRequest, actor: Actor, bulk_id: str) -> HttpResponse:
    """How far it is, and what came of each run."""
    return _shown(request, actor, bulk_id)


@require_POST
@in_workspace()
def stop(request: HttpRequest, actor: Actor, bulk_id: str) -> HttpResponse:
    """Continue no further run of it."""
    LeverForm.token_of(request.POST)
    try:
        commands.KIND.stop(actor, bulk_id)
    except Refusal as refusal:
        if isinstance(refusal, Forbidden | NotFound):
            raise
        return _shown(request, actor, bulk_id, refusal=refusal)
    messages.success(request, "Stopped: no further run is continued. Those that were continued go on.")
    return SeeOther(reverse("bulk", args=[actor.workspace.id, bulk_id]))


def _shown(
    request: HttpRequest, actor: Actor, bulk_id: str, *, refusal: Refusal | None = None
) -> HttpResponse:
    found: BulkContinue = commands.KIND.one_seen_by(actor, bulk_id)
    items = found.items.select_related("run__workflow", "run__conversation").defer("run__input")
    context: dict[str, Any] = {
        "nav": "runs",
        "bulk": found,
        "counts": counts_of([found])[found.id],
        "chosen": in_words(found.filters, workflows_of(actor)),
        "items": items.order_by("id")[:SHOWN],
        "may_stop": actor.may(commands.KIND.capability),
        "token": new_token(),
        "refusal": refusal,
    }
    template = "runs/bulk/_bulk.html" if is_fragment(request) else "runs/bulk/bulk.html"
    return render(request, template, context, status=refusal.status if refusal else 200)
