"""Receivers' secrets: found by name at the moment of sending, never stored and never logged."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class SecretMissing(Exception):
    """No secret of that name is set. The message says where it is looked for and holds no secret."""


def is_name(text: str) -> bool:
    """Whether a secret can be called so."""
    return _NAME.fullmatch(text) is not None


def secret(name: str) -> str:
    """The secret *name*: from SIGNALBOX_RECEIVER_SECRET_<NAME>, or a file of that name in SIGNALBOX_RECEIVER_SECRETS.

    An empty name is a receiver without one. Raises SecretMissing.
    """
    if not name:
        return ""
    if not is_name(name):
        raise SecretMissing(f"{name!r} is no name of a secret")
    variable = "SIGNALBOX_RECEIVER_SECRET_" + name.upper().replace("-", "_")
    value = os.environ.get(variable, "").strip() or _from_folder(name)
    if not value:
        raise SecretMissing(
            f"The receiver's secret {name} is not set: neither {variable} nor a file of that name in "
            "SIGNALBOX_RECEIVER_SECRETS"
        )
    if not (value.isascii() and value.isprintable()):
        raise SecretMissing(f"The receiver's secret {name} has characters that can't go into a request")
    return value


def _from_folder(name: str) -> str:
    folder = os.environ.get("SIGNALBOX_RECEIVER_SECRETS")
    try:
        return Path(folder, name).read_text().strip() if folder else ""
    except (OSError, UnicodeDecodeError):
        return ""
