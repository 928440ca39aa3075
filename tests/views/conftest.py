"""What the tests of pages share: the contracts that they use, and a person's clicks."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from console.models import User
from effects.contracts import contracts
from effects.models import Approval
from tests.people import World

#: ``decides(user, approval, "approve", reason="…")``
Decides = Callable[..., HttpResponse]
#: A test client's answer: it also knows its context.
Reads = Callable[..., Any]
CARRIED = ("payload_hash", "version", "token")


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Any) -> None:
    """Nobody logs in by password here, and making a good hash for each person takes longer than the test."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def contracts_that_ask(settings: Any) -> Iterator[None]:
    """The contracts of tests/views/contracts.py in the place of the deployment's."""
    settings.CONTRACTS = ["tests.views.contracts:CONTRACTS"]
    contracts.cache_clear()
    yield
    contracts.cache_clear()


@pytest.fixture
def reads(acme: World, client_of: Callable[[User], Client]) -> Reads:
    """``reads(user, "approvals/", view="open")``: GET a page of the workspace."""

    def get(user: User, path: str, **query: str) -> Any:
        return client_of(user).get(f"/w/{acme.workspace.id}/{path}", query)

    return get


@pytest.fixture
def decides(acme: World, client_of: Callable[[User], Client]) -> Decides:
    """Open the page, fill in its form, press the button. Who is shown no form sends what they would have to guess."""

    def press(user: User, approval: Approval, verb: str, **typed: object) -> Any:
        client = client_of(user)
        here = f"/w/{acme.workspace.id}/approvals/{approval.id}/"
        carried = form_of(client.get(here)) or {
            "payload_hash": approval.payload_hash,
            "version": str(approval.version),
            "token": "0" * 32,
        }
        return client.post(f"{here}{verb}/", {**carried, **typed})

    return press


def form_of(page: Any) -> dict[str, str]:
    """What the first decision form of a page carries; empty where it has none."""
    text = page.content.decode()
    found = {name: re.search(rf'name="{name}" value="([^"]*)"', text) for name in CARRIED}
    return {name: html.unescape(match[1]) for name, match in found.items() if match}


def words_of(page: Any) -> str:
    """A page as it reads: without tags, white space as one blank, without the frame's head."""
    body = page.content.decode().partition("<main")[2] or page.content.decode()
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", body).split()))
