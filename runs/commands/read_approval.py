"""Read a request in whole, protected fields too: only for who may decide it, and said in the audit once."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from console import audit
from console.access import Actor
from console.kernel.canonical import JSONValue
from console.kernel.errors import AlreadyDone, Forbidden
from console.models import AuditEvent
from effects import approvals, rounds
from effects.models import Approval
from effects.selectors import payload_of, revision_of
from effects.states import ApprovalStatus, Asked
from runs.commands.decide import involved_in
from runs.models import Run

VERB = "approval.read"


def why_not(actor: Actor, approval: Approval, run: Run) -> str:
    """Why *actor* may not decide, and so may not read protected fields; empty when they may. Decide asks the same."""
    return approvals.may_decide(actor, approval, involved=involved_in(run) | rounds.editors_of(approval))


def is_open(approval: Approval) -> bool:
    """Whether a decision would still count."""
    return approval.status == ApprovalStatus.PENDING and approval.expires_at > timezone.now()


def read_approval(actor: Actor, approval: Approval, run: Run) -> JSONValue:
    """The whole of what is asked: an effect's payload, an agent's action, or the question.

    The first reading by each person writes one audit event; later ones write nothing. Raises Forbidden where *actor*
    may not decide it, AlreadyDone where it is no longer open.
    """
    if refusal := why_not(actor, approval, run):
        raise Forbidden(refusal)
    if not is_open(approval):
        raise AlreadyDone("This request is no longer open.")
    _record_once(actor, approval)
    return whole_of(approval)


def whole_of(approval: Approval) -> JSONValue:
    """What is asked about. For those whose reading is recorded, and for telling the types of an edit."""
    if approval.effect is not None and approval.asks == Asked.EFFECT:
        return payload_of(approval.effect, revision_of(approval.effect, approval.revision))
    body = rounds.body_of(approval)
    return body.get("args") if approval.asks == Asked.ACTION and isinstance(body, dict) else body


def _record_once(actor: Actor, approval: Approval) -> None:
    if _has_read(actor, approval):
        return
    with transaction.atomic():
        # Two tabs at once: the approval's row orders them.
        Approval.objects.select_for_update(of=("self",)).get(id=approval.id)
        if not _has_read(actor, approval):
            audit.record(
                workspace_id=approval.workspace_id,
                actor=actor.user,
                verb=VERB,
                subject=approval.id,
                run_id=approval.run_id,
                sentence=f"Read for approval by {actor.user.name}: {approval.title}",
                effect=approval.effect_id or "",
                payload_hash=approval.payload_hash,
            )


def _has_read(actor: Actor, approval: Approval) -> bool:
    return AuditEvent.objects.filter(subject=approval.id, verb=VERB, actor=actor.user).exists()
