"""Pause and Cancel: at the next safe point. What was sent stays sent, and is listed as sent."""

from __future__ import annotations

from django.db import transaction

from console import audit
from console.access import Actor
from console.models import Capability
from effects import approvals
from effects import moves as effect_moves
from runs import moves, waiting
from runs.availability import OperatorCommand, availability
from runs.models import Run
from runs.selectors import run_seen_by
from runs.states import WAITING, RunStatus


def pause(actor: Actor, run_id: str, *, token: str) -> Run:
    """Pause now where no worker is on it, else ask the worker to. The same token again changes nothing.

    Raises AlreadyDone with the reason where it is not to be paused.
    """
    with transaction.atomic():
        run = _locked(actor, run_id)
        if audit.done_by_form(run.id, "run.paused", token):
            return run
        _check_offered(run, actor, OperatorCommand.PAUSE)
        name = actor.user.name
        if not moves.pause(run.id, leaving=(RunStatus.QUEUED, *WAITING), why=f"Paused by {name}.", by=name):
            moves.request_pause(run.id, by=name)
        _record(actor, run, "run.paused", "Pause asked for", token)
    run.refresh_from_db()
    return run


def cancel(actor: Actor, run_id: str, *, token: str) -> Run:
    """Cancel now where no worker is on it, else ask the worker to. Unsent effects are cancelled with it.

    The same token again changes nothing. Raises AlreadyDone with the reason where it is not to be cancelled.
    """
    with transaction.atomic():
        run = _locked(actor, run_id)
        if audit.done_by_form(run.id, "run.cancelled", token):
            return run
        _check_offered(run, actor, OperatorCommand.CANCEL)
        name = actor.user.name
        if not moves.cancel(run.id, by=name):
            # A worker is on it: the flag stops its next effect at once, since a sender holds the run's row.
            moves.request_cancel(run.id, by=name)
        approvals.close_for_run(run.id, why=f"The run was cancelled by {name}")
        effect_moves.cancel_unsent(run.id)
        effect_moves.close_not_asked_again(run.id, why=f"The run was cancelled by {name}.")
        _record(actor, run, "run.cancelled", "Cancel asked for", token)
    run.refresh_from_db()
    return run


def _locked(actor: Actor, run_id: str) -> Run:
    actor.require(Capability.RUN)
    run_seen_by(actor, run_id)
    return Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)


def _check_offered(run: Run, actor: Actor, command: OperatorCommand) -> None:
    offer = availability(run, actor)[command]
    if not offer.available:
        raise offer.refusal(f"{command.label} is not possible")


def _record(actor: Actor, run: Run, verb: str, words: str, token: str) -> None:
    audit.record(
        workspace_id=run.workspace_id,
        actor=actor.user,
        verb=verb,
        subject=run.id,
        run_id=run.id,
        sentence=f"{words} by {actor.user.name}: {run.title}",
        was=run.status,
        token=token,
    )
    waiting.tell(run)
