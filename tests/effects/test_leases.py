"""Senders that are lost, or late: the fence protects the ledger, and what they bring afterwards is evidence."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.db.models.functions import Now

from console.management.commands.sweep import Sweep
from effects import moves, reconcile
from effects.contracts import contracts
from effects.models import Effect, EffectAttempt, Observation
from effects.states import Outcome
from tests.effects.book import Book, at_once
from tests.effects.test_repeat import uncertain

FOUND = {"status": "201", "reference": "off_1", "body": {"id": "off_1"}}


def test_a_lost_lease_makes_it_uncertain_and_the_attempt_unknown(book: Book) -> None:
    proposal = book.propose()
    _, attempt = book.claim(proposal.effect_id)
    assert reconcile.lose_leases() == []
    book.lose(proposal.effect_id)

    assert reconcile.lose_leases() == [proposal.effect_id]

    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.ended_at is None) == ("unknown", False)
    assert "lost" in attempt.problem
    # By key it is simply repeated.
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown", "completed"]
    assert book.witness.rx == (1, 1)


def test_a_lease_that_is_over_lets_nobody_else_send(book: Book) -> None:
    """It permits a look, after the sweep has noticed; it is no permission to send."""
    proposal = book.propose("ledger.ticket")
    book.claim(proposal.effect_id)
    book.lose(proposal.effect_id)
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["sending"]


def test_a_lost_mail_goes_to_review(book: Book) -> None:
    proposal = book.propose("ledger.mail")
    book.claim(proposal.effect_id)
    book.lose(proposal.effect_id)
    reconcile.lose_leases()
    assert book.reviews(proposal.effect_id) == ["unqueryable"]
    book.perform_now(proposal.effect_id)
    assert book.witness.mails(proposal.effect_id) == []


def sweep_the_ledger() -> None:
    """One turn of the sweep's duties for effects; as in the sweep, one that fails stops no other."""
    for duty in Sweep().duties:
        if getattr(duty, "__module__", "") == reconcile.__name__:
            with suppress(Exception):
                duty()


def test_a_sweep_that_dies_after_taking_a_lease_leaves_no_mail_without_its_review(book: Book) -> None:
    """The rows are the truth: what one turn did not finish, the next one finds."""
    proposal = book.propose("ledger.mail")
    book.claim(proposal.effect_id)
    book.lose(proposal.effect_id)
    moves.lose_lease(proposal.effect_id)  # … and the process is killed here, had it committed between the two

    sweep_the_ledger()

    assert book.reviews(proposal.effect_id) == ["unqueryable"]


def test_an_effect_whose_contract_is_gone_keeps_no_other_from_its_review(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment that dropped a type must not leave the others' lost mails without a person being told."""
    first = book.propose("ledger.mail", key="one").effect_id
    gone = book.propose("ledger.ticket").effect_id
    last = book.propose("ledger.mail", key="two").effect_id
    for effect_id in (first, gone, last):
        book.claim(effect_id)
        book.lose(effect_id)
    monkeypatch.delitem(contracts(), "ledger.ticket")

    sweep_the_ledger()
    sweep_the_ledger()

    assert book.standing(gone) == ("pending", "uncertain")
    assert (book.reviews(first), book.reviews(last)) == (["unqueryable"], ["unqueryable"])


# Late answers


def lost_sender(book: Book, effect_type: str = "ledger.offer") -> tuple[str, EffectAttempt]:
    """A sender that was taken for dead and is not: its effect is uncertain, its answer is still to come."""
    proposal = book.propose(effect_type)
    _, attempt = book.claim(proposal.effect_id)
    book.lose(proposal.effect_id)
    reconcile.lose_leases()
    return proposal.effect_id, attempt


def test_a_late_answer_is_an_observation_and_completes_by_evidence(book: Book) -> None:
    effect_id, attempt = lost_sender(book)

    book.settle(effect_id, attempt, Outcome.COMPLETED, **FOUND)

    effect = book.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", "off_1")
    # The attempt had ended, and its row stays as it ended.
    assert book.outcomes(effect_id) == ["unknown"]
    seen = Observation.objects.get(effect_id=effect_id)
    assert (seen.kind, seen.found, seen.provider_reference) == ("late_answer", "found", "off_1")


def test_a_late_answer_closes_the_review_that_it_answers(book: Book) -> None:
    effect_id, attempt = lost_sender(book, "ledger.mail")
    assert book.reviews(effect_id) == ["unqueryable"]
    book.settle(effect_id, attempt, Outcome.COMPLETED, status="250", reference="<id>")
    assert book.standing(effect_id) == ("completed", "")
    assert book.reviews(effect_id) == []


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.NOT_SENT, Outcome.UNKNOWN, Outcome.ACCEPTED])
def test_a_late_answer_that_proves_nothing_changes_nothing(book: Book, outcome: Outcome) -> None:
    effect_id, attempt = lost_sender(book)
    before = Effect.objects.filter(id=effect_id).values().get()
    book.settle(effect_id, attempt, outcome, status="422", problem="no")
    assert Effect.objects.filter(id=effect_id).values().get() == before
    assert Observation.objects.filter(effect_id=effect_id, kind="late_answer").count() == 1


