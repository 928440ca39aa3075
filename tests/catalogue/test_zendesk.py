"""Tickets at Zendesk, against a local server that behaves as its documentation says.

https://developer.zendesk.com/api-reference/ticketing/introduction/#idempotency and the pages of tickets and incremental
exports, read 2026-12-01.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from effects import receivers
from effects.contracts import contract
from effects.ledger import Refused
from effects.models import EffectRevision
from tests.catalogue.conftest import Desk
from tests.catalogue.servers import LocalServer, Reply, Seen

TICKET: dict[str, Any] = {
    "subject": "It does not start",
    "comment": {"body": "Since this morning."},
    "requester": {"name": "J. Brückner", "email": "j.brueckner@example.com"},
    "priority": "high",
}
SECRET = "agent@example.com/token:t0ken-of-the-agent"


@dataclass
class Zendesk:
    url: str = ""
    tickets: list[dict[str, Any]] = field(default_factory=list)
    known: dict[str, tuple[bytes, Reply]] = field(default_factory=dict)
    failing: list[Reply] = field(default_factory=list)

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "GET":
            return self._export(seen) if "incremental" in seen.path else self._list(seen)
        key = seen.headers["idempotency-key"]
        if known := self.known.get(key):
            if known[0] != seen.body:
                return Reply(
                    400,
                    {
                        "error": "IdempotentRequestError",
                        "description": "Request parameters don't match the given idempotency key",
                    },
                )
            return Reply(known[1].status, known[1].body, {"x-idempotency-lookup": "hit"})
        reply = self.failing.pop(0) if self.failing else self._make(seen)
        self.known[key] = (seen.body, reply)
        return Reply(reply.status, reply.body, {"x-idempotency-lookup": "miss"})

    def _make(self, seen: Seen) -> Reply:
        asked = seen.json["ticket"]
        ticket = {
            "id": 35436 + len(self.tickets),
            "subject": asked["subject"],
            "description": asked["comment"]["body"],
            "priority": asked.get("priority"),
            "external_id": asked.get("external_id"),
            "requester_id": 20978392,
        }
        self.tickets.append(ticket)
        return Reply(201, {"ticket": ticket, "audit": {"id": 1}})

    def _list(self, seen: Seen) -> Reply:
        found = [one for one in self.tickets if one["external_id"] == seen.query["external_id"]]
        return Reply(200, {"tickets": found, "count": len(found), "next_page": None})

    def _export(self, seen: Seen) -> Reply:
        start = int(seen.query.get("cursor", 0))
        end = start + 2
        return Reply(
            200,
            {
                "tickets": self.tickets[start:end],
                "after_url": f"{self.url}{seen.path}?cursor={end}",
                "end_of_stream": end >= len(self.tickets),
            },
        )


@pytest.fixture
def service() -> Zendesk:
    return Zendesk()


@pytest.fixture
def zendesk(desk: Desk, service: Zendesk, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(service)
    service.url = server.url
    desk.receiver("zendesk", server.url, SECRET)
    return server


def test_a_ticket_goes_out_in_its_envelope_under_the_agents_token(
    desk: Desk, zendesk: LocalServer, service: Zendesk
) -> None:
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    [sent] = zendesk.writes
    assert sent.target == "/api/v2/tickets"
    assert sent.json == {"ticket": {**TICKET, "external_id": effect_id}}
    assert sent.headers["idempotency-key"] == effect_id
    assert base64.b64decode(sent.headers["authorization"].removeprefix("Basic ")).decode() == SECRET
    effect = desk.effect(effect_id)
    assert (effect.status, effect.provider_reference) == ("completed", "35436")


def test_a_probe_writes_to_nobody() -> None:
    """Its ticket is an internal note of a requester at a domain that is nobody's (RFC 2606)."""
    promise = contract("zendesk.create_ticket")
    assert promise.harmless
    probe = promise.validated(promise.harmless("probe-1"))
    assert probe["comment"]["public"] is False
    assert probe["requester"]["email"].endswith("@example.com")
    assert "probe-1" in probe["subject"]


def test_what_is_protected_is_not_shown(desk: Desk, zendesk: LocalServer) -> None:
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    revision = EffectRevision.objects.get(effect_id=effect_id)
    shown = f"{revision.shown} {revision.recipient} {desk.effect(effect_id).recipient}"
    for protected in ("brueckner", "Brückner", "this morning"):
        assert protected not in shown
    assert "It does not start" in shown


