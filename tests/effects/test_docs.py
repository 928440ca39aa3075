"""What docs/ says of states and roles is what the modules say."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from console.management.commands import make_docs
from effects.states import ReviewReason, SubState
from runs.states import Failure, RunStatus

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["states.md", "roles.md", "commands.md", "catalogue.md"])
def test_the_file_is_what_the_modules_say(name: str) -> None:
    """Otherwise: run `manage.py make_docs`."""
    assert (ROOT / "docs" / name).read_text() == make_docs.documents()[name]


@pytest.mark.parametrize("choices", [SubState, RunStatus, Failure, ReviewReason])
def test_every_state_is_in_it(choices: type[SubState]) -> None:
    text = make_docs.states()
    for one in choices:
        if one.value:
            assert f"`{one.value}`" in text


def test_the_command_writes_the_files(tmp_path: Path, settings: object) -> None:
    settings.BASE_DIR = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "docs").mkdir()
    call_command("make_docs", verbosity=0)
    for name, text in make_docs.documents().items():
        assert (tmp_path / "docs" / name).read_text() == text


@pytest.mark.parametrize("guide", ["effects.md", "contracts.md", "hooks.md"])
def test_the_guides_name_what_there_is(guide: str) -> None:
    """Each name in backticks that looks like a module's member is one."""
    import re

    from effects import (
        approvals,
        claiming,
        contracts,
        durability,
        hooks,
        intents,
        ledger,
        moves,
        origin,
        orphans,
        outcomes,
        reconcile,
        restored,
        selectors,
        wires,
    )

    modules = {
        "approvals": approvals,
        "claiming": claiming,
        "contracts": contracts,
        "durability": durability,
        "hooks": hooks,
        "intents": intents,
        "ledger": ledger,
        "origin": origin,
        "outcomes": outcomes,
        "moves": moves,
        "orphans": orphans,
        "reconcile": reconcile,
        "restored": restored,
        "selectors": selectors,
        "wires": wires,
    }
    text = (ROOT / "docs" / guide).read_text()
    named = re.findall(r"`(?:effects\.)?(\w+)\.(\w+)`", text)
    checked = [(module, name) for module, name in named if module in modules and name != "py"]
    assert checked
    for module, name in checked:
        assert hasattr(modules[module], name), f"docs/{guide} names {module}.{name}, which is not there"
