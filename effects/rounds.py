"""What was asked and decided at each pause: the newest round of each action, and the answers that stand."""

from __future__ import annotations

from dataclasses import dataclass

from console.kernel.canonical import JSONValue
from console.kernel.crypto import unseal_json
from effects.models import Approval, ApprovalDecision, EffectRevision
from effects.selectors import payload_of, revision_of
from effects.states import ApprovalStatus, Asked, Decision


def newest_of(run_id: str, interrupt_id: str, action: int) -> Approval | None:
    return (
        Approval.objects.select_related("effect")
        .filter(run_id=run_id, interrupt_id=interrupt_id, action=action)
        .order_by("-round")
        .first()
    )


def body_of(approval: Approval) -> JSONValue:
    """The question, or the action's name and arguments."""
    return unseal_json(approval.body, workspace=approval.workspace_id, owner=approval.run_id)


def answer_of(decision: ApprovalDecision, approval: Approval) -> JSONValue:
    if decision.answer is None:
        return None
    return unseal_json(decision.answer, workspace=approval.workspace_id, owner=approval.id)


def editors_of(approval: Approval) -> frozenset[str]:
    """Who edited what is asked about, in this or an earlier round of the pause: co-authors, who cannot approve it."""
    edits = ApprovalDecision.objects.filter(
        decision=Decision.EDIT,
        approval__run_id=approval.run_id,
        approval__interrupt_id=approval.interrupt_id,
        approval__action=approval.action,
        by__isnull=False,
    )
    people = set(edits.values_list("by_id", flat=True))
    if approval.order is not None:
        # An order sends bytes of an earlier pause, or a copy of them: who wrote those is their co-author still.
        written = EffectRevision.objects.filter(
            effect__in=[approval.order.effect_id, approval.order.sends_id]
        )
        people |= set(written.filter(by__isnull=False).values_list("by_id", flat=True))
    return frozenset(person for person in people if person)


def decided(decision: Decision, name: str) -> str:
    """“Approved by Mara”: the page and the audit say the same words."""
    verb = {
        Decision.APPROVE: "Approved",
        Decision.EDIT: "Edited",
        Decision.REJECT: "Rejected",
        Decision.RESPOND: "Answered",
    }[decision]
    return f"{verb} by {name}"


def arguments_of(approval: Approval) -> dict[str, JSONValue]:
    if approval.asks == Asked.EFFECT and approval.effect is not None:
        payload = payload_of(approval.effect, revision_of(approval.effect, approval.revision))
        return payload if isinstance(payload, dict) else {}
    return as_object(as_object(body_of(approval)).get("args"))


def as_object(value: JSONValue) -> dict[str, JSONValue]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Answered:
    """The decision that stands for one action of a pause, with the edit that led to it."""

    decision: Decision
    reason: str
    answer: JSONValue
    edited: dict[str, JSONValue] | None


def answers_of(run_id: str, interrupt_id: str, interrupt_hash: str, actions: int) -> list[Answered] | None:
    """What was decided for each action of a pause, in order; None while any of them is open."""
    answers = []
    for action in range(actions):
        newest = newest_of(run_id, interrupt_id, action)
        if (
            newest is None
            or newest.status != ApprovalStatus.DECIDED
            or newest.interrupt_hash != interrupt_hash
        ):
            return None
        last = newest.decisions.latest("at")
        answers.append(
            Answered(Decision(last.decision), last.reason, answer_of(last, newest), edited_before(newest))
        )
    return answers


def edited_before(newest: Approval) -> dict[str, JSONValue] | None:
    """The arguments as a co-author left them, when an earlier round of this pause ended in an edit."""
    edited = ApprovalDecision.objects.filter(
        decision=Decision.EDIT,
        approval__run_id=newest.run_id,
        approval__interrupt_id=newest.interrupt_id,
        approval__action=newest.action,
        approval__interrupt_hash=newest.interrupt_hash,
    )
    return arguments_of(newest) if edited.exists() else None


def newest_rounds(run_id: str) -> list[Approval]:
    """The newest approval of each action of each pause of the run."""
    newest: dict[tuple[str, int], Approval] = {}
    for approval in Approval.objects.filter(run_id=run_id, order=None).order_by("round"):
        newest[approval.interrupt_id, approval.action] = approval
    return list(newest.values())


def decided_pauses(run_id: str) -> set[tuple[str, str]]:
    """(interrupt id, value hash) of the pauses of which every action's newest approval is decided."""
    rows = newest_rounds(run_id)
    undecided = {row.interrupt_id for row in rows if row.status != ApprovalStatus.DECIDED}
    return {(row.interrupt_id, row.interrupt_hash) for row in rows if row.interrupt_id not in undecided}
