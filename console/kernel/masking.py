"""Masked views: copies of JSON values in which protected fields are replaced by a marker.

Which fields are protected is said by paths (a contract's or a state schema's). The grammar:

    customer.email        the key ``email`` in the object ``customer``
    lines[2].price        the third item;  ``lines[].price`` or ``lines[*].price``: every item
    customer.*            one step of any name (and, to be on the safe side, of any index)
    **.email              ``email`` at any depth, the top included; steps of ``**`` may be keys and indices
    customer.**           ``customer`` itself with everything in it
    ["odd.key"].x         a key with other characters than a plain name has, as a JSON string

A marker says what kind of value stood there and how long a text was, never a digest: small values (a birthday, a
price, a telephone number) can be found again from one by trying.
"""

from __future__ import annotations

import base64
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from console.kernel.canonical import JSONValue

MASK_KEY: Final = "__masked__"
#: What stands in a free text in the place of a secret.
SECRET_MARK: Final = "•••••"  # noqa: S105 - it is what is shown instead of one

_ESCAPED = re.compile(rf"\\*{MASK_KEY}")
_NAME = re.compile(r"""[^.\[\]*"'\s$\\][^.\[\]*"'\s\\]*""")
_INDEX = re.compile(r"\[(\*?|\d+)\]")
_QUOTED = re.compile(r'\["(?:[^"\\]|\\.)*"\]')
# Shorter pieces of base64 turn up by chance in any text.
_MIN_BASE64 = 6


class Masked(dict[str, JSONValue]):
    """The marker in the place of a protected value: ``{"__masked__": true, "kind": …}``, for texts ``"length"`` too.

    ``kind`` is text, number, flag, list, object or nothing. As JSON it is an ordinary object that
    :func:`is_masked` knows again.
    """

    def __init__(self, value: JSONValue) -> None:
        super().__init__({MASK_KEY: True, "kind": _kind(value)})
        if isinstance(value, str):
            self["length"] = len(value)


class _Wildcard:
    """A step of a path that is not one name or index."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_ANY: Final = _Wildcard("*")
_ANY_INDEX: Final = _Wildcard("[]")
_DEEP: Final = _Wildcard("**")

_Step: TypeAlias = str | int | _Wildcard
#: What is left of the paths at one place of the value. An empty rest means: mask what stands here.
_Rests: TypeAlias = frozenset[tuple[_Step, ...]]


class Paths:
    """Paths that were checked by :func:`compile_paths`."""

    def __init__(self, rests: _Rests) -> None:
        self._rests = rests

    def mask(self, value: JSONValue) -> JSONValue:
        """As :func:`mask`."""
        return _masked(value, self._rests)

    def protected(self, value: JSONValue) -> Iterator[JSONValue]:
        """The values that :meth:`mask` would replace, outermost ones only, in the order of the value."""
        return _protected(value, self._rests)


def compile_paths(paths: Sequence[str]) -> Paths:
    """Checks the grammar and prepares the paths; call it when a contract or schema is loaded.

    Raises ValueError that names the path which does not parse, TypeError for one text instead of a list of texts
    (whose letters would be taken for paths).
    """
    if isinstance(paths, str):
        raise TypeError("the paths are a list of texts, not one text")
    return _compiled(tuple(paths))


def mask(value: JSONValue, paths: Sequence[str]) -> JSONValue:
    """A deep copy of ``value`` in which every value at one of ``paths`` is a :class:`Masked` marker.

    A path that finds nothing masks nothing. Keys are compared in Unicode NFC. What came in with the key
    ``__masked__`` leaves with a backslash before it, so that nobody can pass off a value as masked; a marker of an
    earlier call stays as it is.

    Raises ValueError and TypeError as :func:`compile_paths` does, and TypeError for what is not a JSON value: an
    object of another type could hide a protected one.
    """
    return compile_paths(paths).mask(value)


def is_masked(value: object) -> bool:
    """Whether ``value``, taken from what :func:`mask` returned, is a marker. Says nothing about other values."""
    return isinstance(value, dict) and value.get(MASK_KEY) is True


def protected_texts(value: JSONValue, paths: Sequence[str]) -> list[str]:
    """Every text at or under one of ``paths``: what :func:`mask_text_secrets` has to find in free texts about ``value``."""
    return [text for found in compile_paths(paths).protected(value) for text in _texts(found)]


def mask_text_secrets(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every occurrence of a secret replaced by :data:`SECRET_MARK`.

    Finds a secret as it is, with any of its characters written as URL, JSON, Python or HTML escapes, and, from about
    five bytes on, inside base64 and base64url text at any offset (``Authorization: Basic …``). Overlapping finds
    are replaced as one. Empty secrets are ignored; a secret of one or two characters takes much else with it.
    """
    pieces: list[str] = []
    shown_to = 0
    for start, end in _merged(span for secret in set(secrets) if secret for span in _spans(text, secret)):
        pieces += (text[shown_to:start], SECRET_MARK)
        shown_to = end
    return "".join((*pieces, text[shown_to:]))


@lru_cache(maxsize=512)
def _compiled(paths: tuple[str, ...]) -> Paths:
    return Paths(_closed(_parse(path) for path in paths))


