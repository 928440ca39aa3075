"""Typed readers of the environment that fail loudly: one line that says what is wrong and what to do.

Every name may also be given as NAME_FILE, the path of a file that holds the value: the way secrets are mounted.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path


class BadEnvironment(SystemExit):
    """A setting is missing or malformed. The process ends with this one line on stderr and a status that is not 0."""

    def __init__(self, name: str, problem: str, remedy: str) -> None:
        super().__init__(f"signalbox: {name} {problem}. {remedy}")


def text(name: str, default: str | None = None, *, remedy: str = "") -> str:
    """The value of *name*, or of the file that NAME_FILE names. Without a default a missing value ends the process."""
    if path := os.environ.get(f"{name}_FILE"):
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise BadEnvironment(
                f"{name}_FILE", f"names {path}, which can't be read ({error.strerror})", "Check the path."
            ) from None
    value = os.environ.get(name, default)
    if value is None or (value == "" and default is None):
        raise BadEnvironment(name, "is not set", remedy or f"Set {name} or {name}_FILE.")
    return value


def number(name: str, default: float, *, at_least: float = 0) -> float:
    raw = text(name, str(default))
    try:
        value = float(raw)
    except ValueError:
        raise BadEnvironment(name, f"is {raw!r}, which is not a number", "Give a number.") from None
    if value < at_least:
        raise BadEnvironment(name, f"is {raw}", f"Give a number of at least {at_least:g}.")
    return value


def choice(name: str, default: str, among: tuple[str, ...]) -> str:
    value = text(name, default)
    if value not in among:
        raise BadEnvironment(name, f"is {value!r}", f"Use one of: {', '.join(among)}.")
    return value


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list, blanks dropped."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def keyring(name: str, default: str | None = None) -> dict[str, bytes]:
    """``id:base64`` pairs of 32-byte keys, in order: the first encrypts, all decrypt."""
    keys: dict[str, bytes] = {}
    for pair in text(
        name,
        default,
        remedy="Make one: python -c \"import os,base64;print('k1:'+base64.b64encode(os.urandom(32)).decode())\"",
    ).split(","):
        key_id, _, encoded = pair.strip().partition(":")
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not key_id or len(key) != 32:
            raise BadEnvironment(
                name, f"has a key {key_id!r} that is not 32 bytes of base64", "Give id:base64."
            )
        keys[key_id] = key
    return keys
