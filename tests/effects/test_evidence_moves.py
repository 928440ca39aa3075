"""Every move of effects.moves.evidence: it lands from where it may, is False from everywhere else, and for lost guards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from effects.models import Effect, EffectAttempt, Review
from effects.moves import CLOSED_BY_EVIDENCE, evidence
from effects.states import ReviewReason, SubState
from tests.effects.book import Book
from tests.effects.test_moves import ACCEPTED, MINUTE, PAIRS, Case, lands, pending, sent

__all__ = ["sent"]

UNCERTAIN = pending(SubState.UNCERTAIN)

CASES: dict[str, Case] = {
    "accept_by_evidence": Case(
        lambda effect, _: evidence.accept_by_evidence(
            effect.id, reference="job_1", wait=MINUTE, deadline=MINUTE
        ),
        UNCERTAIN,
    ),
    "refuse_accepted": Case(
        lambda effect, _: evidence.refuse_accepted(effect.id, problem="sold out"),
        {ACCEPTED},
        {"unresolved": False},
    ),
    "count_absence": Case(
        lambda effect, _: evidence.count_absence(effect.id, fence=effect.fence, wait=MINUTE),
        UNCERTAIN,
        {},
        {"sent since": {"fence": 9}},
    ),
    "break_row": Case(
        lambda effect, _: evidence.break_row(effect.id),
        UNCERTAIN,
        {"absences": 1},
        {"no row": {"absences": 0}},
    ),
    "retract_absence": Case(
        lambda effect, _: evidence.retract_absence(effect.id),
        UNCERTAIN,
        {"absences": 2, "absent_at": Now()},
    ),
    "prove_absent": Case(
        lambda effect, _: evidence.prove_absent(effect.id, fence=effect.fence),
        UNCERTAIN,
        {},
        {"sent since": {"fence": 9}},
    ),
    "close_key_window": Case(
        lambda effect, _: evidence.close_key_window(effect.id),
        UNCERTAIN,
        {"dedup": "K", "key_until": Now() + MINUTE},
        {
            "it is over": {"key_until": Now() - MINUTE},
            "there is none": {"key_until": None},
            "by natural key": {"dedup": "N"},
        },
    ),
    "look_soon": Case(
        lambda effect, _: evidence.look_soon(effect.id),
        {*UNCERTAIN, ACCEPTED},
        {"due_at": Now() + MINUTE},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_move_lands_from_where_it_may_and_nowhere_else(
    book: Book, sent: tuple[Effect, EffectAttempt], name: str
) -> None:
    case = CASES[name]
    assert {pair for pair in PAIRS if lands(book, sent, pair, case)} == case.lands_from


@pytest.mark.parametrize(
    ("name", "lacking"), [(name, lacking) for name, case in CASES.items() for lacking in case.without]
)
def test_a_move_is_false_without_its_guard(
    book: Book, sent: tuple[Effect, EffectAttempt], name: str, lacking: str
) -> None:
    case = CASES[name]
    for pair in case.lands_from:
        assert not lands(book, sent, pair, case, **case.without[lacking]), pair


@pytest.mark.parametrize("name", ["accept_by_evidence", "refuse_accepted"])
def test_only_reviews_that_evidence_answers_let_it_pass(
    book: Book, sent: tuple[Effect, EffectAttempt], name: str
) -> None:
    for reason in ReviewReason:
        case = replace(CASES[name], under_review=reason)
        landed = {pair for pair in PAIRS if lands(book, sent, pair, case)}
        assert landed == (case.lands_from if reason in CLOSED_BY_EVIDENCE else set()), reason


def test_a_proof_keeps_its_first_moment(book: Book, sent: tuple[Effect, EffectAttempt]) -> None:
    effect = book.standing_as(sent[0], sub_state="uncertain", unresolved=True, lease_until=None)
    assert evidence.prove_absent(effect.id, fence=effect.fence)
    first = book.effect(effect.id).absent_at
    Effect.objects.filter(id=effect.id).update(absent_at=first - timedelta(hours=1))  # type: ignore[operator]  # it was proven
    assert evidence.prove_absent(effect.id, fence=effect.fence)
    assert book.effect(effect.id).absent_at == first - timedelta(hours=1)  # type: ignore[operator]


def test_one_orphan_is_reviewed_once_for_good(book: Book) -> None:
    receiver = book.effect(book.propose().effect_id).receiver
    one, other = "eff_" + "0" * 32, "eff_" + "1" * 32

    def told(reference: str, key: str) -> bool:
        return evidence.open_orphan_review(
            receiver, reference=reference, ids=[key], sentence=f"crm has {reference}, which carries {key}."
        )

    assert told("off_9", one)
    Review.objects.filter(provider_object="off_9").update(closed_at=Now())
    assert not told("off_9", one)
    assert told("off_10", one)
    # Where each kind of object is numbered by itself, one number stands for several.
    assert told("off_9", other)
    assert not told("off_9", other)
    assert Review.objects.filter(provider_object=f"off_9 with {other}").count() == 1


def test_every_move_is_tried_here() -> None:
    public = {
        name
        for name, thing in vars(evidence).items()
        if callable(thing) and thing.__module__ == evidence.__name__ and not name.startswith("_")
    }
    others = {"answerable", "open_orphan_review", "open_questions", "take_question", "end_question"}
    assert public == set(CASES) | others
