"""Compensation: an effect of its own type, linked to its original and never more than it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import IntegrityError, ProgrammingError, transaction
from django.db.models.functions import Now

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, NotFound
from console.models import AuditEvent
from effects.commands.compensate import compensate, left_to_compensate
from effects.contracts import contract
from effects.models import Effect, Order
from effects.states import Decision, OrderStatus
from tests.effects.book import Book, at_once
from tests.effects.ordering import agree, carry_out, decide, refreshed
from tests.people import make_world

CREDIT = {"customer_id": "cus_000001", "amount_minor": 400, "currency": "USD"}


def credit(book: Book, effect_id: str, by: Any = None, **payload: Any) -> Order:
    return compensate(
        book.world.actor(by or book.world.releaser),
        effect_id,
        effect_type="ledger.credit",
        payload={**CREDIT, **payload},
        reason="The customer gave a part back.",
        token=uuid.uuid4().hex,
    )


def completed(book: Book, effect_type: str = "ledger.offer") -> str:
    proposal = book.propose(effect_type)
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("completed", "")
    return proposal.effect_id


def left(book: Book, effect_id: str) -> int:
    takes = contract("ledger.credit").compensates
    assert takes is not None
    return left_to_compensate(book.effect(effect_id), takes)


def test_it_is_an_effect_of_its_own_that_a_second_person_approves(book: Book) -> None:
    original = completed(book)
    order = credit(book, original)
    made = Effect.objects.get(id=order.sends_id)
    assert (made.effect_type, made.compensates_id, made.amount_minor) == ("ledger.credit", original, 400)
    assert (made.run_id, made.sub_state) == (book.run.run_id, "awaiting_approval")
    assert book.witness.rx == (1, 1)
    agree(book, order)
    assert "has it as" in carry_out(order)
    assert book.witness.rx == (2, 2)
    assert [one["path"] for one in book.witness.requests()] == ["/v1/offers", "/v1/invoices"]
    assert book.effect(original).status == "completed"


def test_it_never_passes_the_originals_amount(book: Book) -> None:
    original = completed(book)
    for amount in (400, 600):
        order = credit(book, original, amount_minor=amount)
        agree(book, order)
        carry_out(order)
    assert left(book, original) == 0
    with pytest.raises(Invalid, match="0 of 1000") as refusal:
        credit(book, original, amount_minor=1)
    assert refusal.value.field == "amount_minor"
    assert book.witness.rx == (3, 3)


def test_what_is_about_to_be_taken_back_counts(book: Book) -> None:
    original = completed(book)
    first = credit(book, original, amount_minor=700)
    with pytest.raises(Invalid, match="300 of 1000"):
        credit(book, original, amount_minor=301)
    decide(book, first, Decision.REJECT, reason="Not yet.")
    assert left(book, original) == 1000


def test_what_could_not_be_sent_counts_no_more(book: Book) -> None:
    original = completed(book)
    order = credit(book, original)
    agree(book, order)
    assert left(book, original) == 600
    book.point("http://127.0.0.1:9")
    carry_out(order)
    Effect.objects.filter(id=order.sends_id).update(give_up_at=Now(), due_at=Now())
    assert "could not be reached" in carry_out(order)
    assert book.standing(order.sends_id) == ("failed", "cancelled")
    assert left(book, original) == 1000
    book.point(book.witness.receiver)
    again = credit(book, original, amount_minor=1000)
    agree(book, again)
    assert "has it as" in carry_out(again)
    assert left(book, original) == 0


def test_two_at_once_do_not_pass_it_together(kept: Book) -> None:
    original = completed(kept)
    assert kept.world.releaser
    answers = at_once(6, lambda n: credit(kept, original, amount_minor=600))
    assert sum(isinstance(one, Order) for one in answers) == 1
    assert all(isinstance(one, (Order, Invalid)) for one in answers)


def test_the_whole_is_taken_back_once(book: Book) -> None:
    original = completed(book, "ledger.ticket")

    def close() -> Order:
        return compensate(
            book.world.actor(book.world.releaser),
            original,
            effect_type="ledger.close_ticket",
            payload=CREDIT,
            reason="It was opened by mistake.",
            token=uuid.uuid4().hex,
        )

    order = close()
    with pytest.raises(AlreadyDone, match="taken back already"):
        close()
    agree(book, order)
    carry_out(order)
    with pytest.raises(AlreadyDone, match="taken back already"):
        close()
    assert Effect.objects.filter(compensates=original).count() == 1


@pytest.mark.parametrize("amount", [0, -1, 1001])
def test_an_amount_that_is_none_or_too_much_makes_nothing(book: Book, amount: int) -> None:
    original = completed(book)
    with pytest.raises(Invalid):
        credit(book, original, amount_minor=amount)
    assert Order.objects.count() == 0
    assert Effect.objects.filter(compensates=original).count() == 0


def test_only_what_the_receiver_has_is_taken_back(book: Book) -> None:
    proposal = book.propose()
    with pytest.raises(AlreadyDone, match="not completed"):
        credit(book, proposal.effect_id)


def test_another_type_takes_nothing_back(book: Book) -> None:
    original = completed(book, "ledger.ticket")
    with pytest.raises(Invalid, match="not declared to take back"):
        credit(book, original)
    with pytest.raises(AlreadyDone, match="No contract says"):
        credit(book, completed(book, "ledger.mail"))


def test_roles_and_workspaces(book: Book) -> None:
    original = completed(book)
    for person in (book.world.operator, book.world.approver, book.world.auditor):
        with pytest.raises(Forbidden):
            credit(book, original, by=person)
    other = make_world("other")
    with pytest.raises(NotFound):
        compensate(
            other.actor(other.releaser),
            original,
            effect_type="ledger.credit",
            payload=CREDIT,
            reason="?",
            token="t",
        )
    assert Effect.objects.filter(compensates=original).count() == 0
    assert AuditEvent.objects.filter(verb="order.not_taken", subject=original).count() == 4


def test_the_link_never_changes(book: Book) -> None:
    order = credit(book, completed(book))
    with pytest.raises(ProgrammingError, match="identity"), transaction.atomic():
        Effect.objects.filter(id=order.sends_id).update(compensates=None)
    with pytest.raises(IntegrityError), transaction.atomic():
        book.standing_as(book.effect(order.sends_id), successor_of_id=order.effect_id)


def test_an_original_that_is_settled_otherwise_meanwhile_is_not_taken_back(book: Book) -> None:
    """It cannot be, since a completed effect never changes; the order's own look says so all the same."""
    order = credit(book, completed(book))
    agree(book, order)
    carry_out(order)
    assert refreshed(order).status == OrderStatus.DONE
