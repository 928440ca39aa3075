"""Record an event: who did what, why. Called inside the command's own transaction, never after it."""

from __future__ import annotations

from typing import Any

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


def done_by_form(subject: str, verb: str, token: str) -> bool:
    """Whether this form has done *verb* to *subject* already: a double click, Back, a second tab."""
    return AuditEvent.objects.filter(subject=subject, verb=verb, detail__token=token).exists()
