"""Every move of effects.moves: it lands from where it may, is False from everywhere else, and for every lost guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from effects import moves
from effects.models import Approval, Effect, EffectAttempt, Review
from effects.states import SUB_STATES, EffectStatus, Outcome, ReviewReason, SubState
from tests.effects.book import Book

Pair = tuple[str, str]

PAIRS: list[Pair] = [(status.value, sub.value) for status, subs in SUB_STATES.items() for sub in subs]
MINUTE = timedelta(minutes=1)


def pending(*subs: SubState) -> set[Pair]:
    return {("pending", sub.value) for sub in subs}


ACCEPTED: Pair = ("accepted", "")
REFUSED: Pair = ("failed", "refused")
COMPLETED: Pair = ("completed", "")


@dataclass
class Case:
    """One move. *row* makes everything but the standing fit; *without* are rows that lack one guard each."""

    move: Callable[[Effect, EffectAttempt], Any]
    lands_from: set[Pair]
    row: dict[str, Any] = field(default_factory=dict)
    without: dict[str, dict[str, Any]] = field(default_factory=dict)
    under_review: ReviewReason | None = None


def granted(effect: Effect) -> dict[str, Any]:
    return {
        "grant_approval_id": "apr_1",
        "grant_revision": effect.revision,
        "grant_hash": effect.request_hash,
        "grant_until": Now() + MINUTE,
    }


def claim(effect: Effect, _attempt: EffectAttempt) -> bool:
    taken = moves.claim(effect, lease=MINUTE, key_window=MINUTE, worker_id="wrk_2", origin="exe_2")
    return taken is not None


def grant(effect: Effect, _attempt: EffectAttempt) -> bool:
    return moves.grant(
        effect.id, approval=Approval(id="apr_2"), revision=1, request_hash=effect.request_hash, valid=MINUTE
    )


SENT_KEY = {
    "needs_approval": False,
    "dedup": "K",
    "key_until": Now() + MINUTE,
    "tries": 1,
    "due_at": Now() - MINUTE,
}

CASES: dict[str, Case] = {
    "await_approval": Case(
        lambda effect, _: moves.await_approval(effect.id, revision=1),
        pending(SubState.RECORDED),
        {"needs_approval": True},
        {
            "nobody is asked": {"needs_approval": False},
            "another revision": {"revision": 2, "grant_revision": 2},
        },
    ),
    "make_ready_without_approval": Case(
        lambda effect, _: moves.make_ready_without_approval(effect.id),
        pending(SubState.RECORDED),
        {"needs_approval": False},
        {"somebody is asked": {"needs_approval": True}},
    ),
    "grant": Case(
        grant,
        pending(SubState.RECORDED, SubState.AWAITING_APPROVAL),
        {"needs_approval": True},
        {"another revision": {"revision": 2}},
    ),
    "require_approval": Case(
        lambda effect, _: moves.require_approval(effect.id),
        pending(SubState.RECORDED, SubState.READY),
        {"needs_approval": False, "tries": 0},
        {"it was tried": {"tries": 1}},
    ),
    "void_grant": Case(
        lambda effect, _: moves.void_grant(effect.id),
        pending(SubState.READY, SubState.BACKOFF),
        {"needs_approval": True, "grant_until": Now() - MINUTE},
        {"the grant is valid": {"grant_until": Now() + MINUTE}, "nobody is asked": {"needs_approval": False}},
    ),
    "reject": Case(
        lambda effect, _: moves.reject(effect.id, revision=1, problem="no"),
        pending(SubState.RECORDED, SubState.AWAITING_APPROVAL),
        {},
        {"another revision": {"revision": 2, "grant_revision": 2}},
    ),
    "revise": Case(
        lambda effect, _: moves.revise(
            effect.id, was=1, request_hash="sha256:2", recipient="r", customer_ref="c"
        ),
        pending(SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY),
        {"tries": 0},
        {"it was tried": {"tries": 1}, "another revision": {"revision": 2, "grant_revision": 2}},
    ),
    "claim, by key": Case(
        claim,
        pending(SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN),
        SENT_KEY,
        {
            "somebody took it meanwhile": {"fence": 7},
            "the grant is over": {"needs_approval": True, "grant_until": Now() - MINUTE},
        },
    ),
    "claim, by key, window over": Case(
        claim, pending(SubState.READY, SubState.BACKOFF), {**SENT_KEY, "key_until": Now() - MINUTE}
    ),
    "claim, not due": Case(claim, pending(SubState.READY), {**SENT_KEY, "due_at": Now() + MINUTE}),
    "claim, by natural key": Case(
        claim, pending(SubState.READY, SubState.BACKOFF), {**SENT_KEY, "dedup": "N"}
    ),
    "claim, by query": Case(claim, pending(SubState.READY, SubState.BACKOFF), {**SENT_KEY, "dedup": "Q"}),
    "claim, repeats untold": Case(
        claim, pending(SubState.READY, SubState.BACKOFF), {**SENT_KEY, "dedup": "X"}
    ),
    "complete": Case(
        lambda _, attempt: moves.complete(attempt, reference="off_1", answer=b"sealed"),
        pending(SubState.IN_FLIGHT),
        {},
        {"fenced out": {"fence": 7}},
    ),
    "accept": Case(
        lambda _, attempt: moves.accept(attempt, reference="off_1", wait=MINUTE, deadline=MINUTE),
        pending(SubState.IN_FLIGHT),
        {},
        {"fenced out": {"fence": 7}},
    ),
    "refuse": Case(
        lambda _, attempt: moves.refuse(attempt, problem="no"),
        pending(SubState.IN_FLIGHT),
        {},
        {"fenced out": {"fence": 7}, "an earlier attempt is unknown": {"unresolved": True}},
    ),
    "back_off": Case(
        lambda _, attempt: moves.back_off(attempt, wait=MINUTE, give_up=MINUTE, problem="later"),
        pending(SubState.IN_FLIGHT),
        {},
        {"fenced out": {"fence": 7}, "an earlier attempt is unknown": {"unresolved": True}},
    ),
    "leave_uncertain": Case(
        lambda _, attempt: moves.leave_uncertain(attempt, wait=MINUTE, problem="lost"),
        pending(SubState.IN_FLIGHT),
        {},
        {"fenced out": {"fence": 7}},
    ),
    "hold, tries over": Case(
        lambda effect, _: moves.hold(effect.id, tries=3),
        pending(SubState.BACKOFF),
        {"tries": 5, "tries_before": 2},
        {"tries left": {"tries": 4}},
    ),
    "hold, time over": Case(
        lambda effect, _: moves.hold(effect.id, tries=3),
        pending(SubState.BACKOFF),
        {"give_up_at": Now() - MINUTE},
        {"time left": {"give_up_at": Now() + MINUTE}},
    ),
    "make_ready_again": Case(
        lambda effect, _: moves.make_ready_again(effect.id),
        pending(SubState.HELD) | {REFUSED},
    ),
    "ready_by_proven_absence": Case(
        lambda effect, _: moves.ready_by_proven_absence(effect.id, fence=effect.fence),
        pending(SubState.UNCERTAIN),
        {"dedup": "N"},
        {"by key": {"dedup": "K"}, "by query": {"dedup": "Q"}, "repeats untold": {"dedup": "X"}},
    ),
    "look_later": Case(
        lambda effect, _: moves.look_later(effect.id, wait=MINUTE), pending(SubState.UNCERTAIN) | {ACCEPTED}
    ),
    "take_look": Case(
        lambda effect, _: moves.take_look(effect.id, lease=MINUTE),
        pending(SubState.UNCERTAIN) | {ACCEPTED},
        {"due_at": Now() - MINUTE},
        {"not due": {"due_at": Now() + MINUTE}},
    ),
    "cancel_unsent": Case(
        lambda effect, _: moves.cancel_unsent(effect.run_id),
        pending(
            SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY, SubState.BACKOFF, SubState.HELD
        ),
    ),
    "claim, overriding": Case(
        lambda effect, attempt: (
            moves.claim(
                effect, lease=MINUTE, key_window=MINUTE, worker_id="w", origin="ord_1", overriding=True
            )
            is not None
        ),
        pending(SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN),
        {**SENT_KEY, "dedup": "X"},
        {
            "somebody took it meanwhile": {"fence": 7},
            "the grant is over": {"needs_approval": True, "grant_until": Now() - MINUTE},
        },
    ),
    "claim, overriding, under a review that only says nobody knows": Case(
        lambda effect, attempt: (
            moves.claim(
                effect, lease=MINUTE, key_window=MINUTE, worker_id="w", origin="ord_1", overriding=True
            )
            is not None
        ),
        pending(SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN),
        {**SENT_KEY, "dedup": "X"},
        under_review=ReviewReason.UNQUERYABLE,
    ),
    "cancel_ordered": Case(
        lambda effect, _: moves.cancel_ordered(effect.id, why="no second person"),
        pending(
            SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY, SubState.BACKOFF, SubState.HELD
        ),
    ),
    "cancel_proven_absent": Case(
        lambda effect, _: moves.cancel_proven_absent(effect.id, why="sent anew"),
        pending(SubState.UNCERTAIN),
        {"absent_at": Now()},
        {"nothing is proven": {"absent_at": None}},
        under_review=ReviewReason.CACHED_ERROR,
    ),
    "cancel_dropped": Case(
        lambda effect, _: moves.cancel_dropped(effect.id, why="its node asks for it no more"),
        pending(
            SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY, SubState.BACKOFF, SubState.HELD
        ),
        under_review=ReviewReason.NOT_ASKED_AGAIN,
    ),
    "make_ready_by_order": Case(
        lambda effect, _: moves.make_ready_by_order(effect.id, granted_by=None, valid=MINUTE),
        pending(SubState.HELD) | {REFUSED},
        {"needs_approval": True},
        {"the grant is over": {"grant_until": Now() - MINUTE}},
    ),
    "make_ready_by_order, with a fresh grant": Case(
        lambda effect, _: moves.make_ready_by_order(
            effect.id,
            granted_by=Approval(id="apr_2", revision=1, payload_hash=effect.request_hash),
            valid=MINUTE,
        ),
        pending(SubState.HELD) | {REFUSED},
        {"needs_approval": True, "grant_until": Now() - MINUTE},
        {"another revision": {"revision": 2, "grant_revision": 2}},
    ),
    "renew_grant": Case(
        lambda effect, _: moves.renew_grant(
            effect.id,
            granted_by=Approval(id="apr_2", revision=1, payload_hash=effect.request_hash),
            valid=MINUTE,
        ),
        pending(SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN),
        {},
        {"another revision": {"revision": 2, "grant_revision": 2}},
    ),
    "settle_as_done": Case(
        lambda effect, _: moves.settle_as_done(effect.id, reference="off_1", answer=b"sealed"),
        {pair for pair in PAIRS if pair not in {COMPLETED, ("pending", "in_flight")}},
        under_review=ReviewReason.UNQUERYABLE,
    ),
    "settle_as_done, without a review": Case(
        lambda effect, _: moves.settle_as_done(effect.id, reference="off_1", answer=b"sealed"), set()
    ),
    "settle_as_not_done": Case(
        lambda effect, _: moves.settle_as_not_done(effect.id, why="not there"),
        pending(*(sub for sub in SUB_STATES[EffectStatus.PENDING] if sub != SubState.IN_FLIGHT)) | {ACCEPTED},
        under_review=ReviewReason.UNQUERYABLE,
    ),
    "settle_as_not_done, without a review": Case(
        lambda effect, _: moves.settle_as_not_done(effect.id, why="not there"), set()
    ),
    "wait_longer": Case(
        lambda effect, _: moves.wait_longer(effect.id, within=MINUTE),
        {ACCEPTED},
        under_review=ReviewReason.DEADLINE_PASSED,
    ),
    "settle_as_to_be_sent": Case(
        lambda effect, _: moves.settle_as_to_be_sent(effect.id),
        pending(SubState.UNCERTAIN),
        {"needs_approval": True},
        {"the grant is over": {"grant_until": Now() - MINUTE}},
        under_review=ReviewReason.UNQUERYABLE,
    ),
    "lose_lease": Case(
        lambda effect, _: moves.lose_lease(effect.id) is not None,
        pending(SubState.IN_FLIGHT),
        {"lease_until": Now() - MINUTE},
        {"the lease is good": {"lease_until": Now() + MINUTE}},
    ),
}


@pytest.fixture
def sent(book: Book) -> tuple[Effect, EffectAttempt]:
    """An effect with one attempt under way; each test puts it where it needs it, by plain SQL."""
    proposal = book.propose()
    _, attempt = book.claim(proposal.effect_id)
    return book.effect(proposal.effect_id), attempt


def put(
    book: Book, effect: Effect, attempt: EffectAttempt, pair: Pair, row: dict[str, Any]
) -> tuple[Effect, EffectAttempt]:
    """A row at *pair* with its attempt, with what the database's own constraints want there, and *row* on top."""
    status, sub = pair
    settled = status in ("completed", "failed")
    where = {
        **granted(effect),
        "status": status,
        "sub_state": sub,
        "lease_until": Now() + MINUTE if sub == "in_flight" else None,
        "unresolved": sub == "uncertain",
        "settled_at": Now() if settled else None,
        **row,
    }
    if sub == "uncertain":
        where["unresolved"] = True
    there = book.standing_as(effect, **where)
    tried = EffectAttempt.objects.create(
        effect=there,
        n=attempt.n,
        fence=attempt.fence,
        revision=attempt.revision,
        request_hash=attempt.request_hash,
        outcome=Outcome.SENDING if sub == "in_flight" else Outcome.UNKNOWN,
        ended_at=None if sub == "in_flight" else Now(),
        origin="exe_1",
    )
    there.fence = effect.fence  # as the sender read it, before whatever *row* says has happened since
    return there, tried


