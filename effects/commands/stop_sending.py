"""The kill switch: stop sending to a receiver, of a type, or at all; and lift it again."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid, NotFound, Refusal
from console.kernel.live import announce
from console.models import Capability
from effects import orphans
from effects.contracts import contracts
from effects.models import Receiver, Stop
from effects.states import StopScope


class Unscanned(Refusal):
    """Sending may not go on before it is known what the receivers have."""

    code = "unscanned"
    status = 409


def stop_sending(actor: Actor, *, scope: StopScope, target: str = "", reason: str, token: str) -> Stop:
    """From the moment this commits nothing further of *scope* is sent. What is in flight finishes and is recorded.

    *target*: the receiver's name or the effect type. Raises Forbidden, AlreadyDone (it is stopped already), Invalid.
    """
    with audit.refusals_recorded(actor, "stop.not_set", target or actor.workspace.id):
        actor.require(Capability.REPEAT)
        if earlier := _by_form(actor, token, lifted=False):
            return earlier
        _check(actor, scope, target, reason)
        try:
            with transaction.atomic():
                stop = Stop.objects.create(
                    workspace=actor.workspace,
                    scope=scope,
                    target=target,
                    reason=reason.strip(),
                    by=actor.user,
                )
                _record(actor, stop, "set", f"Sending stopped by {actor.user.name} ({stop})", reason, token)
        except IntegrityError:
            raise AlreadyDone("Sending is stopped there already.") from None
    return stop


def lift_stop(actor: Actor, stop_id: str, *, reason: str, token: str) -> Stop:
    """Sending may go on. Runs that it paused wait for Continue.

    Raises Forbidden, NotFound, AlreadyDone, Invalid; Unscanned for a stop after a restore, naming what is to be scanned.
    """
    with audit.refusals_recorded(actor, "stop.not_lifted", stop_id), transaction.atomic():
        actor.require(Capability.REPEAT)
        stop = Stop.objects.select_for_update().filter(id=stop_id, workspace=actor.workspace).first()
        if stop is None:
            raise NotFound(f"There is no stop {stop_id} here.")
        if earlier := _by_form(actor, token, lifted=True):
            return earlier
        if stop.lifted_at is not None:
            raise AlreadyDone("It has been lifted already.")
        if not reason.strip():
            raise Invalid("Say why sending may go on.", field="reason")
        if stop.needs_scan and (left := orphans.unscanned(stop.workspace_id, stop.at)):
            raise Unscanned(
                "This stop was set because the database was restored. It can be lifted once every receiver that can "
                f"list was scanned for orphans to the end since then; not yet: {', '.join(left)}."
            )
        Stop.objects.filter(id=stop.id, lifted_at=None).update(
            lifted_by=actor.user, lifted_at=Now(), lifted_why=reason.strip()
        )
        _record(actor, stop, "lifted", f"Sending allowed again by {actor.user.name} ({stop})", reason, token)
    stop.refresh_from_db()
    return stop


def _by_form(actor: Actor, token: str, *, lifted: bool) -> Stop | None:
    """What this form has done already."""
    done = audit.subject_of_form(actor.workspace.id, "stop.lifted" if lifted else "stop.set", token)
    return Stop.objects.filter(id=done).first() if done else None


def _check(actor: Actor, scope: StopScope, target: str, reason: str) -> None:
    if not reason.strip():
        raise Invalid("Say why.", field="reason")
    if scope == StopScope.WORKSPACE and target:
        raise Invalid("Everything is stopped: there is nothing to name.", field="target")
    known = {
        StopScope.WORKSPACE: True,
        StopScope.RECEIVER: Receiver.objects.filter(workspace=actor.workspace, name=target).exists(),
        StopScope.TYPE: target in contracts(),
    }
    if not known[scope]:
        raise Invalid(
            f"There is no {scope.label.lower().removeprefix('an ').removeprefix('a ')} {target!r} here.",
            field="target",
        )


def _record(actor: Actor, stop: Stop, what: str, sentence: str, reason: str, token: str) -> None:
    audit.record(
        workspace_id=actor.workspace.id,
        actor=actor.user,
        verb=f"stop.{what}",
        subject=stop.id,
        reason=reason,
        sentence=f"{sentence}: {reason.strip()}",
        token=token,
        scope=stop.scope,
        target=stop.target,
    )
    announce(actor.workspace.id, "stops", "home", "effects", "runs")
