"""Settling a review: which decisions the rules allow, by whom, with what evidence, and what moves."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from console.kernel.canonical import canonicalise
from console.kernel.crypto import seal
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound
from console.models import AuditEvent, Membership, User
from effects import moves, reconcile
from effects.commands.ask_receiver import ask_receiver
from effects.commands.settle_review import confirm, decline, outcomes_of, settle_review
from effects.ledger import Refused, Wait
from effects.models import Effect, EffectRevision, Order, Review
from effects.origin import Result
from effects.selectors import request_of, worth_a_visit
from effects.states import Decision, OrderStatus, ReviewOutcome, ReviewReason
from tests.effects.book import TICKET, Book, rows_of_all_tables
from tests.effects.ordering import carry_out, decide, deliver_again
from tests.effects.test_repeat import held, uncertain
from tests.people import make_world


def review_of(book: Book, effect_id: str) -> Review:
    return Review.objects.select_related("effect__receiver").get(effect=effect_id, closed_at=None)


def settle(
    book: Book, review: Review, outcome: ReviewOutcome, by: User | None = None, **given: Any
) -> Review:
    usual = {"reason": "I called them.", "token": uuid.uuid4().hex, "evidence": "REF-7"}
    return settle_review(
        book.world.actor(by or book.world.releaser), review.id, outcome=outcome, **{**usual, **given}
    )


def reversible(book: Book) -> Review:
    """Uncertain, of a type that can be undone."""
    effect_id = uncertain(book, "ledger.queried_ticket")
    moves.open_review(book.effect(effect_id), ReviewReason.UNQUERYABLE, "Six looks settled nothing.")
    return review_of(book, effect_id)


def test_it_was_done_completes_the_effect_with_the_evidence(book: Book) -> None:
    review = reversible(book)
    settled = settle(book, review, ReviewOutcome.DONE)
    assert (settled.settled_as, settled.settled_by, settled.evidence) == (
        "done",
        book.world.releaser,
        "REF-7",
    )
    effect = book.effect(review.effect_id or "")
    assert (effect.status, effect.provider_reference) == ("completed", "REF-7")
    result = book.perform(effect.id)
    assert isinstance(result, Result)
    assert result.reference == "REF-7"
    assert AuditEvent.objects.filter(subject=review.id, verb="review.settled").count() == 1


def test_it_was_not_done_fails_it_for_good(book: Book) -> None:
    review = reversible(book)
    settle(book, review, ReviewOutcome.NOT_DONE, evidence="")
    assert book.standing(review.effect_id or "") == ("failed", "cancelled")
    with pytest.raises(Refused, match="settled as not done"):
        book.perform(review.effect_id or "")
    assert book.witness.rx == (1, 1)


def test_it_was_not_done_and_is_sent_by_an_order_of_its_own(book: Book) -> None:
    effect_id = uncertain(book, "ledger.queried_ticket", made=False)
    moves.open_review(book.effect(effect_id), ReviewReason.UNQUERYABLE, "Nothing settled it.")
    settle(book, review_of(book, effect_id), ReviewOutcome.SEND, evidence="")
    order = Order.objects.get(sends=effect_id)
    assert order.status == OrderStatus.DUE
    assert "has it as" in carry_out(order)
    assert book.outcomes(effect_id) == ["unknown", "completed"]
    assert book.witness.rx == (1, 2)


def test_an_irreversible_type_takes_two_people(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    review = review_of(book, effect_id)
    settle(book, review, ReviewOutcome.DONE)
    assert book.standing(effect_id) == ("pending", "uncertain"), "only proposed"
    assert book.reviews(effect_id) == ["unqueryable"]
    with pytest.raises(Forbidden, match="you proposed this"):
        confirm(book.world.actor(book.world.releaser), review.id, token="c1")
    with pytest.raises(Forbidden):
        confirm(book.world.actor(book.world.operator), review.id, token="c2")
    confirm(book.world.actor(book.world.approver), review.id, token="c3")
    assert book.standing(effect_id) == ("completed", "")
    closed = Review.objects.get(id=review.id)
    assert (closed.settled_by, closed.confirmed_by) == (book.world.releaser, book.world.approver)


def test_found_not_done_with_an_approver_it_is_sent_in_the_releasers_name(book: Book) -> None:
    """A second person need be no releaser: an order in their name would be refused when it is carried out."""
    effect_id = uncertain(book, "ledger.mail")
    review = review_of(book, effect_id)
    settle(book, review, ReviewOutcome.SEND, evidence="")
    confirm(book.world.actor(book.world.approver), review.id, token="c1")
    order = Order.objects.get(sends=effect_id)
    assert order.asked_by == book.world.releaser
    assert "has it as" in carry_out(order)


def test_a_proposal_of_somebody_who_may_not_settle_any_more_is_not_confirmed(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    review = review_of(book, effect_id)
    settle(book, review, ReviewOutcome.DONE)
    Membership.objects.filter(user=book.world.releaser).update(roles=["viewer"])
    with pytest.raises(AlreadyDone, match="may no longer settle reviews"):
        confirm(book.world.actor(book.world.approver), review.id, token="c1")
    assert book.reviews(effect_id) == ["unqueryable"]


def test_the_second_person_may_not_agree(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    review = review_of(book, effect_id)
    settle(book, review, ReviewOutcome.NOT_DONE, evidence="")
    second = book.world.actor(book.world.approver)
    with pytest.raises(Invalid):
        decline(second, review.id, reason=" ", token="d1")
    decline(second, review.id, reason="The customer has it.", token="d2")
    assert Review.objects.get(id=review.id).proposed_by is None
    assert book.standing(effect_id) == ("pending", "uncertain")
    with pytest.raises(AlreadyDone, match="nothing to agree with"):
        confirm(second, review.id, token="d3")


@pytest.mark.parametrize(
    ("outcome", "given", "field"),
    [
        (ReviewOutcome.DONE, {"evidence": " "}, "evidence"),
        (ReviewOutcome.DONE, {"evidence": "x" * 201}, "evidence"),
        (ReviewOutcome.DONE, {"evidence": "a\nb"}, "evidence"),
        (ReviewOutcome.DONE, {"reason": ""}, "reason"),
        (ReviewOutcome.NOT_DONE, {"reason": "  "}, "reason"),
    ],
)
def test_without_evidence_or_reason_nothing_moves(
    book: Book, outcome: ReviewOutcome, given: dict[str, Any], field: str
) -> None:
    review = reversible(book)
    with pytest.raises(Invalid) as refusal:
        settle(book, review, outcome, **given)
    assert refusal.value.field == field
    assert book.standing(review.effect_id or "") == ("pending", "uncertain")
    assert book.reviews(review.effect_id or "") == ["unqueryable"]


def test_the_reference_of_another_effect_is_no_evidence(book: Book) -> None:
    """Each of its type makes an object of its own: whoever types another's number is told so, beside the field."""
    like = book.effect(uncertain(book, "ledger.offer"))
    book.standing_as(
        like,
        creates=True,
        status="completed",
        sub_state="",
        unresolved=False,
        provider_reference="REF-7",
        settled_at=Now(),
    )
    mine = book.standing_as(like, creates=True)
    moves.open_review(mine, ReviewReason.UNQUERYABLE, "Six looks settled nothing.")
    with pytest.raises(Invalid, match="another effect already") as refusal:
        settle(book, review_of(book, mine.id), ReviewOutcome.DONE)
    assert refusal.value.field == "evidence"
    assert book.reviews(mine.id) == ["unqueryable"]


