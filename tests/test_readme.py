"""What the README shows is tried: its twenty lines are a workflow that registers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.contracts import open_ticket
from effects import contracts
from runs.engine.registry import Workflow

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_readmes_graph_is_a_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if line.strip()]
    assert len(lines) <= 24, "twenty lines, the comment and the imports aside"
    refund = replace(open_ticket, type="billing.refund")
    monkeypatch.setattr(contracts, "contracts", lambda: {"billing.refund": refund})
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block[1], "README.md", "exec", dont_inherit=True), names)
    workflow = names["workflow"]
    assert isinstance(workflow, Workflow)
    assert workflow.fingerprint.startswith("fp1:")
    assert {"ask", "send"} <= set(workflow.compiled.nodes)


LINKED = [README, *sorted((README.parent / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
