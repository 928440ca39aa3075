"""What people sent in an effect's place counts: the first one is not sent as well, by whichever way it could come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from effects import moves
from effects.commands import bulk_recover
from effects.ledger import Wait
from effects.models import Effect, Order
from effects.origin import Result
from effects.selectors import worth_a_visit
from effects.states import OrderKind, OrderStatus, ReviewReason, Verdict
from tests.effects.book import Book, somebody_waits
from tests.effects.ordering import agree, carry_out, refreshed, send_as_new, successors
from tests.effects.test_compensate import completed, credit, left
from tests.effects.test_repeat import looked, refused, uncertain


def turned_down(book: Book) -> str:
    """The receiver refused it: nothing of it exists."""
    proposal = book.propose()
    book.witness.order("401")
    assert book.refusal(proposal.effect_id)
    return proposal.effect_id


def sent_anew(book: Book, effect_id: str) -> Order:
    order = send_as_new(book, effect_id)
    agree(book, order)
    assert "has it as" in carry_out(order)
    return order


def test_continue_does_not_make_the_first_one_ready(book: Book) -> None:
    """The run failed for it, people sent it anew, and then Continue: the node gets the successor's result."""
    effect_id = turned_down(book)
    order = sent_anew(book, effect_id)
    assert not moves.make_ready_again(effect_id)
    result = book.perform(effect_id)
    assert isinstance(result, Result)
    assert result.effect_id == order.sends_id
    assert book.witness.rx == (1, 2)


def test_no_run_makes_ready_what_an_order_made(book: Book) -> None:
    """A run that failed for a successor can't send it: made ready, it would be visited for ever."""
    order = send_as_new(book, turned_down(book))
    agree(book, order)
    book.witness.order("401")
    carry_out(order)
    assert book.standing(order.sends_id) == ("failed", "refused")
    assert not moves.make_ready_again(order.sends_id)


def test_nor_deliver_again_nor_bulk_recover(book: Book) -> None:
    effect_id = turned_down(book)
    sent_anew(book, effect_id)
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "in its place")
    planned = bulk_recover.dry_run(book.world.actor(book.world.releaser), {}).items
    assert {one.effect.id: one.verdict for one in planned}[effect_id] == Verdict.SKIP
    assert not moves.make_ready_by_order(effect_id, granted_by=None, valid=timedelta())
    assert book.witness.rx == (1, 2)


def test_an_uncertain_one_does_not_go_again_by_its_key(book: Book) -> None:
    """Ordered after its window; should the window be open again by another clock, it is not claimed all the same."""
    effect_id = uncertain(book, "ledger.offer", made=False)
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1))
    looked(book, effect_id)
    sent_anew(book, effect_id)
    Effect.objects.filter(id=effect_id).update(key_until=Now() + timedelta(hours=1))
    assert isinstance(book.perform_now(effect_id), Wait)
    assert not worth_a_visit([effect_id]).exists()
    assert book.witness.rx == (1, 2)


def test_nor_after_a_look_that_proves_it_absent(book: Book) -> None:
    """By its natural key it would be ready again by itself; now a person is asked instead."""
    effect_id = uncertain(book, "ledger.ticket", made=False)
    looked(book, effect_id)
    sent_anew(book, effect_id)
    book.pass_settle_time(effect_id)
    effect = book.effect(effect_id)
    assert not moves.ready_by_proven_absence(effect_id, fence=effect.fence)
    assert book.standing(effect_id) == ("pending", "uncertain")


def test_while_its_key_protects_a_repeat_no_second_one_is_made(book: Book) -> None:
    effect_id = uncertain(book, "ledger.offer", made=False)
    looked(book, effect_id)
    refused(book, OrderKind.SEND_AS_NEW, effect_id, "key still protects")


def test_an_original_that_came_meanwhile_stops_its_successor(book: Book) -> None:
    """Two people were asked about one that nobody had; by the time they agree the receiver has the first."""
    effect_id = turned_down(book)
    order = send_as_new(book, effect_id)
    moves.open_review(book.effect(effect_id), ReviewReason.CONTRADICTION, "A webhook says that it is there.")
    moves.settle_as_done(effect_id, reference="off_there", answer=b"")
    agree(book, order)
    assert "which it had not when this was ordered" in carry_out(order)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert [one.sub_state for one in successors(effect_id)] == ["cancelled"]
    assert book.witness.rx == (0, 1)


def test_a_completed_one_may_still_be_wanted_twice(book: Book) -> None:
    effect_id = completed(book)
    sent_anew(book, effect_id)
    sent_anew(book, effect_id)
    assert book.witness.rx == (3, 3)


def test_a_compensation_is_never_sent_as_a_new_effect(book: Book) -> None:
    """Its successor would count against nothing: more would be taken back than there was."""
    original = completed(book)
    order = credit(book, original, amount_minor=1000)
    agree(book, order)
    carry_out(order)
    refused(book, OrderKind.SEND_AS_NEW, order.sends_id, "within what is left")


def test_a_compensation_that_was_refused_is_not_delivered_again(book: Book) -> None:
    """What it would have taken back may have been taken back by another one since."""
    original = completed(book)
    first = credit(book, original, amount_minor=1000)
    agree(book, first)
    book.witness.order("401")
    carry_out(first)
    assert book.standing(first.sends_id) == ("failed", "refused")
    second = credit(book, original, amount_minor=1000)
    agree(book, second)
    carry_out(second)
    assert left(book, original) == 0
    refused(book, OrderKind.DELIVER_AGAIN, first.sends_id, "within what is left")
    assert book.witness.rx == (2, 3)


def test_a_claim_sees_what_whoever_held_the_row_has_done(kept: Book) -> None:
    """A review that is opened while the claim waits for the row is in its way."""
    proposal = kept.propose()

    def perform() -> Any:
        try:
            return kept.perform(proposal.effect_id)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            effect = Effect.objects.select_for_update().get(id=proposal.effect_id)
            performing = pool.submit(perform)
            somebody_waits()
            moves.open_review(effect, ReviewReason.CONTRADICTION, "It is there already.")
        assert isinstance(performing.result(30), Wait)
    assert kept.witness.rx == (0, 0)
