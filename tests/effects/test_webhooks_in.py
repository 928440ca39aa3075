"""Webhooks of receivers: what a proven message settles, once, and what of a refused one is kept: nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from console.kernel.ids import new_id
from console.models import AuditEvent
from demo.receiver.loopback import Request
from effects import hooks, moves, reconcile
from effects.evidence import settle as settle_by_evidence
from effects.ledger import Refused, Wait
from effects.models import Effect, HookMessage, Observation, Review
from effects.origin import Result
from effects.states import Outcome
from tests.effects.book import Book, at_once, rows_of_all_tables
from tests.effects.postbox import (
    Letterbox,
    Postbox,
    forward,
    keep_secret,
    messages_of,
    new_secret,
    webhooks_of,
)
from tests.people import make_world


@pytest.fixture
def postbox(book: Book) -> Postbox:
    return Postbox(book)


@pytest.fixture
def letterbox() -> Iterator[Callable[..., Letterbox]]:
    opened: list[Letterbox] = []

    def open_one(takes: Callable[[Request], int] | None = None) -> Letterbox:
        opened.append(Letterbox(takes))
        return opened[-1]

    yield open_one
    for one in opened:
        one.stop()


def accepted(book: Book, effect_type: str = "ledger.seats", **order: Any) -> str:
    """A reservation that the receiver has accepted, and ends as *order* says: never, without one."""
    proposal = book.propose(effect_type, key=order.pop("key", "one"))
    book.witness.order("202_webhook", **{"final": "never", **order})
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("accepted", "")
    return proposal.effect_id


def said(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.content)
    return found


def test_completed(book: Book, postbox: Postbox, letterbox: Any) -> None:
    box = letterbox()
    effect_id = accepted(
        book, final="completed", delay=0, webhook_url=box.url, secret=postbox.secret, key="done"
    )
    events = AuditEvent.objects.count()

    answer = forward(postbox, box.next())

    assert (answer.status_code, said(answer)) == (200, {"status": "taken"})
    [made] = book.witness.effects()
    effect = book.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", made["object_id"])
    assert not effect.unresolved
    assert webhooks_of(effect_id) == ["found"]
    [message] = messages_of(effect_id)
    assert message.kind == "reservation.completed"
    assert message.source == postbox.source
    assert "Accepted → Completed" in message.came_of_it
    assert AuditEvent.objects.count() == events
    result = book.perform(effect_id)
    assert isinstance(result, Result)
    assert result.answer == made["document"]
    assert book.witness.rx == (1, 1)


def test_failed_for_good(book: Book, postbox: Postbox, letterbox: Any) -> None:
    """202, then a webhook of final failure."""
    box = letterbox()
    effect_id = accepted(
        book,
        final="failed",
        reason="no seats left",
        delay=0,
        webhook_url=box.url,
        secret=postbox.secret,
    )

    forward(postbox, box.next())

    assert book.standing(effect_id) == ("failed", "refused")
    effect = book.effect(effect_id)
    assert effect.problem == "The receiver says that it has failed: no seats left."
    assert (effect.unresolved, effect.due_at, effect.first_sent_at) == (False, None, None)
    with pytest.raises(Refused, match="no seats left"):
        book.perform(effect_id)
    assert webhooks_of(effect_id) == ["failed"]
    assert book.witness.rx == (0, 1)


@pytest.mark.parametrize(("status", "stands"), [("completed", "completed"), ("failed", "failed")])
def test_a_day_late(book: Book, postbox: Postbox, status: str, stands: str) -> None:
    """202 and silence: a review; a webhook a day later answers it."""
    effect_id = accepted(book, "ledger.told_seats")
    Effect.objects.filter(id=effect_id).update(
        final_by=Now() - timedelta(days=1), last_sent_at=Now() - timedelta(days=1)
    )
    reconcile.review_what_is_overdue()
    assert book.reviews(effect_id) == ["deadline_passed"]
    assert book.standing(effect_id) == ("accepted", "")

    postbox.tell(effect_id, status)

    assert book.effect(effect_id).status == stands
    assert book.reviews(effect_id) == []
    [review] = Review.objects.filter(effect_id=effect_id)
    assert review.closed_why == hooks.TOLD
    assert review.settled_by is None
    assert book.witness.rx == (0, 1)


def test_a_duplicate_with_a_new_id_is_one_move_and_two_observations(
    book: Book, postbox: Postbox, letterbox: Any
) -> None:
    box = letterbox()
    effect_id = accepted(
        book, final="completed", delay=0, copies=2, webhook_url=box.url, secret=postbox.secret
    )

    first, second = (forward(postbox, box.next()) for _ in range(2))

    assert [said(first), said(second)] == [{"status": "taken"}, {"status": "taken"}]
    assert webhooks_of(effect_id) == ["found", "found"]
    moved, stood = messages_of(effect_id)
    assert "Accepted → Completed" in moved.came_of_it
    assert "Nothing moved" in stood.came_of_it
    assert moved.message_id != stood.message_id
    assert moved.body_hash == stood.body_hash
    assert book.reviews(effect_id) == []
    assert book.witness.rx == (1, 1)


def test_the_same_id_again_changes_nothing(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    assert said(postbox.post(postbox.about(effect_id), message="msg_same")) == {"status": "taken"}
    before = rows_of_all_tables()
    # Whatever it says the second time: the id is the message.
    for document in (postbox.about(effect_id), postbox.about(effect_id, "failed")):
        again = postbox.post(document, message="msg_same")
        assert (again.status_code, said(again)) == (200, {"status": "known"})
    assert rows_of_all_tables() == before
    assert book.standing(effect_id) == ("completed", "")
    assert book.reviews(effect_id) == []


def test_two_receivers_may_use_the_same_message_id(book: Book, postbox: Postbox) -> None:
    other = Postbox(book)
    first, second = accepted(book), accepted(book, key="two")
    assert said(postbox.post(postbox.about(first), message="msg_1")) == {"status": "taken"}
    theirs = other.about(second, object={**other.about(second)["data"]["object"], "id": "res_000002"})
    assert said(other.post(theirs, message="msg_1")) == {"status": "taken"}


def test_still_under_way(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    assert postbox.tell(effect_id, "processing") == "taken"
    assert book.standing(effect_id) == ("accepted", "")
    assert webhooks_of(effect_id) == ["under_way"]
    assert book.reviews(effect_id) == []


def test_the_answer_was_lost_and_the_webhook_says_it_is_under_way(book: Book, postbox: Postbox) -> None:
    """uncertain → accepted: the receiver has it, and its end is due in the contract's time."""
    proposal = book.propose("ledger.seats")
    book.witness.order("drop_before")
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")

    postbox.tell(proposal.effect_id, "processing")

    assert book.standing(proposal.effect_id) == ("accepted", "")
    [(final_by, now)] = Effect.objects.filter(id=proposal.effect_id).values_list("final_by", Now())
    assert 595 < (final_by - now).total_seconds() <= 600
    # It is not sent again by its key either: it is waited for.
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert len(book.witness.requests()) == 1