def test_what_the_rules_allow_follows_from_where_the_effect_stands(book: Book) -> None:
    def allowed(review: Review) -> set[ReviewOutcome]:
        return {outcome for outcome, why_not in outcomes_of(review).items() if not why_not}

    everything_said = {ReviewOutcome.DONE, ReviewOutcome.NOT_DONE, ReviewOutcome.SEND}
    assert allowed(reversible(book)) == everything_said

    proposal = book.propose(key="two")
    book.perform(proposal.effect_id)
    moves.open_review(book.effect(proposal.effect_id), ReviewReason.DUPLICATE_FOUND, "There are two.")
    assert allowed(review_of(book, proposal.effect_id)) == {ReviewOutcome.STANDS}

    flying = book.propose(key="three")
    book.claim(flying.effect_id)
    moves.open_review(book.effect(flying.effect_id), ReviewReason.MISMATCH, "?")
    assert allowed(review_of(book, flying.effect_id)) == set()

    never_sent = held(book, key="four")
    moves.open_review(book.effect(never_sent), ReviewReason.CONTRADICTION, "The receiver has it.")
    assert allowed(review_of(book, never_sent)) == {
        ReviewOutcome.DONE,
        ReviewOutcome.NOT_DONE,
        ReviewOutcome.STANDS,
    }


def test_a_failed_effect_that_the_receiver_has_is_completed_only_so(book: Book) -> None:
    there = book.standing_as(book.approved(), status="failed", sub_state="cancelled", settled_at=Now())
    moves.open_review(there, ReviewReason.CONTRADICTION, "A webhook says that it was created.")
    settle(book, review_of(book, there.id), ReviewOutcome.DONE)
    assert book.standing(there.id) == ("completed", "")


