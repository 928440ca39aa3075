from __future__ import annotations

import enum
import json
import unicodedata
from collections import OrderedDict, UserDict
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from console.kernel.canonical import (
    MAX_DEPTH,
    MAX_INTEGER,
    JSONValue,
    Uncanonical,
    canonicalise,
    parse_json,
    request_hash,
    to_plain,
)
from console.kernel.errors import BadRequest, Invalid

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NUMBERS = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(-MAX_INTEGER, MAX_INTEGER)


def _no_twin_keys(items: dict[str, Any]) -> bool:
    return len({unicodedata.normalize("NFC", key) for key in items}) == len(items)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4).filter(_no_twin_keys)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_the_canonical_form_is_its_own_canonical_form(value: JSONValue) -> None:
    once = canonicalise(value)
    assert canonicalise(parse_json(once)) == once
    assert canonicalise(to_plain(value)) == once


@given(VALUES)
def test_the_plain_value_is_what_the_text_says(value: JSONValue) -> None:
    plain = to_plain(value)
    assert repr(_sorted(plain)) == repr(_sorted(parse_json(canonicalise(value))))


def _sorted(value: JSONValue) -> JSONValue:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(TEXT, VALUES, min_size=2).filter(_no_twin_keys), st.randoms())
def test_the_order_of_keys_says_nothing(value: dict[str, JSONValue], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonicalise(dict(items)) == canonicalise(value)


@given(VALUES, VALUES)
def test_different_values_have_different_texts(one: JSONValue, other: JSONValue) -> None:
    assume(repr(_sorted(to_plain(one))) != repr(_sorted(to_plain(other))))
    assert canonicalise(one) != canonicalise(other)


@given(TEXT, TEXT)
def test_unicode_spellings_of_one_text_are_one(key: str, text: str) -> None:
    composed = {unicodedata.normalize("NFC", key): unicodedata.normalize("NFC", text)}
    decomposed = {unicodedata.normalize("NFD", key): unicodedata.normalize("NFD", text)}
    assert canonicalise(composed) == canonicalise(decomposed)


@given(VALUES)
def test_the_value_given_is_neither_changed_nor_shared(value: JSONValue) -> None:
    before = json.dumps(value)
    plain = to_plain(value)
    if isinstance(plain, dict):
        plain["added"] = True
    if isinstance(plain, list):
        plain.append(True)
    assert json.dumps(value) == before


@given(st.integers(-MAX_INTEGER, MAX_INTEGER))
def test_whole_floats_are_the_integers_they_equal(number: int) -> None:
    assert canonicalise(float(number)) == canonicalise(number) == str(number).encode()


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # RFC 8785, 3.2.2 and 3.2.3: numbers as ECMAScript writes them, keys by UTF-16 code units.
        ([333333333.33333329, 4.50, 2e-3, 1e-27], "[333333333.3333333,4.5,0.002,1e-27]"),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ({"\uffee": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\uffee":1}'),
        ({"b": 1, "a": {"d": None, "c": [True, False]}}, '{"a":{"c":[true,false],"d":null},"b":1}'),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (1e15, "1000000000000000"),
        (MAX_INTEGER, "9007199254740991"),
        ((1, (2,)), "[1,[2]]"),
        (Decimal("1.50"), '"1.50"'),
        (Decimal("1E+3"), '"1000"'),
        (Decimal("-0.00"), '"0.00"'),
        (Decimal("1e-7"), '"0.0000001"'),
        (Decimal("-12.3"), '"-12.3"'),
        (date(2026, 3, 1), '"2026-03-01"'),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), '"2026-03-01T12:00:00Z"'),
        (datetime(2026, 3, 1, 1, 0, 0, 5, timezone(timedelta(hours=2))), '"2026-02-28T23:00:00.000005Z"'),
        (Colour.RED, '"red"'),
        ({Colour.RED: Level.HIGH}, '{"red":3}'),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        (UserDict(a=1), '{"a":1}'),
    ],
)
def test_each_value_has_one_text(value: object, text: str) -> None:
    assert canonicalise(value).decode() == text


def test_the_plain_value_has_plain_types_only() -> None:
    plain = to_plain({Colour.RED: [Level.HIGH, Colour.RED]})
    assert isinstance(plain, dict)
    (key,) = plain
    assert type(key) is str
    assert [type(item) for item in plain[key]] == [int, str]  # type: ignore[union-attr]


