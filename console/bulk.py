"""What every bulk act does: once a form, at its rate, until it is stopped, each item by the rights of that moment.

What it is about, and what is done with one item, is its own: see effects.commands.bulk_recover and
runs.commands.bulk_continue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Count, F, QuerySet
from django.db.models.functions import Greatest, Now

from console import audit
from console.access import Actor, actor_in
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound, Refusal, Stale
from console.kernel.live import announce
from console.models import Bulk, BulkItem, BulkStatus, Capability, ItemState

#: One takes at most so many subjects; a longer list is done in parts.
MOST = 2_000
#: How many a minute are taken, at most.
FASTEST = 600
#: Not more than this in one turn of the sweep, which has other duties.
A_TURN = 50
#: Of a dry run and of what came of it a page shows so many; all are counted.
SHOWN = 200
#: Why some are left alone: a page names so many reasons beside their count, the most frequent first.
REASONS = 5

B = TypeVar("B", bound=Bulk)


class Plan(Protocol):
    """A dry run. *digest* stands for exactly what would be done, *eligible* for how many it would be done with."""

    @property
    def digest(self) -> str: ...
    @property
    def eligible(self) -> int: ...


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Form:
    """What a person starts one with: what they were shown, why, how fast, and the form's token."""

    digest: str
    reason: str
    per_minute: int
    token: str


@dataclass(frozen=True)
class Done:
    """What was done with an item, in words, and what its row keeps of it beside them."""

    said: str
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind(Generic[B]):
    """One kind of bulk act: its row, its name in words and in audit verbs, who may, what it is about."""

    model: type[B]
    #: Opens the audit verbs and the live topics.
    code: str
    name: str
    capability: Capability
    #: What an item is about, as it is read with it: select_related's words.
    subject: str
    #: Refusals: what was to be done has moved; there is nothing to do.
    moved: str
    nothing: str
    #: The open pages to tell when one starts or stops.
    topics: tuple[str, ...]

    def seen_by(self, actor: Actor) -> QuerySet[B]:
        """Those of the actor's workspace."""
        actor.require(Capability.SEE)
        return self.model._default_manager.filter(workspace=actor.workspace).select_related(
            "by", "stopped_by"
        )

    def one_seen_by(self, actor: Actor, bulk_id: str) -> B:
        found = self.seen_by(actor).filter(pk=bulk_id).first()
        if found is None:
            raise NotFound(f"There is no {self.name} {bulk_id} here.")
        return found

    def start(self, actor: Actor, form: Form, plan: Callable[[], P], write: Callable[[P], B]) -> B:
        """Begin what the dry run of the form's digest showed. The same token again returns the first one.

        *plan* makes the dry run anew; *write* the rows of what it says, with their audit event, in one transaction.
        Raises Forbidden, Stale (409: what would be done is not what was shown), AlreadyDone (nothing to do), Invalid.
        """
        with audit.refusals_recorded(actor, f"{self.code}.not_started", actor.workspace.id):
            actor.require(self.capability)
            if earlier := self._begun_by_form(actor, form.token):
                return earlier
            _check(form)
            fresh = plan()
            if fresh.digest != form.digest:
                raise Stale(self.moved)
            if not fresh.eligible:
                raise AlreadyDone(self.nothing)
            try:
                with transaction.atomic():
                    return write(fresh)
            except IntegrityError:
                # The same form at the same moment, and the other came first; or another's form with the same token.
                if earlier := self._begun_by_form(actor, form.token):
                    return earlier
                raise

    def _begun_by_form(self, actor: Actor, token: str) -> B | None:
        """The one that this form has begun. KeyReused where its token is another person's or workspace's."""
        earlier = self.model._default_manager.filter(token=token).first()
        if earlier and (earlier.workspace_id, earlier.by_id) != (actor.workspace.id, actor.user.id):
            raise KeyReused(f"This form was used for another {self.name}. Open the page again.")
        return earlier

    def stop(self, actor: Actor, bulk_id: str) -> B:
        """No further item of it is taken; what was done already goes on. Raises Forbidden, NotFound, AlreadyDone."""
        with audit.refusals_recorded(actor, f"{self.code}.not_stopped", bulk_id), transaction.atomic():
            actor.require(self.capability)
            bulk = self.one_seen_by(actor, bulk_id)
            if not self._end(bulk, BulkStatus.STOPPED, by=actor):
                raise AlreadyDone(f"It is {BulkStatus(bulk.status).label.lower()} already.")
            self.record(actor, bulk, "stopped", f"{self.name.capitalize()} stopped by {actor.user.name}")
        bulk.refresh_from_db()
        return bulk

    def record(self, actor: Actor, bulk: B, what: str, sentence: str, *, reason: str = "") -> None:
        """The audit event of a start or a stop, and the open pages are told."""
        audit.record(
            workspace_id=bulk.workspace_id,
            actor=actor.user,
            verb=f"{self.code}.{what}",
            subject=bulk.id,
            reason=reason,
            sentence=f"{sentence}{f': {reason.strip()}' if reason else ''}",
            filters=bulk.filters,
            per_minute=bulk.per_minute,
        )
        announce(bulk.workspace_id, f"{self.code}:{bulk.id}", *self.topics)

    def _end(self, bulk: B, status: BulkStatus, *, by: Actor | None = None) -> bool:
        running = self.model._default_manager.filter(pk=bulk.pk, status=BulkStatus.RUNNING)
        landed = running.update(status=status, ended_at=Now(), stopped_by=by.user if by else None)
        if landed:
            bulk.items.filter(state=ItemState.WAITING).update(
                state=ItemState.STOPPED, ended_at=Now(), came_of_it=f"The {self.name} was stopped before it."
            )
            announce(bulk.workspace_id, f"{self.code}:{bulk.id}", "home")
        return bool(landed)

    def work(self, act: Callable[[Actor, B, Any], Done]) -> int:
        """The sweep's duty: take what is due of every one that runs. Returns how many items.

        *act* does what is to be done with one item, once however often it is called. Where it raises Forbidden or
        NotFound the person may no longer, and the whole is stopped; any other refusal leaves that item alone.
        """
        due = self.model._default_manager.filter(status=BulkStatus.RUNNING, next_at__lte=Now())
        found = due.select_related("by", "workspace").order_by("next_at")[:20]
        return sum(self._work_on(bulk, act) for bulk in found)

    def _work_on(self, bulk: B, act: Callable[[Actor, B, Any], Done]) -> int:
        """As many items as its rate allows now. One that was begun and not noted is done again, and finds itself done."""
        taken = self._take(bulk)
        waiting = bulk.items.filter(state=ItemState.WAITING)
        items = list(waiting.select_related(self.subject).order_by("id")[:taken])
        for item in items:
            # Again before each: a stop that came meanwhile holds from the next one on.
            if self.model._default_manager.filter(pk=bulk.pk, status=BulkStatus.RUNNING).exists():
                self._do(bulk, item, act)
        if not waiting.exists():
            self._end(bulk, BulkStatus.DONE)
        return len(items)

    def _take(self, bulk: B) -> int:
        """How many are due by now, and the moment of the next ones. A sweep that was late does not catch up in a rush."""
        rows = self.model._default_manager
        with transaction.atomic():
            row = rows.select_for_update().filter(pk=bulk.pk)
            now, next_at, per_minute = row.values_list(Now(), "next_at", "per_minute").get()
            late = max(timedelta(0), now - next_at)
            each = timedelta(minutes=1) / per_minute
            count = min(1 + int(late / each), A_TURN)
            rows.filter(pk=bulk.pk).update(next_at=Greatest(F("next_at") + each * count, Now()))
        return count

    def _do(self, bulk: B, item: BulkItem, act: Callable[[Actor, B, Any], Done]) -> None:
        """One item, by the rights that the person has now."""
        kept: dict[str, Any] = {}
        try:
            done = act(actor_in(bulk.by, bulk.workspace_id), bulk, item)
            said, kept, state = done.said, done.kept, ItemState.DONE
        except (Forbidden, NotFound) as lost:
            self._end(bulk, BulkStatus.STOPPED)
            said, state = lost.message, ItemState.STOPPED
        except Refusal as refusal:
            said, state = refusal.message, ItemState.SKIPPED
        bulk.items.filter(pk=item.pk).update(state=state, came_of_it=said, ended_at=Now(), **kept)
        announce(bulk.workspace_id, f"{self.code}:{bulk.id}")


