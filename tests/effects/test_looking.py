"""Asking the receiver what became of an effect: what a look proves, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from effects import reconcile
from effects.ledger import Wait
from effects.models import Effect, Observation
from tests.effects import promises
from tests.effects.book import TICKET, Book, at_once
from tests.effects.odd import OddServer, Play, says

Odd = Callable[[Play], OddServer]


def lost(
    book: Book, effect_type: str = "ledger.ticket", fault: str = "drop_after_commit", **changes: Any
) -> str:
    """An effect whose answer was lost, long enough ago for any look to count."""
    proposal = book.propose(effect_type, **changes)
    book.witness.order(fault)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    book.pass_settle_time(proposal.effect_id)
    return proposal.effect_id


def observed(effect_id: str) -> list[tuple[str, str]]:
    return list(Observation.objects.filter(effect_id=effect_id).order_by("id").values_list("kind", "found"))


def test_by_natural_key_nothing_is_sent_again_before_a_look(book: Book) -> None:
    effect_id = lost(book)
    assert isinstance(book.perform_now(effect_id), Wait)
    assert book.outcomes(effect_id) == ["unknown"]
    assert book.witness.rx == (1, 1)


def test_a_look_finds_it_and_completes_it(book: Book) -> None:
    effect_id = lost(book)

    assert effect_id in reconcile.looks_due()
    assert reconcile.look(effect_id) == "found"

    effect = book.effect(effect_id)
    [made] = book.witness.effects()
    assert (effect.status, effect.provider_reference) == ("completed", made["object_id"])
    assert not effect.unresolved
    assert observed(effect_id) == [("look_up", "found")]
    assert book.witness.rx == (1, 1)
    assert len(book.witness.requests("GET")) == 1
    # The attempt's row says what was known when it ended.
    assert book.outcomes(effect_id) == ["unknown"]


#: After the last sending: the lease, which is longer than the total deadline, and the settle time.
SETTLED = timedelta(seconds=promises.ticket.lease + promises.ticket.settle)


@pytest.mark.parametrize(
    ("since_sending", "proven"),
    [
        (timedelta(0), False),
        (timedelta(seconds=promises.ticket.deadline), False),
        (SETTLED - timedelta(seconds=1), False),
        (SETTLED + timedelta(milliseconds=100), True),
    ],
)
def test_absence_is_proven_only_after_lease_deadline_and_settle_time(
    book: Book, since_sending: timedelta, proven: bool
) -> None:
    effect_id = lost(book, fault="drop_before")
    Effect.objects.filter(id=effect_id).update(last_sent_at=Now() - since_sending)

    assert reconcile.look(effect_id) == "absent"

    assert book.standing(effect_id) == ("pending", "ready" if proven else "uncertain")
    book.perform_now(effect_id)
    assert book.witness.rx == ((1, 2) if proven else (0, 1))
    assert observed(effect_id) == [("look_up", "absent")]


def test_absence_in_a_search_index_proves_nothing(book: Book) -> None:
    """However often it is looked for; in the end a person is asked."""
    effect_id = lost(book, "ledger.searched_ticket", fault="drop_before")
    for number in range(1, reconcile.LOOKS + 1):
        assert book.reviews(effect_id) == []
        assert reconcile.look(effect_id) == "absent"
        assert book.standing(effect_id) == ("pending", "uncertain")
        assert book.effect(effect_id).looks == number
        book.pass_settle_time(effect_id)
    assert book.reviews(effect_id) == ["unqueryable"]
    assert book.witness.rx == (0, 1)


def test_a_lagging_index_then_the_object(book: Book) -> None:
    """The first look says no, a later one finds it: the review that was opened meanwhile is answered by it."""
    effect_id = lost(book, "ledger.searched_ticket")
    book.witness.order("stale", match={"method": "GET"}, times=reconcile.LOOKS)
    for _ in range(reconcile.LOOKS):
        reconcile.look(effect_id)
        book.pass_settle_time(effect_id)
    assert book.reviews(effect_id) == ["unqueryable"]

    assert reconcile.look(effect_id) == "found"

    assert book.standing(effect_id) == ("completed", "")
    assert book.reviews(effect_id) == []
    assert book.witness.rx == (1, 1)


def test_by_key_proven_absence_is_not_enough_to_start_anew(book: Book) -> None:
    """The same key is the way to repeat it; ready again belongs to receivers that enforce uniqueness."""
    effect_id = lost(book, "ledger.offer", fault="drop_before")
    assert reconcile.look(effect_id) == "absent"
    assert book.standing(effect_id) == ("pending", "uncertain")


def test_a_look_that_gets_no_answer_is_unclear(book: Book) -> None:
    effect_id = lost(book)
    for fault in ("500_before", "drop_before", "malformed"):
        book.witness.order(fault, match={"method": "GET"})
        assert reconcile.look(effect_id) == "unclear"
        assert book.standing(effect_id) == ("pending", "uncertain")
        book.pass_settle_time(effect_id)
    assert reconcile.look(effect_id) == "found"
    assert book.witness.rx == (1, 1)


def test_a_look_is_taken_once(kept: Book) -> None:
    effect_id = lost(kept)
    found = at_once(4, lambda _: reconcile.look(effect_id))
    assert sorted(str(one) for one in found) == ["found", "taken", "taken", "taken"]
    assert len(kept.witness.requests("GET")) == 1


def test_an_external_id_that_is_taken_leads_to_a_look(book: Book) -> None:
    """409: the receiver has one of this id. It is ours, from an attempt that came through after all."""
    proposal = book.propose("ledger.ticket")
    book.witness.post("/v1/tickets", {**TICKET, "external_id": proposal.effect_id})
    book.strangers += 1

    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    book.make_due(proposal.effect_id)
    assert reconcile.look(proposal.effect_id) == "found"

    effect = book.effect(proposal.effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", "tic_000001")


def test_one_that_differs_is_a_mismatch_and_not_adopted(book: Book) -> None:
    effect_id = lost(book, fault="drop_before")
    book.witness.post("/v1/tickets", {**TICKET, "priority": "high", "external_id": effect_id})
    book.strangers += 1

    assert reconcile.look(effect_id) == "mismatch"

    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.reviews(effect_id) == ["mismatch"]
    # Nothing is sent until a person has settled it, and the receiver is not asked over and over either.
    book.pass_settle_time(effect_id)
    assert isinstance(book.perform(effect_id), Wait)
    assert book.witness.rx == (1, 2)


def test_a_prefix_or_a_longer_id_is_not_it(book: Book) -> None:
    """Receivers' searches are generous; only exactly the id is ours."""
    effect_id = lost(book, "ledger.broad_ticket", fault="drop_before")
    for other in (effect_id[:-1], effect_id + "0", effect_id.upper(), f" {effect_id}", None):
        book.witness.post("/v1/tickets", {**TICKET, "external_id": other} if other else TICKET)
        book.strangers += 1

    assert reconcile.look(effect_id) == "absent"

    assert len(book.witness.effects()) == 5
    assert book.effect(effect_id).provider_reference == ""


