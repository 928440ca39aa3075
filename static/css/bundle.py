"""Writes app.css: the one stylesheet served, made of the files beside this script.

Run as ``python static/css/bundle.py`` (``make css``). No tool, no minifier: the parts are joined in a fixed
order, so that what is served reads like what was written. ``tests/ui`` fails when app.css is stale.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
FIRST = ("tokens.css", "base.css", "layout.css")


def parts() -> list[Path]:
    """The source files in the order in which they are joined: tokens, plain elements, frame, components by name."""
    return [HERE / name for name in FIRST] + sorted((HERE / "components").glob("*.css"))


def bundle() -> str:
    """The text of app.css, each part under a comment with its path."""
    heads = (
        f"/* {part.relative_to(HERE).as_posix()} */\n{part.read_text('utf-8').strip()}\n" for part in parts()
    )
    return "/* Joined by bundle.py: edit the parts, not this file. */\n\n" + "\n".join(heads)


if __name__ == "__main__":
    (HERE / "app.css").write_text(bundle(), "utf-8")
