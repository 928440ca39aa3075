"""Whose turn it is, in words, and the levers of a run's head: the next useful act first, Cancel last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import NoReverseMatch, reverse

from console.access import Actor
from console.kernel.words import word
from effects.approvals import may_decide
from effects.models import Approval
from effects.rounds import editors_of
from effects.states import ApprovalStatus, EffectStatus, SubState
from runs.availability import Offer, OperatorCommand
from runs.commands.decide import involved_in
from runs.states import FINAL, RunStatus, StepOutcome
from runs.views.journal import Record


@dataclass(frozen=True)
class Turn:
    """“It is the turn of **Sales approvers**, due in 4 h”."""

    says: str
    who: str = ""
    at_word: str = ""
    at: datetime | None = None
    warn: bool = False


@dataclass(frozen=True)
class Lever:
    """One button of the head; with a *reason* it stands there disabled."""

    label: str
    href: str
    icon: str
    reason: str = ""
    look: str = ""
    dialog: bool = True


def turn_of(record: Record, now: datetime, *, workers: int | None) -> Turn:
    """*workers*: how many are alive and hold its version, asked for queued runs only."""
    run = record.run
    version = f"{run.workflow.name} {run.workflow.version}"
    match RunStatus(run.status):
        case RunStatus.QUEUED if not workers:
            return Turn(f"No worker that holds {version} is alive; it waits for one.", warn=True)
        case RunStatus.QUEUED:
            return Turn(
                f"For one of {workers} workers that hold {version}."
                if workers != 1
                else f"For the worker that holds {version}."
            )
        case RunStatus.RUNNING:
            return _running(record, now)
        case RunStatus.WAITING_APPROVAL:
            return _asked(record)
        case RunStatus.WAITING_EFFECT:
            return _effect(record)
        case RunStatus.PAUSED | RunStatus.FAILED:
            return Turn("It is the turn of", "an operator")
        case RunStatus.DIVERGED:
            return Turn("The recording has no answer for what it asked.")
        case RunStatus.CANCELLED:
            return Turn("Cancelled by" if run.stopped_by else "", run.stopped_by)
        case _:
            return Turn("")


def _running(record: Record, now: datetime) -> Turn:
    run = record.run
    if run.lease_until is not None and run.lease_until < now:
        return Turn("Its worker has not been heard of; the run is taken up again by itself.", warn=True)
    nodes = [step.node for step in record.steps if step.outcome == StepOutcome.RUNNING]
    return Turn("A worker is on", ", ".join(nodes)) if nodes else Turn("A worker has taken it.")


def _asked(record: Record) -> Turn:
    pending = [approval for approval in record.approvals if approval.status == ApprovalStatus.PENDING]
    if not pending:
        return Turn("It is the turn of", "an approver")
    groups = sorted({approval.asked_of or "any approver" for approval in pending})
    return Turn("It is the turn of", ", ".join(groups), "due", min(approval.due_at for approval in pending))


def _effect(record: Record) -> Turn:
    for effect in record.effects:
        if effect.status not in (EffectStatus.COMPLETED, EffectStatus.FAILED):
            said = word(effect.sub_state or effect.status, "effect").text.lower()
            next_word = "asked about again" if effect.sub_state == SubState.UNCERTAIN else "next try"
            return Turn(
                f"{effect.effect_type} is {said}.", "", next_word if effect.due_at else "", effect.due_at
            )
    return Turn("It waits for an effect.")


def levers(record: Record, actor: Actor, offers: dict[str, Offer]) -> list[Lever]:
    """Every command in its place. The first that is useful and allowed now is the primary one."""
    run = record.run
    decide = None if run.status in FINAL else _decide(record, actor)
    going_on = offers[OperatorCommand.CONTINUE]
    # On a failed or paused run a decision is stored and Continue delivers it: Continue is the useful act.
    first = decide if decide and not decide.reason and not going_on.available else None
    found = [
        *([decide] if decide else []),
        _lever(record, actor, going_on, "Continue", "run_continue", "play", primary=first is None),
        _lever(record, actor, offers[OperatorCommand.PAUSE], "Pause", "run_pause", "pause"),
        _lever(
            record,
            actor,
            offers[OperatorCommand.CANCEL],
            "Cancel",
            "run_cancel",
            "circle-slash",
            look="danger",
        ),
    ]
    return [
        Lever(one.label, one.href, one.icon, look="primary", dialog=one.dialog) if one is first else one
        for one in found
    ]


def _lever(
    record: Record,
    actor: Actor,
    offer: Offer,
    label: str,
    name: str,
    icon: str,
    *,
    primary: bool = False,
    look: str = "",
) -> Lever:
    href = reverse(name, args=[actor.workspace.id, record.run.id])
    if not offer.available:
        return Lever(label, href, icon, reason=offer.reason)
    return Lever(f"{label}…", href, icon, look="primary" if primary else look)


def _decide(record: Record, actor: Actor) -> Lever | None:
    """To the first open request that this person may decide; disabled with the reason where there is none for them."""
    pending = [approval for approval in record.approvals if approval.status == ApprovalStatus.PENDING]
    if not pending:
        return None
    involved = involved_in(record.run)
    reasons = [
        may_decide(actor, approval, involved=involved | editors_of(approval)) for approval in pending[:8]
    ]
    for approval, reason in zip(pending, reasons, strict=False):
        if not reason:
            return Lever("Decide…", approval_url(approval), "user-round-check", dialog=False)
    return Lever("Decide", "", "user-round-check", reason=_lower(reasons[0]))


def approval_url(approval: Approval) -> str:
    try:
        return reverse("approval", args=[approval.workspace_id, approval.id])
    except NoReverseMatch:
        return ""


def _lower(sentence: str) -> str:
    """A sentence as the reason on a disabled lever."""
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")