def test_a_late_answer_while_another_sender_is_under_way_does_not_disturb_it(book: Book) -> None:
    effect_id, first = lost_sender(book)
    _, second = book.claim(effect_id)
    book.settle(effect_id, first, Outcome.COMPLETED, **FOUND)
    book.settle(effect_id, second, Outcome.COMPLETED, **FOUND)
    effect = book.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", "off_1")
    assert Observation.objects.filter(effect_id=effect_id, found="found").exists()


def test_evidence_that_came_while_another_sender_was_under_way_is_not_forgotten(book: Book) -> None:
    """The first sender's answer proves the effect; the second one's loss must not leave it uncertain."""
    effect_id, first = lost_sender(book)
    _, second = book.claim(effect_id)
    book.settle(effect_id, first, Outcome.COMPLETED, **FOUND)
    book.settle(effect_id, second, Outcome.UNKNOWN, problem="No usable answer came")
    assert book.standing(effect_id) == ("completed", "")


def test_late_evidence_after_proven_absence_keeps_it_from_being_sent_again(book: Book) -> None:
    """The look said "absent", and then the first sender's answer came through: it must not go out a second time."""
    effect_id, attempt = lost_sender(book, "ledger.ticket")
    book.pass_settle_time(effect_id)
    assert reconcile.look(effect_id) == "absent"
    assert book.standing(effect_id) == ("pending", "ready")

    book.settle(effect_id, attempt, Outcome.COMPLETED, status="201", reference="tic_1", body={"id": "tic_1"})

    book.perform(effect_id)
    assert book.witness.requests() == []
    assert book.standing(effect_id) == ("completed", "") or book.reviews(effect_id) == ["contradiction"]


def test_late_evidence_about_a_cancelled_effect_is_a_contradiction_for_a_person(book: Book) -> None:
    """The ledger says that nothing exists; the receiver has just said that it does."""
    effect_id, attempt = lost_sender(book, "ledger.ticket")
    book.pass_settle_time(effect_id)
    reconcile.look(effect_id)
    assert moves.cancel_unsent(book.run.run_id) == 1

    book.settle(effect_id, attempt, Outcome.COMPLETED, status="201", reference="tic_1", body={"id": "tic_1"})

    assert book.standing(effect_id) == ("failed", "cancelled")
    assert book.reviews(effect_id) == ["contradiction"]


def test_late_evidence_that_contradicts_a_completed_effect_opens_a_review(book: Book) -> None:
    """Completed by a look as one object; the late answer names another: there are two."""
    effect_id, attempt = lost_sender(book)
    assert moves.complete_by_evidence(effect_id, reference="off_1", answer=b"sealed")
    book.settle(effect_id, attempt, Outcome.COMPLETED, **{**FOUND, "reference": "off_2"})
    effect = book.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", "off_1")
    assert book.reviews(effect_id) != []


def test_the_sweep_and_the_senders_answer_at_once_settle_it_once(kept: Book) -> None:
    """Whoever comes first: the attempt ends once, and the answer completes it either way."""
    for number in range(5):
        proposal = kept.propose(key=str(number))
        _, attempt = kept.claim(proposal.effect_id)
        kept.lose(proposal.effect_id)
        found = {**FOUND, "reference": f"off_{number}"}
        race = [
            lambda: reconcile.lose_leases(),
            lambda a=attempt, e=proposal.effect_id, found=found: kept.settle(
                e, a, Outcome.COMPLETED, **found
            ),
        ]
        answers = at_once(2, lambda i, race=race: race[i]())  # type: ignore[misc]
        assert not [one for one in answers if isinstance(one, Exception)], answers
        assert kept.standing(proposal.effect_id) == ("completed", "")
        assert kept.outcomes(proposal.effect_id)[0] in ("completed", "unknown")


def test_a_cancelled_runs_unsent_effects_are_cancelled_and_the_others_stay(book: Book) -> None:
    ready = book.propose(key="ready").effect_id
    sending = book.propose(key="sending").effect_id
    book.claim(sending)
    uncertain, _ = lost_sender(book, "ledger.ticket")
    done = book.propose(key="done").effect_id
    book.perform(done)

    assert moves.cancel_unsent(book.run.run_id) == 1

    assert book.standing(ready) == ("failed", "cancelled")
    assert book.standing(sending) == ("pending", "in_flight")
    assert book.standing(uncertain) == ("pending", "uncertain")
    assert book.standing(done) == ("completed", "")
    assert Effect.objects.filter(id=ready, settled_at__lte=Now()).exists()


@pytest.mark.parametrize("effect_type", ["ledger.gone", "ledger.blind_ticket", "ledger.unasked_key"])
def test_what_its_contract_no_longer_says_how_to_look_up_goes_to_a_person(
    book: Book, effect_type: str
) -> None:
    """By a natural key it was to be looked up; the contract is gone since, or has lost its look-up."""
    there = book.standing_as(
        book.effect(uncertain(book, "ledger.ticket")), effect_type=effect_type, dedup="N", due_at=Now()
    )
    assert there.id not in reconcile.looks_due()
    reconcile.review_what_nobody_can_settle()
    reconcile.review_what_nobody_can_settle()
    assert book.reviews(there.id) == ["unqueryable"]
