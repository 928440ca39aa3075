"""Starts Postgres and Redis before Django's settings are read, and sets the database up as production does.

Tests run as the application's role, like every process of the product; only their own clean-up and the tests of the
guards use the owner. Nothing is flushed: a test rolls back, or makes a workspace of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_stopping = ExitStack()

WORKFLOWS = (
    "demo.workflows.sales_offer:workflow",
    "demo.workflows.support:workflow",
)
TEST_WORKFLOWS = (
    "tests.workflows.offers:workflow",
    "tests.workflows.questions:workflow",
    "tests.workflows.slow:workflow",
)
#: Held by no worker of the stack: the tests start and stop their workers.
UNHELD_WORKFLOWS = (
    "tests.workflows.sleeper:workflow",
    "tests.workflows.overrun:workflow",
    "tests.workflows.holding:workflow",
)
CONTRACTS = ("demo.contracts:CONTRACTS", "tests.workflows.contracts:CONTRACTS")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.help or early_config.known_args_namespace.version:
        return
    os.environ.setdefault("SIGNALBOX_ENV", "test")
    os.environ.update(
        SIGNALBOX_WORKFLOWS=",".join((*WORKFLOWS, *TEST_WORKFLOWS, *UNHELD_WORKFLOWS)),
        SIGNALBOX_CONTRACTS=",".join(CONTRACTS),
        SIGNALBOX_LEASE_SECONDS="3",
        SIGNALBOX_SWEEP_SECONDS="0.2",
        SIGNALBOX_VISIBILITY_SECONDS="5",
        SIGNALBOX_RECEIVER_SECRETS=_stopping.enter_context(tempfile.TemporaryDirectory()),
        # Read when the demo's workflows are imported; a test that speaks to them sets where they are.
        DEMO_MODEL_URL="http://127.0.0.1:9",
    )
    if "DATABASE_URL" not in os.environ:
        _start_servers()
    subprocess.run([sys.executable, "manage.py", "setup_database", "-v", "0"], cwd=ROOT, check=True)


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
