"""The contracts on imports bite: each import that they forbid is reported, by the contract that forbids it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LINE = "Imports point one way across the packages"
LEDGER = "Layers of the ledger"
RUNS = "Layers of the runs"
CONSOLE = "Layers of the console"
VIEWS = "Views and the API ask commands and selectors, never the machinery"
ENGINE = "Only runs.engine and runs.authoring know LangGraph and LangChain"
OUTSIDE = "Only effects.receivers and console.notify speak to the outside"
CELERY = "Only the doorbell and the tasks know Celery"
APART = "The product never imports the demo or the tests"

FORBIDDEN = [
    ("runs.utils", "", RUNS),
    ("effects.helpers", "", LEDGER),
    ("console.common", "", CONSOLE),
    ("effects.commands.looks_at_runs", "from runs import models", LINE),
    ("console.models.asks_access", "from console import access", LINE),
    ("runs.views.looks_up", "from console.views import frame", LINE),
    ("runs.commands.takes_task", "from runs import tasks", RUNS),
    ("effects.receivers.looks_up", "from effects import ledger", LEDGER),
    ("effects.catalogue.sends", "from effects import receivers", LEDGER),
    ("console.kernel.looks_up", "from console import models", CONSOLE),
    ("runs.views.executes", "from runs.execution import execute", VIEWS),
    ("runs.views.reads_engine", "from runs.engine import saver", VIEWS),
    ("console.views.takes_task", "from runs.tasks import advance", VIEWS),
    ("effects.views.sends", "from effects.receivers import http", VIEWS),
    ("runs.commands.knows_engine", "from langgraph.types import Command", ENGINE),
    ("effects.commands.calls_out", "import httpx", OUTSIDE),
    ("runs.commands.mails", "import smtplib", OUTSIDE),
    ("runs.commands.queues", "from celery import current_app", CELERY),
    ("runs.commands.uses_demo", "from demo.contracts import CONTRACTS", APART),
    ("console.views.uses_tests", "def late(): from tests.people import World", APART),
]
ALLOWED = [
    ("runs.views.uses_pages", "from console.pages import in_workspace"),
    ("effects.receivers.calls_out", "import httpx, smtplib"),
    ("runs.engine.knows_engine", "from langgraph.types import Command"),
    ("console.management.commands.looks_down", "from runs.execution import execute"),
]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product's modules with its configuration, to spoil."""
    folder = tmp_path_factory.mktemp("product")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in ("console", "effects", "runs"):
        for module in (ROOT / package).rglob("*.py"):
            copy = folder / module.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(module, copy)
    return folder


def check(product: Path) -> dict[str, str]:
    """What lint-imports says of each contract that it finds broken. AssertionError when it can't check them."""
    checked = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=product,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts: " in checked.stdout, checked.stdout + checked.stderr
    _, _, broken = checked.stdout.partition("Broken contracts\n")
    parts = re.split(r"^(.+)\n-{5,}$", broken, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def unspoilt(product: Path) -> dict[str, str]:
    return check(product)


@pytest.fixture(scope="module")
def spoilt(product: Path, unspoilt: dict[str, str]) -> dict[str, str]:
    for module, text in [*((module, text) for module, text, _ in FORBIDDEN), *ALLOWED]:
        (product / module.replace(".", "/")).with_suffix(".py").write_text(text)
    return check(product)


def names(report: str, module: str) -> bool:
    return re.search(rf"\b{re.escape(module)}\b", report) is not None


def test_the_product_breaks_none(unspoilt: dict[str, str]) -> None:
    assert unspoilt == {}


@pytest.mark.parametrize(("module", "text", "contract"), FORBIDDEN, ids=[module for module, *_ in FORBIDDEN])
def test_what_is_forbidden_is_reported(spoilt: dict[str, str], module: str, text: str, contract: str) -> None:
    assert names(spoilt.get(contract, ""), module), spoilt.get(contract)


@pytest.mark.parametrize(("module", "text"), ALLOWED, ids=[module for module, _ in ALLOWED])
def test_what_is_allowed_is_not(spoilt: dict[str, str], module: str, text: str) -> None:
    assert not [contract for contract, report in spoilt.items() if names(report, module)]
