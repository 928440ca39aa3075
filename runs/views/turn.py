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
from runs.selectors import permitted_types
from runs.states import FINAL, Failure, RunStatus, StepOutcome
from runs.views.journal import Record
from runs.views.migrate import ways_out
from runs.views.replay import branches_in, offers_in, reason_against


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
        case RunStatus.FAILED if run.failure == Failure.EFFECT_BLOCKED and _awaits_permit(record):
            return Turn("It is the turn of", "a releaser, to permit the type")
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
    groups = sorted({asked_of(approval) for approval in pending})
    return Turn("It is the turn of", ", ".join(groups), "due", min(approval.due_at for approval in pending))


def asked_of(approval: Approval) -> str:
    """Whose answer it waits for: a group's, or that of who launched the simulation."""
    if approval.simulated_for is not None:
        return f"{approval.simulated_for.name}, who launched the simulation"
    return approval.asked_of or "any approver"


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
    permit = _permit(record, actor, offers[OperatorCommand.PERMIT_TYPE])
    if permit is not None and permit.look == "primary":
        first = permit
    mends = _what_it_failed_for(record, actor, offers)
    found = [
        *([decide] if decide else []),
        *mends,
        _lever(
            record, actor, going_on, "Continue", "run_continue", "play", primary=first is None and not mends
        ),
        *([permit] if permit else []),
        *_migrations(record, offers[OperatorCommand.MIGRATE], going_on),
        _replay(offers),
        _branch(offers),
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


def _replay(offers: dict[str, Offer]) -> Lever:
    """To the checkpoints of the run: each is a place to replay from."""
    reason = reason_against(offers_in(offers))
    label = "Replay from checkpoint"
    return Lever(
        label if reason else f"{label}…", "?part=checkpoints#parts", "history", reason=reason, dialog=False
    )


def _branch(offers: dict[str, Offer]) -> Lever:
    """To the checkpoints of the run: each but the input is a place to branch from."""
    reason = reason_against(branches_in(offers))
    label = "Create branch"
    return Lever(
        label if reason else f"{label}…", "?part=checkpoints#parts", "git-branch", reason=reason, dialog=False
    )


def _migrations(record: Record, offer: Offer, going_on: Offer) -> list[Lever]:
    """Ways out for a run that stands still and that no worker can take: to each version that declares a migration."""
    if (
        record.run.status not in (RunStatus.PAUSED, RunStatus.FAILED)
        or going_on.available
        or going_on.forbidden
    ):
        return []
    return [
        Lever(f"Migrate to {name}" + ("" if offer.reason else "…"), href, "arrow-right", reason=offer.reason)
        for name, href in ways_out(record.run)
    ]


def _permit(record: Record, actor: Actor, offer: Offer) -> Lever | None:
    """For who may permit, and in its place, off, where the run stopped for want of a permit."""
    run = record.run
    blocked = run.status == RunStatus.FAILED and run.failure == Failure.EFFECT_BLOCKED
    if not offer.available:
        return Lever("Permit a type", "", "lock-open", reason=offer.reason) if blocked else None
    is_next = blocked and _awaits_permit(record)
    href = reverse("run_permit", args=[actor.workspace.id, run.id])
    return Lever("Permit a type…", href, "lock-open", look="primary" if is_next else "")


def _what_it_failed_for(record: Record, actor: Actor, offers: dict[str, Offer]) -> list[Lever]:
    """Where a run failed for what a person can answer, that is the useful act: Continue alone would fail again."""
    run = record.run
    if run.status != RunStatus.FAILED:
        return []
    if run.failed_on_answer:
        offer = offers[OperatorCommand.ASK_AGAIN]
        return [_lever(record, actor, offer, "Ask again", "run_ask_again", "messages-square", primary=True)]
    if run.failure == Failure.OBLIGATION_DROPPED:
        offer = offers[OperatorCommand.SETTLE_DROPPED]
        words = "Settle what it dropped"
        return [_lever(record, actor, offer, words, "run_dropped", "shield-check", primary=True)]
    return []


def _awaits_permit(record: Record) -> bool:
    """Whether the type that the run stopped at is not permitted yet; then Continue alone would fail again."""
    run = record.run
    stopped = next((effect for effect in record.effects if effect.id == run.failure_effect), None)
    return stopped is None or stopped.effect_type not in permitted_types(run.id)


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
