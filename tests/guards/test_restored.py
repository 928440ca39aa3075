"""Rule 11: a database that was restored from a back-up sends nothing until its receivers were scanned."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from console.management.commands.sweep import Sweep
from console.models import AuditEvent
from effects import orphans, restored
from effects.models import EffectAttempt, LedgerMark, Receiver, Stop
from tests.effects.book import Book, at_once
from tests.guards import rows
from tests.guards.databases import Database, another_process
from tests.guards.rows import Story, forget_in_redis, lift, scan_everything, stops
from tests.stack import Process, environment, wait_for


@pytest.mark.parametrize("in_place", [False, True], ids=["another database", "only the mark tells"])
def test_row_40_restored_to_an_earlier_moment_nothing_is_sent_until_a_releaser_has_scanned(
    database: Database, ledger: Book, in_place: bool
) -> None:
    story = rows.row_40(database, ledger, in_place=in_place)
    fresh = ledger.propose(key="fresh").effect_id
    with another_process():
        restored.keep_mark()
        ledger.perform(fresh)
        # What the scan has found stays with people: it is never sent a second time.
        ledger.perform(story.ready)
    assert ledger.standing(fresh) == ("completed", "")
    assert ledger.witness.rx == (4, 4)


@pytest.mark.parametrize("first", ["sweep", "worker"])
def test_the_first_process_that_comes_up_freezes_it(
    database: Database, ledger: Book, tmp_path: Path, first: str
) -> None:
    """Real processes: whichever is there first, before it does anything else."""
    restored.keep_mark()
    database.back_up()
    database.put_back()
    command = {"sweep": ["manage.py", "sweep"], "worker": ["-m", "tests.worker"]}[first]
    own = {"DATABASE_URL": database.url, "SIGNALBOX_WORKFLOWS": "tests.workflows.offers:workflow"}
    process = Process(first, [sys.executable, *command], {**environment(), **own}, tmp_path / "log").start()
    try:
        wait_for(f"the {first} to stop sending", lambda: stops() or process.ended())
        assert [stop.needs_scan for stop in stops()] == [True], process.log.read_text()
    finally:
        process.stop()
    assert "sending is frozen in every workspace" in process.log.read_text()
    assert "Traceback" not in process.log.read_text()


def test_redis_may_lose_the_mark_when_there_is_the_file(
    database: Database, ledger: Book, tmp_path: Path, settings: Any
) -> None:
    settings.HIGH_WATER_FILE = str(tmp_path / "high-water.json")
    story = Story(ledger)
    database.back_up()
    story.go_on()
    restored.keep_mark()
    forget_in_redis()
    database.put_back(in_place=True)
    with another_process():
        story.nothing_is_sent()
    assert "attempt 3 was made by" in Stop.objects.get().reason
    assert "the newest one here is 1" in Stop.objects.get().reason


def test_a_worker_that_lives_through_it_remembers_by_itself(database: Database, ledger: Book) -> None:
    """Put back under its feet, and no mark is left outside: it knows which attempts it has made."""
    story = Story(ledger)
    database.back_up()
    story.go_on()
    forget_in_redis()
    database.put_back(in_place=True)
    story.nothing_is_sent()
    assert [stop.needs_scan for stop in stops()] == [True]


def test_a_number_that_is_given_out_again_is_noticed_in_the_claim(
    database: Database, ledger: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, at the worst moment: it is put back after the check and before the claim."""
    story = Story(ledger)
    database.back_up()
    story.go_on()
    newest = EffectAttempt.objects.latest("id").id
    database.put_back(in_place=True)
    forget_in_redis()
    monkeypatch.setattr(restored, "ensure", lambda: newest)
    ledger.perform(story.ready)
    assert [stop.needs_scan for stop in stops()] == [True]
    assert not EffectAttempt.objects.filter(effect_id=story.ready).exists()
    story.nothing_is_sent()


def test_only_ahead_counts(database: Database, ledger: Book) -> None:
    """A mark that is behind, lost, or no mark at all freezes nothing."""
    restored.keep_mark()
    ledger.perform(ledger.propose().effect_id)
    with another_process():
        restored.check()
    forget_in_redis()
    with another_process():
        restored.check()
    for text in ("", "nonsense", "{}", "[]", '{"place": {}}', "\xff"):
        restored._client().set(restored._key(), text)
        with another_process():
            restored.check()
    assert stops() == []
    with another_process():
        ledger.perform(ledger.propose(key="two").effect_id)
    assert ledger.witness.rx == (2, 2)


@pytest.mark.parametrize("lead", ["attempt", "event", "wal"])
def test_each_part_of_the_mark_counts(database: Database, ledger: Book, lead: str) -> None:
    here = restored.check()
    ahead = {"attempt": here.attempt + 1, "event": f"{here.event}z", "wal": here.wal + 2**40}[lead]
    mark = {**json.loads(restored._here().as_json()), lead: ahead}
    restored._client().set(restored._key(), json.dumps(mark))
    with another_process():
        restored.check()
    assert len(stops()) == 1
    # It is answered with that, even where the mark can't be replaced.
    restored._client().set(restored._key(), json.dumps(mark))
    scan_everything(ledger.world.workspace)
    lift(ledger, stops()[0])
    with another_process():
        restored.check()
    assert stops() == []


