"""Until the newest probe of a type at an account has passed, nothing of it is sent a second time without a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from effects import moves, reconcile, selectors
from effects.contracts import contract
from effects.ledger import Wait
from effects.models import Effect, EffectAttempt, Probe, Receiver, Review
from effects.offers import offers
from effects.origin import Result
from effects.selectors import repeatable_by_key
from effects.states import OrderKind, ReviewReason
from tests.effects.book import Book
from tests.people import probe_of

#: After *book* opened, there is a passed probe of everything; each of these says what is there instead.
Probes = Callable[[Receiver, str], list[Probe]]


def _none(_receiver: Receiver, _effect_type: str) -> list[Probe]:
    return []


def _failed(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [probe_of(receiver, contract(effect_type), passed=False)]


def _older_version(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [probe_of(receiver, contract(effect_type), contract_version=contract(effect_type).version - 1)]


def _other_account(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [probe_of(receiver, contract(effect_type), account="somebody-elses")]


def _other_type(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [probe_of(receiver, contract(effect_type), effect_type="ledger.another")]


def _newest_failed(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [
        probe_of(receiver, contract(effect_type), at=Now() - timedelta(hours=1)),
        probe_of(receiver, contract(effect_type), passed=False),
    ]


def _newest_passed(receiver: Receiver, effect_type: str) -> list[Probe]:
    return [
        probe_of(receiver, contract(effect_type), passed=False, at=Now() - timedelta(hours=1)),
        probe_of(receiver, contract(effect_type)),
    ]


NOT_ENOUGH = [_none, _failed, _older_version, _other_account, _other_type, _newest_failed]


@pytest.fixture
def left(book: Book) -> Callable[[Probes, str], None]:
    """Let there be these probes of a type and no others. Probes are never deleted: the type's are of another receiver."""

    def leave(probes: Probes, effect_type: str) -> None:
        name = contract(effect_type).receiver
        old = Receiver.objects.get(workspace=book.world.workspace, name=name)
        fields = {
            field: getattr(old, field)
            for field in ("base_url", "hosts", "account", "standing", "secret_name")
        }
        Receiver.objects.filter(id=old.id).update(name=f"{name}_before")
        new = Receiver.objects.create(workspace=book.world.workspace, name=name, **fields)
        Probe.objects.bulk_create(probes(new, effect_type))

    return leave


Left = Callable[[Probes, str], None]


def _sentence(effect_id: str) -> str:
    [review] = Review.objects.filter(effect_id=effect_id, closed_at=None)
    assert review.reason == ReviewReason.UNQUERYABLE
    return review.sentence


# By key


@pytest.mark.parametrize("probes", NOT_ENOUGH)
def test_without_a_passed_probe_a_key_is_not_repeated(book: Book, left: Left, probes: Probes) -> None:
    """Inside its window, due, and nothing in the way: it is looked up instead, and found."""
    left(probes, "ledger.offer")
    effect_id = book.propose().effect_id
    book.witness.order("drop_after_commit")
    book.perform(effect_id)

    assert isinstance(book.perform_now(effect_id), Wait)
    assert book.outcomes(effect_id) == ["unknown"]
    assert not selectors.worth_a_visit([effect_id]).exists()
    # At once, and not only when nobody has repeated it for a while.
    assert effect_id in reconcile.looks_due()
    assert reconcile.look(effect_id) == "found"
    assert book.standing(effect_id) == ("completed", "")
    assert book.witness.rx == (1, 1)


def test_with_the_newest_probe_passed_it_is_repeated(book: Book, left: Left) -> None:
    left(_newest_passed, "ledger.offer")
    effect_id = book.propose().effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    assert isinstance(book.perform_now(effect_id), Result)
    assert book.witness.rx == (1, 2)


def test_a_probe_that_passes_meanwhile_lets_it_be_repeated(book: Book, left: Left) -> None:
    left(_none, "ledger.offer")
    effect_id = book.propose().effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    assert isinstance(book.perform_now(effect_id), Wait)
    probe_of(book.effect(effect_id).receiver, contract("ledger.offer")).save(force_insert=True)
    assert isinstance(book.perform_now(effect_id), Result)
    assert book.witness.rx == (1, 2)


