"""Accepted first: the receiver is asked how far it is, until its own final answer. Nothing is sent a second time."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import override_settings

from effects import moves, reconcile
from effects.contracts import ContractError, contracts
from effects.ledger import Refused, Wait
from effects.models import Effect, Observation, Review
from effects.origin import Result
from effects.selectors import request_of, revision_of
from effects.states import Dedup, ReviewReason
from effects.wires import HttpLookUp, HttpWire, Progress
from tests.effects import asynchronous
from tests.effects.book import Book
from tests.effects.odd import OddServer, Play, says
from tests.stack import wait_for

Odd = Callable[[Play], OddServer]


def accepted(book: Book, effect_type: str = "ledger.seats", key: str = "one", **order: Any) -> str:
    proposal = book.propose(effect_type, key=key)
    book.witness.order("202_webhook", **{"final": "never", **order})
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("accepted", "")
    return proposal.effect_id


def look(book: Book, effect_id: str) -> str:
    """The look that is due now."""
    book.make_due(effect_id)
    assert effect_id in reconcile.looks_due()
    return reconcile.look(effect_id)


def ended(book: Book, effect_id: str, path: str = "/v1/operations/") -> Any:
    """Wait until the receiver has brought it to its end, which nobody was told."""

    def status() -> bool:
        answer = book.witness.client.get(
            f"{book.witness.receiver}{path}{effect_id}",
            headers={"Authorization": f"Bearer {book.witness.account}:s3cret"},
        )
        return bool(answer.json()["status"] != "accepted")

    wait_for("the command's end", status, within=10)


def observed(effect_id: str) -> list[str]:
    return list(
        Observation.objects.filter(effect_id=effect_id).order_by("id").values_list("found", flat=True)
    )


def seconds_until(effect_id: str, column: str) -> float:
    [(moment, now)] = Effect.objects.filter(id=effect_id).values_list(column, Now())
    return float((moment - now).total_seconds())


def test_accepted_has_a_deadline_of_its_own(book: Book) -> None:
    """final_within of the contract; how long deliveries are tried is another time."""
    effect_id = accepted(book)
    assert 595 < seconds_until(effect_id, "final_by") <= 600
    assert asynchronous.seats.give_up != asynchronous.seats.final_within
    assert book.outcomes(effect_id) == ["accepted"]


def test_under_way_it_is_asked_ever_less_often(book: Book) -> None:
    effect_id = accepted(book)
    waits = []
    for _ in range(5):
        assert look(book, effect_id) == "under_way"
        waits.append(seconds_until(effect_id, "due_at"))
    assert book.standing(effect_id) == ("accepted", "")
    assert [round(wait) for wait in waits] == [1, 2, 4, 8, 16]
    Effect.objects.filter(id=effect_id).update(looks=5_000)
    look(book, effect_id)
    assert 290 < seconds_until(effect_id, "due_at") <= 300
    assert observed(effect_id) == ["under_way"] * 6
    # Looks have no effect there, and however often it was looked at, nobody is asked before its deadline.
    assert book.reviews(effect_id) == []
    assert book.witness.rx == (0, 1)


def test_completed_without_telling_anybody(book: Book) -> None:
    effect_id = accepted(book, final="completed", delay=0)
    ended(book, effect_id)

    assert look(book, effect_id) == "found"

    [made] = book.witness.effects()
    effect = book.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", made["object_id"])
    result = book.perform(effect_id)
    assert isinstance(result, Result)
    assert result.answer == made["document"]
    assert book.witness.rx == (1, 1)


def test_failed_without_telling_anybody(book: Book) -> None:
    effect_id = accepted(book, final="failed", delay=0, reason="no seats left")
    ended(book, effect_id)

    assert look(book, effect_id) == "failed"

    assert book.standing(effect_id) == ("failed", "refused")
    with pytest.raises(Refused, match=r"The receiver says that it has failed: no seats left\."):
        book.perform(effect_id)
    assert book.witness.rx == (0, 1)


def test_a_late_end_answers_the_review_of_its_deadline(book: Book) -> None:
    for final, stands in (("completed", "completed"), ("failed", "failed")):
        effect_id = accepted(book, key=final, final=final, delay=0)
        Effect.objects.filter(id=effect_id).update(final_by=Now() - timedelta(seconds=1))
        reconcile.review_what_is_overdue()
        assert book.reviews(effect_id) == ["deadline_passed"]
        ended(book, effect_id)
        look(book, effect_id)
        assert book.effect(effect_id).status == stands
        assert book.reviews(effect_id) == []


def test_a_final_failure_answers_no_other_review(book: Book) -> None:
    """What a person has to look at stays theirs; the evidence stands beside it."""
    effect_id = accepted(book, final="failed", delay=0)
    moves.open_review(book.effect(effect_id), ReviewReason.CONTRADICTION, "?")
    ended(book, effect_id)
    assert look(book, effect_id) == "failed"
    assert book.standing(effect_id) == ("accepted", "")
    assert observed(effect_id) == ["failed"]
    assert seconds_until(effect_id, "due_at") > 0


def test_made_ready_again_and_accepted_again_it_has_a_deadline_again(book: Book) -> None:
    effect_id = accepted(book, "ledger.blind_seats")
    effect = book.effect(effect_id)
    Effect.objects.filter(id=effect_id).update(
        final_by=Now() - timedelta(hours=2), last_sent_at=Now() - timedelta(hours=3)
    )
    reconcile.review_what_is_overdue()
    Review.objects.filter(effect=effect, closed_at=None).update(
        opened_at=Now() - timedelta(hours=2), closed_at=Now()
    )
    Effect.objects.filter(id=effect_id).update(last_sent_at=Now() - timedelta(hours=1))
    assert reconcile.review_what_is_overdue() == 1
    assert book.reviews(effect_id) == ["deadline_passed"]


def test_not_found_says_nothing_of_a_command_that_was_accepted(book: Book) -> None:
    effect_id = accepted(book)
    book.witness.client.post(
        f"{book.witness.receiver}/_prune", json={"account": book.witness.account}
    ).raise_for_status()
    for _ in range(reconcile.LOOKS + 1):
        assert look(book, effect_id) == "absent"
    effect = book.effect(effect_id)
    assert (effect.status, effect.absences, effect.absent_at) == ("accepted", 0, None)
    assert book.reviews(effect_id) == []


def test_it_is_never_sent_again_while_it_is_accepted(book: Book) -> None:
    effect_id = accepted(book)
    for _ in range(3):
        book.make_due(effect_id)
        assert isinstance(book.perform(effect_id), Wait)
    result = book.perform(effect_id, until="accepted")
    assert isinstance(result, Result)
    assert not result.completed
    assert book.witness.rx == (0, 1)


def answer_lost(book: Book, key: str, **order: Any) -> str:
    """The receiver has accepted it, and brought it to its end; its sender was lost before the answer came."""
    proposal = book.propose("ledger.seats", key=key)
    effect, attempt = book.claim(proposal.effect_id)
    book.witness.order("202_webhook", delay=0, **order)
    stored = json.loads(request_of(effect, revision_of(effect)))
    taken = book.witness.client.post(
        f"{book.witness.receiver}{stored['path']}",
        content=base64.b64decode(stored["body"]),
        headers={"Authorization": f"Bearer {book.witness.account}:s3cret", "Idempotency-Key": effect.key},
    )
    assert taken.status_code == 202
    book.played.discard(attempt.id)
    ended(book, effect.id)
    book.lose(effect.id)
    reconcile.lose_leases()
    assert book.standing(effect.id) == ("pending", "uncertain")
    return effect.id


def test_the_202_was_lost_and_the_same_key_gets_the_end(book: Book) -> None:
    done = answer_lost(book, "done", final="completed")
    assert isinstance(book.perform_now(done), Result)
    assert book.outcomes(done) == ["unknown", "completed"]

    # A refusal of a repeat settles nothing by itself: an earlier attempt is unknown.
    dead = answer_lost(book, "dead", final="failed", reason="no seats left")
    assert isinstance(book.perform_now(dead), Wait)
    assert book.outcomes(dead) == ["unknown", "refused"]
    assert book.standing(dead) == ("pending", "uncertain")
    assert look_uncertain(book, dead) == "failed"
    assert book.standing(dead) == ("failed", "refused")
    assert "no seats left" in book.effect(dead).problem
    assert book.witness.rx == (1, 4)


@pytest.mark.parametrize(("final", "found"), [("completed", "found"), ("failed", "failed")])
def test_the_202_was_lost_and_a_look_finds_the_end(book: Book, final: str, found: str) -> None:
    effect_id = answer_lost(book, "one", final=final)
    assert look_uncertain(book, effect_id) == found
    assert book.effect(effect_id).status == final
    assert not book.effect(effect_id).unresolved
    assert len(book.witness.requests()) == 1


def look_uncertain(book: Book, effect_id: str) -> str:
    """By key it is looked at once nobody has come to repeat it."""
    Effect.objects.filter(id=effect_id).update(due_at=Now() - 2 * reconcile.NOBODY_REPEATS)
    assert effect_id in reconcile.looks_due()
    return reconcile.look(effect_id)


def test_a_look_that_finds_it_under_way_accepts_it(book: Book, odd: Odd) -> None:
    proposal = book.propose("ledger.seats")
    book.witness.order("drop_before")
    book.perform(proposal.effect_id)
    effect = book.effect(proposal.effect_id)
    book.point(odd(says("200 OK", operation(effect.key, "accepted"))).url)
    Effect.objects.filter(id=effect.id).update(looks=4, absences=2)

    assert look_uncertain(book, effect.id) == "under_way"

    effect = book.effect(effect.id)
    assert (effect.status, effect.looks, effect.absences) == ("accepted", 0, 0)
    assert 595 < seconds_until(effect.id, "final_by") <= 600
    assert seconds_until(effect.id, "due_at") <= 1
    assert effect.unresolved  # its first attempt may be another one: only an end takes that away


def operation(key: str, status: str, made: Any = None, **more: Any) -> bytes:
    return json.dumps({"key": key, "status": status, "object": made, **more}).encode()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda key: operation(key + "0", "completed"), "unclear"),
        (lambda key: operation("", "failed"), "unclear"),
        (lambda key: operation(key, "completed"), "unclear"),
        (lambda key: operation(key, "completed", []), "unclear"),
        (lambda key: operation(key, "completed", {"seats": 40, "customer_id": "cus_000001"}), "unclear"),
        (
            lambda key: operation(key, "completed", {"id": "res_1", "seats": 4, "customer_id": "cus_000001"}),
            "mismatch",
        ),
        (lambda key: operation(key, "unheard-of"), "under_way"),
        (lambda key: json.dumps({"key": key}).encode(), "under_way"),
        (lambda key: json.dumps({"key": key, "status": ["failed"]}).encode(), "under_way"),
        (lambda key: operation(key, "failed", reason={"no": "text"}), "failed"),
    ],
)
def test_only_exactly_our_command_and_a_final_word_move_it(
    book: Book, odd: Odd, answer: Callable[[str], bytes], found: str
) -> None:
    effect_id = accepted(book)
    book.point(odd(says("200 OK", answer(effect_id))).url)
    assert look(book, effect_id) == found
    standing = ("failed", "refused") if found == "failed" else ("accepted", "")
    assert book.standing(effect_id) == standing
    assert book.reviews(effect_id) == (["mismatch"] if found == "mismatch" else [])


# How an answer says that it is not the end.


@pytest.mark.parametrize(
    ("effect_type", "answer", "standing"),
    [
        # A contract that says so: a 2xx without any sign of its progress.
        ("ledger.plain_seats", says("201 Created", b'{"id": "res_5"}'), ("accepted", "")),
        ("ledger.plain_seats", says("200 OK", b'{"id": "res_5"}'), ("accepted", "")),
        # A 202 is never final, whatever it holds, or if it holds nothing.
        ("ledger.offer", says("202 Accepted", b'{"id": "off_5"}'), ("accepted", "")),
        ("ledger.offer", says("202 Accepted", b""), ("accepted", "")),
        ("ledger.seats", says("202 Accepted", b'{"id": "res_5", "status": "created"}'), ("accepted", "")),
        # The field that says how far it is.
        ("ledger.seats", says("200 OK", b'{"id": "res_5", "status": "queued"}'), ("accepted", "")),
        ("ledger.seats", says("200 OK", b'{"id": "res_5"}'), ("accepted", "")),
        ("ledger.seats", says("200 OK", b'{"status": "failed", "reason": "closed"}'), ("failed", "refused")),
        ("ledger.seats", says("202 Accepted", b'{"status": "failed"}'), ("failed", "refused")),
        (
            "ledger.seats",
            says(
                "200 OK",
                b'{"id": "res_5", "status": "created", "customer_id": "cus_000001", "seats": 40}',
            ),
            ("completed", ""),
        ),
        # Neither the one nor the other.
        ("ledger.seats", says("200 OK", b"[]"), ("pending", "uncertain")),
        ("ledger.seats", says("200 OK", b""), ("pending", "uncertain")),
    ],
)
def test_what_a_2xx_means(
    book: Book, odd: Odd, effect_type: str, answer: Play, standing: tuple[str, str]
) -> None:
    proposal = book.propose(effect_type)
    book.point(odd(answer).url)
    try:
        book.perform(proposal.effect_id)
    except Refused:
        assert standing == ("failed", "refused")
    assert book.standing(proposal.effect_id) == standing


def test_the_receivers_wish_when_to_ask_is_kept(book: Book, odd: Odd) -> None:
    proposal = book.propose("ledger.seats")
    book.point(odd(says("202 Accepted", b"{}", "Retry-After: 90")).url)
    book.perform(proposal.effect_id)
    assert 85 < seconds_until(proposal.effect_id, "due_at") <= 90


# Commands that the receiver numbers.


def numbered(answer: bytes, asked: list[str]) -> Play:
    """Accepts as job 17; what is asked about it gets *answer*."""

    def play(request: bytes, connection: socket.socket) -> None:
        line = request.split(b"\r\n")[0].decode()
        if line.startswith("POST"):
            says("202 Accepted", b'{"job": 17, "state": "waiting"}')(request, connection)
        else:
            asked.append(line)
            says("200 OK", answer)(request, connection)

    return play


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (b'{"state": "waiting"}', ("accepted", "")),
        (b'{"state": "dead", "error": "sold out"}', ("failed", "refused")),
        (
            b'{"state": "done", "result": {"id": "res_9", "customer_id": "cus_000001", "seats": 40}}',
            ("completed", ""),
        ),
    ],
)
def test_it_is_asked_about_by_the_number_that_it_was_accepted_with(
    book: Book, odd: Odd, answer: bytes, standing: tuple[str, str]
) -> None:
    asked: list[str] = []
    proposal = book.propose("ledger.numbered_seats")
    book.point(odd(numbered(answer, asked)).url)
    book.perform(proposal.effect_id)
    assert book.effect(proposal.effect_id).provider_reference == "17"

    look(book, proposal.effect_id)

    assert asked == ["GET /v1/jobs/17 HTTP/1.1"]
    assert book.standing(proposal.effect_id) == standing
    if standing == ("completed", ""):
        assert book.effect(proposal.effect_id).provider_reference == "res_9"


@pytest.mark.parametrize("number", [b"{}", b'{"job": ".."}', b'{"job": true}', b'{"job": ["17"]}'])
def test_without_a_number_nobody_is_asked(book: Book, odd: Odd, number: bytes) -> None:
    """Neither is a number made up, nor does one of dots lead to another place."""
    proposal = book.propose("ledger.numbered_seats")
    server = odd(says("202 Accepted", number))
    book.point(server.url)
    book.perform(proposal.effect_id)
    assert look(book, proposal.effect_id) == "unclear"
    assert len(server.requests) == 1


def test_an_unknown_answer_of_a_numbered_command_is_not_looked_up(book: Book) -> None:
    """It can be polled once it is accepted; before that nobody knows its number."""
    proposal = book.propose("ledger.numbered_seats")
    book.witness.order("drop_before")
    book.perform(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(due_at=Now() - timedelta(hours=1))
    assert proposal.effect_id not in reconcile.looks_due()


# Commands about which the receiver says where to ask.


def located(location: str, asked: list[str], *headers: str, answer: bytes = b'{"state": "waiting"}') -> Play:
    """Accepts with this Location; what is asked about it gets *answer*."""

    def play(request: bytes, connection: socket.socket) -> None:
        line = request.split(b"\r\n")[0].decode()
        if line.startswith("POST"):
            says("202 Accepted", b"", f"Location: {location}")(request, connection)
        else:
            asked.append(line)
            says("200 OK", answer, *headers)(request, connection)

    return play


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/v1/jobs/17?part=2#end", "/v1/jobs/17?part=2"),
        ("jobs/17", "/v1/jobs/17"),
        ("{url}/v1/jobs/17", "/v1/jobs/17"),
    ],
)
def test_it_is_asked_about_where_the_receiver_said(book: Book, odd: Odd, location: str, target: str) -> None:
    asked: list[str] = []
    proposal = book.propose("ledger.located_seats")
    done = b'{"state": "done", "result": {"id": "res_9", "customer_id": "cus_000001", "seats": 40}}'
    server = odd(says("500 Not yet"))
    server.play = located(location.replace("{url}", server.url), asked, answer=done)
    book.point(f"{server.url}/")
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("accepted", "")
    assert book.effect(proposal.effect_id).provider_reference == target

    assert look(book, proposal.effect_id) == "found"

    assert asked == [f"GET {target} HTTP/1.1"]
    assert book.standing(proposal.effect_id) == ("completed", "")
    assert book.effect(proposal.effect_id).provider_reference == "res_9"


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:9/v1/jobs/17",
        "{url}0/v1/jobs/17",
        "//127.0.0.2/v1/jobs/17",
        "{url}@127.0.0.2/v1/jobs/17",
        "file:///etc/passwd",
        "",
        "/v1/jobs/" + "7" * 300,
        "/v1/jobs/17 HTTP/1.0",
        "http://[",
    ],
)
def test_an_address_elsewhere_is_not_asked(book: Book, odd: Odd, location: str) -> None:
    """The receiver's secret goes with each question."""
    server = odd(says("500 Not yet"))
    server.play = located(location.replace("{url}", server.url), [])
    proposal = book.propose("ledger.located_seats")
    book.point(server.url, hosts=["127.0.0.1", "127.0.0.2"])
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("accepted", "")
    assert book.effect(proposal.effect_id).provider_reference == ""

    assert look(book, proposal.effect_id) == "unclear"

    assert len(server.requests) == 1
    [said] = book.effect(proposal.effect_id).observations.all()
    assert said.sentence == "The receiver accepted it without an address to ask at."


