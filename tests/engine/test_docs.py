"""docs/langgraph.md names the tests that hold its facts: each of them exists."""

from __future__ import annotations

import re

from tests.plugin import ROOT

#: `file.py::test_name`, `file.py` alone, or `…part of a name`; an ellipsis stands for the rest of a name.
NAMED = re.compile(r"`(?:(?P<file>(?:tests/\w+/)?test_\w+\.py)(?:::)?)?(?P<name>[\w…]*)`")


def test_every_test_that_the_page_names_exists() -> None:
    files = {path.name: path.read_text() for path in (ROOT / "tests").glob("*/test_*.py")}
    everything = "\n".join(files.values())
    seen = 0
    for named in NAMED.finditer((ROOT / "docs" / "langgraph.md").read_text()):
        file, name = named["file"], named["name"]
        if not file and "…" not in name:
            continue
        seen += 1
        if file:
            assert file.rsplit("/", 1)[-1] in files, named[0]
        within = files[file.rsplit("/", 1)[-1]] if file else everything
        for part in filter(None, name.split("…")):
            assert part in within, named[0]
    assert seen > 25