@pytest.mark.parametrize(
    ("status", "standing"), [("completed", ("completed", "")), ("failed", ("failed", "refused"))]
)
def test_the_answer_was_lost_and_the_webhook_says_the_end(
    book: Book, postbox: Postbox, status: str, standing: tuple[str, str]
) -> None:
    proposal = book.propose("ledger.blind_seats")
    book.witness.order("drop_before")
    book.perform(proposal.effect_id)
    assert book.reviews(proposal.effect_id) == ["unqueryable"]

    postbox.tell(proposal.effect_id, status, key=None)

    # Also one that failed was there: the review asked only whether anybody knows.
    assert book.standing(proposal.effect_id) == standing
    assert book.reviews(proposal.effect_id) == []
    assert len(book.witness.requests()) == 1


def test_unprocessed_was_a_lie(book: Book, postbox: Postbox, letterbox: Any) -> None:
    """A 503 that says "unprocessed", then a webhook "created": completed, not sent again."""
    box = letterbox()
    proposal = book.propose("ledger.seats")
    book.witness.order(
        "503_unprocessed", final="completed", delay=0, webhook_url=box.url, secret=postbox.secret
    )
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")

    forward(postbox, box.next())

    assert book.standing(proposal.effect_id) == ("completed", "")
    assert isinstance(book.perform(proposal.effect_id), Result)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]
    assert book.witness.rx == (1, 1)