# When the receiver wants to be asked again.


@pytest.mark.parametrize(("asked_for", "seconds"), [("120", 120), ("999999", 3600), ("0", 1), ("soon", 1)])
def test_a_poll_that_is_to_wait_puts_the_next_one_off(
    book: Book, odd: Odd, asked_for: str, seconds: int
) -> None:
    """Within bounds: never sooner than it would be anyway, and at most an hour later."""
    server = odd(located("/v1/jobs/17", [], f"Retry-After: {asked_for}"))
    proposal = book.propose("ledger.located_seats")
    book.point(server.url)
    book.perform(proposal.effect_id)
    assert look(book, proposal.effect_id) == "under_way"
    waits = due_in(proposal.effect_id)
    assert timedelta(seconds=seconds - 1) < waits <= timedelta(seconds=seconds)


def test_a_look_up_that_comes_too_soon_is_put_off_too(book: Book, odd: Odd) -> None:
    """Also where it says nothing else, and where it lists."""
    for number, effect_type in enumerate(("ledger.ticket", "ledger.listed_ticket")):
        proposal = book.propose(effect_type, key=str(number))
        book.witness.order("drop_before")
        book.perform(proposal.effect_id)
        book.point(odd(says("429 Too Many Requests", b"", "Retry-After: 90")).url, receiver="desk")
        assert look(book, proposal.effect_id) == "unclear"
        assert timedelta(seconds=89) < due_in(proposal.effect_id) <= timedelta(seconds=90)
        book.point(book.witness.receiver, receiver="desk")


