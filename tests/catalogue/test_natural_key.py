"""Records at an address that the effect's id makes, against a service that heeds RFC 9110, and Salesforce's way of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from effects.models import Effect
from tests.catalogue.conftest import Desk
from tests.catalogue.notes import Notes
from tests.catalogue.servers import LocalServer, Reply, Seen

NOTE = {"customer": "cus_1", "text": "Call back"}


@pytest.fixture
def service() -> Notes:
    return Notes()


@pytest.fixture
def notes(desk: Desk, service: Notes, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(service)
    desk.receiver("notes", server.url)
    return server


def pass_settle_time(effect_id: str) -> None:
    Effect.objects.filter(id=effect_id).update(last_sent_at=Now() - timedelta(hours=1))


def test_it_is_made_at_its_own_address_and_only_where_nothing_is(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    effect_id = desk.send("notes.create", **NOTE)
    [sent] = notes.writes
    assert (sent.method, sent.target) == ("PUT", f"/notes/{effect_id}")
    assert sent.headers["if-none-match"] == "*"
    assert desk.standing(effect_id) == ("completed", "")
    assert desk.effect(effect_id).provider_reference == effect_id
    assert service.records == {f"/notes/{effect_id}": NOTE}


def test_what_is_there_is_never_written_over(desk: Desk, notes: LocalServer, service: Notes) -> None:
    effect_id = desk.propose("notes.create", **NOTE)
    service.records[f"/notes/{effect_id}"] = {**NOTE, "text": "Somebody else's"}
    desk.perform(effect_id)
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.look(effect_id) == "mismatch"
    assert desk.reviews(effect_id) == ["mismatch"]
    assert service.records[f"/notes/{effect_id}"]["text"] == "Somebody else's"


def test_a_lost_answer_is_settled_by_a_look(desk: Desk, notes: LocalServer, service: Notes) -> None:
    notes.lose = 1
    effect_id = desk.send("notes.create", **NOTE)
    assert desk.perform(effect_id).effect_id == effect_id
    assert desk.look(effect_id) == "found"
    assert desk.standing(effect_id) == ("completed", "")
    assert len(notes.writes) == 1
    assert "if-none-match" not in notes.reads[0].headers


def test_what_is_proven_absent_is_made_after_all(desk: Desk, notes: LocalServer, service: Notes) -> None:
    notes.instead = [Reply(lost=True)]
    effect_id = desk.send("notes.create", **NOTE)
    pass_settle_time(effect_id)
    assert desk.look(effect_id) == "absent"
    assert desk.standing(effect_id) == ("pending", "ready")
    desk.perform(effect_id)
    assert desk.standing(effect_id) == ("completed", "")
    assert [one.body for one in notes.writes] == [notes.writes[0].body] * 2


def test_an_upsert_is_not_sent_again_where_nobody_promised_that_the_look_is_true(
    desk: Desk, notes: LocalServer, service: Notes
) -> None:
    notes.instead = [Reply(lost=True)]
    effect_id = desk.send("notes.upsert", **NOTE)
    pass_settle_time(effect_id)
    assert desk.look(effect_id) == "absent"
    assert desk.standing(effect_id) == ("pending", "uncertain")
    desk.perform(effect_id)
    assert len(notes.writes) == 1
    assert "if-none-match" not in notes.writes[0].headers


class Salesforce:
    """https://developer.salesforce.com/docs/platform/api-rest/guide/dome-upsert.html, read 2026-12-01.

    201 with id, success and created where there was none; 200 where one matched; the record is read at the same
    address, with ``Id``; an error is a list.
    """

    def __init__(self) -> None:
        self.records: dict[str, dict[str, str]] = {}

    def __call__(self, seen: Seen) -> Reply:
        field, value = seen.path.split("/")[-2:]
        if seen.method == "GET":
            found = self.records.get(value)
            return Reply(200, {**found, field: value}) if found else Reply(404, [{"errorCode": "NOT_FOUND"}])
        if field in seen.json:
            return Reply(
                400, [{"message": "The external id must not be in the body", "errorCode": "INVALID_FIELD"}]
            )
        created = value not in self.records
        record = f"{1 + len(self.records):015}" if created else self.records[value]["Id"]
        self.records[value] = {"Id": record, **seen.json}
        return Reply(
            201 if created else 200,
            {"id": record, "success": True, "errors": [], "created": created},
        )


def test_salesforce_takes_the_id_in_the_address_and_names_the_record_in_two_ways(
    desk: Desk, serve: Callable[..., LocalServer]
) -> None:
    service = Salesforce()
    server = serve(service)
    desk.receiver("salesforce", server.url, "a token")

    sent = desk.send("salesforce.account", Name="Harbor Pine")
    assert desk.effect(sent).provider_reference == "000000000000001"
    [write] = server.writes
    assert (write.method, write.target) == (
        "PATCH",
        f"/services/data/v68.0/sobjects/Account/Effect__c/{sent}",
    )
    assert write.body == b'{"Name":"Harbor Pine"}'

    server.lose = 1
    lost = desk.propose("salesforce.account", command="two", Name="Harbor Pine")
    desk.perform(lost)
    assert desk.look(lost) == "found"
    assert desk.effect(lost).provider_reference == "000000000000002"
    assert len(server.writes) == 2


def test_several_records_with_one_id_are_no_refusal(desk: Desk, serve: Callable[..., LocalServer]) -> None:
    server = serve(Salesforce())
    server.instead = [Reply(300, ["/sobjects/Account/1", "/sobjects/Account/2"])]
    desk.receiver("salesforce", server.url, "a token")
    effect_id = desk.send("salesforce.account", Name="Harbor Pine")
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.effect(effect_id).problem.startswith("The receiver already has one (300)")
