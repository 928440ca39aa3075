"""The three lists of the Approvals page: what waits for me, all that is open, what I decided and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from console.access import Actor
from console.kernel.errors import BadRequest
from console.kernel.paging import keyset
from console.models import Capability
from effects import selectors
from effects.models import Approval, ApprovalDecision, Effect
from effects.states import ApprovalStatus
from runs.models import Run
from runs.selectors import runs_seen_by
from runs.views.approval_page import in_review, words_of

MINE, OPEN, DECIDED = "mine", "open", "decided"
TITLES = {MINE: "For me", OPEN: "All open", DECIDED: "My decisions"}
#: Of a longer queue the most urgent ones are shown; deciding those brings up the rest.
MOST = 200


@dataclass(frozen=True)
class Row:
    """One request with the run that asked."""

    approval: Approval
    run: Run | None

    @property
    def effect(self) -> Effect | None:
        return self.approval.effect

    @property
    def whose(self) -> str:
        """Who is asked."""
        return "A second person" if self.approval.order else self.approval.asked_of or "Any approver"

    @property
    def asked_by(self) -> str:
        """The run that asked, or who gave the order."""
        if self.approval.order:
            return self.approval.order.asked_by.name
        return self.run.title if self.run else ""

    @property
    def overdue(self) -> bool:
        return self.approval.due_at <= timezone.now()

    @property
    def customer(self) -> str:
        if self.run and self.run.conversation:
            return self.run.conversation.customer_name
        return self.effect.customer_ref if self.effect else ""


@dataclass(frozen=True)
class Decided(Row):
    """A decision of the actor's, and what became of it."""

    decision: ApprovalDecision
    reviewed: bool

    @property
    def words(self) -> str:
        return words_of(self.decision)


def offered(actor: Actor) -> tuple[str, ...]:
    """Approvers decide for runs, second persons about orders; others look."""
    decides = actor.may(Capability.DECIDE) or actor.may(Capability.SECOND)
    return (MINE, OPEN, DECIDED) if decides else (OPEN,)


def chosen(actor: Actor, asked: str) -> str:
    """The view that was asked for, or the first one there is. BadRequest for one that there is not."""
    if not asked:
        return offered(actor)[0]
    if asked not in TITLES:
        raise BadRequest(
            f"There is no view {asked[:40]!r} of approvals: use mine, open or decided.", field="view"
        )
    return asked


def tabs(actor: Actor, view: str) -> list[dict[str, Any]]:
    here = reverse("approvals", args=[actor.workspace.id])
    return [
        {"label": TITLES[name], "href": f"{here}?{urlencode({'view': name})}", "current": name == view}
        for name in dict.fromkeys((*offered(actor), view))
    ]


def shown(actor: Actor, view: str, cursor: str | None) -> dict[str, Any]:
    """The rows of a view. Only decisions are paged: open requests end by being decided."""
    if view == DECIDED:
        return _decisions(actor, cursor)
    found = selectors.inbox(actor) if view == MINE else _all_open(actor)
    approvals = list(found.select_related("effect", "order__asked_by")[: MOST + 1])
    return {"rows": _rows(actor, approvals[:MOST]), "more": len(approvals) > MOST}


def _all_open(actor: Actor) -> Any:
    return (
        selectors.approvals_seen_by(actor)
        .filter(status=ApprovalStatus.PENDING, expires_at__gt=Now(), simulated_for=None)
        .order_by("due_at", "-irreversible", "created_at", "id")
    )


def _rows(actor: Actor, approvals: Iterable[Approval]) -> list[Row]:
    approvals = list(approvals)
    runs = _runs(actor, approvals)
    return [Row(approval, runs.get(approval.run_id)) for approval in approvals]


def _runs(actor: Actor, approvals: Iterable[Approval]) -> dict[str, Run]:
    wanted = {approval.run_id for approval in approvals}
    return {run.id: run for run in runs_seen_by(actor).filter(id__in=wanted).select_related("conversation")}


def _decisions(actor: Actor, cursor: str | None) -> dict[str, Any]:
    # What is decided in a simulation grants nothing: it stands on its run's page alone.
    mine = ApprovalDecision.objects.filter(
        by=actor.user, approval__workspace=actor.workspace, approval__simulated_for=None
    )
    page = keyset(mine.select_related("by", "approval__effect"), fields=("at", "id"), cursor=cursor)
    approvals = [decision.approval for decision in page.rows]
    runs = _runs(actor, approvals)
    reviewed = in_review([approval.effect_id for approval in approvals if approval.effect_id])
    rows = [
        Decided(one.approval, runs.get(one.approval.run_id), one, one.approval.effect_id in reviewed)
        for one in page.rows
    ]
    return {"rows": rows, "older": _address(actor, page.older), "newer": _address(actor, page.newer)}


def _address(actor: Actor, cursor: str | None) -> str:
    query = urlencode({"view": DECIDED, "cursor": cursor}) if cursor else ""
    return f"{reverse('approvals', args=[actor.workspace.id])}?{query}" if query else ""
