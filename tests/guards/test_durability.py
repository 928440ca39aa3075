"""Where Postgres may lose what it has confirmed, nothing irreversible is sent: the servers here are really set so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from effects import durability
from effects.ledger import Wait
from effects.selectors import worth_a_visit
from tests.effects.book import Book, Witness
from tests.effects.conftest import _open
from tests.guards import rows
from tests.guards.databases import Server, connected_to
from tests.people import make_world
from tests.plugin import ROOT


@pytest.fixture
def judged(settings: Any) -> None:
    """As in production. The tests' own server is started without fsync and full_page_writes, and says so."""
    settings.DURABLE_ONLY = True


@pytest.fixture
def durable(server: Server, outside: Witness, judged: None, django_db_blocker: Any) -> Iterator[Book]:
    """A ledger on a server whose commits last. Its database has the name of the tests' own, and so its mark."""
    with django_db_blocker.unblock(), connected_to(server.application_url):
        rows.forget_in_redis()
        yield _open(make_world("durable"), outside)
        rows.forget_in_redis()


def set_for_new_sessions(server: Server, value: str | None) -> None:
    """As a database administrator does: it holds for every session that begins from now on."""
    server.as_superuser(
        f"ALTER DATABASE signalbox SET synchronous_commit = {value}"
        if value
        else "ALTER DATABASE signalbox RESET synchronous_commit"
    )
    connection.close()


IRREVERSIBLE = ["guards.payment", "ledger.blind_ticket", "ledger.mail"]


@pytest.mark.parametrize("effect_type", IRREVERSIBLE)
def test_row_37_without_fsync_irreversible_types_are_refused(
    book: Book, judged: None, effect_type: str
) -> None:
    effect_id = rows.row_37(book, effect_type)
    assert book.effect(effect_id).problem == (
        "Postgres may lose what it has confirmed (fsync = off, full_page_writes = off), so nothing irreversible is "
        "sent. It goes on by itself once that is set right."
    )
    assert book.witness.rx == (0, 0)
    assert book.witness.mails(effect_id) == []


def test_reversible_types_are_sent_all_the_same(book: Book, judged: None) -> None:
    for effect_type in ("ledger.offer", "ledger.ticket"):
        book.perform(book.propose(effect_type).effect_id)
    assert book.witness.rx == (2, 2)


def test_row_37_with_synchronous_commit_off_irreversible_types_wait_until_it_is_set_right(
    durable: Book, server: Server
) -> None:
    set_for_new_sessions(server, "off")
    try:
        effect_id = durable.propose("guards.payment").effect_id
        assert isinstance(durable.perform(effect_id), Wait)
        assert "(synchronous_commit = off)" in durable.effect(effect_id).problem
        assert durable.witness.rx == (0, 0)
        assert not worth_a_visit([effect_id]).exists()
    finally:
        set_for_new_sessions(server, None)
    assert worth_a_visit([effect_id]).exists(), "the sweep wakes its run by itself"
    durable.perform(effect_id)
    effect = durable.effect(effect_id)
    assert (effect.status, effect.problem) == ("completed", "")
    assert durable.witness.rx == (1, 1)


@pytest.mark.parametrize("value", ["on", "local", "remote_write", "remote_apply"])
def test_the_values_that_wait_for_the_disk_are_trusted(durable: Book, server: Server, value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('synchronous_commit', %s, false)", [value])
    assert durability.problem() == ""
    durable.perform(durable.propose("guards.payment").effect_id)
    assert durable.witness.rx == (1, 1)


def test_every_value_that_postgres_knows_is_judged(durable: Book) -> None:
    """A value that a later version adds is not trusted unseen."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT enumvals FROM pg_settings WHERE name = 'synchronous_commit'")
        known = set(cursor.fetchone()[0])
    assert known == {*durability.SAFE["synchronous_commit"], "off"}


def test_an_unsure_one_is_not_repeated_either(durable: Book, server: Server) -> None:
    """By its key it could go again; but the repeat would be forgotten like the first."""
    effect_id = durable.propose("guards.payment").effect_id
    durable.witness.order("drop_after_commit")
    durable.perform(effect_id)
    assert durable.standing(effect_id) == ("pending", "uncertain")
    problem = durable.effect(effect_id).problem
    set_for_new_sessions(server, "off")
    try:
        durable.perform_now(effect_id)
        assert durable.standing(effect_id) == ("pending", "uncertain")
        assert durable.effect(effect_id).problem == problem, "why it is unsure stays said"
    finally:
        set_for_new_sessions(server, None)
    durable.perform_now(effect_id)
    assert durable.standing(effect_id) == ("completed", "")
    assert durable.witness.rx == (1, 2)


def test_home_says_it(book: Book, judged: None, client_of: Any) -> None:
    client: Client = client_of(book.world.operator)
    page = client.get(f"/w/{book.world.workspace.id}/").content.decode()
    assert "Postgres may lose what it has confirmed (fsync = off, full_page_writes = off)" in page


def test_home_says_when_nobody_asks(book: Book, client_of: Any) -> None:
    page = client_of(book.world.operator).get(f"/w/{book.world.workspace.id}/").content.decode()
    assert "SIGNALBOX_DURABLE_ONLY is no" in page


def settings_say(**environment: str) -> str:
    """What a process says that reads the settings with this environment."""
    said = subprocess.run(
        [sys.executable, "-c", "from console import settings; print(settings.DURABLE_ONLY)"],
        env={"PATH": os.environ["PATH"], **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or said.stderr.strip()


PRODUCTION = {
    "SIGNALBOX_ENV": "production",
    "SIGNALBOX_SECRET_KEY": "x" * 60,
    "SIGNALBOX_KEYS": "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "SIGNALBOX_HOSTS": "signalbox.example",
    "DATABASE_URL": "postgresql://app@db/signalbox",
    "REDIS_URL": "redis://redis/0",
}


def test_it_is_on_unless_somebody_says_no_and_production_does_not_let_them() -> None:
    assert settings_say(SIGNALBOX_ENV="test") == "True"
    assert settings_say(SIGNALBOX_ENV="development") == "True"
    assert settings_say(SIGNALBOX_ENV="test", SIGNALBOX_DURABLE_ONLY="no") == "False"
    assert settings_say(**PRODUCTION) == "True"
    refused = settings_say(**PRODUCTION, SIGNALBOX_DURABLE_ONLY="no")
    assert refused.startswith("signalbox: SIGNALBOX_DURABLE_ONLY is no, and production sends nothing")
    assert "Use one of: yes, no" in settings_say(SIGNALBOX_ENV="test", SIGNALBOX_DURABLE_ONLY="maybe")
