"""WCAG 2.2: 4.5 to 1 for text, 3 to 1 for the edges of controls; computed from tokens.css, in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOKENS = (Path(__file__).resolve().parents[2] / "static" / "css" / "tokens.css").read_text("utf-8")
PAIRS = dict(
    re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\)", TOKENS),
)
TONES = ("done", "bad", "unsure", "turn", "work", "still")
GROUNDS = ("ground", "surface", "surface-raised", "well", "hover", "selected", "bar")

TEXT = [
    *[(ink, ground) for ink in ("ink", "ink-2", "ink-3", "accent") for ground in GROUNDS],
    *[(tone, f"{tone}-soft") for tone in TONES],
    *[("ink", f"{tone}-soft") for tone in TONES],
    *[("ink-2", f"{tone}-soft") for tone in TONES],
    *[(tone, ground) for tone in TONES for ground in ("ground", "surface", "hover", "selected", "well")],
    ("unsure", "unsure-stripe"),
    ("ink", "unsure-stripe"),
    ("on-accent", "accent-fill"),
    ("on-accent", "accent-fill-hover"),
    ("on-accent", "bad-fill"),
    ("accent-strong", "surface"),
]
EDGES = [
    ("line-control", "surface"),
    ("line-control", "ground"),
    ("accent", "surface"),
    ("accent", "ground"),
    ("accent", "well"),
]


def colour(name: str, side: int) -> tuple[float, ...]:
    hexa = PAIRS[name].split(", ")[side]
    return tuple(int(hexa[at : at + 2], 16) / 255 for at in (1, 3, 5))


def luminance(rgb: tuple[float, ...]) -> float:
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str, side: int) -> float:
    light, dark = sorted((luminance(colour(one, side)), luminance(colour(other, side))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_itself() -> None:
    assert luminance((1, 1, 1)) == pytest.approx(1)
    assert luminance((0, 0, 0)) == 0


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_can_be_read(ink: str, ground: str, side: int) -> None:
    assert contrast(ink, ground, side) >= 4.5


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("edge", "ground"), EDGES)
def test_edges_of_controls_can_be_seen(edge: str, ground: str, side: int) -> None:
    assert contrast(edge, ground, side) >= 3
