"""What a test leaves behind and what it needs: the order in which tests run, and how workers share them, follow from it."""

from __future__ import annotations

from enum import StrEnum

import pytest


class Kind(StrEnum):
    """In the order in which one process runs them. A database is used up on the way: it never goes back to an earlier kind."""

    NOTHING = "nothing"
    #: Long, with processes and databases of its own.
    PROCESSES = "processes"
    #: Sees the database as it was set up, and leaves it so.
    ROLLED_BACK = "rolled_back"
    #: Leaves rows behind, in a workspace of its own.
    COMMITTED = "committed"
    #: The running stack on the database: its sweep looks after every row, other tests' too.
    STACK = "stack"


def kind_of(item: pytest.Item) -> Kind:
    """By its fixtures and marks: where a test's file lies says nothing."""
    fixtures = getattr(item, "fixturenames", ())
    if "stack" in fixtures:
        return Kind.STACK
    if "db" in fixtures or item.get_closest_marker("django_db"):
        return Kind.ROLLED_BACK
    if "django_db_setup" in fixtures:
        return Kind.COMMITTED
    return Kind.PROCESSES if item.get_closest_marker("process") else Kind.NOTHING
