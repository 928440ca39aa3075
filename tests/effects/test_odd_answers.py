"""Answers that no well-made receiver gives: every one ends the attempt, none ends the worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from effects import reconcile
from effects.ledger import Refused
from effects.models import Effect, EffectAttempt, Observation, Review
from effects.origin import Result
from tests.effects.book import OFFER, TICKET, Book, tables_that_hold
from tests.effects.odd import OddServer, Play, says

Odd = Callable[[Play], OddServer]


def offered(**fields: object) -> bytes:
    return json.dumps({**OFFER, "id": "off_1", **fields}).encode()


#: A body or head that trips a parser, a database or a clock. The offer may exist each time.
TRIPS: dict[str, Play] = {
    "an id longer than the row takes": says("201 Created", offered(id="o" * 1000)),
    "an id with U+0000": says("201 Created", offered(id="off\x001")),
    "an id that is half a character": says("201 Created", offered(id="off\ud83d")),
    "NaN in the answer": says("201 Created", offered().replace(b'"off_1"', b'"off_1", "score": NaN')),
    "an answer nested without end": says("201 Created", b"[" * 200_000),
    "an object nested without end": says("201 Created", b'{"a":' * 200_000),
    "a failure with U+0000 in its words": says("500 Oops", b"it broke\x00here"),
    "a failure that is no text": says("500 Oops", b"\xff\xfe\x00\x01" * 50),
    "a conflict with U+0000": says("409 Conflict", b'{"error": "taken\\u0000"}\x00'),
    "an answer of 3 MB": says("201 Created", b" " * 3_000_000),
    "a status that is no number": lambda _, client: client.sendall(b"HTTP/1.1 OK fine\r\n\r\n"),
    "not HTTP at all": lambda _, client: client.sendall(b"220 smtp here\r\n"),
    "a body cut short": lambda _, client: client.sendall(
        b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{"
    ),
    "heads without end": lambda _, client: client.sendall(b"HTTP/1.1 201 Created\r\n" + b"X: y\r\n" * 60_000),
    "no body": says("201 Created"),
    "204": says("204 No Content"),
    "a list": says("201 Created", b"[]"),
    "a word": says("201 Created", b'"created"'),
}


@pytest.mark.parametrize("name", TRIPS)
def test_whatever_the_receiver_says_the_attempt_ends(book: Book, odd: Odd, name: str) -> None:
    """Never an attempt left "sending" by a worker that is alive, and never "nothing exists": it may."""
    book.point(odd(TRIPS[name]).url)
    proposal = book.propose()

    book.perform(proposal.effect_id)

    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert attempt.outcome in ("unknown", "completed")
    assert book.standing(proposal.effect_id) in [("pending", "uncertain"), ("completed", "")]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({}, id="nothing of what was sent"),
        pytest.param({**OFFER, "id": None}, id="no id"),
        pytest.param({**OFFER, "id": ""}, id="an empty id"),
        pytest.param({**OFFER, "id": {"value": 1}}, id="an id that is no word"),
        pytest.param({"error": "the amount is too high", "id": "err_1"}, id="an error in a 200"),
        pytest.param({**OFFER, "id": "off_1", "currency": "EUR"}, id="another currency"),
        pytest.param({**OFFER, "id": "off_1", "amount_minor": "1000"}, id="another type"),
        pytest.param({**OFFER, "id": "off_1", "amount_minor": True}, id="a flag for a number"),
    ],
)
def test_a_2xx_that_does_not_name_what_was_made_completes_nothing(
    book: Book, odd: Odd, answer: dict[str, object]
) -> None:
    book.point(odd(says("200 OK", json.dumps(answer).encode())).url)
    proposal = book.propose()
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.effect(proposal.effect_id).provider_reference == ""


@pytest.mark.parametrize(
    "said", ["nan", "inf", "-5", "1e400", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "", "999999"]
)
@pytest.mark.parametrize("status", ["429 Slow down", "503 Later"])
def test_an_odd_retry_after_is_bounded(book: Book, odd: Odd, status: str, said: str) -> None:
    book.point(odd(says(status, b"{}", f"Retry-After: {said}")).url)
    proposal = book.propose()
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")
    assert Effect.objects.filter(
        id=proposal.effect_id, due_at__gt=Now(), due_at__lte=Now() + timedelta(hours=1)
    ).exists()


def test_a_date_to_come_back_at_is_kept(book: Book, odd: Odd) -> None:
    """Retry-After is a number of seconds or a date (RFC 9110)."""
    from datetime import UTC, datetime
    from email.utils import format_datetime

    when = datetime.now(UTC) + timedelta(minutes=10)
    book.point(odd(says("429 Slow down", b"{}", f"Retry-After: {format_datetime(when, usegmt=True)}")).url)
    proposal = book.propose()
    book.perform(proposal.effect_id)
    due = book.effect(proposal.effect_id).due_at
    assert due is not None
    assert abs(due - when) < timedelta(seconds=30)


@pytest.mark.parametrize(
    "status", ["408 Timeout", "409 Conflict", "300 Choices", "304 Same", "307 There", "502 Gateway"]
)
def test_a_status_that_proves_nothing_is_uncertain(book: Book, odd: Odd, status: str) -> None:
    book.point(odd(says(status, b"{}")).url)
    proposal = book.propose()
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown"]


@pytest.mark.parametrize(
    "status", ["400 Bad", "403 No", "404 None", "410 Gone", "413 Big", "415 Type", "422 Invalid"]
)
def test_a_final_refusal_of_the_first_attempt_is_failed(book: Book, odd: Odd, status: str) -> None:
    book.point(odd(says(status, b'{"error": {"message": "not like this"}}')).url)
    proposal = book.propose()
    with pytest.raises(Refused, match="not like this"):
        book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")


# Look-ups


LOOKED: dict[str, Play] = {
    name: TRIPS[name]
    for name in (
        "an answer nested without end",
        "a failure with U+0000 in its words",
        "a failure that is no text",
        "an answer of 3 MB",
        "not HTTP at all",
        "a body cut short",
        "no body",
    )
}


@pytest.mark.parametrize("name", LOOKED)
def test_whatever_a_look_brings_it_is_noted(book: Book, odd: Odd, name: str) -> None:
    proposal = book.propose("ledger.ticket")
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    book.pass_settle_time(proposal.effect_id)
    book.point(odd(LOOKED[name]).url, receiver="desk")

    assert reconcile.look(proposal.effect_id) == "unclear"

    assert Observation.objects.filter(effect_id=proposal.effect_id, found="unclear").exists()
    assert book.effect(proposal.effect_id).looks == 1
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")


@pytest.mark.parametrize("reference", ["t" * 1000, "tic\x001", "tic\ud83d", None])
def test_whatever_a_look_finds_the_ledger_can_write_it(book: Book, odd: Odd, reference: str | None) -> None:
    proposal = book.propose("ledger.ticket")
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    book.pass_settle_time(proposal.effect_id)
    found = {"data": [{**TICKET, "external_id": proposal.effect_id, "id": reference}]}
    book.point(odd(says("200 OK", json.dumps(found).encode())).url, receiver="desk")

    reconcile.look(proposal.effect_id)

    assert Observation.objects.filter(effect_id=proposal.effect_id).exists()
    assert book.effect(proposal.effect_id).provider_reference != "None"


# What is protected stays so in the receiver's words


PROTECTED = "Subject-only-approvers-see"


@pytest.mark.parametrize("status", ["422 Invalid", "500 Oops", "409 Conflict", "201 Created"])
def test_a_receiver_that_echoes_a_protected_value_does_not_get_it_shown(
    book: Book, odd: Odd, status: str
) -> None:
    """The mask is of the value, wherever it turns up: problem, review, observation, the run's failure."""
    body = f"can't do {PROTECTED}".encode()
    book.point(
        odd(
            says(
                status, body if status.startswith("201") else json.dumps({"message": body.decode()}).encode()
            )
        ).url
    )
    proposal = book.propose("ledger.masked_offer", subject=PROTECTED)
    assert PROTECTED not in book.refusal(proposal.effect_id)
    assert tables_that_hold(PROTECTED) == []