def _parse(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    position = 0
    while position < len(path) or not steps:
        step, position = _next_step(path, position, first=not steps)
        steps.append(step)
    return tuple(steps)


def _next_step(path: str, position: int, *, first: bool) -> tuple[_Step, int]:
    """The step that begins at ``position``, and where the next one does."""
    if quoted := _QUOTED.match(path, position):
        return _quoted_name(path, quoted), quoted.end()
    if index := _INDEX.match(path, position):
        inner = index.group(1)
        return int(inner) if inner.isdigit() else _ANY_INDEX, index.end()
    if not first:
        if not path.startswith(".", position):
            raise _unparsable(path, position)
        position += 1
    for wildcard in (_DEEP, _ANY):
        if path.startswith(repr(wildcard), position):
            return wildcard, position + len(repr(wildcard))
    if name := _NAME.match(path, position):
        return _nfc(name.group()), name.end()
    raise _unparsable(path, position)


def _quoted_name(path: str, quoted: re.Match[str]) -> str:
    try:
        return _nfc(str(json.loads(quoted.group()[1:-1])))
    except ValueError:
        raise _unparsable(path, quoted.start()) from None


def _unparsable(path: str, position: int) -> ValueError:
    return ValueError(
        f"mask path {path!r} does not parse at character {position + 1}: expected a name, *, **, [], [2] or "
        '["odd key"], with dots between names'
    )


def _closed(rests: Iterable[tuple[_Step, ...]]) -> _Rests:
    """With each rest that begins with ``**`` also the one without it: ``**`` may stand for no step at all."""
    closed: set[tuple[_Step, ...]] = set()
    for rest in rests:
        closed.add(rest)
        while rest and rest[0] is _DEEP:
            rest = rest[1:]
            closed.add(rest)
    return frozenset(closed)


def _after(rests: _Rests, step: str | int) -> _Rests:
    """What is left of the paths one step further in."""
    if not rests:
        return rests
    name = _nfc(step) if isinstance(step, str) else step
    return _closed(rest if rest[0] is _DEEP else rest[1:] for rest in rests if rest and _fits(rest[0], name))


def _fits(pattern: _Step, step: str | int) -> bool:
    if isinstance(pattern, _Wildcard):
        return pattern is not _ANY_INDEX or isinstance(step, int)
    return pattern == step


def _masked(value: JSONValue, rests: _Rests) -> JSONValue:
    if isinstance(value, Masked):
        return value
    if () in rests:
        return Masked(value)
    if isinstance(value, dict):
        return {_escaped(key): _masked(item, _after(rests, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, _after(rests, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _protected(value: JSONValue, rests: _Rests) -> Iterator[JSONValue]:
    if () in rests:
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _protected(item, _after(rests, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _protected(item, _after(rests, index))


def _texts(value: JSONValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _escaped(key: str) -> str:
    """One backslash more for ``__masked__`` with any number of them: no two keys become the same one."""
    return f"\\{key}" if _ESCAPED.fullmatch(key) else key


def _kind(value: JSONValue) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "flag"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
        case dict():
            return "object"


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans in order, those that touch or overlap as one."""
    current: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if current is not None and start <= current[1]:
            current = (current[0], max(current[1], end))
            continue
        if current is not None:
            yield current
        current = (start, end)
    if current is not None:
        yield current


def _spans(text: str, secret: str) -> Iterator[tuple[int, int]]:
    for pattern in (_escapes_pattern(secret), _base64_pattern(secret)):
        if pattern is not None:
            # Inside a look-ahead, so that overlapping occurrences are found too.
            yield from (found.span(1) for found in re.finditer(f"(?=({pattern}))", text))


def _escapes_pattern(secret: str) -> str:
    return "".join(map(_character_pattern, secret))


def _character_pattern(character: str) -> str:
    """The character as it is, or as URL, JSON, Python and HTML write it."""
    code = ord(character)
    utf8 = character.encode("utf-8", "surrogatepass")
    utf16 = character.encode("utf-16-be", "surrogatepass").hex()
    units = [utf16[start : start + 4] for start in range(0, len(utf16), 4)]
    forms = {
        re.escape(character),
        re.escape(json.dumps(character, ensure_ascii=False)[1:-1]),
        re.escape(html.escape(character)),
        rf"\\{re.escape(character)}",
        f"(?i:{''.join(f'%{byte:02x}' for byte in utf8)})",
        "(?i:" + "".join(rf"\\x{byte:02x}" for byte in utf8) + ")",
        "(?i:" + "".join(rf"\\u{unit}" for unit in units) + ")",
        rf"(?i:&\#0*{code};|&\#x0*{code:x};)",
    }
    if character == " ":
        forms.add(r"\+")
    return f"(?:{'|'.join(sorted(forms, key=len, reverse=True))})"


def _base64_pattern(secret: str) -> str | None:
    """The secret inside base64 of something longer: three alignments, of each the characters it alone decides."""
    raw = secret.encode("utf-8", "surrogatepass")
    cores = [core for offset in range(3) if len(core := _base64_core(raw, offset)) >= _MIN_BASE64]
    if not cores:
        return None
    # One character more on both sides: it holds some bits of the secret and some of its neighbour.
    forms = "|".join(re.escape(core).replace(r"\+", "[+-]").replace("/", "[/_]") for core in cores)
    return rf"[A-Za-z0-9+/_-]?(?:{forms})[A-Za-z0-9+/_-]?"


def _base64_core(raw: bytes, offset: int) -> str:
    encoded = base64.b64encode(b"\0" * offset + raw).decode()
    return encoded[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6]
