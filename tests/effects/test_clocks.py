"""Only the database's clock decides windows; a receiver whose clock is too far from it is told of."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from console.views.health import health_of
from effects.models import Receiver
from tests.effects.book import OFFER, Book
from tests.effects.odd import OddServer, Play, says


def at(moment: datetime) -> Play:
    """A truthful 201 of a receiver whose clock says *moment*."""
    body = json.dumps({"id": "off_000001", **OFFER}).encode()
    return says("201 Created", body, f"Date: {format_datetime(moment, usegmt=True)}")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, False), (45, False), (-45, False), (95, True), (-95, True)]
)
def test_a_clock_that_is_too_far_off_is_told_on_home_and_in_the_log(
    book: Book,
    odd: Callable[[Play], OddServer],
    caplog: pytest.LogCaptureFixture,
    seconds: int,
    told: bool,
) -> None:
    book.point(odd(at(datetime.now(UTC) + timedelta(seconds=seconds))).url)
    with caplog.at_level(logging.WARNING, "effects.outcomes"):
        book.perform(book.propose().effect_id)
    receiver = Receiver.objects.get(workspace=book.world.workspace, name="crm")
    assert (receiver.clock_ahead is not None) is told
    assert ("the clock of crm is" in caplog.text) is told
    assert (receiver in health_of(book.world.actor(book.world.viewer)).clocks) is told
    if told:
        assert receiver.clock_ahead == pytest.approx(seconds, abs=3)


def test_a_clock_that_was_set_right_is_told_of_no_more(book: Book, odd: Callable[[Play], OddServer]) -> None:
    book.point(odd(at(datetime.now(UTC) + timedelta(hours=1))).url)
    book.perform(book.propose().effect_id)
    book.point(odd(at(datetime.now(UTC))).url)
    book.perform(book.propose(key="two").effect_id)
    assert Receiver.objects.get(workspace=book.world.workspace, name="crm").clock_ahead is None


def test_an_answer_without_a_date_says_nothing(book: Book, odd: Callable[[Play], OddServer]) -> None:
    book.point(odd(says("201 Created", json.dumps({"id": "off_1", **OFFER}).encode())).url)
    book.perform(book.propose().effect_id)
    assert Receiver.objects.get(workspace=book.world.workspace, name="crm").clock_ahead is None
