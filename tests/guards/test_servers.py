"""Whole servers that are put back or replaced: a disk, and a standby that takes over before it had everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from console import database
from effects import restored
from effects.models import EffectAttempt, Stop
from tests.effects.book import Witness
from tests.effects.conftest import _open
from tests.guards.databases import Server, Standby, connected_to
from tests.guards.rows import Story, forget_in_redis
from tests.people import make_world
from tests.stack import wait_for


@pytest.fixture(autouse=True)
def _with_database(django_db_blocker: Any) -> Iterator[None]:
    """These servers' databases have the name of the tests' own, and so its mark: neither is to be taken for the other."""
    with django_db_blocker.unblock():
        forget_in_redis()
        yield
        forget_in_redis()


def test_a_disk_that_is_put_back_is_the_same_database_and_is_noticed_all_the_same(
    server: Server, outside: Witness, tmp_path: Path
) -> None:
    """System identifier, timeline and oid are those of before: only the mark outside tells."""
    with connected_to(server.application_url):
        story = Story(_open(make_world("disk"), outside))
        restored.keep_mark()
        was = restored._here().place
        connection.close()
        server.stop()
        server.copy_disk(tmp_path / "snapshot")
        server.start()
        story.go_on()
        restored.keep_mark()
        connection.close()
        server.stop()
        server.put_disk_back(tmp_path / "snapshot")
        server.start()
    with connected_to(server.application_url):
        assert restored._here().place == was
        story.nothing_is_sent()
        stop = Stop.objects.get(workspace=story.book.world.workspace)
        assert (stop.needs_scan, stop.by) == (True, None)


def test_row_37_an_asynchronous_standby_that_takes_over_sends_nothing_irreversible_nor_else(
    server: Server, outside: Witness, tmp_path: Path
) -> None:
    """It lacks the last commits of its primary: what it takes for ready has been sent. No mark outside is needed."""
    standby = Standby(tmp_path / "standby", server)
    try:
        standby.start()
        with connected_to(server.application_url):
            story = Story(_open(make_world("primary"), outside))
            restored.keep_mark()
            attempts = EffectAttempt.objects.count()
            wal = server.as_superuser("SELECT pg_current_wal_lsn()::text")[0]
            wait_for("the standby to have all that there is", lambda: standby.has(wal))
            # The line between them is cut, and the primary goes on and confirms; then it is lost.
            standby.stop()
            story.go_on()
            forget_in_redis()
            connection.close()
            server.stop()
        standby.start()
        standby.promote()
        with connected_to(standby.application_url):
            assert EffectAttempt.objects.count() == attempts
            story.nothing_is_sent()
            stop = Stop.objects.get(workspace=story.book.world.workspace)
            assert "its server went from timeline 1 to 2" in stop.reason
            forget_in_redis()
    finally:
        standby.stop()
        server.start()


def test_an_application_that_may_not_ask_which_database_it_is_in_is_told_what_to_grant(
    server: Server,
) -> None:
    owner_url = server.addresses()["OWNER_DATABASE_URL"]
    server.as_superuser("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    try:
        with (
            psycopg.connect(owner_url, autocommit=True) as owner,
            pytest.raises(database.FunctionDenied) as denied,
        ):
            database.grant_functions(owner, "signalbox_app")
        assert str(denied.value) == (
            "signalbox_app may not call pg_control_system(), so nobody would notice a restored database. "
            'Let an administrator run: GRANT EXECUTE ON FUNCTION pg_control_system() TO "signalbox_app"'
        )
        server.as_superuser('GRANT EXECUTE ON FUNCTION pg_control_system() TO "signalbox_app"')
        with psycopg.connect(owner_url, autocommit=True) as owner:
            database.grant_functions(owner, "signalbox_app")
    finally:
        server.as_superuser("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
