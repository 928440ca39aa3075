"""What a wire makes of a payload: the bytes that are stored, and the refusal of what can't be sent as it is meant."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effects.contracts import EffectContract
from effects.receivers.reading import differs, error_code, keys_of, reference_of, said
from effects.wires import HttpListing, HttpLookUp, HttpWire, marked
from tests.effects import promises

KEY = "eff_00000000000000000000000000000000"


def stored(wire: HttpWire, payload: dict[str, Any]) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(wire.render(payload, key=KEY))
    request["body"] = base64.b64decode(request["body"])
    return request


def form(**payload: Any) -> str:
    body: bytes = stored(HttpWire(method="POST", path="/", encoding="form"), payload)["body"]
    return body.decode()


def nest(flat: list[tuple[str, str]]) -> Any:
    """Read a form as Stripe's side does: brackets lead into objects, numbers in them into lists."""
    tree: dict[str, Any] = {}
    for name, value in flat:
        first, *rest = re.findall(r"^[^\[]+|\[[^\]]*\]", name)
        path = [first, *(part[1:-1] for part in rest)]
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    return lists(tree)


def lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and list(value) == [str(index) for index in range(len(value))]:
        return [lists(one) for one in value.values()]
    return {name: lists(one) for name, one in value.items()}


#: A busy machine takes its time to make the first text.
patiently = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=1, max_size=8).filter(
    lambda name: not name.isdigit()
)
VALUES = st.recursive(
    st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=3) | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@patiently
@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_a_form_says_what_the_payload_says_whatever_is_in_it(payload: dict[str, Any]) -> None:
    assert nest(parse_qsl(form(**payload), keep_blank_values=True)) == payload


@patiently
@given(st.dictionaries(NAMES, VALUES, min_size=2, max_size=4))
def test_a_form_has_one_order(payload: dict[str, Any]) -> None:
    assert form(**dict(reversed(payload.items()))) == form(**payload)


def test_a_form_writes_numbers_and_flags_in_one_way() -> None:
    assert form(b=True, a=[{"x": 1.5, "w": 2}], c=False) == (
        "a%5B0%5D%5Bw%5D=2&a%5B0%5D%5Bx%5D=1.5&b=true&c=false"
    )


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": None}, "a"),
        ({"a": {"b": []}}, "a.b"),
        ({"a": [{}]}, "a.0"),
        ({"a": {"b[0]": "x"}}, "a.b[0]"),
    ],
)
def test_a_form_can_not_say_it(payload: dict[str, Any], path: str) -> None:
    misfit = HttpWire(method="POST", path="/", encoding="form").misfit(payload)
    assert misfit is not None
    assert misfit[0] == path
    assert HttpWire(method="POST", path="/").misfit(payload) is None


def test_everything_that_is_sent_is_stored_but_what_proves_who_sends() -> None:
    wire = HttpWire(
        method="POST",
        path="/v1/{area}/notes/{effect_id}",
        unsent=("area",),
        always={"confirm": True},
        envelope="note",
        headers={"X-Version": "7"},
        auth="basic",
        key_header="Idempotency-Key",
        external_id="meta.id",
        create_only=True,
        echoes=("text", "meta.kind", "missing"),
    )
    request = stored(wire, {"area": "a/b", "text": "x", "confirm": False, "meta": {"kind": "k"}})
    assert request == {
        "method": "POST",
        "path": f"/v1/a%2Fb/notes/{KEY}",
        "headers": {"X-Version": "7", "Content-Type": "application/json", "If-None-Match": "*"},
        "body": b'{"note":{"confirm":true,"meta":{"id":"%s","kind":"k"},"text":"x"}}' % KEY.encode(),
        "echoes": {"text": "x", "meta.kind": "k"},
    }


@pytest.mark.parametrize(
    ("wire", "payload", "path", "why"),
    [
        ({"path": "/{a}"}, {}, "a", "the address needs it"),
        ({"path": "/{a}"}, {"a": ".."}, "a", "can't stand in an address"),
        ({"path": "/{a}"}, {"a": ["x"]}, "a", "can't stand in an address"),
        ({"external_id": "id"}, {"id": "mine"}, "id", "the effect's own id is written"),
        ({"external_id": "m.id"}, {"m": {"id": 1}}, "m.id", "the effect's own id is written"),
        ({"external_id": "m.n.id"}, {"m": "text"}, "m", "is no object"),
        ({"external_id": "m.n.id"}, {"m": {"n": []}}, "m.n", "is no object"),
        ({"marker": "text"}, {}, "text", "is no text"),
        ({"marker": "text"}, {"text": marked("x", "eff_of_another")}, "text", "another effect's id"),
    ],
)
def test_what_can_not_be_sent_is_named(
    wire: dict[str, Any], payload: dict[str, Any], path: str, why: str
) -> None:
    misfit = HttpWire(**{"method": "POST", "path": "/", **wire}).misfit(payload)
    assert misfit is not None
    assert misfit[0] == path
    assert why in misfit[1]


