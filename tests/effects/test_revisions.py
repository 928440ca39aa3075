"""The machine may change its mind before the first attempt, at most three times; afterwards it is a conflict."""

from __future__ import annotations

import pytest

from effects.intents import Conflict
from effects.models import EffectRevision
from effects.selectors import payload_of, revision_of
from effects.states import Decision, Outcome
from tests.effects.book import Book


def test_another_payload_before_the_first_attempt_is_revision_two(book: Book) -> None:
    first = book.propose()
    second = book.propose(amount_minor=900)

    assert second.effect_id == first.effect_id
    assert (first.revision, second.revision) == (1, 2)
    effect = book.effect(first.effect_id)
    assert (effect.revision, effect.request_hash) == (2, second.request_hash)
    assert book.standing(effect.id) == ("pending", "ready")
    book.perform(effect.id)
    assert book.witness.effects()[0]["document"]["amount_minor"] == 900


def test_another_payload_voids_the_grant(book: Book) -> None:
    effect = book.approved()
    assert effect.grant_hash == effect.request_hash

    book.propose("ledger.asked_offer", amount_minor=900)

    changed = book.effect(effect.id)
    assert (changed.grant_approval_id, changed.grant_revision, changed.grant_hash, changed.grant_until) == (
        "",
        None,
        "",
        None,
    )
    assert book.standing(effect.id) == ("pending", "recorded")
    book.perform(effect.id)
    assert book.witness.rx == (0, 0)


def test_the_first_payload_again_after_a_change_of_mind_is_a_revision_of_its_own(book: Book) -> None:
    book.propose()
    book.propose(amount_minor=900)
    assert book.propose().revision == 3


def test_the_machine_changes_its_mind_three_times_then_a_person_looks(book: Book) -> None:
    proposal = book.propose()
    for amount in (900, 800):
        book.propose(amount_minor=amount)

    with pytest.raises(Conflict):
        book.propose(amount_minor=700)

    effect = book.effect(proposal.effect_id)
    assert effect.revision == 3
    # The command failed, and what a person has to look at outlives its transaction.
    assert book.reviews(effect.id) == ["contradiction"]
    book.perform(effect.id)
    assert book.witness.rx == (0, 0)


def test_a_persons_edit_stands_while_the_machine_asks_for_the_same(book: Book) -> None:
    proposal = book.propose("ledger.asked_offer")
    asked = book.ask(proposal.effect_id, allows=(Decision.APPROVE, Decision.EDIT, Decision.REJECT))
    book.decide(asked, Decision.EDIT, answer={"amount_minor": 850})

    again = book.propose("ledger.asked_offer")

    assert again.revision == 2
    effect = book.effect(proposal.effect_id)
    payload = payload_of(effect, revision_of(effect))
    assert isinstance(payload, dict)
    assert payload["amount_minor"] == 850


@pytest.mark.parametrize("fault", [None, "drop_after_commit", "429", "401"])
def test_after_an_attempt_another_payload_is_a_conflict(book: Book, fault: str | None) -> None:
    """Also once it is completed: the payload is compared before a stored result is given back."""
    proposal = book.propose()
    if fault:
        book.witness.order(fault)
    assert bool(book.refusal(proposal.effect_id)) is (fault == "401")
    before = book.effect(proposal.effect_id)

    with pytest.raises(Conflict):
        book.propose(amount_minor=900)

    after = book.effect(proposal.effect_id)
    assert {**after.__dict__, "_state": None} == {**before.__dict__, "_state": None}
    assert EffectRevision.objects.filter(effect=after).count() == 1
    # What it was, it can still be asked for.
    assert book.propose().effect_id == proposal.effect_id


def test_while_an_attempt_is_under_way_another_payload_is_a_conflict(book: Book) -> None:
    proposal = book.propose()
    _, attempt = book.claim(proposal.effect_id)
    with pytest.raises(Conflict):
        book.propose(amount_minor=900)
    assert book.standing(proposal.effect_id) == ("pending", "in_flight")
    assert attempt.outcome == Outcome.SENDING


def test_a_change_of_mind_about_whom_it_is_for_moves_the_customer_too(book: Book) -> None:
    """Pages and searches find an effect by its customer: that of the bytes that will be sent."""
    proposal = book.propose()
    book.propose(customer_id="cus_000002")
    effect = book.effect(proposal.effect_id)
    assert effect.recipient == "cus_000002"
    assert effect.customer_ref == "cus_000002"