def lands(book: Book, sent: tuple[Effect, EffectAttempt], pair: Pair, case: Case, **lacking: Any) -> bool:
    """Whether the move lands from there; nothing of it is kept."""
    with transaction.atomic():
        there, tried = put(book, *sent, pair, {**case.row, **lacking})
        if review := case.under_review:
            Review.objects.create(workspace_id=there.workspace_id, effect=there, reason=review, sentence="?")
        before = Effect.objects.filter(id=there.id).values().get()
        landed = bool(case.move(there, tried))
        after = Effect.objects.filter(id=there.id).values().get()
        assert (before != after) is landed, "a move answers True exactly when the row has changed"
        transaction.set_rollback(True)
    return landed


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


def test_evidence_completes_what_may_have_been_sent_and_never_what_is_settled(
    book: Book, sent: tuple[Effect, EffectAttempt]
) -> None:
    case = Case(
        lambda effect, _: moves.complete_by_evidence(effect.id, reference="off_1", answer=b"sealed"), set()
    )
    landed = {pair for pair in PAIRS if lands(book, sent, pair, case)}
    assert landed >= {*pending(SubState.UNCERTAIN), ACCEPTED}
    assert not landed & {pair for pair in PAIRS if pair[0] in ("completed", "failed")}
    assert ("pending", "recorded") not in landed