def test_completed_without_showing_it_asks_the_receiver_soon(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    Effect.objects.filter(id=effect_id).update(due_at=Now() + timedelta(hours=1))
    assert postbox.tell(effect_id, object=None) == "taken"
    assert webhooks_of(effect_id) == ["unclear"]
    assert book.standing(effect_id) == ("accepted", "")
    assert effect_id in reconcile.looks_due()


def test_while_one_secret_replaces_another_both_are_good(book: Book, postbox: Postbox) -> None:
    fresh = new_secret()
    keep_secret(postbox.source.secret_name, fresh, postbox.secret)
    for number, secret in enumerate((postbox.secret, fresh)):
        effect_id = accepted(book, key=str(number))
        document = postbox.about(effect_id, "processing")
        assert postbox.post(document, secret=secret).status_code == 200
    keep_secret(postbox.source.secret_name, fresh)
    assert postbox.post(document, secret=postbox.secret).status_code == 401


def test_no_session_and_no_cookie(book: Book, postbox: Postbox) -> None:
    answer = postbox.post(postbox.about(accepted(book)))
    assert answer.status_code == 200
    assert not answer.cookies
    assert answer["Cache-Control"] == "no-store"


# What does not fit the ledger is an observation, and a person is asked. Nothing is taken back.


def test_failed_after_completed(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    postbox.tell(effect_id)
    postbox.tell(effect_id, "failed")
    assert book.standing(effect_id) == ("completed", "")
    assert webhooks_of(effect_id) == ["found", "failed"]
    assert book.reviews(effect_id) == ["contradiction"]
    assert "A person is asked" in messages_of(effect_id)[1].came_of_it


def test_another_reference_after_completed(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    postbox.tell(effect_id)
    other = {**postbox.about(effect_id)["data"]["object"], "id": "res_000077"}
    postbox.tell(effect_id, object=other)
    assert book.effect(effect_id).provider_reference == "res_000001"
    assert book.reviews(effect_id) == ["contradiction"]


def test_an_older_message_after_completed_is_none(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    postbox.tell(effect_id)
    postbox.tell(effect_id, "processing")
    assert book.reviews(effect_id) == []


def test_created_after_a_refusal_blocks_another_sending(book: Book, postbox: Postbox) -> None:
    proposal = book.propose("ledger.seats")
    book.witness.order("401")
    with pytest.raises(Refused):
        book.perform(proposal.effect_id)
    postbox.tell(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")
    assert book.reviews(proposal.effect_id) == ["contradiction"]
    assert not moves.make_ready_again(proposal.effect_id)
    assert book.witness.rx == (0, 1)


@pytest.mark.parametrize("status", ["completed", "processing"])
def test_made_although_it_was_never_sent(book: Book, postbox: Postbox, status: str) -> None:
    proposal = book.propose("ledger.seats")
    postbox.tell(proposal.effect_id, status)
    assert book.standing(proposal.effect_id) == ("pending", "ready")
    assert book.reviews(proposal.effect_id) == ["contradiction"]
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.witness.rx == (0, 0)


def test_failed_although_it_was_never_sent_agrees(book: Book, postbox: Postbox) -> None:
    proposal = book.propose("ledger.seats")
    postbox.tell(proposal.effect_id, "failed")
    assert book.standing(proposal.effect_id) == ("pending", "ready")
    assert book.reviews(proposal.effect_id) == []


def test_another_object_than_was_sent(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    wrong = {**postbox.about(effect_id)["data"]["object"], "seats": 4}
    postbox.tell(effect_id, object=wrong)
    assert book.standing(effect_id) == ("accepted", "")
    assert book.reviews(effect_id) == ["mismatch"]
    # A final failure is no answer to that.
    postbox.tell(effect_id, "failed")
    assert book.standing(effect_id) == ("accepted", "")
    assert book.reviews(effect_id) == ["mismatch"]


def test_another_object_than_was_sent_after_completed(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book)
    postbox.tell(effect_id)
    wrong = {**postbox.about(effect_id)["data"]["object"], "seats": 4}
    postbox.tell(effect_id, object=wrong)
    assert book.reviews(effect_id) == ["contradiction"]


def test_what_the_contract_protects_is_not_told(book: Book, postbox: Postbox) -> None:
    effect_id = accepted(book, "ledger.masked_seats")
    wrong = {**postbox.about(effect_id)["data"]["object"], "seats": 31}
    postbox.tell(effect_id, object=wrong)
    [review] = Review.objects.filter(effect_id=effect_id)
    assert review.sentence == "The receiver holds another seats than was sent."
    [message] = messages_of(effect_id)
    assert "31" not in message.came_of_it.replace(message.message_id, "")


def test_the_object_of_another_effect(book: Book, postbox: Postbox) -> None:
    """Each reservation is an object of its own: a second effect never takes the first one's."""
    first, second = accepted(book), accepted(book, key="two")
    postbox.tell(first)
    postbox.tell(second)
    assert book.standing(second) == ("accepted", "")
    assert book.reviews(second) == ["mismatch"]


def test_the_webhook_before_the_answer_completes_once(kept: Book, letterbox: Any) -> None:
    """The sender holds it when the webhook comes; its answer is an observation."""
    postbox = Postbox(kept)
    seen: list[tuple[str, str]] = []

    def take(request: Request) -> int:
        seen.append(kept.standing(proposal.effect_id))
        return forward(postbox, request).status_code

    box = letterbox(take)
    proposal = kept.propose("ledger.seats")
    kept.witness.order("202_webhook", webhook_first=True, webhook_url=box.url, secret=postbox.secret)

    result = kept.perform(proposal.effect_id)

    assert seen == [("pending", "in_flight")]
    assert isinstance(result, Result)
    effect = kept.effect(proposal.effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", result.reference)
    assert kept.outcomes(effect.id) == ["accepted"]
    observed = Observation.objects.filter(effect=effect).order_by("id").values_list("kind", flat=True)
    assert list(observed) == ["webhook", "late_answer"]
    assert kept.reviews(effect.id) == []
    assert kept.witness.rx == (1, 1)


def test_a_failure_before_the_answer_is_settled_by_the_sweep(kept: Book, letterbox: Any) -> None:
    postbox = Postbox(kept)
    box = letterbox(lambda request: forward(postbox, request).status_code)
    proposal = kept.propose("ledger.told_seats")
    kept.witness.order(
        "202_webhook", final="failed", webhook_first=True, webhook_url=box.url, secret=postbox.secret
    )
    assert isinstance(kept.perform(proposal.effect_id), Wait)
    assert kept.standing(proposal.effect_id) == ("accepted", "")

    assert hooks.settle_what_was_told() == 1

    assert kept.standing(proposal.effect_id) == ("failed", "refused")
    assert hooks.settle_what_was_told() == 0
    assert kept.witness.rx == (0, 1)


def test_what_can_not_be_settled_keeps_no_other_from_its_turn(
    book: Book, postbox: Postbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that were told of while their sender had them; of the first it was said since that it is under way."""
    monkeypatch.setattr(hooks, "A_TURN", 1)
    first, second = (accepted(book, "ledger.told_seats", key=key) for key in ("one", "two"))
    for effect_id in (first, second):
        moves.observe(book.effect(effect_id), "webhook", "failed", "The receiver says that it has failed.")
    moves.observe(book.effect(first), "webhook", "under_way", "The receiver says that it goes on.")
    assert hooks.settle_what_was_told() == 1
    assert book.standing(first) == ("accepted", "")
    assert book.standing(second) == ("failed", "refused")
    assert hooks.settle_what_was_told() == 0


def test_one_that_fails_to_be_settled_holds_up_no_other(
    book: Book, postbox: Postbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (accepted(book, "ledger.told_seats", key=key) for key in ("one", "two"))
    for effect_id in (first, second):
        moves.observe(book.effect(effect_id), "webhook", "failed", "The receiver says that it has failed.")

    def breaks(effect: Effect, *given: Any, **more: Any) -> None:
        if effect.id == first:
            raise RuntimeError("broken")
        settle_by_evidence(effect, *given, **more)

    monkeypatch.setattr(hooks, "settle", breaks)
    assert hooks.settle_what_was_told() == 1
    assert book.standing(second) == ("failed", "refused")
    assert f"what was told of {first} could not be settled" in caplog.text


def test_a_failure_told_of_an_earlier_sending_settles_no_later_one(kept: Book) -> None:
    """Refused, made ready again, sent again: what was said before is about the past."""
    postbox = Postbox(kept)
    effect_id = accepted(kept, "ledger.blind_seats")
    postbox.tell(effect_id, "failed", key=None)
    assert moves.make_ready_again(effect_id)
    kept.witness.order("202_webhook", final="never")
    assert isinstance(kept.perform(effect_id), Wait)
    assert kept.standing(effect_id) == ("accepted", "")

    assert hooks.settle_what_was_told() == 0

    assert kept.standing(effect_id) == ("accepted", "")


def test_a_failure_before_an_answer_of_success_asks_a_person(book: Book, postbox: Postbox) -> None:
    proposal = book.propose("ledger.seats")
    _, attempt = book.claim(proposal.effect_id)
    postbox.tell(proposal.effect_id, "failed")
    assert book.standing(proposal.effect_id) == ("pending", "in_flight")
    book.settle(proposal.effect_id, attempt, Outcome.COMPLETED, status="201", reference="res_9", body={})
    assert book.standing(proposal.effect_id) == ("completed", "")
    assert book.reviews(proposal.effect_id) == ["contradiction"]


def test_the_same_message_at_once_is_taken_once(kept: Book) -> None:
    postbox = Postbox(kept)
    effect_id = accepted(kept)
    document = postbox.about(effect_id)

    answers = at_once(6, lambda _: said(postbox.post(document, message="msg_once"))["status"])

    assert sorted(map(str, answers)) == ["known"] * 5 + ["taken"]
    assert webhooks_of(effect_id) == ["found"]
    assert len(messages_of(effect_id)) == 1


def test_different_messages_at_once_are_one_move(kept: Book) -> None:
    postbox = Postbox(kept)
    effect_id = accepted(kept)
    document = postbox.about(effect_id)

    answers = at_once(6, lambda _: said(postbox.post(document))["status"])

    assert answers == ["taken"] * 6
    assert webhooks_of(effect_id) == ["found"] * 6
    moved = [message for message in messages_of(effect_id) if "→" in message.came_of_it]
    assert len(moved) == 1
    assert kept.reviews(effect_id) == []


# What is refused: the reason in JSON, a line in the log without the body, and not one row.


@pytest.fixture
def unchanged(book: Book, caplog: pytest.LogCaptureFixture) -> Callable[..., Any]:
    """Send it, and compare the number of rows of every table, and every effect's own row, before and after."""

    def send(postbox: Postbox, status: int, reason: str, document: Any, **how: Any) -> Any:
        before = rows_of_all_tables(), list(Effect.objects.values())
        caplog.clear()
        with caplog.at_level(logging.INFO):
            answer = postbox.post(document, **how)
        assert answer.status_code == status, answer.content
        assert said(answer)["reason"] == reason
        assert len(said(answer)["message"]) > 10
        assert (rows_of_all_tables(), list(Effect.objects.values())) == before
        [line] = [one.getMessage() for one in caplog.records if one.name == "effects.views.hooks"]
        assert f"{status} {reason}" in line
        assert "canary" not in caplog.text
        return answer

    return send


def about_canary(postbox: Postbox, effect_id: str) -> dict[str, Any]:
    return postbox.about(effect_id, "failed", reason="canary")


def test_another_secret(book: Book, postbox: Postbox, unchanged: Any) -> None:
    """Forged: whoever it was does not hold the secret."""
    document = about_canary(postbox, accepted(book))
    unchanged(postbox, 401, "no_match", document, secret=new_secret())


def test_a_changed_body(book: Book, postbox: Postbox, unchanged: Any) -> None:
    effect_id = accepted(book)
    signed = postbox.headers(json.dumps(postbox.about(effect_id)).encode())
    unchanged(postbox, 401, "no_match", about_canary(postbox, effect_id), headers=signed)


def test_another_message_id_than_was_signed(book: Book, postbox: Postbox, unchanged: Any) -> None:
    """The id is signed too: a replay can't be made to look new."""
    document = about_canary(postbox, accepted(book))
    unchanged(postbox, 401, "no_match", document, headers={"webhook-id": "msg_of_my_own"})


@pytest.mark.parametrize(("seconds", "reason"), [(-310, "too_old"), (310, "too_new"), (-1e9, "too_old")])
def test_an_old_or_a_future_timestamp(
    book: Book, postbox: Postbox, unchanged: Any, seconds: float, reason: str
) -> None:
    document = about_canary(postbox, accepted(book))
    unchanged(postbox, 401, reason, document, at=time.time() + seconds)


@pytest.mark.parametrize("seconds", [-290, 290])
def test_within_five_minutes_it_is_taken(book: Book, postbox: Postbox, seconds: float) -> None:
    document = postbox.about(accepted(book))
    assert postbox.post(document, at=time.time() + seconds).status_code == 200


def test_the_databases_clock_decides(
    book: Book, postbox: Postbox, unchanged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not this process's, which may be wrong."""
    document = about_canary(postbox, accepted(book))
    by_database = hooks._database_now()
    monkeypatch.setattr(hooks, "_database_now", lambda: by_database + timedelta(hours=1))
    unchanged(postbox, 401, "too_old", document)


UNREADABLE = (
    ("webhook-id", None, "header_missing"),
    ("webhook-id", "", "header_missing"),
    ("webhook-timestamp", None, "header_missing"),
    ("webhook-timestamp", "", "header_missing"),
    ("webhook-signature", None, "header_missing"),
    ("webhook-signature", "", "header_missing"),
    ("webhook-timestamp", "yesterday", "timestamp_unreadable"),
    ("webhook-timestamp", "1e10", "timestamp_unreadable"),
    ("webhook-id", "a.b", "id_unreadable"),
    ("webhook-id", "x" * 201, "id_unreadable"),
    ("webhook-signature", "v2,abcd", "no_v1_signature"),
    ("webhook-signature", "garbage", "no_v1_signature"),
)


def test_a_header_that_is_missing_or_can_not_be_read(book: Book, postbox: Postbox, unchanged: Any) -> None:
    document = about_canary(postbox, accepted(book))
    for name, value, reason in UNREADABLE:
        unchanged(postbox, 401, reason, document, headers={name: value})


def test_an_unknown_address(book: Book, postbox: Postbox, unchanged: Any) -> None:
    document = about_canary(postbox, accepted(book))
    for hook in ("hook_0" + "0" * 25, "hook_nonsense", "eff_" + "0" * 32, "x" * 300, "a%00b"):
        unchanged(postbox, 404, "not_found", document, path=f"/hooks/{hook}")


def test_a_closed_address(book: Book, postbox: Postbox, unchanged: Any) -> None:
    document = about_canary(postbox, accepted(book))
    type(postbox.source).objects.filter(id=postbox.source.id).update(closed_at=Now())
    unchanged(postbox, 404, "not_found", document)


def test_an_effect_of_another_workspace(book: Book, postbox: Postbox, unchanged: Any, outside: Any) -> None:
    effect_id = accepted(book)
    other = make_world("other")
    other.receivers(outside.receiver, outside.smtp_port)
    theirs = Postbox(Book(other, replace(outside)))
    unchanged(theirs, 404, "not_found", about_canary(theirs, effect_id))
    assert book.standing(effect_id) == ("accepted", "")


def test_an_effect_of_another_receiver(book: Book, postbox: Postbox, unchanged: Any) -> None:
    effect_id = accepted(book)
    other = book.effect(effect_id).receiver
    other.pk = other.id = new_id("rcv")
    other._state.adding = True
    other.standing = "isolated"
    other.save()
    type(postbox.source).objects.filter(id=postbox.source.id).update(receiver=other)
    unchanged(postbox, 404, "not_found", about_canary(postbox, effect_id))


def test_a_receiver_whose_contracts_read_no_webhooks_names_no_effect(book: Book, unchanged: Any) -> None:
    effect_id = accepted(book)
    desk = Postbox(book, receiver="desk")
    before = rows_of_all_tables()
    answer = desk.post(about_canary(desk, effect_id))
    assert (answer.status_code, said(answer)) == (200, {"status": "ignored"})
    assert rows_of_all_tables() == before


def test_another_method(book: Book, postbox: Postbox) -> None:
    before = rows_of_all_tables()
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = Client().generic(method, postbox.path, b"{}", content_type="application/json")
        assert (answer.status_code, answer["Allow"]) == (405, "POST"), method
    assert rows_of_all_tables() == before


def test_a_body_that_is_too_large(book: Book, postbox: Postbox, unchanged: Any) -> None:
    effect_id = accepted(book)
    document = {**about_canary(postbox, effect_id), "padding": "x" * hooks.LARGEST_MESSAGE}
    unchanged(postbox, 413, "too_large", document)


MALFORMED = {
    "not JSON": b"canary",
    "nothing": b"",
    "cut off": b'{"type": "canary',
    "not UTF-8": b'{"canary": "\xff"}',
    "NaN": b'{"canary": NaN}',
    "infinite": b'{"canary": 1e999}',
    "nested beyond reading": b'{"canary": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested deeper than may be": b'{"canary": ' + b"[" * 70 + b"]" * 70 + b"}",
    "a list": b'["canary"]',
    "a text": b'"canary"',
    "a key twice": b'{"canary": 1, "canary": 2}',
}


def test_a_body_that_is_no_object(book: Book, postbox: Postbox, unchanged: Any) -> None:
    for body in MALFORMED.values():
        unchanged(postbox, 400, "bad_request", body)


def test_two_effects_in_one_message(book: Book, postbox: Postbox, unchanged: Any) -> None:
    """The type that it names by one field and another by the other: neither is guessed."""
    document = postbox.about(accepted(book), external_id=accepted(book, key="two"))
    unchanged(postbox, 400, "bad_request", document)


def test_an_effect_named_where_another_types_messages_name_theirs(
    book: Book, postbox: Postbox, unchanged: Any
) -> None:
    effect_id = accepted(book)
    document = postbox.about(effect_id, key=None)
    unchanged(postbox, 400, "bad_request", document)


def test_a_secret_that_is_not_set_up_is_ours_to_mend(book: Book, postbox: Postbox, unchanged: Any) -> None:
    """503: the sender comes again. Nothing is ever let in for lack of a secret."""
    document = about_canary(postbox, accepted(book))
    for values in ([], ["whsec_short"], ["no prefix"]):
        keep_secret(postbox.source.secret_name, *values)
        unchanged(postbox, 503, "not_ready", document)


# What is taken and is about none of our effects.


NO_KEYS: tuple[Any, ...] = (
    None,
    "",
    7,
    [],
    {},
    "ord_1",
    "eff_",
    "EFF_" + "0" * 32,
    " eff_" + "0" * 32,
    "eff_" + "z" * 32,
)


def test_a_message_that_names_no_effect_is_ignored(book: Book, postbox: Postbox) -> None:
    """Receivers tell of everything that happens to them; they need not tell it again."""
    before = rows_of_all_tables()
    for key in NO_KEYS:
        answer = postbox.post(postbox.about("x", key=key, external_id=None))
        assert (answer.status_code, said(answer)) == (200, {"status": "ignored"}), key
    assert rows_of_all_tables() == before


def test_an_object_with_an_id_of_ours_that_no_row_has_is_an_orphan(book: Book, postbox: Postbox) -> None:
    key = "eff_" + "0" * 32
    assert postbox.tell(key) == "taken"
    [review] = Review.objects.filter(workspace=book.world.workspace)
    assert (review.reason, review.provider_object, review.effect) == ("orphan", "res_000001", None)
    assert review.receiver == postbox.source.receiver
    assert key in review.sentence
    [message] = HookMessage.objects.filter(source=postbox.source)
    assert message.effect is None
    # Told again, it is the same orphan.
    before = rows_of_all_tables()
    assert postbox.tell(key) == "ignored"
    assert rows_of_all_tables() == before
    # The same number with another id is another object, as it is to an orphan scan.
    other = "eff_" + "1" * 32
    assert postbox.tell(other) == "taken"
    assert Review.objects.filter(provider_object=f"res_000001 with {other}").count() == 1


@pytest.mark.parametrize("status", ["failed", "processing"])
def test_no_object_no_orphan(book: Book, postbox: Postbox, status: str) -> None:
    before = rows_of_all_tables()
    assert postbox.tell("eff_" + "0" * 32, status) == "ignored"
    assert rows_of_all_tables() == before


def test_nothing_of_a_message_is_kept_when_settling_it_fails(
    kept: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observation, the move and the message's row come together or not at all; then the sender comes again."""
    postbox = Postbox(kept)
    effect_id = accepted(kept)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_keep", broken)
        postbox.client.raise_request_exception = False
        document = postbox.about(effect_id)
        assert postbox.post(document, message="msg_twice").status_code == 500
    assert kept.standing(effect_id) == ("accepted", "")
    assert webhooks_of(effect_id) == []
    assert said(postbox.post(document, message="msg_twice")) == {"status": "taken"}
    assert kept.standing(effect_id) == ("completed", "")
