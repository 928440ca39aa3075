"""The database under the ledger: what it refuses, repeats, forgets, or is not any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection

from console.kernel.ids import effect_id
from effects import receivers, restored
from effects.commands.stop_sending import Unscanned, lift_stop
from effects.ledger import Wait
from effects.models import Review, Stop
from effects.origin import Result
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.effects.book import OFFER, at_once
from tests.guards.databases import Database, Server, Standby, another_process, connected_to
from tests.guards.rows import forget_in_redis, scan_everything
from tests.guards.test_durability import set_for_new_sessions
from tests.stack import wait_for


@row(
    "35",
    "Serialisation failures in the claim: no HTTP inside any transaction that is repeated",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_35(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight workers claim under REPEATABLE READ, so that the database itself refuses (40001); each repeats its visit."""
    proposal = bench.propose("battery.offer")
    deliver = receivers.deliver
    inside: list[bool] = []
    refused: list[str] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        inside.append(connection.in_atomic_block)
        return deliver(*args, **kwargs)

    def visit(_: int) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_isolation = 'repeatable read'")
        while True:
            try:
                return bench.perform(proposal.effect_id)
            except OperationalError as error:
                if not isinstance(error.__cause__, psycopg.errors.SerializationFailure):
                    raise
                refused.append(str(error))

    monkeypatch.setattr(receivers, "deliver", watched)
    bench.witness.order("slow", seconds=0.3)
    answers = at_once(8, visit)
    assert not [one for one in answers if isinstance(one, Exception)], answers
    assert refused, "the database refused none: the row proves nothing"
    assert inside == [False]
    assert isinstance(bench.perform(proposal.effect_id), Result)


@row(
    "37",
    "synchronous_commit is off: irreversible types are refused in words, and sent once it is set right",
    case="synchronous_commit",
    rx=((0, 0), (1, 1)),
    stands=("pending/ready", "completed"),
    attempts="completed",
)
def test_37_synchronous_commit(bench: Bench, durable: Server) -> None:
    set_for_new_sessions(durable, "off")
    try:
        proposal = bench.propose("battery.payment")
        for _ in range(2):
            assert isinstance(bench.perform(proposal.effect_id), Wait)
        assert "(synchronous_commit = off)" in bench.effect(proposal.effect_id).problem
        bench.halfway()
    finally:
        set_for_new_sessions(durable, None)
    assert isinstance(bench.perform(proposal.effect_id), Result)


@pytest.fixture
def promoted(bench: Bench, durable: Server, tmp_path: Path) -> Iterator[str]:
    """A payment that is ready, and sent after the standby was cut off; then the primary is lost and the standby takes over."""
    standby = Standby(tmp_path / "standby", durable)
    try:
        standby.start()
        ready = bench.propose("battery.payment").effect_id
        restored.keep_mark()
        wal = durable.as_superuser("SELECT pg_current_wal_lsn()::text")[0]
        wait_for("the standby to have all that there is", lambda: standby.has(wal))
        standby.stop()
        assert isinstance(bench.perform(ready), Result)
        bench.halfway()
        forget_in_redis()
        connection.close()
        durable.stop()
        standby.start()
        standby.promote()
        with connected_to(standby.application_url):
            yield ready
            forget_in_redis()
    finally:
        standby.stop()
        durable.start()


@row(
    "37",
    "An asynchronous standby takes over without the last commits: what it takes for ready is not sent",
    case="standby",
    rx=((1, 1), (1, 1)),
    stands=("completed", "pending/ready"),
    attempts="",
)
def test_37_standby(bench: Bench, promoted: str) -> None:
    for _ in range(2):
        assert isinstance(bench.perform(promoted), Wait)
    stop = Stop.objects.get(workspace=bench.world.workspace, lifted_at=None)
    assert "its server went from timeline 1 to 2" in stop.reason
    bench.strangers += 1  # the primary's, of which this ledger knows nothing


@row(
    "38",
    "An orphan at the provider, with an id of ours and no row: a review, once",
    rx=(1, 1),
    stands="no row, in review: orphan",
    attempts="",
)
def test_38(bench: Bench) -> None:
    lost = effect_id(
        workspace=bench.world.workspace.id,
        run_id=bench.run.run_id,
        position="a place",
        effect_type="battery.offer",
        command_key="lost",
    )
    made = bench.witness.post("/v1/offers", {**OFFER, "external_id": lost}).raise_for_status().json()
    bench.strangers += 1
    for _ in range(2):
        assert bench.scan("battery.offer", "crm").problem == ""
    review = Review.objects.get(workspace=bench.world.workspace)
    assert review.provider_object == made["id"]
    assert lost in review.sentence


