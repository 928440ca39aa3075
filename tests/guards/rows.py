"""What the guards' tests and the failure battery both try: rows 37, 38 and 40, each on any workspace's ledger."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from console.kernel.ids import effect_id
from console.management.commands.sweep import Sweep
from console.models import AuditEvent, Workspace
from effects import orphans, restored
from effects.commands.stop_sending import Unscanned, lift_stop
from effects.ledger import Wait
from effects.models import Effect, Review, Stop
from effects.selectors import worth_a_visit
from effects.states import ReviewReason, ScanStatus
from tests.effects.book import OFFER, TICKET, Book
from tests.guards.databases import Database, another_process
from tests.people import make_world


def lost_id(book: Book, key: str = "lost") -> str:
    """The id of an effect that this workspace may have made, and of which nothing is written any more."""
    return effect_id(
        workspace=book.world.workspace.id,
        run_id=book.run.run_id,
        position="a place",
        effect_type="ledger.offer",
        command_key=key,
    )


def put(book: Book, external_id: str | None, path: str = "/v1/offers", **changes: Any) -> str:
    """Something that the receiver has and this ledger does not know of; its own id."""
    given = {**(OFFER if "offers" in path else TICKET), "external_id": external_id, **changes}
    made = book.witness.post(path, {name: value for name, value in given.items() if value is not None})
    book.strangers += 1
    return str(made.raise_for_status().json()["id"])


def orphan_reviews(book: Book) -> list[Review]:
    return list(Review.objects.filter(workspace=book.world.workspace, reason=ReviewReason.ORPHAN))


def forget_in_redis() -> None:
    """Redis keeps nothing of its own: it may lose the mark at any time."""
    restored._client().delete(restored._key())


def stops() -> list[Stop]:
    return list(Stop.objects.filter(lifted_at=None).order_by("workspace_id"))


def scan_everything(workspace: Workspace) -> None:
    for receiver in orphans.live_receivers(workspace.id):
        for scan in orphans.ask(receiver, token=str(uuid.uuid4()), by="system:test"):
            assert orphans.work(scan.id) == ScanStatus.DONE


def lift(book: Book, stop: Stop) -> Stop:
    """As a releaser does."""
    releaser = book.world.actor(book.world.releaser)
    return lift_stop(releaser, stop.id, reason="Looked at all of it.", token=str(uuid.uuid4()))


class Story:
    """One effect sent before the back-up, one ready then and sent since, one made and sent since; then it is put back."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.known = book.propose(key="known").effect_id
        book.perform(self.known)
        self.ready = book.propose(key="ready").effect_id

    def go_on(self) -> None:
        """What the back-up does not have."""
        self.book.perform(self.ready)
        self.lost = self.book.propose(key="lost").effect_id
        self.book.perform(self.lost)
        assert self.book.witness.rx == (3, 3)

    def nothing_is_sent(self) -> None:
        """A worker's visit: the effect, which the ledger believes to be ready, stays where it is."""
        assert isinstance(self.book.perform(self.ready), Wait)
        assert self.book.standing(self.ready) == ("pending", "ready")
        assert not worth_a_visit([self.ready]).exists(), "its run would be taken up again and again"
        assert self.book.witness.rx == (3, 3)


def row_37(book: Book, effect_type: str = "ledger.blind_ticket") -> str:
    """The effect's id, which is refused again and again and of which nothing is sent.

    The caller has set DURABLE_ONLY, as production has it; the database's server may lose what it has confirmed.
    """
    refused = book.propose(effect_type).effect_id
    for _ in range(2):
        assert isinstance(book.perform(refused), Wait)
    effect = book.effect(refused)
    assert (effect.status, effect.sub_state, effect.tries, effect.fence) == ("pending", "ready", 0, 0)
    assert "Postgres may lose what it has confirmed" in effect.problem
    assert book.outcomes(refused) == []
    # Its run waits: nobody takes it up again and again to find the same.
    assert not worth_a_visit([refused]).exists()
    return refused


def row_38(book: Book) -> Review:
    """The review of an object that carries an id of ours, and of which the ledger has no row."""
    lost = lost_id(book)
    reference = put(book, lost)
    scan_everything(book.world.workspace)
    [review] = orphan_reviews(book)
    assert (review.provider_object, review.effect, review.closed_at) == (reference, None, None)
    assert lost in review.sentence
    assert reference in review.sentence
    return review


def row_40(database: Database, book: Book, *, in_place: bool = False) -> Story:
    """Restored to an earlier moment, up to where a releaser has scanned and lifted the stop. *book* is in *database*.

    *in_place*: it is the very same database by every mark in it, and only the one outside tells.
    """
    neighbour = make_world("neighbour").workspace
    story = Story(book)
    restored.keep_mark()
    database.back_up()
    story.go_on()
    restored.keep_mark()
    database.put_back(in_place=in_place)

    # A worker comes up before any sweep.
    with another_process():
        story.nothing_is_sent()
    mine = book.world.workspace
    both = sorted([mine.id, neighbour.id])
    assert [(one.workspace_id, one.scope, one.needs_scan, one.by) for one in stops()] == [
        (workspace, "workspace", True, None) for workspace in both
    ]
    stop = Stop.objects.get(workspace=mine)
    assert ("attempt" if in_place else "another database of this server") in stop.reason
    event = AuditEvent.objects.get(workspace=mine, subject=stop.id)
    assert (event.actor, event.actor_name, event.verb) == (None, "system:restore", "stop.set")
    assert stop.reason in event.sentence
    # The sweep finds it done, and it is done once.
    with another_process():
        Sweep().duties[0]()
        story.nothing_is_sent()
    assert len(stops()) == 2

    with pytest.raises(Unscanned, match="not yet: crm, desk"):
        lift(book, stop)
    scan_everything(mine)
    assert orphans.unscanned(mine.id, stop.at) == []
    orphan = Review.objects.get(workspace=mine, reason=ReviewReason.ORPHAN)
    assert story.lost in orphan.sentence
    assert book.reviews(story.ready) == ["contradiction"]
    assert not Effect.objects.get(id=story.known).reviews.exists()
    assert lift(book, stop).lifted_by == book.world.releaser
    return story