UNDER_REVIEW = (
    "claim, by key",
    "claim, by natural key",
    "ready_by_proven_absence",
    "void_grant",
    "hold, tries over",
)


@pytest.mark.parametrize("reason", [ReviewReason.UNQUERYABLE, ReviewReason.MISMATCH])
@pytest.mark.parametrize("name", UNDER_REVIEW)
def test_an_open_review_stops_every_machine_move(
    book: Book, sent: tuple[Effect, EffectAttempt], name: str, reason: ReviewReason
) -> None:
    case = replace(CASES[name], under_review=reason)
    assert not any(lands(book, sent, pair, case) for pair in PAIRS)


def test_a_claim_of_bytes_that_were_not_granted_is_none(book: Book) -> None:
    """The grant is for one revision: its number and its hash."""
    effect = book.approved()
    for fields in ({"grant_revision": 2}, {"grant_hash": "sha256:other"}, {"grant_until": None}):
        # Backoff, since the database itself refuses "ready" without the grant.
        there = book.standing_as(effect, sub_state="backoff", due_at=None, **fields)
        assert not claim(there, EffectAttempt())
    assert claim(book.effect(effect.id), EffectAttempt())
    book.played.update(effect.attempts.values_list("id", flat=True))


def test_a_claim_raises_the_fence_and_writes_the_attempt(book: Book) -> None:
    effect = book.approved()
    attempt = moves.claim(effect, lease=MINUTE, key_window=MINUTE, worker_id="wrk_1", origin="exe_1")
    assert attempt is not None
    book.played.add(attempt.id)
    row = EffectAttempt.objects.get(effect_id=effect.id)
    assert (row.n, row.fence, row.revision, row.request_hash) == (1, 1, 1, effect.request_hash)
    assert (row.outcome, row.worker_id, row.origin, row.ended_at) == ("sending", "wrk_1", "exe_1", None)
    taken = book.effect(effect.id)
    assert (taken.fence, taken.tries) == (1, 1)
    assert taken.lease_until is not None
    assert taken.first_sent_at == taken.last_sent_at


