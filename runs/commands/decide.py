"""Decide: approve, edit, reject or respond; the run goes on when all that its pause needs is decided."""

from __future__ import annotations

from django.db import transaction

from console.access import Actor
from console.kernel.canonical import JSONValue
from effects import approvals
from effects.models import ApprovalDecision
from effects.selectors import approval_seen_by
from effects.states import Decision
from runs import waiting
from runs.models import Run


def decide(
    actor: Actor,
    approval_id: str,
    *,
    decision: Decision,
    payload_hash: str,
    version: int,
    token: str,
    reason: str = "",
    answer: JSONValue = None,
) -> ApprovalDecision:
    """One transaction, locks in the order run → approval → effect → audit.

    On a failed, paused or running run the decision is stored with its grant and leaves the status alone: Continue,
    or the end of the execution, delivers it. Raises what effects.approvals.decide raises, and NotFound.
    """
    approval = approval_seen_by(actor, approval_id)
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("workflow").get(id=approval.run_id)
        row = approvals.decide(
            actor,
            approval_id,
            decision=decision,
            payload_hash=payload_hash,
            version=version,
            token=token,
            reason=reason,
            answer=answer,
            involved=involved_in(run),
        )
        waiting.reconsider(run)
        waiting.tell(run)
    return row


def involved_in(run: Run) -> frozenset[str]:
    """Who may not approve for this run: its starter, and whoever launched an ancestor."""
    people = set()
    at: Run | None = run
    while at is not None:
        people.add(at.starter_id)
        at = at.parent_run
    return frozenset(people)