def test_a_probe_that_fails_meanwhile_ends_that(book: Book) -> None:
    effect_id = book.propose().effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    book.make_due(effect_id)
    assert Effect.objects.filter(repeatable_by_key(), id=effect_id).exists()
    probe_of(book.effect(effect_id).receiver, contract("ledger.offer"), passed=False).save(force_insert=True)
    assert isinstance(book.perform_now(effect_id), Wait)
    assert Effect.objects.filter(~repeatable_by_key(), id=effect_id).exists()
    assert book.witness.rx == (0, 1)


@pytest.mark.parametrize(
    ("probes", "words"),
    [
        (_none, "ledger.offer has not been probed at this account since version 1"),
        (_newest_failed, "The newest probe of ledger.offer at this account has failed"),
    ],
)
def test_what_looks_do_not_settle_goes_to_a_person_in_words(
    book: Book, left: Left, probes: Probes, words: str
) -> None:
    left(probes, "ledger.offer")
    effect_id = book.propose().effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    for _ in range(reconcile.LOOKS):
        assert book.reviews(effect_id) == []
        book.make_due(effect_id)
        assert reconcile.look(effect_id) == "absent"
    assert words in _sentence(effect_id)
    assert "so it is not sent again by itself" in _sentence(effect_id)
    # The key's window is open: nothing says that it has passed.
    assert "time in which its key" not in _sentence(effect_id)
    assert book.witness.rx == (0, 1)


def test_where_nobody_can_be_asked_it_goes_to_a_person_at_once(book: Book, left: Left) -> None:
    left(_none, "ledger.unasked_key")
    effect_id = book.propose("ledger.unasked_key").effect_id
    book.witness.order("drop_after_commit")
    book.perform(effect_id)
    book.make_due(effect_id)
    assert reconcile.review_expired_keys() == 1
    assert "has not been probed at this account since version 1" in _sentence(effect_id)
    # Once, however often the sweep comes by, and also when the window has passed meanwhile.
    assert reconcile.review_expired_keys() == 0
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1))
    assert reconcile.review_expired_keys() == 0
    assert book.reviews(effect_id) == ["unqueryable"]
    assert book.witness.rx == (1, 1)


def test_a_window_that_has_passed_is_told_as_that(book: Book, left: Left) -> None:
    """No probe would have helped."""
    left(_none, "ledger.unasked_key")
    effect_id = book.propose("ledger.unasked_key").effect_id
    book.witness.order("drop_after_commit")
    book.perform(effect_id)
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1), due_at=Now())
    reconcile.review_expired_keys()
    assert book.reviews(effect_id) == ["key_expired"]


def test_an_approval_that_is_over_is_told_as_that(book: Book) -> None:
    """Neither the key's window nor a probe is the reason."""
    effect = book.approved("ledger.asked_unasked_key")
    book.witness.order("drop_after_commit")
    book.perform(effect.id)
    Effect.objects.filter(id=effect.id).update(grant_until=Now() - timedelta(seconds=1), due_at=Now())
    assert reconcile.review_expired_keys() == 1
    assert book.reviews(effect.id) == ["unqueryable"]
    assert "The approval that it had is over, so it is not sent again by itself." in _sentence(effect.id)
    assert "time" not in _sentence(effect.id)
    [why, *_] = offers(book.effect(effect.id))[OrderKind.DELIVER_AGAIN].warnings
    assert why == "The approval that it had is over. The key still protects a repeat."


@pytest.mark.parametrize(
    ("probes", "passed_since", "why"),
    [
        (_none, timedelta(0), "Whether crm knows its keys is not shown"),
        (_failed, timedelta(0), "Whether crm knows its keys is not shown"),
        (_none, timedelta(days=30), "The time in which the key protects a repeat is over"),
    ],
)
def test_the_screen_says_which_of_them_it_is(
    book: Book, left: Left, probes: Probes, passed_since: timedelta, why: str
) -> None:
    left(probes, "ledger.unasked_key")
    effect_id = book.propose("ledger.unasked_key").effect_id
    book.witness.order("drop_after_commit")
    book.perform(effect_id)
    Effect.objects.filter(id=effect_id).update(key_until=F("key_until") - passed_since)
    offer = offers(book.effect(effect_id))[OrderKind.DELIVER_AGAIN]
    assert offer.overrides
    assert why in offer.warnings[0]
    assert offer.warnings[1] == "If the first one did arrive, it will exist twice."


# By natural key


