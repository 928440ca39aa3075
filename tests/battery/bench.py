"""What a row is tried on: one committed workspace with its ledger, the receiver's records, and the clock turned on."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from console.management.commands.sweep import Sweep
from effects import orphans, reconcile, rounds
from effects.commands.scan_orphans import scan_orphans
from effects.ledger import Wait
from effects.models import Approval, Effect, EffectAttempt, OrphanScan, Receiver, Review
from effects.origin import Result
from effects.states import Outcome, ScanStatus
from runs.models import Run
from runs.states import FINAL, RunStatus
from tests.battery.rows import RX, Row, Seen, Stage, run_of, told
from tests.effects.book import Book
from tests.effects.odd import OddServer, Play
from tests.people import World

#: What may have left at an HTTP receiver or at a mail server, though the ledger can't say so.
_MAY_HAVE_LEFT = ~Q(outcome__in=[Outcome.NOT_SENT, Outcome.SENDING], answer_status="")
_MAIL_LEFT = Q(outcome__in=[Outcome.COMPLETED, Outcome.UNKNOWN])


class Words(logging.Handler):
    """Everything that the product logs in this process while a row is tried."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@dataclass
class Bench(Book):
    """A Book whose every word is watched.

    *secret* is what the receivers are spoken to with, *protected* stands in the field that the contract masks.
    """

    #: Other workspaces that the row is about too.
    neighbours: list[Book] = field(default_factory=list)
    #: What stands between us and the receiver's process, whose requests the receiver counts itself.
    proxies: list[OddServer] = field(default_factory=list)
    #: What other processes of the row have logged.
    logs: list[Path] = field(default_factory=list)
    secret: str = field(default_factory=lambda: f"secret-{secrets.token_hex(8)}")
    protected: str = field(default_factory=lambda: f"protected-{secrets.token_hex(8)}")
    #: More of what nobody may find anywhere.
    other_secrets: list[str] = field(default_factory=list)
    words: Words = field(default_factory=Words)
    _stages: list[Stage] = field(default_factory=list)
    _ended: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share_secret(self.world)

    def share_secret(self, world: World) -> None:
        """The receivers of *world* are spoken to with the secret that is looked for."""
        named = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], world.workspace.id)
        named.write_text(f"{world.account}:{self.secret}")

    def usual(self, effect_type: str) -> dict[str, Any]:
        """A payload that fits, the protected word in the field that the battery's contracts mask."""
        payload = super().usual(effect_type)
        if "mail" in effect_type:
            return {**payload, "body": f"Please see below. {self.protected}"}
        if not effect_type.startswith("battery.") or "seats" in effect_type:
            return payload
        masked = "description" if "ticket" in effect_type else "subject"
        return {**payload, masked: f"40 seats {self.protected}"}

    def payload(self, effect_type: str, **changes: Any) -> dict[str, Any]:
        return {**self.usual(effect_type), **changes}

    def proxy(self, play: Play) -> OddServer:
        """What the row's requests pass through on their way to the receiver's process."""
        self.proxies.append(OddServer(play).start())
        return self.proxies[-1]

    # What the ledger's verbs do is noted, so that an ended attempt that is edited later is seen.

    def perform(self, effect_id: str, **more: Any) -> Result | Wait:
        try:
            return super().perform(effect_id, **more)
        finally:
            self.note()

    def look(self, effect_id: str) -> str:
        """One look at the receiver."""
        try:
            return reconcile.look(effect_id)
        finally:
            self.note()

    def note(self) -> None:
        """Keep every attempt that has ended as it is now, and compare those that were kept before."""
        for attempt in EffectAttempt.objects.filter(self._mine("effect__"), ended_at__isnull=False).values():
            kept = self._ended.setdefault(attempt["id"], {**attempt})
            assert attempt == kept, f"an ended attempt was edited: {kept} became {attempt}"

    # Time

    def time_passes(self) -> None:
        """An hour goes by for everything that waits here: leases end, what is due is due, looks have settled."""
        mine = Effect.objects.filter(self._mine()).filter(status__in=["pending", "accepted"])
        mine.filter(lease_until__isnull=False).update(lease_until=Now() - timedelta(seconds=1))
        mine.filter(due_at__isnull=False).update(due_at=Now() - timedelta(seconds=1))
        mine.filter(last_sent_at__isnull=False).update(last_sent_at=Now() - timedelta(hours=1))
        runs = Run.objects.filter(workspace=self.world.workspace, status=RunStatus.RUNNING)
        runs.update(lease_until=Now() - timedelta(seconds=1))

    def sweep(self) -> None:
        """One turn of the sweep, its look-ups too."""
        for duty in Sweep().duties:
            if not isinstance(getattr(duty, "__self__", None), Sweep):
                duty()
        for effect_id in reconcile.looks_due():
            if Effect.objects.filter(self._mine(), id=effect_id).exists():
                reconcile.look(effect_id)
        self.note()

    def scan(self, effect_type: str, receiver: str) -> OrphanScan:
        """A releaser has the receiver scanned for orphans of this type, from long ago on."""
        asked = scan_orphans(
            self.world.actor(self.world.releaser),
            Receiver.objects.get(workspace=self.world.workspace, name=receiver).id,
            since=datetime(2020, 1, 1, tzinfo=UTC),
            token=secrets.token_hex(8),
        )
        [mine] = [one for one in asked if one.effect_type == effect_type]
        assert orphans.work(mine.id) == ScanStatus.DONE
        self.note()
        return mine

    def goes_on(self, run: Run, visit: Callable[[Run], Run]) -> Run:
        """The sweep and the workers take *run* along, hour by hour, until nothing more happens by itself."""
        before, quiet = None, 0
        while quiet < 3:
            self.time_passes()
            self.sweep()
            run.refresh_from_db()
            if run.status == RunStatus.QUEUED:
                visit(run)
                self.note()
            now = (run.status, run.fence, self.stands, self.attempts)
            quiet, before = (quiet + 1 if now == before else 0), now
        return run

    def seconds_to_wait(self, effect_id: str) -> float:
        """Until its next try or look, by the database's clock."""
        due_at, now = Effect.objects.filter(id=effect_id).values_list("due_at", Now()).get()
        return float((due_at - now).total_seconds())

    def newest(self, interrupt: str = "int_1") -> Approval:
        """The newest round of asking at a pause."""
        newest = rounds.newest_of(self.run.run_id, interrupt, 0)
        assert newest is not None
        return newest

    # What there is to see

    @property
    def books(self) -> list[Book]:
        return [self, *self.neighbours]

    def _mine(self, prefix: str = "") -> Q:
        return Q(**{f"{prefix}workspace__in": [book.world.workspace for book in self.books]})

    @property
    def effects(self) -> list[Effect]:
        return list(Effect.objects.filter(self._mine()).order_by("created_at", "id"))

    @property
    def mails(self) -> int:
        """Mails that the catcher kept of the row's effects."""
        return sum(len(self.witness.mails(one.id)) for one in self.effects if "mail" in one.effect_type)

    @property
    def rx(self) -> RX:
        counted = [book.witness.rx for book in self.books]
        mails = self.mails
        return sum(made for made, _ in counted) + mails, sum(received for _, received in counted) + mails

    @property
    def stands(self) -> str:
        of_nothing = Review.objects.filter(self._mine(), effect=None, closed_at=None).values_list(
            "reason", flat=True
        )
        standing = [*map(self._standing, self.effects), *(f"no row, in review: {one}" for one in of_nothing)]
        return told(standing) or "no row"

    def _standing(self, effect: Effect) -> str:
        where = f"{effect.status}/{effect.sub_state}" if effect.sub_state else effect.status
        reviews = self.reviews(effect.id)
        return f"{where}, in review: {', '.join(reviews)}" if reviews else where

    @property
    def attempts(self) -> str:
        return told(run_of(self.outcomes(effect.id)) for effect in self.effects if effect.tries)

    def halfway(self) -> None:
        """Keep what is to be seen at the moment of the fault."""
        self._stages.append(Stage(self.rx, self.stands))

    def look_back(self, seen: Seen) -> None:
        seen.stages = [*self._stages, Stage(self.rx, self.stands)]
        seen.attempts = self.attempts
        seen.look_ups = sum(len(book.witness.requests("GET")) for book in self.books)

    # What every row checks

    def check(self, row: Row, seen: Seen) -> None:
        assert tuple(seen.stages) == row.stages, f"row {row.name}: expected {row.stages}, seen {seen.stages}"
        assert seen.attempts == row.attempts, f"row {row.name}: expected {row.attempts}, seen {seen.attempts}"
        self.note()
        self.check_requests(never_left=row.never_left)
        self._check_doubles(row)
        self._check_secrets()

    def check_requests(self, elsewhere: int = 0, *, never_left: int = 0) -> None:
        """Requests that bear effects and arrived = attempts that were sent."""
        arrived = self.rx[1] + elsewhere - sum(book.strangers for book in self.books)
        played = {one for book in self.books for one in book.played}
        attempts = EffectAttempt.objects.filter(self._mine("effect__")).exclude(id__in=played)
        mail = Q(effect__receiver__name="mail")
        sent = attempts.filter(~mail, _MAY_HAVE_LEFT).count() + attempts.filter(mail, _MAIL_LEFT).count()
        assert arrived == sent - never_left, (
            f"{arrived} requests arrived, but the ledger has {sent} attempts that were sent"
            + (f", {never_left} of them killed before the first byte" if never_left else "")
        )

    def _check_doubles(self, row: Row) -> None:
        for book in self.books:
            made = [one["key"] or one["external_id"] for one in book.witness.effects()]
            known = [one for one in made if one]
            assert row.twice or len(known) == len(set(known)), f"made twice: {known}"
        for effect in self.effects:
            if "mail" in effect.effect_type:
                assert row.twice or len(self.witness.mails(effect.id)) <= 1, f"mailed twice: {effect.id}"

    def _check_secrets(self) -> None:
        words = [self.secret, self.protected, *self.other_secrets]
        assert tables_that_hold(words) == [], f"{words} stand there"
        said = [*self.words.texts, *(log.read_text(errors="replace") for log in self.logs)]
        told_of = [text for text in said if any(word in text for word in words)]
        assert not told_of, f"{words} were logged: {told_of[:3]}"

    # Afterwards

    def tidy(self) -> None:
        for proxy in self.proxies:
            proxy.stop()
        OrphanScan.objects.filter(workspace=self.world.workspace, ended_at=None).update(
            status=ScanStatus.FAILED, problem="The test is over.", lease_until=None, ended_at=Now()
        )
        left = Run.objects.filter(workspace=self.world.workspace).exclude(status__in=FINAL)
        left.update(status=RunStatus.CANCELLED, ended_at=Now(), lease_until=None, step_deadline=None)
        super().tidy()
        for neighbour in self.neighbours:
            neighbour.tidy()


def tables_that_hold(words: list[str]) -> list[str]:
    """The tables of evidence of which any column holds one of *words*, as text or as the bytes of it."""
    patterns = [f"%{coded}%" for word in words for coded in (word, word.encode().hex())]
    with connection.cursor() as cursor:
        tables = [
            name
            for name in connection.introspection.table_names(cursor)
            if name.startswith(("effects_", "runs_")) or name == "console_auditevent"
        ]
        found = []
        for table in tables:
            cursor.execute(f'SELECT 1 FROM "{table}" t WHERE t::text LIKE ANY (%s) LIMIT 1', [patterns])
            if cursor.fetchone():
                found.append(table)
    return found


def isolated_receiver(world: World, name: str, url: str) -> Receiver:
    """A second receiver of that name, for what is not live, with an account of its own."""
    return Receiver.objects.create(
        workspace=world.workspace,
        name=name,
        account=f"{world.workspace.id}-isolated",
        standing="isolated",
        base_url=url,
        hosts=["127.0.0.1"],
        secret_name=world.workspace.id,
    )
