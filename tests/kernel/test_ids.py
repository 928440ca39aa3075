from __future__ import annotations

import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.kernel import ids

KINDS = st.sampled_from(sorted(ids.PREFIXES))
PARTS = st.text(st.characters(codec="utf-8"), min_size=1)
FIELDS = ("workspace", "run_id", "position", "effect_type", "command_key")


def _uuid_of(identifier: str) -> uuid.UUID:
    number = 0
    for character in identifier.partition("_")[2]:
        number = number * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(character)
    return uuid.UUID(int=number)


@given(KINDS)
def test_a_new_id_is_a_uuid_version_7_of_now(kind: str) -> None:
    before = datetime.now(UTC)
    identifier = ids.new_id(kind)
    after = datetime.now(UTC)
    made = _uuid_of(identifier)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    # One process's ids may run ahead of the clock by a millisecond when it steps back or a counter is spent.
    slack = timedelta(milliseconds=2)
    assert before - slack <= ids.time_of(identifier) <= after + slack
    assert len(identifier) == len(kind) + 27
    assert re.fullmatch(ids.ID_PATTERN, identifier)


def test_ids_of_one_process_increase_strictly() -> None:
    made = [ids.new_id("run") for _ in range(20_000)]
    assert all(one < next_one for one, next_one in pairwise(made))


def test_ids_increase_in_every_thread_and_never_repeat() -> None:
    with ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(lambda _: [ids.new_id("evt") for _ in range(3_000)], range(8)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({identifier for batch in batches for identifier in batch}) == 24_000


def test_a_clock_that_steps_back_does_not_take_the_ids_with_it() -> None:
    sequence = ids._Sequence()
    drawn = [sequence.next(now) for now in (1_000, 999, 5, 1_000, 1_001)]
    assert drawn == sorted(set(drawn))
    assert drawn[-1][0] == 1_001


def test_a_spent_counter_moves_to_the_next_millisecond() -> None:
    sequence = ids._Sequence()
    sequence.next(1_000)
    sequence._counter = 2**42 - 1
    assert sequence.next(1_000)[0] == 1_001
    assert sequence.next(1_000)[0] == 1_001


def test_a_forked_child_neither_hangs_nor_repeats_the_parent() -> None:
    """The lock is held while forking, as another thread of the parent might hold it."""
    reader, writer = os.pipe()
    with ids._sequence._lock:
        child = os.fork()
        if child == 0:
            os.write(writer, "\n".join(ids.new_id("run") for _ in range(50)).encode())
            os._exit(0)
    os.close(writer)
    parents = {ids.new_id("run") for _ in range(50)}
    with os.fdopen(reader) as pipe:
        childs = set(pipe.read().split("\n"))
    assert os.waitpid(child, 0)[1] == 0
    assert len(childs) == 50
    assert not parents & childs


@given(st.lists(st.integers(0, 2**47), min_size=2))
def test_ids_with_a_given_time_sort_by_it(microseconds: list[int]) -> None:
    times = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number) for number in microseconds]
    made = sorted(ids.new_id("rec", at) for at in times)
    milliseconds = sorted(at.replace(microsecond=at.microsecond // 1000 * 1000) for at in times)
    assert [ids.time_of(identifier) for identifier in made] == milliseconds


def test_a_given_time_leaves_the_running_sequence_alone() -> None:
    before = ids.new_id("run")
    far_away = ids.new_id("run", datetime(2999, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    after = ids.new_id("run")
    assert before < after < far_away


@pytest.mark.parametrize("kind", ["eff", "", "nope", "run_"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="no ids of kind"):
        ids.new_id(kind)


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), datetime(1969, 12, 31, tzinfo=UTC)])  # noqa: DTZ001
def test_a_time_that_an_id_cannot_hold_is_refused(at: datetime) -> None:
    with pytest.raises(ValueError, match="the time of an id"):
        ids.new_id("run", at)


@given(KINDS, st.from_regex(r"[0-7][0-9a-hjkmnp-tv-z]{25}", fullmatch=True), st.data())
def test_an_id_is_recognised_as_people_type_it(kind: str, body: str, data: st.DataObject) -> None:
    identifier = f"{kind}_{body}"
    spellings = {"0": "0oO", "1": "1iIlL"}
    typed = "".join(data.draw(st.sampled_from(spellings.get(c, c + c.upper()))) for c in body)
    text = f" {kind.upper()}_{typed}\n"
    assert ids.normal_id(text) == identifier
    assert ids.kind_of(text) == kind


def test_an_effect_id_keeps_the_letters_that_crockford_has_not() -> None:
    identifier = "eff_" + "il0o1" * 6 + "v9"
    assert ids.normal_id(identifier.upper()) == identifier
    assert ids.kind_of(identifier) == "eff"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run",
        "run_",
        "run_01m8q8y3pxe5kvaw23ktmzdv2",
        "run_01m8q8y3pxe5kvaw23ktmzdv2hh",
        "run_81m8q8y3pxe5kvaw23ktmzdv2h",
        "run_01m8q8y3pxe5kvaw23ktmzdv2u",
        "eff_01m8q8y3pxe5kvaw23ktmzdv2h",
        "eff_jt1vcop3pvhl86vsag0bdb83h034f7sw",
        "abc_01m8q8y3pxe5kvaw23ktmzdv2h",
        "run_01m8q8y3pxe5kvaw23ktmzdv2h run_01m8q8y3pxe5kvaw23ktmzdv2h",
        "ſ_01m8q8y3pxe5kvaw23ktmzdv2h",
        "pi_3MtwBwLkdIwHu7ix28a3tqPa",
    ],
)
def test_other_texts_are_no_ids(text: str) -> None:
    assert ids.kind_of(text) is None


