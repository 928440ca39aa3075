"""Permit an irreversible type on one live replay or branch. A releaser's alone; then the run is continued."""

from __future__ import annotations

from django.db import transaction

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Invalid
from effects.contracts import contracts
from effects.states import Reversibility
from runs import selectors, waiting
from runs.availability import OperatorCommand, availability
from runs.models import Run, TypePermit

VERB = "run.type_permitted"
LONGEST_REASON = 300


def permit_type(actor: Actor, run_id: str, effect_type: str, *, reason: str, token: str) -> TypePermit:
    """Let this run bring about effects of one irreversible type. Each of them still needs its approval.

    The same token again returns what it permitted. Raises Forbidden, NotFound, AlreadyDone, Invalid (no reason, or
    no irreversible type that this workflow may use).
    """
    selectors.run_seen_by(actor, run_id)
    with transaction.atomic():
        run = (
            Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)
        )
        offer = availability(run, actor)[OperatorCommand.PERMIT_TYPE]
        if offer.forbidden:
            raise offer.refusal("This type can't be permitted")
        earlier = TypePermit.objects.filter(run=run, effect_type=effect_type).select_related("by").first()
        if earlier is not None and audit.done_by_form(run.id, VERB, token):
            return earlier
        if not offer.available:
            raise offer.refusal("This type can't be permitted")
        _check(run, effect_type, reason)
        if earlier is not None:
            raise AlreadyDone(f"{effect_type} was permitted here by {earlier.by.name} already.")
        made = TypePermit.objects.create(
            run=run, effect_type=effect_type, by=actor.user, reason=reason.strip()
        )
        audit.record(
            workspace_id=run.workspace_id,
            actor=actor.user,
            verb=VERB,
            subject=run.id,
            run_id=run.id,
            reason=reason.strip(),
            sentence=f"{effect_type} permitted by {actor.user.name} on {run.title} — {reason.strip()}",
            effect_type=effect_type,
            token=token,
        )
        waiting.tell(run)
    return made


def irreversible_types(run: Run) -> list[str]:
    """The irreversible types that the run's workflow may use."""
    known = contracts()
    return [
        one
        for one in run.workflow.effect_types
        if one in known and known[one].reversibility == Reversibility.IRREVERSIBLE
    ]


def _check(run: Run, effect_type: str, reason: str) -> None:
    if effect_type not in irreversible_types(run):
        raise Invalid(
            f"{effect_type or 'This'} is no irreversible type of {run.workflow}.", field="effect_type"
        )
    if not reason.strip():
        raise Invalid("Say why it may be sent from here.", field="reason")
    if len(reason.strip()) > LONGEST_REASON:
        raise Invalid(f"The reason is longer than {LONGEST_REASON} characters.", field="reason")