def list_of(*objects: dict[str, Any]) -> Play:
    return says("200 OK", json.dumps({"data": list(objects)}).encode())


def test_several_are_a_duplicate_for_a_person(book: Book, odd: Odd) -> None:
    effect_id = lost(book)
    mine = {**TICKET, "external_id": effect_id}
    book.point(odd(list_of({**mine, "id": "tic_1"}, {**mine, "id": "tic_2"})).url, receiver="desk")

    assert reconcile.look(effect_id) == "several"

    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.reviews(effect_id) == ["duplicate_found"]
    assert Observation.objects.get(effect_id=effect_id).detail == {"references": ["tic_1", "tic_2"]}


def test_what_belongs_to_another_effect_is_not_adopted(book: Book, odd: Odd) -> None:
    first = book.propose("ledger.ticket")
    book.perform(first.effect_id)
    taken = book.effect(first.effect_id).provider_reference
    effect_id = lost(book, fault="drop_before", key="two")
    book.point(odd(list_of({**TICKET, "external_id": effect_id, "id": taken})).url, receiver="desk")

    reconcile.look(effect_id)

    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.reviews(effect_id) == ["mismatch"]


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"{}", b'{"data": null}', b'{"data": 7}', b'{"data": {"id": 1}}', b'{"data": "none"}'],
)
def test_a_look_whose_answer_is_not_a_list_proves_nothing(book: Book, odd: Odd, answer: bytes) -> None:
    """A list that is missing is no empty list: absence must be said, or the effect would be sent a second time."""
    effect_id = lost(book)
    book.point(odd(says("200 OK", answer)).url, receiver="desk")

    reconcile.look(effect_id)

    assert observed(effect_id) == [("look_up", "unclear")]
    assert book.standing(effect_id) == ("pending", "uncertain")


