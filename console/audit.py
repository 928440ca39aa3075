"""Record an event: who did what, why. Called inside the command's own transaction, never after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from console.access import Actor
from console.kernel.errors import Refusal
from console.kernel.texts import storable
from console.models import AuditEvent, User


def record(
    *,
    workspace_id: str,
    actor: User | str,
    verb: str,
    subject: str,
    sentence: str,
    run_id: str = "",
    reason: str = "",
    on_behalf_of: str = "",
    **detail: Any,
) -> AuditEvent:
    """Append one event. *actor* is a person, or ``system:<part>``. *sentence* is what the pages will say.

    *detail* must hold no protected value: digests and ids only.
    """
    person = actor if isinstance(actor, User) else None
    return AuditEvent.objects.create(
        workspace_id=workspace_id,
        actor=person,
        actor_name=str(actor),
        on_behalf_of=on_behalf_of,
        verb=verb,
        subject=subject,
        sentence=sentence,
        run_id=run_id,
        reason=reason,
        detail=detail,
    )


@contextmanager
def refusals_recorded(actor: Actor, verb: str, subject: str) -> Iterator[None]:
    """A privileged act that is refused leaves one event, and nothing else: the refusal's own transaction is gone by then.

    Around the command's transaction, never inside it. *subject* is what the person named, whether it exists or not.
    """
    try:
        yield
    except Refusal as refusal:
        with transaction.atomic():
            record(
                workspace_id=actor.workspace.id,
                actor=actor.user,
                verb=verb,
                subject=storable(subject, 60),
                sentence=f"Refused to {actor.user.name}: {refusal.message}",
                code=refusal.code,
            )
        raise


def done_by_form(subject: str, verb: str, token: str) -> bool:
    """Whether this form has done *verb* to *subject* already: a double click, Back, a second tab."""
    return AuditEvent.objects.filter(subject=subject, verb=verb, detail__token=token).exists()


def subject_of_form(workspace_id: str, verb: str, token: str) -> str:
    """What this form has done *verb* to already; empty: nothing yet. For acts that make their subject."""
    found = AuditEvent.objects.filter(workspace_id=workspace_id, verb=verb, detail__token=token)
    return found.values_list("subject", flat=True).first() or ""
