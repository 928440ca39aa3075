"""Any service with an Idempotency-Key, against one that behaves as the IETF's draft says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effects.contracts import contract
from tests.catalogue.conftest import Desk
from tests.catalogue.notes import Notes
from tests.catalogue.servers import LocalServer, Reply

NOTE = {"customer": "cus_1", "text": "Call back"}


@pytest.fixture
def service() -> Notes:
    return Notes()


@pytest.fixture
def notes(desk: Desk, service: Notes, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(service)
    desk.receiver("notes", server.url, "a token")
    return server


def test_the_key_travels_as_a_quoted_string(desk: Desk, notes: LocalServer, service: Notes) -> None:
    effect_id = desk.send("notes.by_key", **NOTE)
    [sent] = notes.writes
    assert sent.headers["idempotency-key"] == f'"{effect_id}"'
    assert sent.headers["authorization"] == "Bearer a token"
    assert sent.body == b'{"customer":"cus_1","external_id":"%s","text":"Call back"}' % effect_id.encode()
    assert desk.standing(effect_id) == ("completed", "")
    assert desk.effect(effect_id).provider_reference == "note_1"


def test_a_lost_answer_is_repeated_once_and_makes_nothing_twice(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    notes.lose = 1
    effect_id = desk.send("notes.by_key", **NOTE)
    desk.perform(effect_id)
    first, second = notes.writes
    assert (first.body, first.headers) == (second.body, second.headers)
    assert desk.standing(effect_id) == ("completed", "")
    assert len(service.notes) == 1


def test_a_service_that_does_not_say_how_long_gets_no_second_request(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    assert contract("notes.by_unkept_key").retention == 0
    notes.lose = 1
    effect_id = desk.send("notes.by_unkept_key", **NOTE)
    desk.perform(effect_id)
    assert len(notes.writes) == len(service.notes) == 1
    assert desk.standing(effect_id) == ("pending", "uncertain")


def test_outstanding_is_waited_for(desk: Desk, notes: LocalServer, service: Notes) -> None:
    effect_id = desk.propose("notes.by_key", **NOTE)
    service.outstanding = {effect_id}
    desk.perform(effect_id)
    assert desk.attempts(effect_id) == [("unknown", "409")]
    assert desk.effect(effect_id).problem == "The receiver is still working on it"
    service.outstanding.clear()
    desk.perform(effect_id)
    assert desk.standing(effect_id) == ("completed", "")


def test_422_is_a_key_that_was_used_for_something_else(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    effect_id = desk.propose("notes.by_key", **NOTE)
    service.known[effect_id] = (b"something else", Reply(201, {"id": "note_9"}))
    desk.perform(effect_id)
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.reviews(effect_id) == ["mismatch"]
    assert "Idempotency-Key is already used" in desk.effect(effect_id).problem


def test_400_is_a_refusal_with_the_services_words(desk: Desk, notes: LocalServer, service: Notes) -> None:
    service.failing = [Reply(400, {"title": "No such customer", "detail": "cus_1 was closed in May."})]
    effect_id = desk.propose("notes.by_key", **NOTE)
    with pytest.raises(Exception, match=r"cus_1 was closed in May\."):
        desk.perform(effect_id)
    assert desk.standing(effect_id) == ("failed", "refused")


def test_it_is_found_page_by_page(desk: Desk, notes: LocalServer, service: Notes) -> None:
    service.notes = [{"id": f"note_{number}", "external_id": f"x{number}"} for number in range(1, 6)]
    notes.lose = 1
    effect_id = desk.send("notes.by_key", **NOTE)
    assert desk.look(effect_id) == "found"
    assert desk.effect(effect_id).provider_reference == "note_6"
    assert [one.query.get("after", "") for one in notes.reads] == ["", "note_2", "note_4"]


def test_a_list_that_never_ends_is_cut_and_proves_nothing(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    service.notes = [{"id": f"note_{number}", "external_id": f"x{number}"} for number in range(1, 100)]
    notes.instead = [Reply(lost=True)]
    effect_id = desk.send("notes.by_key", **NOTE)
    assert desk.look(effect_id) == "unclear"
    assert desk.said(effect_id) == ["The list goes on after 20 pages, and was not read further."]
    assert len(notes.reads) == 20
