"""Words that come from outside our code: what a node raised, what a receiver said."""

from __future__ import annotations


def storable(text: str, longest: int) -> str:
    """*text* cut to *longest* characters, of characters that Postgres can store: no U+0000, no lone surrogate."""
    kept = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"