def test_a_lost_answer_is_repeated_from_the_cache(desk: Desk, zendesk: LocalServer, service: Zendesk) -> None:
    zendesk.lose = 1
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    desk.perform(effect_id)
    first, second = zendesk.writes
    assert (first.body, first.headers) == (second.body, second.headers)
    assert desk.standing(effect_id) == ("completed", "")
    assert len(service.tickets) == 1


def test_the_keys_two_hours_are_not_used_up(desk: Desk) -> None:
    window = contract("zendesk.create_ticket").key_window.total_seconds()
    assert window == 0.8 * 7200 - 20 - 60


def test_a_key_with_another_body_goes_to_a_person(desk: Desk, zendesk: LocalServer, service: Zendesk) -> None:
    effect_id = desk.propose("zendesk.create_ticket", **TICKET)
    service.known[effect_id] = (b"another", Reply(201, {"ticket": {"id": 7}}))
    desk.perform(effect_id)
    assert desk.reviews(effect_id) == ["mismatch"]
    assert "don't match the given idempotency key" in desk.effect(effect_id).problem


def test_a_failure_out_of_the_cache_is_known_as_one(
    desk: Desk, zendesk: LocalServer, service: Zendesk
) -> None:
    service.failing = [Reply(500, {"error": "InternalError"})]
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    assert "only repeat it" not in desk.effect(effect_id).problem
    desk.perform(effect_id)
    assert "only repeat it" in desk.effect(effect_id).problem


def test_a_refusal_has_zendesks_words(desk: Desk, zendesk: LocalServer, service: Zendesk) -> None:
    service.failing = [Reply(422, {"error": "RecordInvalid", "description": "Record validation errors"})]
    effect_id = desk.propose("zendesk.create_ticket", **TICKET)
    with pytest.raises(Refused, match="422: Record validation errors"):
        desk.perform(effect_id)


def test_it_is_found_by_its_external_id(desk: Desk, zendesk: LocalServer, service: Zendesk) -> None:
    zendesk.lose = 1
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    assert desk.look(effect_id) == "found"
    assert zendesk.reads[0].target == f"/api/v2/tickets?external_id={effect_id}"
    assert "authorization" in zendesk.reads[0].headers
    assert desk.effect(effect_id).provider_reference == "35436"


def test_a_list_with_a_next_page_proves_nothing(desk: Desk, serve: Callable[..., LocalServer]) -> None:
    server = serve(lambda _: Reply(200, {"tickets": [], "next_page": "https://elsewhere"}))
    server.instead = [Reply(lost=True)]
    desk.receiver("zendesk", server.url, SECRET)
    effect_id = desk.send("zendesk.create_ticket", **TICKET)
    assert desk.look(effect_id) == "unclear"


def test_the_export_is_read_to_its_end_for_an_orphan_scan(
    desk: Desk, zendesk: LocalServer, service: Zendesk
) -> None:
    sent = [desk.send("zendesk.create_ticket", **TICKET)]
    service.tickets += [{"id": number, "external_id": None} for number in range(3)]
    effect = desk.effect(sent[0])
    promise = contract("zendesk.create_ticket")
    listing = receivers.list_made(promise, effect.receiver, since=effect.created_at)
    assert listing.cut == ""
    assert [one.keys for one in listing.objects] == [(sent[0],), (), (), ()]
    assert zendesk.reads[0].query == {"start_time": f"{int(effect.created_at.timestamp())}"}


def test_a_list_that_leads_elsewhere_is_not_followed(
    desk: Desk, zendesk: LocalServer, service: Zendesk, serve: Callable[..., LocalServer]
) -> None:
    """The agent's token goes with each request."""
    elsewhere = serve(lambda _: Reply(200, {"tickets": [], "end_of_stream": True}))
    service.url = elsewhere.url
    desk.send("zendesk.create_ticket", **TICKET)
    desk.send("zendesk.create_ticket", command="two", **TICKET)
    effect_id = desk.send("zendesk.create_ticket", command="three", **TICKET)
    effect = desk.effect(effect_id)
    promise = contract("zendesk.create_ticket")
    listing = receivers.list_made(promise, effect.receiver, since=effect.created_at)
    assert listing.cut == "The list goes on at another address, which is not asked."
    assert elsewhere.seen == []