def test_a_completed_effect_stays_and_the_review_says_what_was_done(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    moves.open_review(book.effect(proposal.effect_id), ReviewReason.DUPLICATE_FOUND, "There are two.")
    review = review_of(book, proposal.effect_id)
    with pytest.raises(AlreadyDone, match="never changes"):
        settle(book, review, ReviewOutcome.NOT_DONE)
    settle(book, review, ReviewOutcome.STANDS, reason="The second one was deleted at the CRM.", evidence="")
    assert book.reviews(proposal.effect_id) == []


def test_the_same_form_twice_settles_once_and_another_one_is_told(book: Book) -> None:
    review = reversible(book)
    token = uuid.uuid4().hex
    settle(book, review, ReviewOutcome.DONE, token=token)
    settle(book, review, ReviewOutcome.DONE, token=token)
    with pytest.raises(AlreadyDone, match="settled already by Releaser"):
        settle(book, review, ReviewOutcome.NOT_DONE)
    assert AuditEvent.objects.filter(subject=review.id, verb="review.settled").count() == 1


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "auditor", "developer", "administrator"])
def test_only_a_releaser_settles(book: Book, role: str) -> None:
    review = reversible(book)
    person = getattr(book.world, role)
    with pytest.raises(Forbidden):
        settle(book, review, ReviewOutcome.DONE, by=person)
    assert AuditEvent.objects.filter(subject=review.id, verb="review.not_settled", actor=person).count() == 1
    assert settle(book, review, ReviewOutcome.DONE).closed_at


def test_a_review_of_another_workspace_is_not_there(book: Book) -> None:
    review = reversible(book)
    other = make_world("other")
    actor = other.actor(other.releaser)
    before = rows_of_all_tables()
    with pytest.raises(NotFound):
        settle_review(actor, review.id, outcome=ReviewOutcome.DONE, reason="?", token="t", evidence="REF")
    after = rows_of_all_tables()
    assert {name for name in after if after[name] != before[name]} == {"console_auditevent"}


def test_an_orphan_is_noted(book: Book) -> None:
    review = Review.objects.create(
        workspace=book.world.workspace,
        reason=ReviewReason.ORPHAN,
        provider_object="off_000099",
        sentence="The receiver has off_000099, which carries an id of ours and has no row.",
    )
    with pytest.raises(AlreadyDone, match="no effect of ours"):
        settle(book, review, ReviewOutcome.DONE)
    settle(book, review, ReviewOutcome.STANDS, evidence="")
    assert Review.objects.get(id=review.id).closed_at


def accepted(book: Book) -> str:
    """Taken by the receiver, its final result due long ago."""
    proposal = book.propose()
    book.witness.order("202_webhook", final="never")
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("accepted", "")
    Effect.objects.filter(id=proposal.effect_id).update(final_by=Now() - timedelta(seconds=1))
    reconcile.review_what_is_overdue()
    assert book.reviews(proposal.effect_id) == ["deadline_passed"]
    return proposal.effect_id


def test_an_accepted_one_that_may_wait_longer_has_a_deadline_again(book: Book) -> None:
    effect_id = accepted(book)
    settle(book, review_of(book, effect_id), ReviewOutcome.STANDS, reason="They are slow today.", evidence="")
    assert book.reviews(effect_id) == []
    reconcile.review_what_is_overdue()
    assert book.reviews(effect_id) == []
    assert Effect.objects.filter(id=effect_id, final_by__gt=Now()).exists()
    Effect.objects.filter(id=effect_id).update(final_by=Now())
    reconcile.review_what_is_overdue()
    assert book.reviews(effect_id) == ["deadline_passed"], "somebody is responsible again"


def test_a_completed_effect_that_is_provably_not_there_is_contradicted(book: Book) -> None:
    proposal = book.propose("ledger.ticket")
    book.perform(proposal.effect_id)
    before = book.effect(proposal.effect_id)
    there = book.standing_as(before, last_sent_at=Now() - timedelta(hours=1), provider_reference="tic_gone")
    revision = EffectRevision.objects.get(effect=before)
    EffectRevision.objects.create(
        effect=there,
        n=1,
        payload=seal(canonicalise(TICKET), workspace=there.workspace_id, owner=there.id),
        request=seal(request_of(before, revision), workspace=there.workspace_id, owner=there.id),
        shown=revision.shown,
        recipient=revision.recipient,
        request_hash=revision.request_hash,
    )
    asked = ask_receiver(book.world.actor(book.world.operator), there.id, token="ask")
    assert reconcile.answer_question(there.id) == "absent"
    assert book.standing(there.id) == ("completed", "")
    assert book.reviews(there.id) == ["contradiction"]
    assert AuditEvent.objects.filter(subject=there.id, verb="receiver.asked").count() == 1
    with pytest.raises(KeyReused):
        ask_receiver(book.world.actor(book.world.operator), proposal.effect_id, token=asked.token)


def test_a_run_is_visited_that_an_orders_request_kept_from_asking(book: Book) -> None:
    """The order asked in its place, and was turned down: nobody else would ask again."""
    effect = book.approved()
    Effect.objects.filter(id=effect.id).update(grant_until=Now())
    order = deliver_again(book, effect.id)
    assert isinstance(book.perform(effect.id), Wait)
    assert book.standing(effect.id) == ("pending", "awaiting_approval")
    assert not worth_a_visit([effect.id]).exists(), "the order is open"
    decide(book, order, Decision.REJECT, reason="Not now.")
    assert worth_a_visit([effect.id]).exists()
    assert book.ask(effect.id, interrupt=f"for {effect.id}").round == 2
    assert not worth_a_visit([effect.id]).exists(), "somebody is asked"
