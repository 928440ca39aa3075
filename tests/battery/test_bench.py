"""What every row checks bites: each check is shown something that it has to find."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from effects import moves
from effects.models import Approval
from effects.origin import Result
from effects.states import Outcome
from tests.battery.bench import Bench
from tests.battery.rows import Row, Seen, Stage

MADE_ONCE = Row("999", "A completed offer", "Answers", (Stage((1, 1), "completed"),), "completed")


def completed(bench: Bench) -> str:
    proposal = bench.propose("battery.offer")
    assert isinstance(bench.perform(proposal.effect_id), Result)
    return proposal.effect_id


def checked(bench: Bench, row: Row = MADE_ONCE) -> None:
    seen = Seen(row.name)
    bench.look_back(seen)
    bench.check(row, seen)


def test_what_is_as_it_should_be_passes(bench: Bench) -> None:
    completed(bench)
    checked(bench)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (Row("999", "x", "Answers", (Stage((1, 2), "completed"),), "completed"), r"seen .*rx=\(1, 1\)"),
        (Row("999", "x", "Answers", (Stage((1, 1), "pending/ready"),), "completed"), "seen .*completed"),
        (
            Row("999", "x", "Answers", (Stage((1, 1), "completed"),), "unknown"),
            "expected unknown, seen completed",
        ),
    ],
    ids=["another RX", "another status", "other attempts"],
)
def test_anything_else_than_expected_is_told(bench: Bench, expected: Row, words: str) -> None:
    completed(bench)
    with pytest.raises(AssertionError, match=words):
        checked(bench, expected)


def test_a_request_without_an_attempt(bench: Bench) -> None:
    completed(bench)
    bench.witness.order("drop_before")
    with pytest.raises(Exception, match="disconnected"):
        bench.witness.post("/v1/offers", {"subject": "of nobody"})
    more = Row("999", "x", "Answers", (Stage((1, 2), "completed"),), "completed")
    with pytest.raises(AssertionError, match="2 requests arrived, but the ledger has 1 attempts"):
        checked(bench, more)


def test_an_attempt_without_a_request(bench: Bench) -> None:
    completed(bench)
    _, attempt = bench.claim(bench.propose("battery.offer", key="two").effect_id)
    bench.played.clear()
    moves.end_attempt(attempt, Outcome.UNKNOWN)
    with pytest.raises(AssertionError, match="1 requests arrived, but the ledger has 2 attempts"):
        bench.check_requests()


def test_one_key_made_twice(bench: Bench) -> None:
    """A receiver that has forgotten its keys makes the same one again."""
    headers = {"Authorization": f"Bearer {bench.world.account}:s3cret", "Idempotency-Key": "one-key"}
    for _ in range(2):
        url = f"{bench.witness.receiver}/v1/offers"
        bench.witness.client.post(url, json={"subject": "Seats"}, headers=headers).raise_for_status()
        bench.witness.client.post(f"{bench.witness.receiver}/_prune", json={"account": bench.world.account})
        bench.strangers += 1
    twice = Row("999", "x", "Answers", (Stage((2, 2), "no row"),), "")
    with pytest.raises(AssertionError, match="made twice"):
        checked(bench, twice)


def test_an_ended_attempt_that_is_not_as_it_was(bench: Bench) -> None:
    completed(bench)
    [kept] = bench._ended.values()
    kept["problem"] = "It was another one."
    with pytest.raises(AssertionError, match="an ended attempt was edited"):
        checked(bench)


def in_an_observation(bench: Bench, word: str) -> None:
    moves.observe(bench.effects[0], "look_up", "found", f"It answered with {word}.")


def in_bytes(bench: Bench, word: str) -> None:
    Approval.objects.filter(id=bench.ask().id).update(body=word.encode())


def in_a_log(bench: Bench, word: str) -> None:
    logging.getLogger("effects").info("sent with %s", word)


@pytest.mark.parametrize("where", [in_an_observation, in_bytes, in_a_log])
@pytest.mark.parametrize("what", ["secret", "protected"])
def test_a_secret_that_stands_somewhere(bench: Bench, where: Callable[[Bench, str], None], what: str) -> None:
    completed(bench)
    where(bench, getattr(bench, what))
    with pytest.raises(AssertionError, match=r"stand there|were logged"):
        checked(bench)