def test_the_keys_window_counts_from_the_first_attempt_that_is_not_proven_unsent(book: Book) -> None:
    proposal = book.propose()
    _, attempt = book.claim(proposal.effect_id)
    first = book.effect(proposal.effect_id).key_until
    moves.end_attempt(attempt, Outcome.UNKNOWN)
    moves.leave_uncertain(attempt, wait=timedelta(0), problem="lost")
    book.claim(proposal.effect_id)
    assert book.effect(proposal.effect_id).key_until == first

    other = book.propose(key="two")
    _, unsent = book.claim(other.effect_id)
    first = book.effect(other.effect_id).key_until
    moves.end_attempt(unsent, Outcome.NOT_SENT)
    moves.back_off(unsent, wait=timedelta(0), give_up=MINUTE, problem="refused")
    assert book.effect(other.effect_id).key_until is None
    book.claim(other.effect_id)
    second = book.effect(other.effect_id).key_until
    assert first is not None
    assert second is not None
    assert second > first


def test_made_ready_again_it_asks_anew_where_the_grant_is_over(book: Book) -> None:
    for grant_until, sub_state in ((Now() + MINUTE, "ready"), (Now() - MINUTE, "awaiting_approval")):
        effect = book.standing_as(
            book.approved(key=sub_state),
            status="failed",
            sub_state="refused",
            settled_at=Now(),
            tries=4,
            grant_until=grant_until,
        )
        assert moves.make_ready_again(effect.id)
        again = book.effect(effect.id)
        assert (again.status, again.sub_state) == (EffectStatus.PENDING, sub_state)
        assert (again.tries_before, again.settled_at) == (4, None)
        assert bool(again.grant_approval_id) is (sub_state == "ready")


