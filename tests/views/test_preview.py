"""What is there now against what would be sent, on an approval's page and on the Repeat screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from console.models import AuditEvent
from effects.models import Approval, Effect, EffectAttempt, Receiver
from tests.effects.odd import OddServer, says
from tests.people import World, make_world
from tests.views import standing
from tests.views.asking import asked, intend, paused_run
from tests.views.conftest import Decides, Reads, words_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]

CUSTOMER = {"name": "Harbor Pine", "email": "new@harborpine.example"}
THERE = {
    "id": "x",
    "name": "Harbor & Pine",
    "email": "old@harborpine.example",
    "phone": "+1 207",
    "tax_id": "DE811",
}
HTMX = {"HX-Request": "true"}
ClientOf = Callable[[Any], Client]


@pytest.fixture
def crm(acme: World) -> Iterator[OddServer]:
    """A receiver that has the customer already."""
    server = OddServer(says("200 OK", json.dumps(THERE).encode())).start()
    acme.receivers(server.url, 9)
    yield server
    server.stop()


@pytest.fixture
def approval(acme: World, crm: OddServer) -> Approval:
    return asked(acme, "test.customer", CUSTOMER)


def looks(client: Client, acme: World, about: Approval | Effect, **headers: str) -> Any:
    kind = "approvals" if isinstance(about, Approval) else "effects"
    return client.post(f"/w/{acme.workspace.id}/{kind}/{about.id}/preview/", headers=headers)


def test_opening_the_page_asks_nobody_and_says_where_it_is_asked(
    acme: World, crm: OddServer, approval: Approval, reads: Reads
) -> None:
    """No GET calls anybody outside: the script posts once the page is there, and without one there is a button."""
    page = reads(acme.approver, f"approvals/{approval.id}/")
    assert crm.requests == []
    text = page.content.decode()
    action = f"/w/{acme.workspace.id}/approvals/{approval.id}/preview/"
    assert f'hx-post="{action}" hx-trigger="load"' in text
    assert f'<form method="post" action="{action}"' in text
    assert "no preview" not in words_of(page)
    assert reads(acme.approver, f"approvals/{approval.id}/preview/").status_code == 405


def test_who_decides_sees_all_of_it_field_by_field(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf
) -> None:
    answer = looks(client_of(acme.approver), acme, approval, **HTMX)
    assert answer.status_code == 200
    assert answer.content.decode().lstrip().startswith("<section")
    said = words_of(answer)
    for words in (
        "Against what is there now",
        "as of",
        "There now",
        "Would be sent",
        "name Harbor & Pine Harbor Pine",
        "email old@harborpine.example new@harborpine.example",
        "phone +1 207 gone",
        "tax_id DE811 gone",
    ):
        assert words in said
    assert "masked" not in said
    [request] = crm.requests
    assert request.startswith(f"GET /v1/customers/{approval.effect_id} ".encode())
    assert AuditEvent.objects.filter(subject=approval.id, verb="approval.read").count() == 1
    assert EffectAttempt.objects.filter(effect=approval.effect_id).count() == 0


def test_without_a_script_it_is_the_whole_page(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf
) -> None:
    answer = looks(client_of(acme.approver), acme, approval)
    said = words_of(answer)
    assert answer.status_code == 200
    assert "Harbor & Pine" in said
    assert "Approve and write the customer" in said
    assert 'hx-trigger="load"' not in answer.content.decode()


@pytest.mark.parametrize("role", ["viewer", "operator", "auditor", "releaser", "developer", "administrator"])
def test_nobody_else_is_shown_it_or_has_the_receiver_asked(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf, reads: Reads, role: str
) -> None:
    person = getattr(acme, role)
    assert looks(client_of(person), acme, approval, **HTMX).status_code == 403
    page = reads(person, f"approvals/{approval.id}/")
    assert 'id="preview-' not in page.content.decode()
    assert "Shown to who may decide it" in words_of(page)
    assert crm.requests == []


def test_once_it_is_decided_nobody_looks_any_more(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf, decides: Decides
) -> None:
    decides(acme.approver, approval, "approve")
    assert looks(client_of(acme.approver), acme, approval, **HTMX).status_code == 403
    assert crm.requests == []


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (
            says("503 Busy"),
            "What crm has now can't be shown: The receiver answered 503, which shows no record. "
            "You can decide all the same.",
        ),
        (says("404 Not Found"), "crm has nothing there yet: it would be made."),
    ],
)
def test_a_preview_that_fails_is_said_and_blocks_nothing(
    acme: World,
    crm: OddServer,
    approval: Approval,
    client_of: ClientOf,
    decides: Decides,
    play: Any,
    words: str,
) -> None:
    crm.play = play
    answer = looks(client_of(acme.approver), acme, approval)
    said = words_of(answer)
    assert answer.status_code == 200
    assert words in said
    assert "Approve and write the customer" in said
    assert decides(acme.approver, approval, "approve").status_code == 303
    assert Approval.objects.get(id=approval.id).status == "decided"


def test_a_receiver_that_can_not_be_reached_is_said(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf
) -> None:
    Receiver.objects.filter(workspace=acme.workspace).update(base_url="http://127.0.0.1:9")
    answer = looks(client_of(acme.approver), acme, approval, **HTMX)
    assert answer.status_code == 200
    assert "gave no usable answer in time" in words_of(answer)


def test_a_text_with_hidden_characters_is_warned_of(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf
) -> None:
    crm.play = says("200 OK", json.dumps({**THERE, "name": "Harbor\u202e <b>"}).encode())
    answer = looks(client_of(acme.approver), acme, approval, **HTMX)
    assert "&lt;b&gt;" in answer.content.decode()
    assert "\u202e" not in answer.content.decode()


def test_on_the_repeat_screen_it_is_masked(
    acme: World, crm: OddServer, client_of: ClientOf, reads: Reads
) -> None:
    effect = standing.held(intend(acme, paused_run(acme), "test.customer", CUSTOMER))
    page = reads(acme.releaser, f"effects/{effect.id}/repeat/")
    assert (
        f'hx-post="/w/{acme.workspace.id}/effects/{effect.id}/preview/" hx-trigger="load"'
        in page.content.decode()
    )
    assert crm.requests == []
    for headers in (HTMX, {}):
        answer = looks(client_of(acme.releaser), acme, effect, **headers)
        said = words_of(answer)
        assert answer.status_code == 200
        assert "name Harbor & Pine Harbor Pine" in said
        assert "phone +1 207 gone" in said
        for secret in ("old@harborpine", "new@harborpine", "DE811"):
            assert secret not in answer.content.decode()
        assert "protected fields are masked" in said
    assert len(crm.requests) == 2


def test_on_the_repeat_screen_who_may_not_ask_the_receiver_is_not_shown_it(
    acme: World, crm: OddServer, client_of: ClientOf, reads: Reads
) -> None:
    effect = standing.held(intend(acme, paused_run(acme), "test.customer", CUSTOMER))
    assert 'id="preview-' not in reads(acme.viewer, f"effects/{effect.id}/repeat/").content.decode()
    assert looks(client_of(acme.viewer), acme, effect).status_code == 403
    assert crm.requests == []


def test_another_workspaces_is_not_there(
    acme: World, crm: OddServer, approval: Approval, client_of: ClientOf
) -> None:
    stranger = make_world("other")
    client = client_of(stranger.approver)
    for kind, found in (("approvals", approval.id), ("effects", approval.effect_id)):
        assert client.post(f"/w/{stranger.workspace.id}/{kind}/{found}/preview/").status_code in (403, 404)
    assert crm.requests == []


def test_a_type_without_one_is_not_asked(acme: World, crm: OddServer, client_of: ClientOf) -> None:
    plain = asked(acme)
    assert looks(client_of(acme.approver), acme, plain, **HTMX).status_code == 403
    assert crm.requests == []
