"""The ledger on a real database, with the demo's real receiver and mail catcher as the outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.test import override_settings

from effects.contracts import contracts
from tests.effects.book import Book, Witness
from tests.effects.odd import OddServer, Play
from tests.people import World, make_world
from tests.stack import Stack, environment, free_port, wait_for


@pytest.fixture(scope="package", autouse=True)
def _promises() -> Iterator[None]:
    """The deployment also has this folder's contracts. Passwords are no subject here: one round of hashing does."""
    with override_settings(
        CONTRACTS=[
            *settings.CONTRACTS,
            "tests.effects.promises:CONTRACTS",
            "tests.effects.asynchronous:CONTRACTS",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ):
        contracts.cache_clear()
        yield
    contracts.cache_clear()


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    """The receiver and the mail catcher, started once; tests differ by their account."""
    folder = tmp_path_factory.mktemp("outside")
    stack = Stack(folder, environment())

    def address(name: str, *args: str) -> str:
        process = stack.run(name, "-m", *args)
        wait_for(f"{name} to be ready", lambda: process.says("ready http"))
        return process.log.read_text().split("ready ")[1].split()[0]

    try:
        port = free_port()
        receiver = address("receiver", "demo.receiver", "--port", "0", "--data", str(folder / "receiver"))
        mail = address(
            *("mail", "demo.mail_catcher", "--smtp-port", str(port)),
            *("--http-port", "0", "--data", str(folder / "mail")),
        )
        with httpx.Client(trust_env=False, timeout=10) as client:
            yield Witness(client, receiver, mail, port)
    finally:
        stack.end()


def _open(world: World, outside: Witness) -> Book:
    world.receivers(outside.receiver, outside.smtp_port)
    return Book(world, Witness(outside.client, outside.receiver, outside.mail, outside.smtp_port))


@pytest.fixture
def odd() -> Iterator[Callable[[Play], OddServer]]:
    """Start a receiver that answers with given bytes."""
    started: list[OddServer] = []

    def start(play: Play) -> OddServer:
        started.append(OddServer(play).start())
        return started[-1]

    start.started = started  # type: ignore[attr-defined]
    yield start
    for server in started:
        server.stop()


@pytest.fixture
def book(acme: World, outside: Witness, odd: Any) -> Iterator[Book]:
    """A workspace's ledger, rolled back. At its end the receiver's requests must be the attempts that were sent."""
    opened = _open(acme, outside)
    yield opened
    opened.check_requests(elsewhere=sum(server.effect_bearing for server in odd.started))


@pytest.fixture
def kept(django_db_setup: None, django_db_blocker: Any, outside: Witness, odd: Any) -> Iterator[Book]:
    """The same with committed rows, for several connections at once. Nothing of it is left to be done."""
    with django_db_blocker.unblock():
        opened = _open(make_world("ledger"), outside)
        yield opened
        try:
            opened.check_requests(elsewhere=sum(server.effect_bearing for server in odd.started))
        finally:
            opened.tidy()