def test_its_own_place_is_no_misfit() -> None:
    wire = HttpWire(method="PUT", path="/{effect_id}", external_id="m.id", marker="text")
    assert wire.misfit({"text": "x"}) is None
    assert wire.misfit({"text": "x", "m": {"other": 1}}) is None


_MADE = HttpListing("/notes?since={since}", matches="id")


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ({"headers": {"authorization": "Bearer x"}}, "has credentials in its headers"),
        ({"auth": "webhook"}, "signs webhooks but its key does not go into webhook-id"),
        ({"listing": replace(_MADE, path="/notes"), "external_id": "id"}, "without saying since when"),
        ({"look_up": replace(_MADE, matches=""), "external_id": "id"}, "can't tell what of it"),
        ({"listing": _MADE}, "can't tell what of it"),
    ],
)
def test_a_wire_that_can_not_do_what_it_says(wire: dict[str, Any], says: str) -> None:
    assert says in HttpWire(**{"method": "POST", "path": "/", **wire}).unusable()


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"look_up": _MADE, "external_id": "id"},
        {"listing": replace(_MADE, matches=""), "marker": "text"},
        {"look_up": HttpLookUp("/notes/{key}")},
        {"auth": "webhook", "key_header": "webhook-id"},
    ],
)
def test_a_wire_that_can(wire: dict[str, Any]) -> None:
    assert HttpWire(**{"method": "POST", "path": "/", **wire}).unusable() == ""


def test_a_time_is_written_as_the_receiver_reads_it() -> None:
    since = datetime(2026, 12, 1, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert _MADE.address(since) == "/notes?since=2026-12-01T12%3A00%3A00Z"
    unix = replace(_MADE, time="unix")
    assert unix.address(since) == f"/notes?since={datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp():.0f}"


@pytest.mark.parametrize(
    ("mask", "shown"), [((), True), (("meta.kind",), False), (("meta",), False), (("metal",), True)]
)
def test_a_difference_is_told_without_what_is_protected(mask: tuple[str, ...], shown: bool) -> None:
    promise: EffectContract = replace(promises.offer, mask=mask)
    told = differs(promise, {"meta.kind": "k"}, {"meta": {"kind": "secret"}})
    assert "meta.kind" in told
    assert ("secret" in told) == shown


def test_a_flag_is_no_number() -> None:
    assert differs(promises.offer, {"n": 1}, {"n": True})
    assert differs(promises.offer, {"n": 1}, {"n": 1.0}) == ""
    assert differs(promises.offer, {"n": 1}, {}) == "The receiver says n is None, but 1 was sent"


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        ({"error": "taken", "message": "There is one"}, "There is one", "taken"),
        ({"error": {"type": "card_error", "code": "declined", "message": "No"}}, "No", "declined"),
        ({"error": {"type": "idempotency_error", "message": "Used"}}, "Used", "idempotency_error"),
        (
            {"type": "https://e.example", "title": "Key is used", "detail": "Twice"},
            "Twice",
            "https://e.example",
        ),
        ({"error": "RecordInvalid", "description": "Bad"}, "Bad", "RecordInvalid"),
        ([{"message": "Bad field", "errorCode": "INVALID"}], "Bad field", ""),
        ({"error": None, "code": 7}, "", ""),
        ([], "", ""),
        (None, "", ""),
        ("words", "", ""),
    ],
)
def test_what_a_receiver_says_is_found_where_it_says_it(answer: Any, words: str, code: str) -> None:
    assert said(answer) == words
    assert error_code(answer) == code


def test_an_objects_own_id_and_the_keys_that_it_bears() -> None:
    wire = HttpWire(method="POST", path="/", reference="a.id", external_id="m.id")
    assert reference_of(wire, {"a": {"id": 7}}, KEY) == "7"
    assert reference_of(wire, {"a": {"id": True}}, KEY) == reference_of(wire, {"a": 1}, KEY) == ""
    assert reference_of(replace(wire, reference=""), {}, KEY) == KEY
    assert keys_of(wire, "m.id", {"m": {"id": KEY}}) == [KEY]
    assert keys_of(wire, "m.id", {"m": {"id": 7}}) == keys_of(wire, "m.id", {"m": None}) == []
    assert keys_of(wire, "", {"m": {"id": KEY}}) == []