#: What raw SQL may try on rows that have ended, whoever it comes from.
EDITS = (
    "UPDATE effects_effect SET status = 'failed', sub_state = 'refused' WHERE id = %(id)s",
    "UPDATE effects_effect SET provider_reference = 'off_2' WHERE id = %(id)s",
    "UPDATE effects_effectattempt SET outcome = 'not_sent' WHERE effect_id = %(id)s",
    "DELETE FROM effects_effectattempt WHERE effect_id = %(id)s",
    "UPDATE effects_effectrevision SET request_hash = 'sha256:other' WHERE effect_id = %(id)s",
    "UPDATE effects_observation SET found = 'absent' WHERE effect_id = %(id)s",
    "DELETE FROM effects_observation WHERE effect_id = %(id)s",
    "UPDATE effects_approvaldecision SET reason = 'other' WHERE approval_id IN"
    " (SELECT id FROM effects_approval WHERE effect_id = %(id)s)",
    "UPDATE console_auditevent SET sentence = 'nothing happened' WHERE workspace_id ="
    " (SELECT workspace_id FROM effects_effect WHERE id = %(id)s)",
    "DELETE FROM console_auditevent WHERE workspace_id ="
    " (SELECT workspace_id FROM effects_effect WHERE id = %(id)s)",
)


@row(
    "39",
    "Raw SQL on an ended row or an event, by the application and by the owner: refused by trigger",
    rx=(1, 1),
    stands="completed",
    attempts="unknown",
)
def test_39(bench: Bench) -> None:
    effect = bench.approved("battery.asked_offer")
    bench.witness.order("drop_after_commit")
    bench.perform(effect.id)
    bench.make_due(effect.id)
    assert bench.look(effect.id) == "found"
    for url in (settings.DATABASE_URL, os.environ["OWNER_DATABASE_URL"]):
        for edit in EDITS:
            with psycopg.connect(url) as session:
                found = session.execute(_looked_for(edit), {"id": effect.id})
                assert found.fetchone() is not None, f"no row that could be edited: {edit}"
                with pytest.raises((psycopg.errors.RaiseException, psycopg.errors.InsufficientPrivilege)):
                    session.execute(edit, {"id": effect.id})


def _looked_for(edit: str) -> str:
    """The rows that an edit would hit."""
    table = edit.removeprefix("DELETE FROM ").removeprefix("UPDATE ").split()[0]
    return f"SELECT 1 FROM {table} WHERE {edit.partition(' WHERE ')[2]}"


@row(
    "40",
    "Restored to an hour ago: nothing is sent until a releaser has scanned; what was sent since goes to people",
    rx=((2, 2), (2, 2)),
    stands=(
        "2 × completed",
        "no row, in review: orphan; pending/ready, in review: contradiction",
    ),
    attempts="",
)
def test_40(database: Database, bench: Bench) -> None:
    ready = bench.propose("battery.offer", key="ready").effect_id
    database.back_up()
    assert isinstance(bench.perform(ready), Result)
    lost = bench.propose("battery.offer", key="lost").effect_id
    assert isinstance(bench.perform(lost), Result)
    restored.keep_mark()
    bench.halfway()
    database.put_back()
    bench.strangers += 2  # of attempts that this ledger has no longer

    with another_process():
        assert isinstance(bench.perform(ready), Wait)
        stop = Stop.objects.get(workspace=bench.world.workspace, lifted_at=None)
        releaser = bench.world.actor(bench.world.releaser)
        with pytest.raises(Unscanned, match="crm, desk"):
            lift_stop(releaser, stop.id, reason="Looked at it.", token="too early")
        assert isinstance(bench.perform(ready), Wait)
        scan_everything(bench.world.workspace)
        lift_stop(releaser, stop.id, reason="Looked at it.", token="lift")
        assert isinstance(bench.perform(ready), Wait)
    assert lost in Review.objects.get(workspace=bench.world.workspace, reason="orphan").sentence
