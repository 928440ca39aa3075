"""Home: what needs a person now, by urgency, each with its one next step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import TruncHour
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.words import REVIEW_REASONS, failure_title
from console.models import Capability, User, Workspace
from console.pages import in_workspace, to_login
from console.views.health import health_of, queued_without_worker
from effects.models import Approval, Effect, Review
from effects.selectors import approvals_seen_by, effects_seen_by, inbox, reviews_seen_by
from effects.states import ApprovalStatus, SubState
from effects.views.reviews import receiver_of, whose_turn
from runs.models import Run
from runs.selectors import runs_seen_by
from runs.states import RunStatus
from runs.views.runs import counts_by_status, said

#: Of each sort so many rows are shown; the sort's own page has the rest.
SHOWN = 15
COUNTED = 100
HOURS = 24


@dataclass(frozen=True)
class Turn:
    """One thing that waits for a person. *urgency* orders the list: the smaller, the sooner; then the oldest first."""

    urgency: int
    at: datetime
    state: str
    table: str
    subject: str
    customer: str
    what: str
    whose: str
    href: str
    step: str
    step_href: str
    dialog: bool = False
    due: datetime | None = None


@require_safe
def root(request: HttpRequest) -> HttpResponse:
    """To Home of the person's first workspace; without one, a page that says so."""
    if not isinstance(request.user, User):
        return to_login(request)
    first = Workspace.objects.filter(memberships__user=request.user).order_by("name", "id").first()
    if first is None:
        return render(request, "no_workspace.html")
    return HttpResponseRedirect(reverse("home", args=[first.id]))


