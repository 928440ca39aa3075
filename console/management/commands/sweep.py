"""The sweep: a plain loop under an advisory lock. What nobody rang for, it finds in the rows."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections, connection

from effects import hooks, orders, orphans, reconcile, restored
from effects.commands import bulk_recover
from effects.contracts import ContractError
from effects.models import Effect
from runs import recovery
from runs.commands import bulk_continue
from runs.engine.registry import WorkflowRefused
from runs.execution import FingerprintChanged, register_workflows

logger = logging.getLogger("signalbox.sweep")

#: Any number, the same in every sweep: one holds it, the others stand by.
ADVISORY_LOCK = 7_206_150_017
#: At most so many look-ups at once, and so many at one receiver: a hung one delays nothing else.
LOOKS_AT_ONCE = 8
LOOKS_A_RECEIVER = 2
SCANS_AT_ONCE = 2


class Command(BaseCommand):
    help = "Recovers lost runs, wakes waiting ones, expires approvals and looks effects up. A second one stands by."

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        try:
            register_workflows()
        except (WorkflowRefused, FingerprintChanged, ContractError) as refused:
            raise CommandError(str(refused)) from None
        if problem := restored.file_problem():
            raise CommandError(problem)
        sweep = Sweep()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sweep.stop.set())
        sweep.run()


Ask = Callable[[str], str]


class Sweep:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self._looking: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="look")
        self._underway: set[str] = set()
        self._lock = threading.Lock()

    @property
    def duties(self) -> list[Callable[[], object]]:
        return [
            restored.keep_mark,
            recovery.recover_lost,
            reconcile.lose_leases,
            reconcile.hold_what_is_over,
            reconcile.review_expired_keys,
            reconcile.review_what_nobody_can_settle,
            hooks.settle_what_was_told,
            reconcile.review_what_is_overdue,
            recovery.expire_approvals,
            recovery.honour_requests,
            recovery.cancel_left_over,
            recovery.wake,
            recovery.ring_again,
            orders.ring_again,
            bulk_recover.work,
            bulk_continue.work,
            self._look,
            self._scan,
        ]

    def run(self) -> None:
        """Until told to stop: hold the lock or stand by, then go through the duties; one that fails stops no other."""
        standing_by = False
        while not self.stop.is_set():
            try:
                if self._holds_lock():
                    standing_by = False
                    self._once()
                elif not standing_by:
                    logger.info("another sweep holds the lock; standing by")
                    standing_by = True
            except Exception:
                logger.exception("the sweep missed a turn")
                connection.close()
            self.stop.wait(settings.SWEEP_SECONDS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _holds_lock(self) -> bool:
        """The lock is the session's: it goes with this connection, however this process ends."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
                " AND objid = %s::bigint & 4294967295) OR pg_try_advisory_lock(%s)",
                [ADVISORY_LOCK, ADVISORY_LOCK],
            )
            row = cursor.fetchone()
        return bool(row and row[0])

    def _once(self) -> None:
        for duty in self.duties:
            try:
                duty()
            except Exception:
                logger.exception("a duty of the sweep failed")
                if not connection.is_usable():
                    raise

    def _look(self) -> None:
        """What people ask goes first. A question and a look that is due of one effect are never asked at once."""
        asked: dict[str, Ask] = dict.fromkeys(reconcile.questions_due(), reconcile.answer_question)
        asked |= {one: reconcile.look for one in reconcile.looks_due() if one not in asked}
        receivers = dict(Effect.objects.filter(id__in=asked).values_list("id", "receiver_id"))
        for effect_id, ask in asked.items():
            self._ask(effect_id, receivers[effect_id], ask)

    def _scan(self) -> None:
        """Orphan scans: a few at once, so that they leave room for look-ups, and each for a while only."""
        for scan_id, receiver_id in orphans.due().items():
            with self._lock:
                scans = sum(subject.startswith("scan_") for subject in self._underway)
            if scans < SCANS_AT_ONCE:
                self._ask(scan_id, receiver_id, partial(orphans.work, stopping=self.stop.is_set))

    def _ask(self, subject: str, receiver_id: str, work: Callable[[str], object]) -> None:
        """Have a thread do *work* with *subject*, which asks the receiver, when there is room; else at a later turn."""
        with self._lock:
            full = len(self._underway) >= LOOKS_AT_ONCE or self._looking[receiver_id] >= LOOKS_A_RECEIVER
            if full or subject in self._underway:
                return
            self._underway.add(subject)
            self._looking[receiver_id] += 1
        self._pool.submit(self._work, subject, receiver_id, work)

    def _work(self, subject: str, receiver_id: str, work: Callable[[str], object]) -> None:
        try:
            close_old_connections()
            logger.info("asked the receiver about %s: %s", subject, work(subject))
        except Exception:
            logger.exception("asking the receiver about %s failed", subject)
        finally:
            connection.close()
            with self._lock:
                self._underway.discard(subject)
                self._looking[receiver_id] -= 1