def test_a_cut_list_proves_nothing(book: Book, odd: Odd) -> None:
    """There is more than the receiver showed: ours may be among the rest."""
    effect_id = lost(book)
    page = json.dumps({"data": [{"id": "tic_9", "external_id": "another"}], "has_more": True}).encode()
    book.point(odd(says("200 OK", page)).url, receiver="desk")

    reconcile.look(effect_id)

    assert book.standing(effect_id) == ("pending", "uncertain")


def test_a_404_of_the_list_itself_proves_nothing(book: Book, odd: Odd) -> None:
    """Where a list is asked for, 404 says that the address is wrong."""
    effect_id = lost(book)
    book.point(odd(says("404 Not Found", b"{}")).url, receiver="desk")
    assert reconcile.look(effect_id) == "unclear"
    assert book.standing(effect_id) == ("pending", "uncertain")


def test_a_reviewed_effect_is_looked_up_ever_less_often_or_not_at_all(book: Book) -> None:
    """A mismatch is a person's to settle, perhaps on Monday: until then the receiver is not asked every few seconds."""
    effect_id = lost(book, fault="drop_before")
    book.witness.post("/v1/tickets", {**TICKET, "priority": "high", "external_id": effect_id})
    book.strangers += 1
    waits = []
    for _ in range(6):
        book.make_due(effect_id)
        if effect_id not in reconcile.looks_due():
            return
        reconcile.look(effect_id)
        [(due_at, now)] = Effect.objects.filter(id=effect_id).values_list("due_at", Now())
        assert due_at is not None
        waits.append((due_at - now).total_seconds())
    assert waits[-1] > 2 * waits[0]


def test_by_query_a_look_settles_it_and_never_a_second_sending(book: Book) -> None:
    effect_id = lost(book, "ledger.queried_ticket")
    assert isinstance(book.perform_now(effect_id), Wait)
    book.make_due(effect_id)
    assert reconcile.look(effect_id) == "found"
    assert book.witness.rx == (1, 1)


def test_without_any_way_to_tell_it_goes_to_review_at_once(book: Book) -> None:
    proposal = book.propose("ledger.blind_ticket")
    book.witness.order("drop_after_commit")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.reviews(proposal.effect_id) == ["unqueryable"]
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert proposal.effect_id not in reconcile.looks_due()
    assert book.witness.rx == (1, 1)


def test_an_attempt_never_sent_and_a_look_send_it_once(book: Book) -> None:
    """Killed between the attempt's commit and the socket: the look proves that nothing is there."""
    proposal = book.propose("ledger.ticket")
    book.claim(proposal.effect_id)
    book.lose(proposal.effect_id)
    assert reconcile.lose_leases() == [proposal.effect_id]
    assert isinstance(book.perform(proposal.effect_id), Wait)
    book.pass_settle_time(proposal.effect_id)
    assert reconcile.look(proposal.effect_id) == "absent"
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown", "completed"]
    assert book.witness.rx == (1, 1)


@pytest.mark.parametrize("effect_type", ["ledger.ticket", "ledger.queried_ticket", "ledger.offer"])
def test_another_account_at_the_receiver_is_not_asked(book: Book, effect_type: str) -> None:
    """It does not have the effect, and that proves nothing: a person looks at the account that it was sent to."""
    effect_id = lost(book, effect_type)
    receiver = "crm" if effect_type == "ledger.offer" else "desk"
    book.point(book.witness.receiver, receiver=receiver, account="another")

    assert reconcile.look(effect_id) == "unclear"

    assert book.standing(effect_id) == ("pending", "uncertain")
    assert book.reviews(effect_id) == ["mismatch"]
    assert book.witness.requests("GET") == []
    book.pass_settle_time(effect_id)
    assert effect_id not in reconcile.looks_due()