@given(st.text())
def test_any_text_may_be_asked_about(text: str) -> None:
    assert ids.kind_of(text) in (None, "eff", *ids.PREFIXES)


def _effect(parts: tuple[str, ...]) -> str:
    return ids.effect_id(**dict(zip(FIELDS, parts, strict=True)))


@given(st.tuples(PARTS, PARTS, PARTS, PARTS, PARTS))
def test_an_effect_id_is_a_function_of_its_parts(parts: tuple[str, ...]) -> None:
    assert _effect(parts) == _effect(tuple("".join(list(part)) for part in parts))
    assert re.fullmatch(r"eff_[0-9a-v]{32}", _effect(parts))
    assert len(_effect(parts)) == 36


@given(st.lists(st.tuples(*[st.text("ab\0:", min_size=1, max_size=3)] * 5), unique=True, max_size=50))
def test_other_parts_give_another_effect(all_parts: list[tuple[str, ...]]) -> None:
    assert len({_effect(parts) for parts in all_parts}) == len(all_parts)


@given(st.text(min_size=2, alphabet="ab,\0"), st.data())
def test_what_moves_from_one_part_to_the_next_changes_the_id(text: str, data: st.DataObject) -> None:
    """Joining the parts without their lengths would give one id for all of these."""
    cuts = range(1, len(text))
    made = {_effect(("w", text[:cut], text[cut:], "t", "k")) for cut in cuts}
    assert len(made) == len(cuts)


def test_the_effect_id_never_changes_between_versions() -> None:
    """Stored ids and the keys that receivers know come from this function: these texts are a promise."""
    assert _effect(("acme", "run_1", "3/send/", "crm.create_offer", "offer")) == PINNED_EFFECT
    assert ids.successor_effect_id(PINNED_EFFECT, 1) == PINNED_SUCCESSOR


PINNED_EFFECT = "eff_dafklodgh5s59tbib8sokek0i4bm4tcl"
PINNED_SUCCESSOR = "eff_tnvurfh9ochjjsmtcgfu32m577f5uajl"


@pytest.mark.parametrize("empty", range(5))
def test_an_effect_needs_all_of_its_parts(empty: int) -> None:
    parts = tuple("" if index == empty else "x" for index in range(5))
    with pytest.raises(ValueError, match="an effect id needs"):
        _effect(parts)


def test_successors_are_effects_of_their_own() -> None:
    original = _effect(("w", "r", "p", "t", "k"))
    made = [ids.successor_effect_id(original, number) for number in range(1, 50)]
    assert len({original, *made}) == 50
    assert {ids.kind_of(identifier) for identifier in made} == {"eff"}


@pytest.mark.parametrize(("original", "number"), [("run_1", 1), ("", 1), (PINNED_EFFECT, 0)])
def test_a_successor_of_nothing_is_refused(original: str, number: int) -> None:
    with pytest.raises(ValueError, match="a successor needs"):
        ids.successor_effect_id(original, number)


def test_only_ids_that_sort_by_time_carry_one() -> None:
    with pytest.raises(ValueError, match="sort by time"):
        ids.time_of(PINNED_EFFECT)
    with pytest.raises(ValueError, match="sort by time"):
        ids.time_of("not an id")


def test_a_position_is_indexed_by_its_sha256() -> None:
    assert ids.position_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
