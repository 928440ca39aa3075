"""Look for orphans: queue a scan of everything that a receiver can list. The sweep goes through it."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from console import audit
from console.access import Actor
from console.kernel.errors import Invalid, NotFound
from console.models import Capability
from effects import orphans
from effects.models import OrphanScan, Receiver, Standing


def scan_orphans(
    actor: Actor, receiver_id: str, *, since: datetime | None = None, token: str
) -> list[OrphanScan]:
    """Queue a scan for each type that the receiver can list. The same token again answers with those that it made.

    Without *since* it goes as far back as a stop after a restore needs, else thirty days. Raises Forbidden, NotFound,
    Invalid for a receiver that can't list and for a time that is yet to come.
    """
    with audit.refusals_recorded(actor, "scan.not_asked", receiver_id):
        actor.require(Capability.REPEAT)
        receiver = (
            Receiver.objects.select_related("workspace")
            .filter(id=receiver_id, workspace=actor.workspace, standing=Standing.LIVE)
            .first()
        )
        if receiver is None:
            raise NotFound(f"There is no live receiver {receiver_id} here.")
        check(receiver, since)
        return orphans.ask(receiver, since=since, token=token, by=actor.user)


def check(receiver: Receiver, since: datetime | None) -> None:
    """Raise Invalid, in words, when *receiver* can't be scanned since then."""
    if not orphans.listable_types(receiver):
        raise Invalid(
            f"{receiver.name} can't list what it has, so it can't be scanned. Ask there what it has of yours.",
            field="receiver",
        )
    if since is not None and since > timezone.now():
        raise Invalid("That time is yet to come.", field="since")