@pytest.mark.parametrize("probes", NOT_ENOUGH)
def test_without_a_passed_probe_proven_absence_makes_nothing_ready(
    book: Book, left: Left, probes: Probes
) -> None:
    left(probes, "ledger.ticket")
    effect_id = book.propose("ledger.ticket").effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    book.pass_settle_time(effect_id)

    assert reconcile.look(effect_id) == "absent"

    assert book.standing(effect_id) == ("pending", "uncertain")
    assert "desk does not have it" in _sentence(effect_id)
    assert "so it is not sent again by itself" in _sentence(effect_id)
    assert isinstance(book.perform_now(effect_id), Wait)
    assert book.witness.rx == (0, 1)


def test_with_one_it_is_ready_again(book: Book, left: Left) -> None:
    left(_newest_passed, "ledger.ticket")
    effect_id = book.propose("ledger.ticket").effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    book.pass_settle_time(effect_id)
    assert reconcile.look(effect_id) == "absent"
    assert isinstance(book.perform_now(effect_id), Result)
    assert book.witness.rx == (1, 2)


def test_found_later_it_completes_and_the_review_closes(book: Book, left: Left) -> None:
    left(_none, "ledger.ticket")
    effect_id = book.propose("ledger.ticket").effect_id
    book.witness.order("drop_after_commit")
    book.witness.order("stale", match={"method": "GET"})
    book.perform(effect_id)
    book.pass_settle_time(effect_id)
    assert reconcile.look(effect_id) == "absent"
    assert book.reviews(effect_id) == ["unqueryable"]
    book.make_due(effect_id)
    assert reconcile.look(effect_id) == "found"
    assert book.standing(effect_id) == ("completed", "")
    assert book.reviews(effect_id) == []
    assert book.witness.rx == (1, 1)


# What is no second sending


@pytest.mark.parametrize("effect_type", ["ledger.offer", "ledger.ticket", "ledger.mail"])
def test_the_first_sending_needs_no_probe(book: Book, left: Left, effect_type: str) -> None:
    left(_none, effect_type)
    assert isinstance(book.perform(book.propose(effect_type).effect_id), Result)


@pytest.mark.parametrize("fault", ["429", "503_unprocessed"])
def test_what_is_proven_unsent_is_tried_again_without_one(book: Book, left: Left, fault: str) -> None:
    left(_none, "ledger.offer")
    effect_id = book.propose().effect_id
    book.witness.order(fault)
    assert isinstance(book.perform(effect_id), Wait)
    assert book.standing(effect_id) == ("pending", "backoff")
    assert isinstance(book.perform_now(effect_id), Result)
    assert book.outcomes(effect_id) == ["not_sent", "completed"]


def test_a_probes_own_effects_are_repeated_to_find_out(book: Book, left: Left) -> None:
    left(_none, "ledger.offer")
    book.run.run_id = f"prb_{book.run.run_id.removeprefix('run_')}"
    effect_id = book.propose().effect_id
    book.witness.order("drop_after_commit")
    book.perform(effect_id)
    assert isinstance(book.perform_now(effect_id), Result)
    assert book.witness.rx == (1, 2)


@pytest.mark.parametrize("effect_type", ["ledger.offer", "ledger.ticket"])
def test_the_gate_is_in_the_update_itself(book: Book, left: Left, effect_type: str) -> None:
    """Whatever was asked before: who believes that it may be sent again is refused by the row's own condition."""
    left(_none, effect_type)
    effect_id = book.propose(effect_type).effect_id
    book.witness.order("drop_before")
    book.perform(effect_id)
    book.pass_settle_time(effect_id)
    effect = book.effect(effect_id)

    assert not moves.ready_by_proven_absence(effect_id, fence=effect.fence)
    assert _claimed(effect) is None

    probe_of(effect.receiver, contract(effect_type)).save(force_insert=True)
    if effect_type == "ledger.ticket":
        assert moves.ready_by_proven_absence(effect_id, fence=effect.fence)
    attempt = _claimed(effect)
    assert attempt is not None
    book.played.add(attempt.id)


def _claimed(effect: Effect) -> EffectAttempt | None:
    return moves.claim(
        effect,
        lease=timedelta(seconds=6),
        key_window=timedelta(hours=1),
        worker_id="wrk_1",
        origin="exe_1",
    )
