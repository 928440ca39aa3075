"""`manage.py probe TYPE`: try a contract against its receiver with a harmless object, and store the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import database
from console.kernel.errors import Refusal
from console.models import Workspace
from effects.contracts import ContractError, contracts
from effects.probe import Case, NoHarmless, NoLiveReceiver, Target, Trial, target_of

#: The widths of the table's columns.
COLUMNS = (34, 38, 46, 7)


class Command(BaseCommand):
    help = (
        "Try what a contract promises against the workspace's own receiver, with the contract's harmless object: "
        "senders that are really killed, two workers at once, changed input, a new run. Nothing of a type is sent a "
        "second time automatically until its newest probe has passed. Exits 1 when one fails. May be run again at "
        "any time, also after it was killed."
    )
    requires_system_checks: list[str] = []  # every process of the product makes them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("type", nargs="?", help="the effect type, like crm.create_offer")
        parser.add_argument("--all", action="store_true", help="every type that has a harmless object")
        parser.add_argument(
            "--missing", action="store_true", help="only where the newest probe has not passed"
        )
        parser.add_argument("--workspace", help="the workspace's slug (needed where there are several)")
        parser.add_argument("--receiver", help="only types that go to the receiver of this name")
        parser.add_argument(
            "--yes",
            action="store_true",
            help="the receiver may be touched (not needed in a demo's workspace)",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        database.require()
        if bool(options["type"]) == options["all"]:
            raise CommandError("Name one effect type, or say --all.")
        workspace = _workspace(options["workspace"])
        targets, unfit = self._targets(workspace, options)
        if options["missing"]:
            targets = [target for target in targets if not target.has_passed]
        in_full = options["verbosity"] > 0
        for target in targets if in_full else []:
            self.stdout.write(target.words)
        if targets and not (options["yes"] or workspace.is_demo):
            raise CommandError("Nothing was sent. Say --yes when these receivers may be touched.")
        failed = unfit
        for trial in _tried(targets):
            self._tell(trial, in_full=in_full)
            failed += not trial.passed
        if failed:
            raise CommandError(f"{failed} of {len(targets) + unfit} failed")

    def _targets(self, workspace: Workspace, options: dict[str, Any]) -> tuple[list[Target], int]:
        """What is to be probed, and how many types can't be although their contract says that they can."""
        targets, unfit = [], 0
        for effect_type in _types(options):
            try:
                targets.append(target_of(workspace, effect_type))
            except Refusal as refusal:
                if not options["all"]:
                    raise CommandError(refusal.message) from None
                self.stdout.write(refusal.message)
                unfit += not isinstance(refusal, (NoHarmless, NoLiveReceiver))
        return targets, unfit

    def _tell(self, trial: Trial, *, in_full: bool) -> None:
        promise, receiver = trial.target.promise, trial.target.receiver
        verdict = "passed" if trial.passed else "FAILED: it is not sent a second time automatically"
        named = f"{promise.type} {promise.version} at {receiver.name} ({receiver.account})"
        if not in_full:
            self.stdout.write(f"{named}: {verdict}")
            return
        self.stdout.write(f"\n{named}  {trial.id}")
        for line in table(trial.cases):
            self.stdout.write(line)
        self.stdout.write(verdict)


def _tried(targets: list[Target]) -> Iterator[Trial]:
    """Each trial once its verdict is stored. They go step by step together, and so wait together."""
    begun = []
    for target in targets:
        trial = Trial(target)
        try:
            trial.begin()
        except Refusal as refusal:
            raise CommandError(refusal.message) from None
        begun.append(trial)
    for trial in begun:
        trial.recover()
    for trial in begun:
        trial.judge()
        trial.record()
        yield trial


def _workspace(slug: str | None) -> Workspace:
    found = list(Workspace.objects.filter(**({"id": slug} if slug else {})).order_by("id")[:2])
    if len(found) == 1:
        return found[0]
    if slug:
        raise CommandError(f"There is no workspace {slug!r}.")
    raise CommandError(
        "Say which workspace with --workspace." if found else "There is no workspace yet, and so no receiver."
    )


def _types(options: dict[str, Any]) -> list[str]:
    try:
        known = contracts()
    except ContractError as error:
        raise CommandError(str(error)) from None
    receiver = options["receiver"]
    if options["all"]:
        return [name for name, promise in known.items() if receiver in (None, promise.receiver)]
    named = options["type"]
    if receiver and named in known and known[named].receiver != receiver:
        raise CommandError(f"{named} goes to {known[named].receiver}, not to {receiver}.")
    return [named]


def table(cases: list[Case]) -> Iterator[str]:
    """The cases as lines of a table: case, expected, seen, verdict."""
    yield from _row("case", "expected", "seen", "verdict")
    yield "  ".join("-" * width for width in COLUMNS)
    for case in cases:
        yield from _row(case.title, case.expected, case.seen, "passed" if case.passed else "FAILED")


def _row(*cells: str) -> Iterator[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, COLUMNS, strict=True)]
    for n in range(max(len(lines) for lines in wrapped)):
        parts = [
            (lines[n] if n < len(lines) else "").ljust(width)
            for lines, width in zip(wrapped, COLUMNS, strict=True)
        ]
        yield "  ".join(parts).rstrip()
