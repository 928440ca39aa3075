"""The orphan scan, by a receiver that lists what it really has."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from console.kernel.errors import Forbidden, Invalid, NotFound
from console.management.commands.sweep import Sweep
from console.models import AuditEvent
from effects import moves, orphans, receivers
from effects.commands.scan_orphans import scan_orphans
from effects.contracts import contract
from effects.models import Observation, OrphanScan, Receiver, Review
from effects.states import ReviewReason, ScanStatus
from tests.effects.book import OFFER, Book, at_once
from tests.effects.odd import OddServer, Play, says
from tests.guards.rows import lost_id, orphan_reviews, put
from tests.people import make_world
from tests.stack import wait_for

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def receiver(book: Book, name: str = "crm") -> Receiver:
    return Receiver.objects.get(workspace=book.world.workspace, name=name)


def scan(book: Book, effect_type: str = "ledger.offer", name: str = "crm", **fields: Any) -> OrphanScan:
    """Ask for a scan as a releaser does, and go through the one of this type."""
    asked = scan_orphans(
        book.world.actor(book.world.releaser),
        receiver(book, name).id,
        **{"since": LONG_AGO, "token": str(uuid.uuid4()), **fields},
    )
    [mine] = [one for one in asked if one.effect_type == effect_type]
    assert orphans.work(mine.id) in (ScanStatus.DONE, ScanStatus.FAILED)
    mine.refresh_from_db()
    return mine


def test_row_38_an_object_with_our_id_and_no_row_is_reviewed_once_however_often_it_is_scanned(
    book: Book,
) -> None:
    lost = lost_id(book)
    reference = put(book, lost)
    for _ in range(2):
        done = scan(book)
        assert (done.status, done.looked_at, done.found, done.problem) == ("done", 1, 1, "")
        [review] = orphan_reviews(book)
    assert (review.receiver, review.provider_object, review.effect) == (receiver(book), reference, None)
    assert lost in review.sentence
    assert reference in review.sentence
    Review.objects.filter(id=review.id).update(closed_at=Now(), closed_why="It was refunded.")
    scan(book)
    assert [one.closed_why for one in orphan_reviews(book)] == ["It was refunded."]


def test_what_we_made_and_know_is_nothing_new(book: Book) -> None:
    book.perform(book.propose().effect_id)
    done = scan(book)
    assert (done.status, done.looked_at, done.found) == ("done", 1, 0)
    assert not Review.objects.filter(workspace=book.world.workspace).exists()
    assert not Observation.objects.filter(effect__workspace=book.world.workspace).exists()


@pytest.mark.parametrize(
    "not_ours",
    ["INV-4711", "eff_", "eff_short", "EFF_{id}", " eff_{id}", "eff_{id}x", "x-eff_{id}", "eff_{id} again"],
)
def test_only_exactly_our_id_counts(book: Book, not_ours: str) -> None:
    put(book, not_ours.format(id=lost_id(book).removeprefix("eff_")))
    put(book, None)
    done = scan(book)
    assert (done.status, done.looked_at, done.found) == ("done", 2, 0)
    assert not orphan_reviews(book)


def test_one_that_is_not_known_done_is_completed_by_it(book: Book) -> None:
    effect, _ = book.claim(book.propose().effect_id)
    reference = put(book, effect.id)
    book.lose(effect.id)
    moves.lose_lease(effect.id)
    assert scan(book).found == 0
    assert book.standing(effect.id) == ("completed", "")
    assert book.effect(effect.id).provider_reference == reference
    seen = Observation.objects.get(effect_id=effect.id)
    assert (seen.kind, seen.found, seen.provider_reference) == ("scan", "found", reference)


def test_one_with_another_amount_is_a_mismatch_and_not_adopted(book: Book) -> None:
    effect, _ = book.claim(book.propose().effect_id)
    put(
        book,
        effect.id,
        amount_minor=2000,
        lines=[{"sku": "SEAT", "description": "Seat", "quantity": 2, "unit_minor": 1000}],
    )
    book.lose(effect.id)
    moves.lose_lease(effect.id)
    assert scan(book).status == ScanStatus.DONE
    assert book.standing(effect.id) == ("pending", "uncertain")
    assert book.reviews(effect.id) == ["mismatch"]


def test_one_that_the_ledger_never_sent_contradicts_it_and_is_not_sent(book: Book) -> None:
    """As after a restore: the row is *ready*, and the receiver has it already."""
    effect = book.effect(book.propose().effect_id)
    reference = put(book, effect.id)
    scan(book)
    assert book.standing(effect.id) == ("pending", "ready")
    [review] = effect.reviews.all()
    assert review.reason == ReviewReason.CONTRADICTION
    assert reference in review.sentence
    book.perform(effect.id)
    assert book.witness.rx == (1, 1)


@pytest.mark.parametrize("settled", ["completed", "rejected"])
def test_what_contradicts_a_settled_one_is_told_once(
    book: Book, odd: Callable[[Play], OddServer], settled: str
) -> None:
    """Nothing of it changes any more: what people have looked at and closed is not opened again by the next scan."""
    effect = book.effect(book.propose("ledger.asked_offer").effect_id)
    if settled == "completed":
        effect = book.approved("ledger.asked_offer", key="another")
        book.perform(effect.id)
    else:
        moves.reject(effect.id, revision=1, problem="Not like this.")
    stood = book.effect(effect.id)
    twin = {**OFFER, "id": "off_twin", "external_id": effect.id}
    book.point(odd(says("200 OK", listing([twin], more=False))).url)
    for closed in (None, "Looked at."):
        assert scan(book, "ledger.asked_offer").found == 0
        [review] = effect.reviews.all()
        assert (review.provider_object, review.closed_why) == ("off_twin", closed or "")
        Review.objects.filter(id=review.id, closed_at=None).update(closed_at=Now(), closed_why="Looked at.")
    assert review.reason == ("duplicate_found" if settled == "completed" else "contradiction")
    assert (stood.provider_reference or "rejected by a person") in review.sentence
    now = book.effect(effect.id)
    assert (now.status, now.provider_reference) == (stood.status, stood.provider_reference)


def test_an_object_that_is_at_another_receiver_than_its_effect_s_is_told(book: Book) -> None:
    effect = book.effect(book.propose().effect_id)
    book.perform(effect.id)
    reference = put(book, effect.id, "/v1/tickets")
    for _ in range(2):
        assert scan(book, "ledger.ticket", "desk").found == 0
    [review] = effect.reviews.all()
    assert review.reason == ReviewReason.CONTRADICTION
    assert review.sentence == f"desk has {reference} with its id, but it was to go to crm."


def test_another_workspace_s_is_counted_and_not_told(book: Book) -> None:
    """Two workspaces that act as one account at the receiver."""
    other = make_world("neighbour")
    theirs = Book(other, replace(book.witness))
    other.receivers(book.witness.receiver, book.witness.smtp_port)
    Receiver.objects.filter(workspace=other.workspace).exclude(name="mail").update(
        account=book.world.account, secret_name=book.world.workspace.id
    )
    theirs.witness.account = book.world.account
    theirs.perform(theirs.propose().effect_id)
    book.strangers += 1
    unsettled, _ = theirs.claim(theirs.propose(key="two").effect_id)
    put(book, unsettled.id)

    done = scan(book)
    assert (done.found, done.elsewhere, done.looked_at) == (0, 2, 2)
    assert not Review.objects.filter(workspace=book.world.workspace).exists()
    # Neither adopted nor disclosed: nothing of theirs changed, and nothing here names it.
    assert theirs.standing(unsettled.id) == ("pending", "in_flight")
    assert not Observation.objects.filter(effect__workspace=other.workspace).exists()
    told = " ".join(
        f"{event.sentence} {event.detail}"
        for event in AuditEvent.objects.filter(workspace=book.world.workspace)
    )
    assert "2 not this workspace's" in told
    assert unsettled.id not in told
    assert other.workspace.id not in told


def test_a_list_of_several_pages_is_read_to_its_end(book: Book) -> None:
    reference = ""
    for number in range(1, 104):
        reference = put(book, lost_id(book, "103") if number == 103 else f"theirs-{number}")
    done = scan(book)
    assert (done.status, done.looked_at, done.found) == ("done", 103, 1)
    assert [one.provider_object for one in orphan_reviews(book)] == [reference]


def test_only_what_was_made_since_then_is_asked_for(book: Book) -> None:
    put(book, lost_id(book))
    later = timezone.now() + timedelta(seconds=1)
    asked = orphans.ask(receiver(book), since=later, token="later", by=book.world.releaser)
    assert {orphans.work(one.id) for one in asked} == {ScanStatus.DONE}
    assert {OrphanScan.objects.get(id=one.id).looked_at for one in asked} == {0}


def test_two_orphans_that_the_receiver_numbers_alike_are_two(
    book: Book, odd: Callable[[Play], OddServer]
) -> None:
    """Numbers are often those of one kind of object only."""
    one, other = lost_id(book, "one"), lost_id(book, "other")
    for lost in (one, other, one, other):
        book.point(odd(says("200 OK", listing([{"id": 7, "external_id": lost}], more=False))).url)
        assert scan(book).found == 1
    assert sorted(review.provider_object for review in orphan_reviews(book)) == ["7", f"7 with {other}"]


# What can't be read to its end is never "no orphans".


def listing(objects: list[dict[str, Any]], *, more: bool) -> bytes:
    return json.dumps({"data": objects, "has_more": more}).encode()


def drips(_request: bytes, connection: socket.socket) -> None:
    """An answer that never ends: a byte now and then."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"{")
            time.sleep(0.05)


NOT_WHOLE: dict[str, tuple[Play, str]] = {
    "error": (says("500 No", b"out of order"), "The receiver answered 500: out of order"),
    "refused": (says("403 No", b"{}"), "The receiver answered 403: {}"),
    "no list": (says("200 OK", b'{"data": "none"}'), "The receiver's answer holds no list of objects."),
    "no JSON": (says("200 OK", b"<html>"), "The receiver answered 200: <html>"),
    "timeout": (drips, "The receiver did not answer: ReadTimeout"),
    "cut": (
        says("200 OK", listing([{"external_id": "theirs"}], more=True)),
        "The list goes on, but its last object has no id to go on from.",
    ),
    "endless": (
        says("200 OK", listing([{"id": "off_1"}], more=True)),
        "The list goes on at the page that was read already.",
    ),
}


@pytest.mark.parametrize("how", NOT_WHOLE)
def test_a_list_that_is_not_whole_fails_the_scan_and_says_why(
    book: Book, odd: Callable[[Play], OddServer], how: str
) -> None:
    play, why = NOT_WHOLE[how]
    book.point(odd(play).url)
    failed = scan(book, "ledger.quick_offer")
    assert (failed.status, failed.problem) == ("failed", why)
    [event] = AuditEvent.objects.filter(subject=failed.id)
    assert (event.verb, event.actor_name) == ("scan.failed", "system:scan")
    assert "there may be more" in event.sentence
    assert orphans.unscanned(book.world.workspace.id, failed.asked_at) == ["crm", "desk"]


def test_what_was_read_before_it_broke_off_is_told_all_the_same(
    book: Book, odd: Callable[[Play], OddServer]
) -> None:
    lost = lost_id(book)
    pages = [says("200 OK", listing([{"id": "off_1", "external_id": lost}], more=True)), says("500 No")]
    book.point(odd(lambda request, connection: pages.pop(0)(request, connection)).url)
    failed = scan(book)
    assert (failed.status, failed.looked_at, failed.found) == ("failed", 1, 1)
    assert [one.provider_object for one in orphan_reviews(book)] == ["off_1"]


def test_the_secret_is_not_carried_to_another_address(book: Book, odd: Callable[[Play], OddServer]) -> None:
    elsewhere = odd(says("200 OK", b"[]"))
    made = says("200 OK", b'[{"id": 1, "body": ""}]', f'Link: <{elsewhere.url}/more>; rel="next"')
    Receiver.objects.create(
        workspace=book.world.workspace,
        name="board",
        account=book.world.account,
        standing="live",
        base_url=odd(made).url,
        hosts=["127.0.0.1"],
        secret_name=book.world.workspace.id,
    )
    failed = scan(book, "guards.linked", "board")
    assert failed.problem == "The list goes on at another address, which is not asked."
    assert elsewhere.requests == []


# Worked by a lease, page by page.


def due_scan(book: Book, effect_type: str = "ledger.offer", name: str = "crm") -> OrphanScan:
    """A scan of one type alone that nobody has begun."""
    asked = orphans.ask(receiver(book, name), since=LONG_AGO, token=str(uuid.uuid4()), by="system:test")
    [mine] = [one for one in asked if one.effect_type == effect_type]
    OrphanScan.objects.filter(id__in=[one.id for one in asked if one != mine]).update(status="failed")
    return mine


def test_a_scan_that_was_left_goes_on_at_the_page_where_it_stood(
    book: Book, odd: Callable[[Play], OddServer]
) -> None:
    lost = [lost_id(book, str(number)) for number in range(3)]
    pages = {
        b"after=off_1 ": listing([{"id": "off_2", "external_id": lost[1]}], more=True),
        b"after=off_2 ": listing([{"id": "off_3", "external_id": lost[2]}], more=False),
    }
    first = listing([{"id": "off_1", "external_id": lost[0]}], more=True)

    def play(request: bytes, connection: socket.socket) -> None:
        page = next((page for name, page in pages.items() if name in request), first)
        says("200 OK", page)(request, connection)

    server = odd(play)
    book.point(server.url)
    mine = due_scan(book)
    assert orphans.work(mine.id, stopping=lambda: True) == ScanStatus.RUNNING
    mine.refresh_from_db()
    assert (mine.looked_at, mine.found) == (1, 1)
    assert mine.id in orphans.due()
    # Somebody else is killed on the second page, after what is on it was told: its lease runs out.
    taken = orphans._take(mine.id)
    assert taken is not None
    assert mine.id not in orphans.due()
    assert orphans.work(mine.id) is None
    page = receivers.list_page(
        contract("ledger.offer"), taken.receiver, since=taken.since, address=taken.page
    )
    orphans._tell(taken, contract("ledger.offer"), page.objects)
    OrphanScan.objects.filter(id=mine.id).update(lease_until=Now())
    assert orphans.work(mine.id) == ScanStatus.DONE
    mine.refresh_from_db()
    assert (mine.looked_at, mine.found) == (3, 3)
    assert sorted(one.provider_object for one in orphan_reviews(book)) == ["off_1", "off_2", "off_3"]
    assert [b"after=" in request for request in server.requests] == [False, True, True, True]


def test_who_lost_the_lease_writes_nothing(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held up while it asked, until another took the scan over."""
    put(book, lost_id(book))
    mine = due_scan(book)
    ask = receivers.list_page

    def held_up(*args: Any, **fields: Any) -> receivers.Page:
        OrphanScan.objects.filter(id=mine.id).update(lease_until=Now() + timedelta(hours=1))
        return ask(*args, **fields)

    monkeypatch.setattr(receivers, "list_page", held_up)
    assert orphans.work(mine.id) is None
    mine.refresh_from_db()
    assert (mine.status, mine.looked_at) == ("running", 0)
    assert not orphan_reviews(book)


def test_one_at_a_time_a_receiver(book: Book) -> None:
    first, other = due_scan(book), due_scan(book)
    desk = due_scan(book, "ledger.ticket", "desk")
    assert orphans._take(first.id) is not None
    assert orphans.work(other.id) is None
    assert desk.id in orphans.due()
    assert other.id not in orphans.due()
    assert orphans.work(desk.id) == ScanStatus.DONE
    OrphanScan.objects.filter(id=first.id).update(lease_until=Now())
    assert orphans.work(other.id) == ScanStatus.DONE


def test_two_at_once_take_one(kept: Book) -> None:
    mine, other = due_scan(kept), due_scan(kept, "ledger.asked_offer")
    taken = at_once(6, lambda number: orphans._take([mine.id, other.id][number % 2]))
    assert len([one for one in taken if one is not None]) == 1
    OrphanScan.objects.filter(receiver=receiver(kept)).update(status="failed", ended_at=Now())


def test_a_type_that_the_deployment_no_longer_has_fails(book: Book) -> None:
    gone = OrphanScan.objects.create(
        workspace=book.world.workspace,
        receiver=receiver(book),
        effect_type="ledger.gone",
        since=LONG_AGO,
        token="gone",
    )
    assert orphans.work(gone.id) == ScanStatus.FAILED
    gone.refresh_from_db()
    assert "There is no contract" in gone.problem


def test_the_sweep_goes_through_what_is_due(kept: Book) -> None:
    reference = put(kept, lost_id(kept))
    asked = orphans.ask(receiver(kept), since=LONG_AGO, token=str(uuid.uuid4()), by=kept.world.releaser)
    sweep = Sweep()

    def ended() -> bool:
        sweep._scan()
        return not OrphanScan.objects.filter(id__in=[one.id for one in asked], ended_at=None).exists()

    wait_for("the scans to end", ended)
    sweep._pool.shutdown()
    assert {OrphanScan.objects.get(id=one.id).status for one in asked} == {"done"}
    assert [one.provider_object for one in orphan_reviews(kept)] == [reference]


# Who may, and what is refused.


@pytest.mark.parametrize("who", ["operator", "approver", "auditor", "viewer", "developer", "administrator"])
def test_only_a_releaser_may(book: Book, who: str) -> None:
    actor = book.world.actor(getattr(book.world, who))
    with pytest.raises(Forbidden):
        scan_orphans(actor, receiver(book).id, token="a form")
    assert not OrphanScan.objects.filter(workspace=book.world.workspace).exists()
    [event] = AuditEvent.objects.filter(workspace=book.world.workspace)
    assert (event.verb, event.actor) == ("scan.not_asked", actor.user)


def test_a_form_sent_twice_asks_once(book: Book) -> None:
    releaser = book.world.actor(book.world.releaser)
    first = scan_orphans(releaser, receiver(book).id, since=LONG_AGO, token="a form")
    again = scan_orphans(releaser, receiver(book).id, token="a form")
    assert [one.id for one in again] == [one.id for one in first]
    assert [one.effect_type for one in first] == orphans.listable_types(receiver(book))
    assert {one.since for one in again} == {LONG_AGO}
    assert AuditEvent.objects.filter(subject=receiver(book).id, verb="scan.asked").count() == 1
    # The same token at another receiver is another form's.
    assert {
        one.receiver.name for one in scan_orphans(releaser, receiver(book, "desk").id, token="a form")
    } == {"desk"}


def test_refusals_say_why_and_leave_nothing_but_their_event(book: Book) -> None:
    releaser = book.world.actor(book.world.releaser)
    others = make_world("neighbour")
    others.receivers("http://127.0.0.1:9", 9)
    with pytest.raises(Invalid, match="mail can't list what it has"):
        scan_orphans(releaser, receiver(book, "mail").id, token="1")
    with pytest.raises(Invalid, match="yet to come"):
        scan_orphans(releaser, receiver(book).id, since=timezone.now() + timedelta(hours=1), token="2")
    with pytest.raises(NotFound):
        scan_orphans(releaser, Receiver.objects.get(workspace=others.workspace, name="crm").id, token="3")
    Receiver.objects.filter(workspace=book.world.workspace, name="desk").update(standing="isolated")
    with pytest.raises(NotFound):
        scan_orphans(releaser, receiver(book, "desk").id, token="4")
    assert not OrphanScan.objects.exists()
    assert AuditEvent.objects.filter(workspace=book.world.workspace, verb="scan.not_asked").count() == 4
    assert not AuditEvent.objects.filter(workspace=others.workspace).exists()


def test_from_the_command_line(kept: Book, capsys: pytest.CaptureFixture[str]) -> None:
    put(kept, lost_id(kept))
    slug = kept.world.workspace.id
    call_command("scan_orphans", slug, "crm", since=LONG_AGO)
    assert "crm ledger.offer: 1 object looked at, 1 orphan" in capsys.readouterr().out
    call_command("scan_orphans", slug)
    assert "desk ledger.ticket: 0 objects looked at, no orphans" in capsys.readouterr().out
    kept.point("http://127.0.0.1:9")
    with pytest.raises(CommandError, match="scans failed"):
        call_command("scan_orphans", slug, "crm")
    assert "failed: The receiver did not answer" in capsys.readouterr().out
    with pytest.raises(CommandError, match="There are: crm, desk, mail"):
        call_command("scan_orphans", slug, "nobody")
    with pytest.raises(CommandError, match="There is no workspace"):
        call_command("scan_orphans", "nowhere")
    with pytest.raises(CommandError, match="mail can't list"):
        call_command("scan_orphans", slug, "mail")


def test_a_scan_that_has_ended_can_not_be_edited_even_by_sql(book: Book) -> None:
    """What it has seen lifts a stop."""
    failed = due_scan(book)
    book.point("http://127.0.0.1:9")
    assert orphans.work(failed.id) == ScanStatus.FAILED
    for statement in ("UPDATE effects_orphanscan SET status = 'done'", "DELETE FROM effects_orphanscan"):
        with (
            pytest.raises(DatabaseError, match=r"can never change|Cannot delete|permission denied"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"{statement} WHERE id = %s", [failed.id])