def test_a_stop_that_stands_is_replaced_by_the_one_that_goes_further(
    database: Database, ledger: Book
) -> None:
    before = Stop.objects.create(
        workspace=ledger.world.workspace,
        scope="workspace",
        reason="Prices are wrong.",
        by=ledger.world.releaser,
    )
    restored.keep_mark()
    database.back_up()
    database.put_back()
    with another_process():
        restored.check()
    [stop] = stops()
    assert stop.needs_scan
    assert stop.reason.endswith("It was stopped before: Prices are wrong.")
    before.refresh_from_db()
    assert before.lifted_why == "Replaced by the stop after a restore, which goes further."


def test_many_that_notice_at_once_freeze_once(database: Database, ledger: Book) -> None:
    restored.keep_mark()
    database.back_up()
    database.put_back()
    with another_process():
        at_once(6, lambda _: restored.check())
    assert len(stops()) == 1
    assert AuditEvent.objects.filter(actor_name="system:restore").count() == 1
    assert Stop.objects.count() == 1


def test_a_database_that_is_first_seen_is_where_the_ledger_is(database: Database) -> None:
    assert not LedgerMark.objects.exists()
    here = restored.check()
    mark = LedgerMark.objects.get()
    assert (mark.system_identifier, mark.timeline, mark.database_oid) == (
        here.place.system,
        here.place.timeline,
        here.place.database,
    )
    assert restored.trusted()


def test_without_the_row_nothing_is_claimed(database: Database, ledger: Book) -> None:
    restored.check()
    with psycopg.connect(database.owner_url) as owner:
        owner.execute("DELETE FROM effects_ledgermark")
    effect_id = ledger.propose().effect_id
    ledger.perform(effect_id)
    assert ledger.witness.rx == (0, 0)
    # The next visit looks at the connection anew.
    ledger.perform(effect_id)
    assert ledger.standing(effect_id) == ("completed", "")


def test_scans_lift_a_stop_only_when_they_go_back_far_enough(database: Database, ledger: Book) -> None:
    story = Story(ledger)
    database.back_up()
    story.go_on()
    restored.keep_mark()
    database.put_back()
    with another_process():
        restored.check()
    stop, mine = Stop.objects.get(), ledger.world.workspace
    newest = EffectAttempt.objects.order_by("-id").values_list("started_at", flat=True)[0]
    assert orphans.default_since(mine) == newest - orphans.FURTHER_BACK
    crm = Receiver.objects.get(workspace=mine, name="crm")
    desk = Receiver.objects.get(workspace=mine, name="desk")

    def scanned(receiver: Receiver, **fields: Any) -> list[str]:
        for scan in orphans.ask(receiver, token=str(uuid.uuid4()), by="system:test", **fields):
            orphans.work(scan.id)
        return orphans.unscanned(mine.id, stop.at)

    assert scanned(crm, since=stop.at) == ["crm", "desk"], "what was sent between is not among it"
    for scan in orphans.ask(crm, since=newest, token="some", by="system:test")[:-1]:
        orphans.work(scan.id)
    assert orphans.unscanned(mine.id, stop.at) == ["crm", "desk"], "of every type"
    assert scanned(crm, since=newest) == ["desk"]
    assert scanned(crm) == ["desk"]
    ledger.point("http://127.0.0.1:9", receiver="desk")
    assert scanned(desk) == ["desk"], "a scan that failed has seen nothing"
    Receiver.objects.filter(id=desk.id).update(standing="isolated")
    assert orphans.unscanned(mine.id, stop.at) == []


def test_the_sweep_keeps_the_mark(database: Database, ledger: Book, tmp_path: Path, settings: Any) -> None:
    file = tmp_path / "high-water.json"
    settings.HIGH_WATER_FILE = str(file)
    forget_in_redis()
    Sweep().duties[0]()
    first = restored.HighWater.of_json(restored._of_redis())
    assert restored.HighWater.of_json(file.read_text()) == first
    ledger.perform(ledger.propose().effect_id)
    Sweep().duties[0]()
    second = restored.HighWater.of_json(restored._of_redis())
    assert second.attempt == EffectAttempt.objects.order_by("-id")[0].id > first.attempt
    assert second.wal > first.wal
    assert second.place == first.place
    assert restored.HighWater.of_json(file.read_text()) == second


def test_a_file_that_can_not_be_kept_is_told_at_the_start(tmp_path: Path, settings: Any) -> None:
    settings.HIGH_WATER_FILE = str(tmp_path / "nowhere" / "mark")
    assert "SIGNALBOX_HIGH_WATER names" in restored.file_problem()
    settings.HIGH_WATER_FILE = str(tmp_path / "mark")
    assert restored.file_problem() == ""
    settings.HIGH_WATER_FILE = ""
    assert restored.file_problem() == ""


def test_a_redis_that_is_away_holds_nothing_up(
    database: Database, ledger: Book, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    restored._client.cache_clear()
    try:
        with another_process():
            restored.keep_mark()
            ledger.perform(ledger.propose().effect_id)
    finally:
        restored._client.cache_clear()
    assert ledger.witness.rx == (1, 1)
    assert "the high-water mark was not kept in Redis (ConnectionError)" in caplog.text
