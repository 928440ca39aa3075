from __future__ import annotations

import base64
import copy
import html
import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from console.kernel.canonical import JSONValue
from console.kernel.masking import (
    MASK_KEY,
    SECRET_MARK,
    compile_paths,
    is_masked,
    mask,
    mask_text_secrets,
    protected_texts,
)

CANARY = "canary-7d1f"
KEYS = st.sampled_from(
    ["a", "b", "email", "a.b", "x y", "*", "[]", "é", "", MASK_KEY, "\\" + MASK_KEY]
) | st.text(max_size=4)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
STEPS = st.lists(KEYS | st.integers(0, 3), min_size=1, max_size=5)


def _put(value: JSONValue, steps: list[str | int], leaf: JSONValue) -> JSONValue:
    """``value`` with ``leaf`` at the end of ``steps``, whatever has to give way."""
    if not steps:
        return leaf
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(value) if isinstance(value, list) else []
        items += [None] * (step + 1 - len(items))
        items[step] = _put(items[step], rest, leaf)
        return items
    members = dict(value) if isinstance(value, dict) else {}
    members[step] = _put(members.get(step), rest, leaf)
    return members


def _written(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f"[{json.dumps(step)}]"


def _get(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        value = value["\\" + step if isinstance(step, str) and step.lstrip("\\") == MASK_KEY else step]
    return value


@given(VALUES, STEPS, st.data())
def test_a_masked_value_is_nowhere_in_the_view(
    value: Any, steps: list[str | int], data: st.DataObject
) -> None:
    """However the path to it is written, and whatever kind of value holds it."""
    leaf: Any = data.draw(st.sampled_from([CANARY, [CANARY], {CANARY: 1}, {"x": [{"y": CANARY}]}]))
    whole = _put(value, steps, leaf)
    before = copy.deepcopy(whole)
    written = [
        data.draw(st.sampled_from([_written(step), "[]" if isinstance(step, int) else ".*", ".*"]))
        for step in steps
    ]
    cut = data.draw(st.integers(0, len(steps)))
    paths = data.draw(
        st.sampled_from(
            [
                "".join(written),
                "**" + "".join(written[cut:]),
                "".join(written[:cut]) + ".**" + "".join(written[cut:]),
            ]
        )
    ).removeprefix(".")
    view = mask(whole, ["nothing.here", paths])
    assert CANARY not in json.dumps(view)
    assert whole == before


@given(VALUES, STEPS)
def test_the_marker_stands_where_the_value_stood(value: Any, steps: list[str | int]) -> None:
    view = mask(_put(value, steps, CANARY), ["".join(map(_written, steps))])
    assert _get(view, steps) == {MASK_KEY: True, "kind": "text", "length": len(CANARY)}
    assert is_masked(json.loads(json.dumps(_get(view, steps))))


@given(VALUES)
def test_without_paths_the_view_is_a_copy(value: Any) -> None:
    view = mask(value, [])
    assert _unescaped(view) == value
    if isinstance(view, dict | list):
        assert view is not value


def _unescaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k[1:] if k.lstrip("\\") == MASK_KEY else k: _unescaped(item) for k, item in value.items()}
    return [_unescaped(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_nobody_can_pass_off_a_value_as_masked(value: Any) -> None:
    def markers(view: Any) -> int:
        inner = view.values() if isinstance(view, dict) else view if isinstance(view, list) else ()
        return is_masked(view) + sum(map(markers, inner))

    forged = {"forged": {MASK_KEY: True, "kind": "text"}, "rest": value}
    assert markers(forged) >= 1
    assert markers(mask(forged, [])) == 0
    assert markers(mask(forged, ["forged"])) == 1


def test_keys_stay_apart_when_they_are_escaped() -> None:
    view = mask({MASK_KEY: 1, "\\" + MASK_KEY: 2, "\\\\" + MASK_KEY: 3, MASK_KEY + "x": 4}, [])
    assert view == {"\\" + MASK_KEY: 1, "\\\\" + MASK_KEY: 2, "\\\\\\" + MASK_KEY: 3, MASK_KEY + "x": 4}


def test_masking_a_view_again_keeps_its_markers() -> None:
    once = mask({"a": "x", "b": {"c": "y"}}, ["a"])
    assert mask(once, ["b.c", "**.length"]) == mask({"a": "x", "b": {"c": "y"}}, ["a", "b.c"])


@pytest.mark.parametrize(
    ("value", "marker"),
    [
        ("Zoë", {"kind": "text", "length": 3}),
        ("", {"kind": "text", "length": 0}),
        (7, {"kind": "number"}),
        (7.5, {"kind": "number"}),
        (True, {"kind": "flag"}),
        (None, {"kind": "nothing"}),
        ([1, 2], {"kind": "list"}),
        ({"a": 1}, {"kind": "object"}),
    ],
)
def test_a_marker_says_the_kind_and_of_texts_the_length(value: JSONValue, marker: dict[str, Any]) -> None:
    assert mask(value, ["**"]) == {MASK_KEY: True, **marker}


ORDER: JSONValue = {
    "customer": {"name": "N", "email": "E", "phones": ["P0", "P1"]},
    "lines": [{"price": "L0", "note": {"email": "L0E"}}, {"price": "L1"}, {"price": "L2"}],
    "email": "TOP",
    "odd.key": {"x y": "ODD"},
    "caf\u00e9": "NFC",
}


def _hidden(path: str) -> set[str]:
    shown = json.dumps(mask(ORDER, [path]), ensure_ascii=False)
    return {text for text in _all_texts(ORDER) if f'"{text}"' not in shown}


def _all_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [text for item in inner for text in _all_texts(item)]


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("customer.email", {"E"}),
        ("email", {"TOP"}),
        ("**.email", {"E", "TOP", "L0E"}),
        ("customer.*", {"N", "E", "P0", "P1"}),
        ("*.email", {"E"}),
        ("lines[2].price", {"L2"}),
        ("lines[].price", {"L0", "L1", "L2"}),
        ("lines[*].price", {"L0", "L1", "L2"}),
        ("lines.*.price", {"L0", "L1", "L2"}),
        ("lines.**.email", {"L0E"}),
        ("lines[0].**", {"L0", "L0E"}),
        ("customer.phones[1]", {"P1"}),
        ("customer[1]", set()),
        ("customer[]", set()),
        ("lines.price", set()),
        ('["odd.key"]["x y"]', {"ODD"}),
        ('["customer"].name', {"N"}),
        ("cafe\u0301", {"NFC"}),
        ("**.**.email", {"E", "TOP", "L0E"}),
        ("Email", set()),
    ],
)
def test_the_grammar(path: str, hidden: set[str]) -> None:
    assert _hidden(path) == hidden
    assert set(protected_texts(ORDER, [path])) == hidden


def test_keys_match_in_either_unicode_spelling() -> None:
    assert mask({"cafe\u0301": "x"}, ["caf\u00e9"]) == {"cafe\u0301": mask("x", ["**"])}
    assert mask({"caf\u00e9": "x"}, ["cafe\u0301"]) == {"caf\u00e9": mask("x", ["**"])}


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a[",
        "a]",
        "a[x]",
        "a[-1]",
        "a[1]b",
        "a***",
        "**a",
        "*a",
        "a*",
        "$.a",
        " a",
        "a ",
        "a b",
        '["x]',
        '["\\q"]',
        "a\\b",
        "[']",
    ],
)
def test_a_path_that_does_not_parse_is_named(path: str) -> None:
    with pytest.raises(ValueError, match="does not parse at character") as error:
        compile_paths(["fine", path])
    assert repr(path) in str(error.value)