@require_safe
@in_workspace()
def home(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What needs a person, the runs of the last day, and whether everything works."""
    context = {
        "turns": turns_of(actor),
        "metrics": _metrics(actor),
        "health": health_of(actor),
        "hours": _hours(actor),
        "nav": "home",
    }
    return render(request, "_home.html" if request.htmx else "home.html", context)  # type: ignore[attr-defined]


def turns_of(actor: Actor) -> list[Turn]:
    """Everything that waits for a person, the most urgent first."""
    turns = [*_approvals(actor), *_effects(actor), *_runs(actor), *_without_worker(actor)]
    return sorted(turns, key=lambda turn: (turn.urgency, turn.at))


def _approvals(actor: Actor) -> list[Turn]:
    """The actor's own, and everybody's that are overdue."""
    now = timezone.now()
    own = list(inbox(actor).defer("body")[:SHOWN])
    mine = {approval.id for approval in own}
    overdue = (
        approvals_seen_by(actor)
        .filter(status=ApprovalStatus.PENDING, simulated_for=None, due_at__lt=now)
        .exclude(id__in=mine)
        .defer("body")
        .order_by("due_at")
    )
    several = [*own, *overdue[:SHOWN]]
    runs = _runs_by_id(actor, {approval.run_id for approval in several})
    return [_approval(approval, runs, actor, now, approval.id in mine) for approval in several]


def _approval(approval: Approval, runs: dict[str, Run], actor: Actor, now: datetime, mine: bool) -> Turn:
    run = runs.get(approval.run_id)
    late = approval.due_at < now
    here = _address("approval", actor, approval.id)
    return Turn(
        urgency=0 if late else 4,
        at=approval.created_at,
        state="overdue" if late else "pending",
        table="approval",
        subject=run.title if run else approval.title,
        customer=_customer(run),
        what=approval.title,
        whose="You"
        if mine
        else "A second person"
        if approval.order_id
        else approval.asked_of or "Any approver",
        href=_address("run", actor, approval.run_id),
        step="Decide" if mine else "Look",
        step_href=here or _address("run", actor, approval.run_id),
        due=approval.due_at,
    )


def _effects(actor: Actor) -> list[Turn]:
    """Effects of which nobody knows whether they exist, and those that only a person can settle."""
    reviews = reviews_seen_by(actor).filter(closed_at=None)
    open_ = list(reviews.order_by("opened_at")[:SHOWN])
    uncertain = (
        effects_seen_by(actor)
        .filter(sub_state=SubState.UNCERTAIN)
        .exclude(id__in=[review.effect_id for review in open_])
        .select_related("receiver")
        .defer("answer")
        .order_by("updated_at")
    )
    effects = list(uncertain[:SHOWN])
    of_reviews = [review.effect for review in open_ if review.effect is not None]
    runs = _runs_by_id(actor, {effect.run_id for effect in [*effects, *of_reviews]})
    return [
        *(_review(review, runs, actor) for review in open_),
        *(_uncertain(effect, runs, actor) for effect in effects),
    ]


def _review(review: Review, runs: dict[str, Run], actor: Actor) -> Turn:
    effect = review.effect
    run = runs.get(effect.run_id) if effect else None
    here = _address("review", actor, review.id)
    about = effect.effect_type if effect else receiver_of(review)
    return Turn(
        urgency=1,
        at=review.opened_at,
        state="open",
        table="review",
        subject=run.title if run else effect.effect_type if effect else f"Object {review.provider_object}",
        customer=_customer(run),
        what=f"{about}: {REVIEW_REASONS.get(review.reason, review.sentence)}",
        whose=whose_turn(review, actor),
        href=here,
        step="Settle" if whose_turn(review, actor).startswith("You") else "Look",
        step_href=here,
    )


def _uncertain(effect: Effect, runs: dict[str, Run], actor: Actor) -> Turn:
    run = runs.get(effect.run_id)
    return Turn(
        urgency=2,
        at=effect.updated_at,
        state="uncertain",
        table="effect",
        subject=run.title if run else effect.effect_type,
        customer=_customer(run),
        what=f"{effect.effect_type}: whether {effect.receiver.name} made it is not known",
        whose="Asked again by itself" if effect.due_at else "A releaser",
        href=_address("run", actor, run.id) if run else _effect_page(effect, actor),
        step="Look",
        step_href=_effect_page(effect, actor),
    )


def _effect_page(effect: Effect | None, actor: Actor) -> str:
    if effect is None:
        return ""
    return _address("effect", actor, effect.id) or f"{_address('run', actor, effect.run_id)}?show={effect.id}"


_RUN_URGENCY = {RunStatus.FAILED: 3, RunStatus.PAUSED: 5, RunStatus.DIVERGED: 6}


def _runs(actor: Actor) -> list[Turn]:
    turns: list[Turn] = []
    for status, urgency in _RUN_URGENCY.items():
        found = runs_seen_by(actor).filter(status=status).select_related("conversation").defer("input")
        turns += [_run(run, urgency, actor) for run in found.order_by("-created_at", "-id")[:SHOWN]]
    return turns


def _run(run: Run, urgency: int, actor: Actor) -> Turn:
    goes_on = run.status in (RunStatus.FAILED, RunStatus.PAUSED) and actor.may(Capability.RUN)
    here = _address("run", actor, run.id)
    why = " · ".join(part for part in (failure_title(run.failure), run.failure_of) if part)
    return Turn(
        urgency=urgency,
        at=run.status_since,
        state=run.status,
        table="run",
        subject=run.title,
        customer=_customer(run),
        what=why if run.status == RunStatus.FAILED else run.failure_text,
        whose="A developer" if run.status == RunStatus.DIVERGED else "You" if goes_on else "An operator",
        href=here,
        step="Continue…" if goes_on else "Look",
        step_href=_address("run_continue", actor, run.id) if goes_on else here,
        dialog=goes_on,
    )


def _without_worker(actor: Actor) -> list[Turn]:
    return [
        Turn(
            urgency=3,
            at=run.status_since,
            state=run.status,
            table="run",
            subject=run.title,
            customer=_customer(run),
            what=f"No worker holds {run.workflow.name} {run.workflow.version}",
            whose="Who runs the workers",
            href=_address("run", actor, run.id),
            step="Look",
            step_href=_address("run", actor, run.id),
        )
        for run in queued_without_worker(actor)[:SHOWN]
    ]


def _runs_by_id(actor: Actor, ids: set[str]) -> dict[str, Run]:
    found = (
        runs_seen_by(actor).filter(id__in=ids).select_related("conversation").defer("input") if ids else []
    )
    return {run.id: run for run in found}


def _customer(run: Run | None) -> str:
    return run.conversation.customer_name if run and run.conversation else ""


def _address(name: str, actor: Actor, *ids: str) -> str:
    try:
        return reverse(name, args=[actor.workspace.id, *ids])
    except NoReverseMatch:
        return ""


def _metrics(actor: Actor) -> list[dict[str, Any]]:
    """Counts that stop at a hundred: what matters is whether there are some."""
    counts = counts_by_status(runs_seen_by(actor))
    list_of = _address("runs", actor)
    effects_page = _address("effects", actor)
    uncertain = effects_seen_by(actor).filter(sub_state=SubState.UNCERTAIN)[:COUNTED].count()
    reviews = Review.objects.filter(workspace=actor.workspace, closed_at=None)[:COUNTED].count()
    rows = [
        (
            "Approvals for you",
            inbox(actor)[:COUNTED].count(),
            "user-round-check",
            "turn",
            _address("approvals", actor),
        ),
        ("Failed runs", counts["failed"], "octagon-x", "bad", f"{list_of}?status=failed"),
        (
            "Uncertain effects",
            uncertain,
            "circle-question-mark",
            "unsure",
            f"{effects_page}?sub_state=uncertain" if effects_page else "",
        ),
        ("In review", reviews, "shield-alert", "unsure", _address("reviews", actor)),
        (
            "Waiting for approval",
            counts["waiting_approval"],
            "user-round-check",
            "turn",
            f"{list_of}?status=waiting_approval",
        ),
        ("Paused", counts["paused"], "circle-pause", "warn", f"{list_of}?status=paused"),
        (
            "Under way",
            counts["running"] + counts["queued"] + counts["waiting_effect"],
            "circle-play",
            "work",
            f"{list_of}?status=under_way",
        ),
    ]
    return [
        {"name": name, "value": said(count) if count else 0, "icon": icon, "tone": tone, "href": href}
        for name, count, icon, tone, href in rows
        if name != "Approvals for you" or actor.may(Capability.DECIDE) or actor.may(Capability.SECOND)
    ]


def _hours(actor: Actor) -> dict[str, Any]:
    """Runs made in each of the last 24 hours, and of them those that stand failed, as bars in percent."""
    now = timezone.now()
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    rows = (
        runs_seen_by(actor)
        .filter(created_at__gte=first)
        .order_by()
        .annotate(hour=TruncHour("created_at"))
        .values("hour")
        .annotate(made=Count("id"), failed=Count("id", filter=Q(status=RunStatus.FAILED)))
    )
    made = {row["hour"]: (row["made"], row["failed"]) for row in rows}
    counts = [made.get(first + timedelta(hours=n), (0, 0)) for n in range(HOURS)]
    most = max((count for count, _ in counts), default=0)
    width = 100 / HOURS
    bars = [
        {
            "x": n * width + width * 0.1,
            "width": width * 0.8,
            "y": 100 - 100 * count / most,
            "height": 100 * count / most,
            "bad_y": 100 - 100 * failed / most,
            "bad": 100 * failed / most,
        }
        for n, (count, failed) in enumerate(counts)
        if most and count
    ]
    return {
        "bars": bars,
        "total": sum(count for count, _ in counts),
        "most": most,
        "last": counts[-1][0],
        "first": first,
    }