def test_an_attempt_ends_once(book: Book) -> None:
    _, attempt = book.claim(book.propose().effect_id)
    assert moves.end_attempt(attempt, Outcome.COMPLETED, provider_reference="off_1")
    for outcome in Outcome:
        assert not moves.end_attempt(attempt, outcome)
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.provider_reference) == ("completed", "off_1")


def test_a_review_is_open_once_a_reason(book: Book) -> None:
    effect = book.effect(book.propose().effect_id)
    assert moves.open_review(effect, ReviewReason.MISMATCH, "one")
    assert not moves.open_review(effect, ReviewReason.MISMATCH, "two")
    assert moves.open_review(effect, ReviewReason.DUPLICATE_FOUND, "three")
    assert book.reviews(effect.id) == ["duplicate_found", "mismatch"]


def test_evidence_closes_only_the_reviews_that_it_answers(book: Book) -> None:
    effect = book.effect(book.propose().effect_id)
    for reason in ReviewReason:
        moves.open_review(effect, reason, "?")
    moves.close_answered_reviews(effect.id, why="found")
    answered = {"unqueryable", "deadline_passed", "cached_error"}
    assert set(book.reviews(effect.id)) == set(ReviewReason.values) - answered


def test_continue_closes_only_the_question_of_what_was_dropped(book: Book) -> None:
    effect = book.effect(book.propose().effect_id)
    for reason in ReviewReason:
        moves.open_review(effect, reason, "?")
    assert moves.close_not_asked_again("run_of_another", why="continued") == 0
    assert moves.close_not_asked_again(effect.run_id, why="continued") == 1
    assert set(book.reviews(effect.id)) == set(ReviewReason.values) - {"not_asked_again"}


def test_every_move_is_tried_here() -> None:
    """A move that somebody adds must be added here too."""
    public = {
        name
        for name, thing in vars(moves).items()
        if callable(thing) and getattr(thing, "__module__", "") == moves.__name__ and not name.startswith("_")
    }
    others = {
        "adopt_contract",
        "ReferenceTaken",
        "claimable",
        "end_attempt",
        "complete_by_evidence",
        "open_review",
        "close_answered_reviews",
        "close_overridden_reviews",
        "close_review",
        "close_not_asked_again",
        "propose_settling",
        "drop_proposal",
        "note_clock",
        "observe",
        "say_why_it_waits",
    }
    assert public == {name.split(",")[0] for name in CASES} | others
