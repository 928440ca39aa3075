"""The bench, the engine on it, and the table at the end."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.test import override_settings

from console import doorbell
from effects.contracts import contracts
from runs import waiting
from runs.execution import WorkerProcess
from runs.models import Run
from tests.battery import rows, workers
from tests.battery.bench import Bench
from tests.battery.workers import Nursery
from tests.effects.book import Witness
from tests.effects.conftest import outside  # noqa: F401  # the receiver's process, shared
from tests.engine.conftest import Engine, process  # noqa: F401  # this process as a worker
from tests.guards.conftest import database, empty_database, schema, server  # noqa: F401  # databases of their own
from tests.guards.databases import Server, connected_to
from tests.guards.rows import forget_in_redis
from tests.people import make_world
from tests.process.journeys import begin
from tests.stack import Stack

#: Where the table is written to when every row was tried; `make battery` sets it.
TABLE = "SIGNALBOX_BATTERY_TABLE"


@pytest.fixture(scope="package", autouse=True)
def _promises() -> Iterator[None]:
    """The deployment also has the contracts of the ledger's tests and of the battery."""
    with override_settings(
        CONTRACTS=[*settings.CONTRACTS, *workers.OWN],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ):
        contracts.cache_clear()
        yield
    contracts.cache_clear()


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with workers.nursery(tmp_path_factory.mktemp("nursery")) as made:
        yield made


@contextmanager
def _open(witness: Witness) -> Iterator[Bench]:
    """A committed workspace of a row's own; what is left of it is tidied away."""
    world = make_world("battery")
    world.receivers(witness.receiver, witness.smtp_port)
    made = Bench(world, Witness(witness.client, witness.receiver, witness.mail, witness.smtp_port))
    root = logging.getLogger()
    root.addHandler(made.words)
    try:
        yield made
    finally:
        root.removeHandler(made.words)
        made.tidy()


@pytest.fixture
def bench(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[Bench]:
    """Where a row runs on the stack its receiver is the stack's: the stack's processes know no other."""
    with django_db_blocker.unblock():
        if "lengthy" in request.fixturenames:
            yield request.getfixturevalue("lengthy_begun")
            return
        for other in ("database", "durable"):
            if other in request.fixturenames:
                request.getfixturevalue(other)
        named = "outside_of_stack" if "stack" in request.fixturenames else "outside"
        with _open(request.getfixturevalue(named)) as made:
            yield made


@pytest.fixture
def durable(server: Server, django_db_blocker: Any) -> Iterator[Server]:  # noqa: F811
    """The row's ledger is on a server whose commits last, and that is judged by it, as in production.

    Its database has the name of the tests' own, and so its mark outside: neither is to be taken for the other.
    """
    with (
        django_db_blocker.unblock(),
        connected_to(server.application_url),
        override_settings(DURABLE_ONLY=True),
    ):
        forget_in_redis()
        yield server
        forget_in_redis()


@pytest.fixture(scope="session")
def outside_of_stack(stack: Stack) -> Iterator[Witness]:
    with httpx.Client(trust_env=False, timeout=10) as client:
        yield Witness(client, stack.receiver, stack.mail, stack.smtp_port)


@pytest.fixture(scope="session")
def lengthy_begun(stack: Stack, outside_of_stack: Witness, django_db_blocker: Any) -> Iterator[Bench]:
    """A run whose node takes 20 s, begun with the first row that runs on the stack, and rung for once too often."""
    worker = stack.worker("lengthy", ("tests.workflows.ready:lengthy",))
    with django_db_blocker.unblock(), _open(outside_of_stack) as made:
        made.logs.append(worker.log)
        run = begin(made.world, "test_lengthy", subject="lengthy", seconds=20)
        doorbell.ring(waiting.TASK, [run.id], queue=doorbell.queue_of(str(run.workflow)))
        yield made
    worker.stop()


@pytest.fixture
def lengthy(lengthy_begun: Bench) -> Run:
    """That run; it is what the row is about."""
    return Run.objects.get(workspace=lengthy_begun.world.workspace)


@pytest.fixture
def engine(process: WorkerProcess, bench: Bench) -> Iterator[Engine]:  # noqa: F811
    """The real engine on the bench's workspace."""
    made = Engine(process, bench.world, bench.witness.receiver)
    yield made
    for version in made.held:
        process.held.pop(version, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """What was seen goes with the test's last report: rows may be tried in several processes, the table is made in one."""
    tried = getattr(getattr(item, "function", None), "rows", ())
    item.user_properties = [("row", rows.SEEN[name].as_json()) for name in tried if name in rows.SEEN]
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == "row":
            seen = rows.Seen.of_json(str(value))
            rows.SEEN[seen.name] = seen


def pytest_terminal_summary(terminalreporter: Any) -> None:
    table = os.environ.get(TABLE)
    if not table:
        return
    for module in rows.PARTS:
        importlib.import_module(f"tests.battery.{module}")
    terminalreporter.write_sep("=", "the failure battery")
    terminalreporter.write_line(rows.plain())
    terminalreporter.write_line(rows.summary())
    if all(one.name in rows.SEEN for one in rows.ROWS):
        Path(table).write_text(rows.markdown())
