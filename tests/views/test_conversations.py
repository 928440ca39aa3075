"""Conversations: the list, one with its messages and runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.models import User
from runs.models import Conversation, Message
from runs.states import RunStatus
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def page(world: World, rest: str = "") -> str:
    return f"/w/{world.workspace.id}/conversations/{rest}"


def say(conversation: Conversation, text: str, direction: str = "inbound") -> Message:
    return Message.objects.create(
        conversation=conversation, direction=direction, author=rows.EMAIL, text=text
    )


def test_the_list_shows_the_newest_run_of_each(acme: World, client_of: ClientOf) -> None:
    rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    rows.stands(rows.run_in(acme), RunStatus.FAILED)
    shown = client_of(acme.viewer).get(page(acme)).content.decode()
    assert acme.conversation.subject in shown
    assert "Failed" in shown
    assert "Completed" not in shown


def test_the_list_is_searched_and_paged(acme: World, client_of: ClientOf) -> None:
    for n in range(60):
        Conversation.objects.create(
            workspace=acme.workspace, subject=f"Subject {n:02d}", customer_ref="cus_1", customer_name="Hofer"
        )
    client = client_of(acme.viewer)
    first = client.get(page(acme))
    second = client.get(page(acme, first.context["older"]))
    seen = [row.id for response in (first, second) for row, _ in response.context["rows"]]
    assert len(seen) == len(set(seen)) == 60
    assert [row.subject for row, _ in client.get(page(acme, "?q=subject 07")).context["rows"]] == [
        "Subject 07"
    ]
    assert "No conversation fits" in client.get(page(acme, "?q=nothing")).content.decode()
    assert client.get(page(acme, "?cursor=bad")).status_code == 400


def test_one_shows_its_messages_in_order_beside_its_runs(acme: World, client_of: ClientOf) -> None:
    say(acme.conversation, "First words")
    say(acme.conversation, "Second words", "outbound")
    run = rows.run_in(acme)
    shown = client_of(acme.viewer).get(page(acme, f"{acme.conversation.id}/")).content.decode()
    assert shown.index("First words") < shown.index("Second words")
    assert f"/runs/{run.id}/" in shown


def test_what_a_run_protects_is_hidden_in_its_messages(acme: World, client_of: ClientOf) -> None:
    rows.run_in(acme)
    say(acme.conversation, f"Write to {rows.EMAIL}, please")
    shown = client_of(acme.viewer).get(page(acme, f"{acme.conversation.id}/")).content.decode()
    assert "Write to" in shown
    assert rows.EMAIL not in shown


def test_who_may_start_is_offered_to(acme: World, client_of: ClientOf) -> None:
    here, link = page(acme, f"{acme.conversation.id}/"), f"runs/start/?conversation={acme.conversation.id}"
    assert link in client_of(acme.operator).get(here).content.decode()
    assert link not in client_of(acme.auditor).get(here).content.decode()


def test_others_see_nothing(acme: World, client: Client, client_of: ClientOf) -> None:
    here = page(acme, f"{acme.conversation.id}/")
    other = make_world("other")
    assert client_of(acme.viewer).get(here).status_code == 200
    assert client_of(other.viewer).get(here).status_code == 404
    assert client_of(other.viewer).get(page(other, f"{acme.conversation.id}/")).status_code == 404
    assert client.get(here).status_code == 302
    assert client_of(acme.viewer).get(page(acme, "conv_00000000000000000000000000/")).status_code == 404


def test_hostile_text_is_text(acme: World, client_of: ClientOf) -> None:
    say(acme.conversation, "<script>alert(1)</script>")
    shown = client_of(acme.viewer).get(page(acme, f"{acme.conversation.id}/")).content.decode()
    assert "<script>alert" not in shown


def test_a_pinned_number_of_queries(
    acme: World, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    for _ in range(6):
        rows.run_in(acme)
        say(acme.conversation, "Words")
    client = client_of(acme.viewer)
    client.get(page(acme))
    with django_assert_max_num_queries(9):
        client.get(page(acme))
    with django_assert_max_num_queries(15):
        client.get(page(acme, f"{acme.conversation.id}/"))
