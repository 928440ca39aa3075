"""The Runs page: the list is the page, and its address is the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.paging import Page, keyset
from console.kernel.words import failure_title, word
from console.pages import in_workspace
from effects.models import Approval, Effect
from effects.states import ApprovalStatus, EffectStatus
from runs.commands.bulk_continue import glance
from runs.forms import RunFilter
from runs.models import Run
from runs.selectors import runs_seen_by, workflows_of
from runs.states import NEEDS, TOGETHER, UNDER_WAY, RunStatus

SIZE = 50
#: Chips count up to here; beyond they say "99+".
COUNTED = 100


@require_safe
@in_workspace()
def runs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """All runs that the filters leave, newest first."""
    chosen = RunFilter.read(request.GET)
    found = chosen.narrow(runs_seen_by(actor)).select_related("workflow", "conversation").defer("input")
    page = keyset(found, cursor=chosen.cleaned_data["cursor"], size=SIZE)
    context = {
        "filter": chosen,
        "rows": rows_of(page.rows),
        "chips": _chips(actor, chosen),
        "workflows": workflows_of(actor),
        "bulk": _bulk(actor, chosen),
        **_paging(page, chosen),
        "nav": "runs",
    }
    return render(request, "runs/_runs.html" if request.htmx else "runs/runs.html", context)  # type: ignore[attr-defined]


def _bulk(actor: Actor, chosen: RunFilter) -> dict[str, str] | None:
    """The way to bulk Continue, where some of these runs may be continued."""
    found = glance(actor, chosen.conditions, most=COUNTED - 1)
    if not found.eligible:
        return None
    of = "" if found.more else f" of {found.all}"
    more = "+" if found.more and found.eligible == found.all else ""
    return {"word": f"Continue {found.eligible}{more}{of}…", "query": chosen.address(more="")}


def _paging(page: Page[Run], chosen: RunFilter) -> dict[str, Any]:
    words = f"{len(page.rows)} run{'' if len(page.rows) == 1 else 's'}, newest first"
    return {
        "newer": chosen.address(cursor=page.newer) if page.newer else "",
        "older": chosen.address(cursor=page.older) if page.older else "",
        "text": words,
    }


def _chips(actor: Actor, chosen: RunFilter) -> list[dict[str, Any]]:
    """The statuses in which something is left to do, each with how many stand there."""
    counts = counts_by_status(runs_seen_by(actor))
    now = chosen.cleaned_data["status"]
    chips: list[dict[str, Any]] = [
        {"word": "All", "count": None, "href": chosen.address(status=""), "on": not now}
    ]
    for code, label in _CHIPS.items():
        count = sum(counts[status] for status in _statuses(code))
        if count or code in (now, NEEDS):
            chips.append(
                {"word": label, "count": said(count), "href": chosen.address(status=code), "on": code == now}
            )
    return chips


def _statuses(code: str) -> tuple[RunStatus, ...]:
    return TOGETHER.get(code) or (RunStatus(code),)


_CHIPS = {
    NEEDS: "Needs a person",
    **{
        status.value: status.label
        for status in (RunStatus.WAITING_APPROVAL, RunStatus.FAILED, RunStatus.PAUSED)
    },
    UNDER_WAY: "Under way",
}
_COUNTED_STATUSES = tuple(
    status for status in RunStatus if status not in (RunStatus.COMPLETED, RunStatus.CANCELLED)
)


def said(count: int) -> str:
    """A count that stopped at its limit says so."""
    return f"{COUNTED - 1}+" if count >= COUNTED else str(count)


def counts_by_status(found: QuerySet[Run]) -> Counter[str]:
    """How many runs stand in each status that is not final, up to a limit each: one query of short index scans."""
    first, *rest = (
        found.filter(status=status).order_by().values_list("status", flat=True)[:COUNTED]
        for status in _COUNTED_STATUSES
    )
    return Counter(first.union(*rest, all=True))


def rows_of(found: Sequence[Run]) -> list[dict[str, Any]]:
    """The rows of a table of runs, each with why it stands where it stands. Two queries, whatever their number."""
    ids = [run.id for run in found]
    asked = _asked(ids)
    waiting = _unsettled([run.id for run in found if run.status == RunStatus.WAITING_EFFECT])
    return [
        {"run": run, "why": _why(run, asked, waiting), "due": _due(run, asked), "took": took(run)}
        for run in found
    ]


def _asked(run_ids: Sequence[str]) -> dict[str, Approval]:
    pending = Approval.objects.filter(run_id__in=run_ids, status=ApprovalStatus.PENDING).defer("body")
    return {approval.run_id: approval for approval in pending.order_by("-due_at")}


def _unsettled(run_ids: Sequence[str]) -> dict[str, Effect]:
    if not run_ids:
        return {}
    found = Effect.objects.filter(run_id__in=run_ids).exclude(
        status__in=[EffectStatus.COMPLETED, EffectStatus.FAILED]
    )
    return {effect.run_id: effect for effect in found.defer("answer").order_by("created_at")}


def _why(run: Run, asked: dict[str, Approval], waiting: dict[str, Effect]) -> str:
    if run.status == RunStatus.FAILED:
        return " · ".join(part for part in (failure_title(run.failure), run.failure_of) if part)
    if run.id in asked:
        return asked[run.id].asked_of or "Any approver"
    if run.id in waiting:
        effect = waiting[run.id]
        return f"{effect.effect_type}: {word(effect.sub_state or effect.status, 'effect').text.lower()}"
    if run.status == RunStatus.PAUSED:
        return run.failure_text
    return f"by {run.stopped_by}" if run.status == RunStatus.CANCELLED and run.stopped_by else ""


def _due(run: Run, asked: dict[str, Approval]) -> datetime | None:
    """Until when a person should have decided."""
    waits = run.status == RunStatus.WAITING_APPROVAL and run.id in asked
    return asked[run.id].due_at if waits else None


def took(run: Run) -> float:
    """Seconds from its making to its end, or to now."""
    return ((run.ended_at or timezone.now()) - run.created_at).total_seconds()