def digest_of(lines: Iterable[str]) -> str:
    """What stands for a dry run: any other list has another one."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check(form: Form) -> None:
    if not form.reason.strip():
        raise Invalid("Say why.", field="reason")
    if not 1 <= form.per_minute <= FASTEST:
        raise Invalid(f"Between 1 and {FASTEST} a minute.", field="per_minute")


@dataclass(frozen=True)
class Counts:
    """How many of a bulk act's items stand where."""

    waiting: int = 0
    done: int = 0
    skipped: int = 0
    stopped: int = 0

    @property
    def all(self) -> int:
        return self.waiting + self.done + self.skipped + self.stopped

    @property
    def eligible(self) -> int:
        """Those that there was something to do about when it began."""
        return self.all - self.skipped

    @property
    def key(self) -> list[tuple[str, int, str]]:
        """What the bar's colours mean: those that there are. What *done* means is its page's to say."""
        words = (
            ("done", self.done, ""),
            ("skipped", self.skipped, "left alone"),
            ("stopped", self.stopped, "not reached"),
            ("waiting", self.waiting, "waiting"),
        )
        return [one for one in words if one[1]]

    @property
    def bar(self) -> list[dict[str, Any]]:
        """The parts of the progress bar, in percent of all."""
        parts, at = [], 0.0
        for kind in ("done", "skipped", "stopped"):
            width = 100 * getattr(self, kind) / self.all if self.all else 0.0
            parts.append({"kind": kind, "x": at, "width": width})
            at += width
        return parts


def counts_of(several: Sequence[Bulk]) -> dict[str, Counts]:
    """The counts of each of one kind, by its id, in one question."""
    if not several:
        return {}
    found: dict[str, dict[str, int]] = {one.id: {} for one in several}
    kind: Any = type(several[0])
    rows = kind.objects.filter(pk__in=list(found)).order_by().values_list("pk", "items__state")
    for bulk_id, state, count in rows.annotate(count=Count("items")):
        if state:
            found[bulk_id][state] = count
    return {bulk_id: Counts(**counts) for bulk_id, counts in found.items()}