class _Zoneless(tzinfo):
    """A zone that does not know its offset, which makes a datetime naive in all but name."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None


REFUSED: list[Any] = [
    (float("nan"), "NaN"),
    (float("-inf"), "infinities"),
    (Decimal("NaN"), "NaN"),
    (Decimal("sNaN"), "NaN"),
    (Decimal("Infinity"), "infinities"),
    (Decimal("1E+2000"), "digits"),
    (Decimal("1E-2000"), "digits"),
    (MAX_INTEGER + 1, "send it as a string"),
    (-MAX_INTEGER - 1, "send it as a string"),
    pytest.param(10**5000, "send it as a string", id="huge"),
    (1e300, "send it as a string"),
    (float(2**53), "send it as a string"),
    ("a\ud800b", "surrogate"),
    ("a\0b", r"U\+0000"),
    (datetime(2026, 3, 1), "no time zone"),  # noqa: DTZ001
    (datetime(2026, 3, 1, tzinfo=_Zoneless()), "no time zone"),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "years 1 to 9999"),
    (time(12), "type time"),
    (timedelta(1), "type timedelta"),
    (b"bytes", "type bytes"),
    ({1, 2}, "type set"),
    (UUID(int=1), "type UUID"),
    (object(), "type object"),
    (1j, "type complex"),
    (range(3), "type range"),
    ({1: 2}, "a key is a value of type int"),
    ({None: 2}, "a key is a value of type NoneType"),
]


@pytest.mark.parametrize(("value", "problem"), REFUSED)
def test_what_can_be_misread_is_refused_with_its_path(value: object, problem: str) -> None:
    with pytest.raises(Uncanonical, match=problem) as refusal:
        canonicalise({"lines": [1, {}, {"price": value}]})
    assert refusal.value.path == "lines[2].price"
    assert refusal.value.field == "lines[2].price"
    assert isinstance(refusal.value, Invalid)
    with pytest.raises(Uncanonical, match=r"^The value: ") as whole:
        to_plain(value)
    assert (whole.value.path, whole.value.field) == ("", None)


def test_a_refusal_does_not_repeat_the_value() -> None:
    for value in ("s3cret\ud800", "s3cret\0", b"s3cret", {"x": {b"s3cret": 1}}):
        with pytest.raises(Uncanonical) as refusal:
            canonicalise({"field": value})
        assert "s3cret" not in json.dumps(refusal.value.as_dict())


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a b": {"x.y": [float("nan")]}}, '["a b"]["x.y"][0]'),
        ({"ключ": {"ok-1": float("nan")}}, "ключ.ok-1"),
        ({"": float("nan")}, '[""]'),
        ([[0, float("nan")]], "[0][1]"),
        ({"a\0": 1}, '["a\\u0000"]'),
        ({"x" * 1000: float("nan")}, f'["{"x" * 80}\\u2026"]'),
    ],
)
def test_paths_are_readable(value: object, path: str) -> None:
    with pytest.raises(Uncanonical) as refusal:
        canonicalise(value)
    assert refusal.value.path == path


def test_keys_that_become_one_are_refused() -> None:
    with pytest.raises(Uncanonical, match="different Unicode spellings"):
        canonicalise({"\u00e9": 1, "e\u0301": 2})


def _nested(levels: int) -> JSONValue:
    value: JSONValue = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"x": value}
    return value


def test_depth_has_a_limit() -> None:
    assert canonicalise(_nested(MAX_DEPTH)) == json.dumps(_nested(MAX_DEPTH), separators=(",", ":")).encode()
    with pytest.raises(Uncanonical, match="deeper than 64"):
        canonicalise(_nested(MAX_DEPTH + 1))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(Uncanonical, match="deeper than 64"):
        canonicalise(loop)


@given(VALUES)
def test_parsing_reads_what_json_wrote(value: JSONValue) -> None:
    text = json.dumps(value)
    assert repr(parse_json(text)) == repr(json.loads(text))
    assert repr(parse_json(text.encode())) == repr(json.loads(text))


def test_big_integers_stay_exact_until_they_are_refused() -> None:
    parsed = parse_json('{"id": 123456789012345678901234567890}')
    assert parsed == {"id": 123456789012345678901234567890}
    with pytest.raises(Uncanonical, match=r"^id: .*string"):
        canonicalise(parsed)


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ('{"a": [{"b": 1, "b": 1}]}', "a[0].b", "twice"),
        ('{"b": 1, "\\u0062": 1}', "b", "twice"),
        ('{"a": NaN}', "a", "NaN"),
        ("[1, Infinity]", "[1]", "Infinity"),
        ("-Infinity", "", "-Infinity"),
        ('{"a": 1e999}', "a", "too large"),
        ("[" * 65 + "]" * 65, "[0]" * 64, "deeper than 64"),
        ("[" * 100_000, "", "deeper than 64"),
        ('{"a":' * 100_000, "", "deeper than 64"),
    ],
)
def test_json_with_more_than_one_reading_is_refused(text: str, path: str, problem: str) -> None:
    with pytest.raises(Uncanonical, match=problem) as refusal:
        parse_json(text)
    assert refusal.value.path == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "[1,]",
        "{'a': 1}",
        "1 2",
        "\ufeff{}",
        b"\xff",
        '"\u0001"',
        b"\xff\xfe1\x00",
        "1" * 5000,
        b"{}\x00",
    ],
)
def test_what_is_not_json_is_a_bad_request(text: str | bytes) -> None:
    with pytest.raises(BadRequest):
        parse_json(text)


@given(st.binary() | st.text('[]{}",:0123456789.eE+-\\ untrfalsNIiy', max_size=40))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        parse_json(text)
    except (BadRequest, Uncanonical):
        return


def test_the_hash_names_its_kind() -> None:
    assert (
        request_hash(canonicalise({"b": 1.0, "a": "\u00e9"}))
        == request_hash('{"a":"\u00e9","b":1}'.encode())
        == "sha256:aa58fba8483623bed37c1b02edfccbdd9a53123837c20bfa4cb4049993a2872e"
    )
