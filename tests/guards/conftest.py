"""Ledgers in databases of their own, with the demo's real receiver as the outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from effects.contracts import contracts
from tests.effects.book import Book, Witness
from tests.effects.conftest import _open, book, kept, odd, outside
from tests.guards.databases import Database, Server, connected_to, dump_of_the_schema, fill
from tests.people import make_world

__all__ = ["book", "kept", "odd", "outside"]


@pytest.fixture(scope="package", autouse=True)
def _few_promises() -> Iterator[None]:
    """A few types only: a scan goes through each of them."""
    with override_settings(CONTRACTS=["tests.guards.promises:CONTRACTS"]):
        contracts.cache_clear()
        yield
    contracts.cache_clear()


@pytest.fixture(scope="session")
def schema(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of the product's tables."""
    return dump_of_the_schema(tmp_path_factory.mktemp("schema") / "schema.sql")


@pytest.fixture(scope="session")
def empty_database(schema: Path) -> Iterator[Database]:
    """What the others are copied from."""
    made = Database.create()
    fill(made.owner_url, schema)
    yield made
    made.drop()


@pytest.fixture
def database(empty_database: Database, django_db_blocker: Any) -> Iterator[Database]:
    """A database of the test's own; this process works on it. What the test commits goes with it."""
    made = Database.create(empty_database.name)
    try:
        with django_db_blocker.unblock(), connected_to(made.url):
            yield made
    finally:
        made.drop()


@pytest.fixture
def ledger(database: Database, outside: Witness) -> Book:
    """A workspace's ledger in the test's own database."""
    return _open(make_world("restored"), outside)


@pytest.fixture(scope="session")
def server(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the tests' own that is really durable."""
    started = Server(tmp_path_factory.mktemp("server") / "data")
    try:
        started.start()
        fill(started.addresses()["OWNER_DATABASE_URL"], schema)
        yield started
    finally:
        started.stop()