def test_one_text_is_not_a_list_of_paths() -> None:
    with pytest.raises(TypeError, match="not one text"):
        mask({"email": "E"}, "email")


@pytest.mark.parametrize("value", [(1,), {"a": b"x"}, [object()], {"a": {1}}])
def test_what_is_not_json_cannot_be_shown(value: Any) -> None:
    with pytest.raises(TypeError, match="not a JSON value"):
        mask(value, [])


SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="•"), min_size=8, max_size=24)


SPELLINGS: list[Callable[[str], str]] = [
    str,
    quote,
    partial(quote, safe=""),
    lambda secret: re.sub("%..", lambda found: found.group().lower(), quote(secret)),
    quote_plus,
    html.escape,
    lambda secret: json.dumps(secret)[1:-1],
    lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    lambda secret: secret.encode("ascii", "xmlcharrefreplace").decode(),
    lambda secret: repr(secret.encode())[2:-1],
]


@given(SECRETS, st.text(max_size=20), st.text(max_size=20), st.data())
def test_a_secret_is_found_in_any_spelling(secret: str, before: str, after: str, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(SPELLINGS))
    written = spelling(secret)
    masked = mask_text_secrets(f"{before} {written} {after}", [secret])
    assert written not in masked
    assert secret not in masked
    assert SECRET_MARK in masked


@given(st.binary(min_size=0, max_size=5), SECRETS, st.binary(min_size=0, max_size=5), st.booleans())
def test_a_secret_is_found_inside_base64(before: bytes, secret: str, after: bytes, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    raw = secret.encode()
    token = encode(before + raw + after).decode()
    text = f"Authorization: Basic {token}; rest"
    masked = mask_text_secrets(text, [secret])
    kept = masked.split("Basic ")[1].removesuffix("; rest").split(SECRET_MARK)
    assert len(kept) == 2
    # What is left of the token on both sides decodes to nothing of the secret but at most the bits that it shares
    # with its neighbours' character.
    assert len(kept[0]) * 6 <= len(before) * 8
    assert len(kept[1].rstrip("=")) * 6 <= len(after) * 8 + 5


@given(st.text(), st.lists(SECRETS, max_size=3))
def test_text_without_a_secret_stays_as_it_is(text: str, secrets: list[str]) -> None:
    masked = mask_text_secrets(text, ["", *secrets])
    assume(SECRET_MARK not in masked)
    assert masked == text


def test_secrets_that_overlap_are_replaced_as_one() -> None:
    assert mask_text_secrets("xx abcdefghi yy", ["abcdef", "defghi"]) == f"xx {SECRET_MARK} yy"
    assert mask_text_secrets("abcabcabc", ["abcabc"]) == SECRET_MARK
    assert mask_text_secrets("abcdef and abc", ["abc", "abcdef"]) == f"{SECRET_MARK} and {SECRET_MARK}"


def test_other_texts_of_the_same_letters_stay() -> None:
    assert mask_text_secrets("sk_live_124 SK_LIVE_123", ["sk_live_123"]) == "sk_live_124 SK_LIVE_123"


def test_a_hostile_text_costs_linear_time() -> None:
    secret = "%" * 20 + "a" * 20
    started = time.monotonic()
    mask_text_secrets("%25" * 100_000 + "a" * 100_000, [secret])
    assert time.monotonic() - started < 20
