"""Everything that is installed is pinned, once, and comes from whichever registry the machine knows."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.setup.processes import ROOT

NAMES = ("requirements", "requirements-demo", "requirements-local", "requirements-dev")


def entries(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.lstrip().startswith(("#", "-c"))]


@pytest.mark.parametrize("name", NAMES)
def test_each_line_is_one_exact_version(name: str) -> None:
    pins = entries(f"{name}.txt")
    assert pins
    for pin in pins:
        assert pin.url is None
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), str(pin)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_names_a_registry_or_a_hash(name: str) -> None:
    text = (ROOT / f"{name}.txt").read_text() + (ROOT / f"{name}.in").read_text()
    assert not re.search(r"https?://|file://|--(extra-)?index|--find-links|--hash", text)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_pinned(name: str) -> None:
    pinned = {canonicalize_name(pin.name) for pin in entries(f"{name}.txt")}
    asked = {canonicalize_name(wish.name) for wish in entries(f"{name}.in")}
    assert asked <= pinned


def test_the_files_agree() -> None:
    versions: dict[str, set[str]] = {}
    for name in NAMES:
        for pin in entries(f"{name}.txt"):
            versions.setdefault(canonicalize_name(pin.name), set()).add(str(pin.specifier))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