def test_a_mismatch_of_a_protected_field_does_not_show_it(book: Book) -> None:
    """Neither the amount that was sent nor the one that the receiver says."""
    proposal = book.propose("ledger.masked_offer", amount_minor=7_319_001)
    book.witness.order("wrong_amount", amount_minor=8_319_002)
    book.perform(proposal.effect_id)
    assert book.reviews(proposal.effect_id) == ["mismatch"]
    shown = [
        Review.objects.get(effect_id=proposal.effect_id).sentence,
        EffectAttempt.objects.get(effect_id=proposal.effect_id).problem,
        book.effect(proposal.effect_id).problem,
    ]
    for text in shown:
        assert "amount_minor" in text
        assert "7319001" not in text
        assert "8319002" not in text


def test_a_completed_answer_is_given_back_as_it_was(book: Book, odd: Odd) -> None:
    """Also with 64-bit numbers, which no reader may round."""
    book.point(odd(says("201 Created", offered(big=3544790567247868102, nested={"a": [1, None, "ü"]}))).url)
    result = book.perform(book.propose().effect_id)
    assert isinstance(result, Result)
    assert isinstance(result.answer, dict)
    assert result.answer["big"] == 3544790567247868102
    assert result.answer["nested"] == {"a": [1, None, "ü"]}
