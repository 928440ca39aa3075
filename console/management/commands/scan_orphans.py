"""`manage.py scan_orphans`: look for what a workspace's receivers have that the ledger lacks, and wait for the answer."""

from __future__ import annotations

import time
import uuid
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.kernel.errors import Refusal
from console.models import Workspace
from effects import orphans
from effects.commands.scan_orphans import check
from effects.contracts import ContractError
from effects.models import OrphanScan, Receiver
from effects.states import ScanStatus

#: Between two looks at a scan that somebody else works on, in seconds.
LOOK_S = 0.5


class Command(BaseCommand):
    help = (
        "Go through everything that a workspace's receivers list: objects that carry an effect's id without a row here "
        "become reviews. The status is not 0 when a list could not be read to its end."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workspace", help="the workspace's slug")
        parser.add_argument("receiver", nargs="?", help="a receiver's name (default: all that can list)")
        parser.add_argument(
            "--since",
            type=_moment,
            help="look at what was made since then, as 2026-12-01T13:00Z (default: as far as a restore needs, else 30 days)",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        token, since = str(uuid.uuid4()), options["since"]
        try:
            receivers = _receivers(options["workspace"], options["receiver"])
            for receiver in receivers:
                check(receiver, since)
            asked = [
                scan
                for receiver in receivers
                for scan in orphans.ask(receiver, since=since, token=token, by="system:command line")
            ]
        except (Refusal, ContractError) as refused:
            raise CommandError(str(refused)) from None
        ended = [self._finish(scan) for scan in asked]
        if failed := [scan for scan in ended if scan.status != ScanStatus.DONE]:
            raise CommandError(
                f"{len(failed)} of {len(ended)} scans failed: there may be orphans that nobody has seen."
            )

    def _finish(self, scan: OrphanScan) -> OrphanScan:
        """Work on it here; where the sweep has it already, wait for that."""
        while scan.status in (ScanStatus.DUE, ScanStatus.RUNNING):
            if orphans.work(scan.id) is None:
                time.sleep(LOOK_S)
            scan = OrphanScan.objects.select_related("receiver").get(id=scan.id)
        self.stdout.write(f"{scan.receiver.name} {scan.effect_type}: {orphans.outcome(scan)}")
        return scan


def _moment(text: str) -> datetime:
    """A time with a zone. A naive one is none: nobody knows whose it is."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment.astimezone(UTC)


def _receivers(slug: str, name: str | None) -> list[Receiver]:
    if not Workspace.objects.filter(id=slug).exists():
        raise CommandError(f"There is no workspace {slug!r}.")
    live = orphans.live_receivers(slug)
    if name is None:
        found = [receiver for receiver in live if orphans.listable_types(receiver)]
        if not found:
            raise CommandError("None of its receivers can list what it has.")
        return found
    named = [receiver for receiver in live if receiver.name == name]
    if not named:
        known = ", ".join(receiver.name for receiver in live) or "none"
        raise CommandError(f"There is no live receiver {name!r} in {slug}. There are: {known}.")
    return named
