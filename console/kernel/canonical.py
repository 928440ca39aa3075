"""One canonical form of a JSON value (RFC 8785), so that the same meaning always gives the same hash.

What Python or JSON can say but two systems may read differently is refused with the path of the field instead of
being guessed: NaN and infinities, numbers that a double cannot hold exactly, naive times, bytes, sets, keys that
are not text, lone surrogates, U+0000. What has one plain meaning is written in one way:

* text and keys in Unicode NFC: people and models type the same word in several encodings;
* aware datetimes as RFC 3339 in UTC with ``Z`` (a fraction only when there is one), dates as ``YYYY-MM-DD``;
* Decimal as its decimal text with the scale it has (``1.50`` is not ``1.5``: for money the scale is a statement);
* tuples as lists; whole floats as integers, so that 1 and 1.0 are the same value and -0.0 is 0.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeAlias

import rfc8785

from console.kernel.errors import BadRequest, Invalid

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"

#: Stored beside every request hash. Raised when the canonical form changes: hashes of two versions do not compare.
HASH_VERSION = 1
#: Containers within containers; more is refused, and so is a value that contains itself.
MAX_DEPTH = 64
#: The largest integer that every JSON implementation reads as the same number.
MAX_INTEGER = 2**53 - 1

_MAX_DECIMAL_DIGITS = 1000
_MAX_SHOWN_KEY = 80
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Uncanonical(Invalid):
    """A value has no canonical form. ``path`` names the field as ``lines[2].price``, empty for the value itself.

    Neither ``problem`` nor the message repeats the value.
    """

    code = "uncanonical"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'The value'}: {problem}", field=path or None, errors=[(path, problem)])
        self.args = (path, problem)
        self.path = path
        self.problem = problem


def canonicalise(value: object) -> bytes:
    """The canonical UTF-8 text of ``value``: equal bytes exactly when the values mean the same.

    Takes a JSON value, or one that also has tuples, mappings, aware datetimes, dates and Decimals. The whole value is checked
    before the first byte is made. Raises :class:`Uncanonical` for the first field that has no canonical form.
    """
    return rfc8785.dumps(to_plain(value))


def to_plain(value: object) -> JSONValue:
    """The JSON value whose canonical text :func:`canonicalise` gives: ``parse_json(canonicalise(v)) == to_plain(v)``.

    A new value that shares nothing with the old one. Raises :class:`Uncanonical` as canonicalise does.
    """
    return _plain(value, (), 0)


def request_hash(canonical: bytes) -> str:
    """``sha256:`` + 64 hex digits over a canonical text; store it with :data:`HASH_VERSION`."""
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def parse_json(data: bytes | str) -> JSONValue:
    """Reads JSON text strictly: UTF-8, no duplicate keys, no NaN or Infinity, at most 64 levels.

    Integers of any size stay exact, and text stays as it is (decomposed, with U+0000 or lone surrogates), so that
    :func:`canonicalise` can name what it refuses. Pass what goes into the database through :func:`to_plain`.

    Raises BadRequest for text that is not JSON, :class:`Uncanonical` for JSON with more than one reading.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        raw = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_Constant)
    except RecursionError:
        raise Uncanonical("", _TOO_DEEP) from None
    except UnicodeDecodeError:
        raise BadRequest("The text is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The text is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise BadRequest("The JSON text has a number with too many digits.") from None
    return _checked(raw, (), 0)


_TOO_DEEP = f"there are objects or lists nested deeper than {MAX_DEPTH} levels"


#: Keys and indices from the top; turned into text only when a field is refused.
_Path: TypeAlias = tuple[str | int, ...]


class _Pairs(list[tuple[str, object]]):
    """A JSON object as read: its pairs in order, duplicates and all, so that a refusal can name the path."""


class _Constant(str):
    """NaN, Infinity or -Infinity as read."""

    __slots__ = ()


def _checked(raw: object, path: _Path, depth: int) -> JSONValue:
    if isinstance(raw, _Pairs):
        _check_depth(path, depth)
        return _checked_object(raw, path, depth)
    if isinstance(raw, list):
        _check_depth(path, depth)
        return [_checked(item, (*path, index), depth + 1) for index, item in enumerate(raw)]
    if isinstance(raw, _Constant):
        raise _refusal(path, f"{raw} is not a JSON number")
    if isinstance(raw, float) and math.isinf(raw):
        raise _refusal(path, "the number is too large; send it as a string")
    assert raw is None or isinstance(raw, bool | int | float | str)
    return raw


def _checked_object(pairs: Iterable[tuple[str, object]], path: _Path, depth: int) -> dict[str, JSONValue]:
    result: dict[str, JSONValue] = {}
    for key, item in pairs:
        inner = (*path, key)
        if key in result:
            raise _refusal(inner, "the key is there twice")
        result[key] = _checked(item, inner, depth + 1)
    return result


def _plain(value: object, path: _Path, depth: int) -> JSONValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(value, path)
    if isinstance(value, int):
        return _plain_integer(int(value), path)
    if isinstance(value, float):
        return _plain_float(float(value), path)
    if isinstance(value, Mapping):
        _check_depth(path, depth)
        return _plain_object(value, path, depth)
    if isinstance(value, list | tuple):
        _check_depth(path, depth)
        return [_plain(item, (*path, index), depth + 1) for index, item in enumerate(value)]
    return _plain_scalar(value, path)


def _plain_object(value: Mapping[object, object], path: _Path, depth: int) -> dict[str, JSONValue]:
    result: dict[str, JSONValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _refusal(path, f"a key is {_type_name(key)}, not text")
        inner = (*path, key)
        name = _plain_text(key, inner)
        if name in result:
            raise _refusal(inner, "two keys are the same text in different Unicode spellings")
        result[name] = _plain(item, inner, depth + 1)
    return result


def _plain_text(value: str, path: _Path) -> str:
    if _SURROGATE.search(value):
        raise _refusal(path, "the text holds half of a surrogate pair, which is not a character")
    if "\x00" in value:
        raise _refusal(path, "the text holds the character U+0000, which cannot be stored")
    # str.__str__ because normalize hands back a subclass (an enumeration, a SafeString) that needs no change.
    return unicodedata.normalize("NFC", str.__str__(value))


def _plain_integer(value: int, path: _Path) -> int:
    if abs(value) > MAX_INTEGER:
        raise _refusal(path, "the number is beyond 2^53 - 1 and would lose digits; send it as a string")
    return value


def _plain_float(value: float, path: _Path) -> float | int:
    if not math.isfinite(value):
        raise _refusal(path, "NaN and infinities are not JSON numbers")
    # Every double this large is whole, so the rule for integers is the rule for it.
    return _plain_integer(int(value), path) if value.is_integer() else value


def _plain_scalar(value: object, path: _Path) -> str:
    if isinstance(value, datetime):
        return _plain_datetime(value, path)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain_decimal(value, path)
    raise _refusal(path, f"{_type_name(value)} has no JSON form; send text or a number")


def _plain_datetime(value: datetime, path: _Path) -> str:
    if value.utcoffset() is None:
        raise _refusal(path, "the time has no time zone")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise _refusal(path, "the time is outside the years 1 to 9999 in UTC") from None


def _plain_decimal(value: Decimal, path: _Path) -> str:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise _refusal(path, "NaN and infinities are not JSON numbers")
    if abs(exponent) + len(value.as_tuple().digits) > _MAX_DECIMAL_DIGITS:
        raise _refusal(path, f"the number has more than {_MAX_DECIMAL_DIGITS} digits")
    return format(abs(value) if value.is_zero() else value, "f")


def _check_depth(path: _Path, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise _refusal(path, _TOO_DEEP)


def _refusal(path: _Path, problem: str) -> Uncanonical:
    return Uncanonical("".join(map(_step, path)).removeprefix("."), problem)


def _step(step: str | int) -> str:
    """``.name`` or ``[2]``; a key that is no plain name is written as ``["odd key"]``."""
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) > _MAX_SHOWN_KEY:
        step = step[:_MAX_SHOWN_KEY] + "…"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"


def _type_name(value: object) -> str:
    return f"a value of type {type(value).__name__}"