def due_in(effect_id: str) -> timedelta:
    """How long after it was looked at it is looked at again, by the database's clock."""
    effect = Effect.objects.get(id=effect_id)
    assert effect.due_at is not None
    return effect.due_at - effect.updated_at


# Contracts that could never tell the end.

WIRE = asynchronous.seats.wire
assert isinstance(WIRE, HttpWire)

UNUSABLE = {
    "nothing tells the end": replace(
        asynchronous.seats,
        wire=replace(WIRE, look_up=None, poll=None, hook=None, listing=None),
    ),
    "looked up by a number that nobody has": replace(
        asynchronous.seats,
        wire=replace(WIRE, look_up=replace(WIRE.look_up, path="/v1/jobs/{reference}")),  # type: ignore[type-var]  # an HttpLookUp
    ),
    "looked up where nobody has said": replace(
        asynchronous.seats,
        wire=replace(WIRE, look_up=replace(WIRE.look_up, path="{location}")),  # type: ignore[type-var]
    ),
    "polled by two": replace(
        asynchronous.located_seats,
        wire=replace(WIRE, command="job", poll=HttpLookUp("{location}")),
    ),
    "proves absence of what is under way": replace(
        asynchronous.plain_seats, dedup=Dedup.NATURAL, authoritative=True
    ),
    "no time for its end": replace(asynchronous.seats, final_within=0),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_contract_that_could_never_tell_the_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(asynchronous, "CONTRACTS", (UNUSABLE[name],))
    with override_settings(CONTRACTS=["tests.effects.asynchronous:CONTRACTS"]):
        contracts.cache_clear()
        with pytest.raises(ContractError, match=r"ledger\.\w*seats"):
            contracts()
    contracts.cache_clear()


def test_a_value_can_not_mean_both_ends() -> None:
    with pytest.raises(ValueError, match="status"):
        Progress("status", frozenset({"done"}), frozenset({"done"}))
    with pytest.raises(ValueError, match="status"):
        Progress("status", frozenset())
