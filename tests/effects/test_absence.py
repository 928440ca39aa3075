"""When "not there" is proof, what it proves, and who decides then: looks in a row, old errors, windows that passed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from effects import moves, reconcile
from effects.commands.ask_receiver import ask_receiver
from effects.ledger import Wait
from effects.models import Effect, LookRequest, Review
from effects.moves import evidence
from effects.origin import Result
from effects.outcomes import OLD_ERROR
from effects.states import Dedup, Outcome, ReviewReason
from tests.effects.book import OFFER, TICKET, Book
from tests.effects.odd import OddServer, Play, says

Odd = Callable[[Play], OddServer]


def lost(book: Book, effect_type: str, fault: str = "drop_before", key: str = "one") -> str:
    """An effect whose answer was lost, long enough ago for any look to count."""
    proposal = book.propose(effect_type, key=key)
    book.witness.order(fault)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    book.pass_settle_time(proposal.effect_id)
    return proposal.effect_id


def counted(book: Book, effect_id: str) -> tuple[int, bool]:
    effect = book.effect(effect_id)
    return effect.absences, effect.absent_at is not None


def look(book: Book, effect_id: str) -> str:
    book.make_due(effect_id)
    return reconcile.look(effect_id)


def sentence(effect_id: str) -> str:
    return Review.objects.get(effect_id=effect_id, closed_at=None).sentence


# Several looks in a row.


def test_two_looks_in_a_row_prove_it(book: Book) -> None:
    effect_id = lost(book, "ledger.twice_looked_ticket")
    assert look(book, effect_id) == "absent"
    assert counted(book, effect_id) == (1, False)
    assert book.standing(effect_id) == ("pending", "uncertain")

    assert look(book, effect_id) == "absent"

    assert counted(book, effect_id) == (2, True)
    assert book.standing(effect_id) == ("pending", "ready")
    assert isinstance(book.perform(effect_id), Result)
    assert book.witness.rx == (1, 2)
    # With the sending the count began anew.
    assert counted(book, effect_id) == (0, False)


def test_a_look_without_an_answer_breaks_the_row(book: Book) -> None:
    effect_id = lost(book, "ledger.twice_looked_ticket")
    look(book, effect_id)
    book.witness.order("500_before", match={"method": "GET"})
    assert look(book, effect_id) == "unclear"
    assert counted(book, effect_id) == (0, False)
    look(book, effect_id)
    assert book.standing(effect_id) == ("pending", "uncertain")
    look(book, effect_id)
    assert book.standing(effect_id) == ("pending", "ready")


def test_a_look_before_the_settle_time_counts_for_nothing(book: Book) -> None:
    effect_id = lost(book, "ledger.twice_looked_ticket")
    Effect.objects.filter(id=effect_id).update(last_sent_at=Now())
    for _ in range(3):
        look(book, effect_id)
    assert counted(book, effect_id) == (0, False)


def test_two_looks_within_the_settle_time_are_one(book: Book) -> None:
    """A person who asks twice in a second has learned nothing more, and the next look is due after that time."""
    effect_id = lost(book, "ledger.slowly_settled_ticket")
    look(book, effect_id)
    [(due_at, now)] = Effect.objects.filter(id=effect_id).values_list("due_at", Now())
    assert due_at is not None
    assert (due_at - now).total_seconds() > 25
    look(book, effect_id)
    assert counted(book, effect_id) == (1, False)


def test_an_answer_about_the_past_counts_for_nothing(book: Book) -> None:
    """Sent again while the look was under way: it proves nothing of that."""
    effect_id = lost(book, "ledger.twice_looked_ticket")
    fence = book.effect(effect_id).fence
    assert evidence.count_absence(effect_id, fence=fence + 1, wait=timedelta(0)) == 0
    assert not evidence.prove_absent(effect_id, fence=fence + 1)
    assert counted(book, effect_id) == (0, False)


def test_what_is_there_after_all_takes_the_proof_away(book: Book) -> None:
    effect_id = lost(book, "ledger.twice_looked_ticket")
    look(book, effect_id)
    book.witness.post("/v1/tickets", {**TICKET, "priority": "high", "external_id": effect_id})
    book.strangers += 1
    assert look(book, effect_id) == "mismatch"
    assert counted(book, effect_id) == (0, False)
    assert book.reviews(effect_id) == ["mismatch"]


def test_by_query_the_review_says_how_often_it_was_looked_for(book: Book) -> None:
    """No receiver that tells no repeats apart gets it a second time, however often it is not found."""
    effect_id = lost(book, "ledger.queried_ticket")
    for _ in range(reconcile.LOOKS):
        assert book.reviews(effect_id) == []
        book.pass_settle_time(effect_id)
        Effect.objects.get(id=effect_id)
        assert reconcile.look(effect_id) == "absent"
    assert book.reviews(effect_id) == ["unqueryable"]
    assert f"{reconcile.LOOKS} looks" in sentence(effect_id)
    assert "proves nothing" in sentence(effect_id)
    assert counted(book, effect_id)[1] is False
    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.witness.rx == (0, 1)


# By key.


def close_window(effect_id: str) -> None:
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1))


def test_past_the_keys_window_proven_absence_is_for_people(book: Book) -> None:
    effect_id = lost(book, "ledger.proving_offer")
    close_window(effect_id)

    assert look(book, effect_id) == "absent"

    assert counted(book, effect_id) == (1, True)
    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.reviews(effect_id) == ["key_expired"]
    assert "One look proved that crm does not have it." in sentence(effect_id)
    # Proven, and under that review: its successor may take its place.
    assert moves.cancel_proven_absent(effect_id, why="sent anew")


def test_inside_the_keys_window_the_key_settles_it(book: Book) -> None:
    effect_id = lost(book, "ledger.proving_offer")
    assert look(book, effect_id) == "absent"
    assert counted(book, effect_id) == (1, True)
    assert book.reviews(effect_id) == []
    assert isinstance(book.perform_now(effect_id), Result)
    assert counted(book, effect_id) == (0, False)


def test_past_the_keys_window_unproven_absence_is_for_people_too(book: Book) -> None:
    effect_id = lost(book, "ledger.offer")
    close_window(effect_id)
    for _ in range(reconcile.LOOKS):
        look(book, effect_id)
    assert book.reviews(effect_id) == ["key_expired"]
    assert counted(book, effect_id)[1] is False
    assert not moves.cancel_proven_absent(effect_id, why="sent anew")


# An error that the receiver keeps under the key.


def test_an_old_error_is_not_asked_for_again_and_a_look_decides(book: Book) -> None:
    """Nothing was made: one request, a review, and the proof with which people may send anew."""
    proposal = book.propose("ledger.proving_offer")
    book.witness.order("cached_500")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    book.make_due(proposal.effect_id)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    book.pass_settle_time(proposal.effect_id)
    assert proposal.effect_id in reconcile.looks_due()

    assert reconcile.look(proposal.effect_id) == "absent"

    assert book.reviews(proposal.effect_id) == ["cached_error"]
    assert sentence(proposal.effect_id).startswith(OLD_ERROR)
    assert counted(book, proposal.effect_id) == (1, True)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.witness.rx == (0, 1)


def test_an_old_error_of_what_was_made_is_found(book: Book) -> None:
    proposal = book.propose("ledger.proving_offer")
    book.witness.order("500_after")
    book.perform(proposal.effect_id)
    assert look(book, proposal.effect_id) == "found"
    assert book.standing(proposal.effect_id) == ("completed", "")
    assert book.reviews(proposal.effect_id) == []
    assert book.witness.rx == (1, 1)


def test_an_old_error_is_known_by_the_receivers_mark(book: Book) -> None:
    """Where failures are not documented as kept, the second answer says that it is the first one again."""
    proposal = book.propose("ledger.offer")
    book.witness.order("cached_500")
    book.perform(proposal.effect_id)
    assert book.effect(proposal.effect_id).observations.count() == 0
    book.perform_now(proposal.effect_id)
    assert book.effect(proposal.effect_id).observations.get().kind == "cached_error"
    book.perform_now(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown", "unknown"]


def test_an_old_error_where_nobody_can_be_asked(book: Book) -> None:
    proposal = book.propose("ledger.unasked_offer")
    book.witness.order("cached_500")
    book.perform(proposal.effect_id)
    book.make_due(proposal.effect_id)
    assert reconcile.review_expired_keys() == 1
    assert book.reviews(proposal.effect_id) == ["cached_error"]
    assert reconcile.review_expired_keys() == 0


def test_an_old_error_of_an_earlier_sending_is_no_reason(book: Book) -> None:
    proposal = book.propose("ledger.unasked_offer")
    book.witness.order("cached_500")
    book.perform(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(
        last_sent_at=Now() + timedelta(seconds=1), due_at=Now()
    )
    assert reconcile.review_expired_keys() == 1
    assert book.reviews(proposal.effect_id) == ["key_expired"]


# One object, two effects.


def test_an_answer_that_names_another_effects_object_fails_no_commit(book: Book, odd: Odd) -> None:
    """Each offer is an object of its own: the second answer with the same number completes nothing."""
    answer = json.dumps({**OFFER, "id": "off_7"}).encode()
    book.point(odd(says("201 Created", answer)).url)
    first, second = book.propose("ledger.own_offer"), book.propose("ledger.own_offer", key="two")
    assert isinstance(book.perform(first.effect_id), Result)

    assert isinstance(book.perform(second.effect_id), Wait)

    assert book.standing(second.effect_id) == ("pending", "uncertain")
    assert book.effect(second.effect_id).unresolved
    assert book.outcomes(second.effect_id) == ["completed"]
    assert book.reviews(second.effect_id) == ["mismatch"]
    assert second.effect_id not in reconcile.looks_due()
    # And it is not sent again by its key either.
    assert isinstance(book.perform_now(second.effect_id), Wait)
    assert len(book.outcomes(second.effect_id)) == 1


def test_late_evidence_that_names_another_effects_object_fails_no_commit(book: Book, odd: Odd) -> None:
    book.point(odd(says("201 Created", json.dumps({**OFFER, "id": "off_7"}).encode())).url)
    first, second = book.propose("ledger.own_offer"), book.propose("ledger.own_offer", key="two")
    book.perform(first.effect_id)
    _, attempt = book.claim(second.effect_id)
    book.lose(second.effect_id)
    reconcile.lose_leases()

    book.settle(second.effect_id, attempt, Outcome.COMPLETED, status="201", reference="off_7", body={})

    assert book.standing(second.effect_id) == ("pending", "uncertain")
    assert book.reviews(second.effect_id) == ["mismatch"]


def test_effects_that_change_one_object_may_share_its_number(book: Book, odd: Odd) -> None:
    """Where a contract does not say that it creates, two of them with one reference are no clash."""
    book.point(odd(says("201 Created", json.dumps({**OFFER, "id": "off_7"}).encode())).url)
    for key in ("one", "two"):
        assert isinstance(book.perform(book.propose("ledger.shared_offer", key=key).effect_id), Result)


@pytest.mark.parametrize(("effect_type", "receiver"), [("ledger.offer", "crm"), ("ledger.ticket", "desk")])
def test_the_demos_offers_and_tickets_are_objects_of_their_own(
    book: Book, odd: Odd, effect_type: str, receiver: str
) -> None:
    """As demo.contracts declares them: a receiver that gives two of them one number is not believed."""
    there = json.dumps({**book.usual(effect_type), "id": "no_7"}).encode()
    book.point(odd(says("201 Created", there)).url, receiver=receiver)
    assert isinstance(book.perform(book.propose(effect_type).effect_id), Result)
    second = book.propose(effect_type, key="two")
    assert isinstance(book.perform(second.effect_id), Wait)
    assert book.standing(second.effect_id) == ("pending", "uncertain")
    assert book.reviews(second.effect_id) == ["mismatch"]


# A person asks.


def ask(book: Book, effect_id: str) -> LookRequest:
    actor = book.world.actor(book.world.auditor)
    return ask_receiver(actor, effect_id, token=str(uuid.uuid4()))


def test_a_persons_question_is_answered_wherever_the_effect_stands(book: Book) -> None:
    proposal = book.propose("ledger.ticket")
    assert isinstance(book.perform(proposal.effect_id), Result)
    asked = ask(book, proposal.effect_id)
    assert reconcile.questions_due() == [proposal.effect_id]

    assert reconcile.answer_question(proposal.effect_id) == "found"

    asked.refresh_from_db()
    assert asked.found == "found"
    assert asked.ended_at is not None
    assert reconcile.questions_due() == []
    assert book.effect(proposal.effect_id).observations.get().found == "found"
    assert book.reviews(proposal.effect_id) == []


def test_a_question_is_asked_once_at_a_time(book: Book) -> None:
    effect_id = lost(book, "ledger.ticket")
    ask(book, effect_id)
    assert evidence.take_question(effect_id, lease=timedelta(minutes=1))
    assert reconcile.questions_due() == []
    assert reconcile.answer_question(effect_id) == "taken"
    assert book.witness.requests("GET") == []
    # Whoever asked it was lost: it is asked after the lease.
    LookRequest.objects.filter(effect_id=effect_id).update(lease_until=Now() - timedelta(seconds=1))
    assert reconcile.answer_question(effect_id) == "absent"
    assert book.standing(effect_id) == ("pending", "ready")


def test_a_question_about_what_was_refused_finds_it_made(book: Book) -> None:
    """It contradicts the ledger: a person looks, and nothing is sent meanwhile."""
    proposal = book.propose("ledger.ticket")
    _, attempt = book.claim(proposal.effect_id)
    book.settle(proposal.effect_id, attempt, Outcome.REFUSED, status="422", problem="no")
    book.witness.post("/v1/tickets", {**TICKET, "external_id": proposal.effect_id})
    book.strangers += 1
    ask(book, proposal.effect_id)
    reconcile.answer_question(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")
    assert book.reviews(proposal.effect_id) == ["contradiction"]
    assert not moves.make_ready_again(proposal.effect_id)


def test_asked_in_flight_nothing_is_proven(book: Book) -> None:
    proposal = book.propose("ledger.ticket")
    book.claim(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(last_sent_at=Now() - timedelta(hours=1))
    ask(book, proposal.effect_id)
    assert reconcile.answer_question(proposal.effect_id) == "absent"
    assert book.standing(proposal.effect_id) == ("pending", "in_flight")


@pytest.mark.parametrize("dedup", [Dedup.NATURAL, Dedup.KEY])
def test_a_reviewed_effect_is_not_made_ready_by_proof(book: Book, dedup: Dedup) -> None:
    effect_id = lost(book, "ledger.ticket" if dedup == Dedup.NATURAL else "ledger.proving_offer")
    moves.open_review(book.effect(effect_id), ReviewReason.CONTRADICTION, "?")
    look(book, effect_id)
    assert book.standing(effect_id) == ("pending", "uncertain")
    assert counted(book, effect_id) == (1, True)
