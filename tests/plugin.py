"""Starts Postgres and Redis before Django's settings are read, and sets the database up as production does.

Tests run as the application's role, like every process of the product; only their own clean-up and the tests of the
guards use the owner. Nothing is flushed: a test rolls back, or makes a workspace of its own.

Several workers (``-n 3``, or ``-n auto``) have servers of their own each; tests/shares.py says who gets which tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kinds import Kind, kind_of

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.protocol import Scheduling

ROOT = Path(__file__).resolve().parent.parent
_stopping = ExitStack()
_SETUP = pytest.StashKey[subprocess.Popen[bytes]]()

WORKFLOWS = (
    "demo.workflows.sales_offer:workflow",
    "demo.workflows.support:workflow",
)
TEST_WORKFLOWS = (
    "tests.workflows.offers:workflow",
    "tests.workflows.questions:workflow",
    "tests.workflows.slow:workflow",
    "tests.workflows.ready:in_flight",
    "tests.workflows.stray:workflow",
)
#: Held by no worker of the stack: the tests start and stop their workers.
UNHELD_WORKFLOWS = (
    "tests.workflows.sleeper:workflow",
    "tests.workflows.overrun:workflow",
    "tests.workflows.holding:workflow",
    "tests.workflows.ready:ready",
    "tests.workflows.ready:lengthy",
    "tests.workflows.trial:workflow",
)
CONTRACTS = ("demo.contracts:CONTRACTS", "tests.workflows.contracts:CONTRACTS")


#: The file in which the workers tell the process that started them what it can't see: it knows tests by their ids alone.
KINDS = "SIGNALBOX_TEST_KINDS"
#: More than these have nothing to do while the longest file runs.
MOST_WORKERS = 4

# Tests start some hundred Python processes, and an environment may say that none of them keeps what it compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    given = early_config.known_args_namespace
    if given.help or given.version:
        return
    os.environ.setdefault("SIGNALBOX_ENV", "test")
    os.environ.update(
        SIGNALBOX_WORKFLOWS=",".join((*WORKFLOWS, *TEST_WORKFLOWS, *UNHELD_WORKFLOWS)),
        SIGNALBOX_CONTRACTS=",".join(CONTRACTS),
        SIGNALBOX_LEASE_SECONDS="3",
        SIGNALBOX_SWEEP_SECONDS="0.2",
        SIGNALBOX_VISIBILITY_SECONDS="5",
        SIGNALBOX_RECEIVER_SECRETS=_stopping.enter_context(tempfile.TemporaryDirectory()),
        # The tests' Postgres is started without fsync: it may lose what it has confirmed.
        SIGNALBOX_DURABLE_ONLY="no",
        # Tests import LangGraph in any order; the product switches this on before it does.
        LANGGRAPH_STRICT_MSGPACK="true",
        # Read when the demo's workflows are imported; a test that speaks to them sets where they are.
        DEMO_MODEL_URL="http://127.0.0.1:9",
    )
    if _only_hands_out(early_config):
        if "DATABASE_URL" in os.environ:
            raise pytest.UsageError("DATABASE_URL names one database, and each worker needs its own: use -n0")
        folder = _stopping.enter_context(tempfile.TemporaryDirectory())
        os.environ[KINDS] = str(Path(folder, "kinds.json"))
        return
    if given.collectonly:
        return
    if "DATABASE_URL" not in os.environ:
        _start_servers()
    # The tests are collected meanwhile.
    early_config.stash[_SETUP] = _stopping.enter_context(
        subprocess.Popen([sys.executable, "manage.py", "setup_database", "-v", "0"], cwd=ROOT)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    if (setup := session.config.stash.get(_SETUP, None)) and setup.wait() != 0:
        raise pytest.UsageError("the tests' database could not be set up: see above")


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether this process starts workers and runs no test itself."""
    given = config.known_args_namespace
    wanted = getattr(given, "numprocesses", None)  # there is no such option without pytest-xdist
    if wanted == "auto" and given.usepdb:  # pytest-xdist then starts none
        return False
    return bool(wanted) and not given.collectonly and "PYTEST_XDIST_WORKER" not in os.environ


def _start_servers() -> None:
    from console import embedded

    folder = Path(
        _stopping.enter_context(
            tempfile.TemporaryDirectory(prefix="signalbox-test-", ignore_cleanup_errors=True)
        )
    )
    urls = _stopping.enter_context(embedded.servers(folder / "data", durable=False))
    os.environ.update(
        DATABASE_URL=urls.database, OWNER_DATABASE_URL=urls.owner_database, REDIS_URL=urls.redis
    )


def pytest_unconfigure() -> None:
    _stopping.close()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: somebody always waits for a lease or a deadline."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(processors + 1, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getvalue("dist") != "load":  # what -n alone means
        return None
    from tests.shares import Shares

    return Shares(config, log, Path(os.environ[KINDS]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kinds = {item.nodeid: kind_of(item) for item in items}
    order = list(Kind)
    items.sort(key=lambda item: order.index(kinds[item.nodeid]))
    if KINDS in os.environ:
        Path(os.environ[KINDS]).write_text(json.dumps(kinds))
