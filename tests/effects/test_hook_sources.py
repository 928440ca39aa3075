"""The addresses for webhooks: made and closed from a shell, and recorded."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from console.models import AuditEvent
from effects.models import HookSource
from tests.effects.book import Book
from tests.effects.postbox import Postbox, keep_secret, new_secret


def make(book: Book, receiver: str = "crm", secret: str = "") -> tuple[str, str]:
    """What it printed, and what it warned of."""
    said, warned = StringIO(), StringIO()
    name = secret or f"{book.world.workspace.id}-new-hook"
    call_command(
        "make_hook_source", book.world.workspace.id, receiver, secret=name, stdout=said, stderr=warned
    )
    return said.getvalue().strip(), warned.getvalue().strip()


def test_it_prints_an_address_that_takes_webhooks(book: Book, settings: Any) -> None:
    settings.ORIGIN = "https://signalbox.example"
    postbox = Postbox(book)
    keep_secret(f"{book.world.workspace.id}-new-hook", postbox.secret)

    address, warned = make(book)

    assert warned == ""
    assert address.startswith("https://signalbox.example/hooks/hook_")
    path = address.removeprefix("https://signalbox.example")
    assert postbox.post(postbox.about("x", key=None), path=path).status_code == 200
    source = HookSource.objects.get(id=path.rpartition("/")[2])
    assert (source.receiver.name, source.workspace) == ("crm", book.world.workspace)
    [event] = AuditEvent.objects.filter(subject=source.id)
    assert (event.verb, event.actor_name) == ("hook_source.opened", "system:shell")
    assert postbox.secret not in json.dumps(event.detail) + event.sentence


def test_without_the_secret_it_says_what_to_set(book: Book) -> None:
    address, warned = make(book, secret="not-there-yet")
    assert "SIGNALBOX_RECEIVER_SECRET_NOT_THERE_YET" in warned
    path = address[address.index("/hooks/") :]
    assert Client().post(path, b"{}", content_type="application/json").status_code == 503


@pytest.mark.parametrize(
    ("workspace", "receiver", "secret", "why"),
    [
        ("nowhere", "crm", "good-hook", "no live receiver 'crm'"),
        ("", "billing", "good-hook", "no live receiver 'billing'"),
        # Nothing would ever read them.
        ("", "mail", "good-hook", "No contract says how the webhooks of mail are read"),
        ("", "crm", "Not a name", "can't be a secret's name"),
        ("", "crm", "", "can't be a secret's name"),
        ("", "crm", "x" * 61, "can't be a secret's name"),
        ("", "crm", "bad-hook", "begins with whsec_"),
    ],
)
def test_refused_with_the_reason(book: Book, workspace: str, receiver: str, secret: str, why: str) -> None:
    keep_secret("good-hook", new_secret())
    keep_secret("bad-hook", "hunter2")
    with pytest.raises(CommandError, match=why) as refused:
        call_command("make_hook_source", workspace or book.world.workspace.id, receiver, secret=secret)
    assert "hunter2" not in str(refused.value)
    assert HookSource.objects.filter(workspace=book.world.workspace).count() == 0
    assert not AuditEvent.objects.filter(verb="hook_source.opened").exists()


def test_closed_it_takes_nothing_more_and_keeps_what_came(book: Book) -> None:
    postbox = Postbox(book)
    said = StringIO()
    call_command("close_hook_source", f"https://signalbox.example{postbox.path}", stdout=said)
    assert postbox.source.id in said.getvalue()
    assert postbox.post(postbox.about("x", key=None)).status_code == 404
    [event] = AuditEvent.objects.filter(subject=postbox.source.id)
    assert event.verb == "hook_source.closed"
    for hook, why in (
        (postbox.source.id, "closed already"),
        ("hook_nonsense", "There is no webhook address"),
    ):
        with pytest.raises(CommandError, match=why):
            call_command("close_hook_source", hook)
