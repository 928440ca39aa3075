"""The template tags of every page: ``{% load ui %}``.

All output is escaped here; text of agents and customers passes through ``reveal_hidden``, so that characters which
hide or turn round what they stand beside are seen. Nothing here reads the database.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.forms import BoundField, CheckboxInput
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.kernel.masking import is_masked
from console.kernel.timeline import elapsed
from console.kernel.words import (
    KINDS,
    MASKED,
    MODES,
    REVIEW_REASONS,
    Word,
    failure_sentence,
    failure_title,
    word,
)

register = template.Library()

NOTHING = mark_safe('<span class="faint" aria-label="none">–</span>')


# -- signs ------------------------------------------------------------------------------------------------------


@register.simple_tag
def icon(name: str, label: str = "", size: str = "") -> SafeString:
    """One symbol of static/icons/sprite.svg. With ``label`` screen readers hear it; without it the icon is decoration.

    ``size="s"`` is the small one.
    """
    classes = f"icon icon--{name}" + (f" icon--{size}" if size else "")
    use = format_html('<use href="{}#{}"></use>', static("icons/sprite.svg"), name)
    if label:
        return format_html('<svg class="{}" role="img" aria-label="{}">{}</svg>', classes, label, use)
    return format_html('<svg class="{}" aria-hidden="true" focusable="false">{}</svg>', classes, use)


@register.simple_tag
def state(code: object, table: str = "", *, sub: object = "", look: str = "", note: str = "") -> SafeString:
    """A status as icon, word and colour.

    ``table`` says whose status it is (run, effect, attempt, approval, step, review), for codes that several know.
    ``sub`` is a sub-state or a flag that is said instead of the status when it is set ("uncertain", "pausing").
    ``look``: empty for a line in a table, "chip", "big" for a head, "mark" for the sign alone (the word stays for
    screen readers). ``note`` follows the word in a fainter ink.
    """
    known = word(str(sub or code or ""), table)
    classes = f"state tone--{known.tone}"
    if look:
        classes += f" state--{look}" + (" state--chip" if look == "big" else "")
    if look == "mark":
        return format_html(
            '<span class="{}" title="{}">{}</span>', classes, known.text, icon(known.icon, known.text)
        )
    tail = format_html(' <span class="state__note">{}</span>', note) if note else ""
    return format_html(
        '<span class="{}">{}<span>{}</span>{}</span>', classes, icon(known.icon), known.text, tail
    )


@register.simple_tag
def state_word(code: object, table: str = "") -> str:
    """The word of a status alone, for sentences, titles and options."""
    return word(str(code or ""), table).text


@register.simple_tag
def state_of(code: object, table: str = "") -> Word:
    """The Word itself (text, icon, tone), for components that draw their own: ``{% state_of x "run" as w %}``."""
    return word(str(code or ""), table)


@register.filter
def kind_word(code: object) -> str:
    """Original, Replay, Branch."""
    return KINDS.get(str(code), str(code))


@register.filter
def mode_word(code: object) -> str:
    """Live, Simulation, Evidence."""
    return MODES.get(str(code), str(code))


@register.filter
def review_reason(code: object) -> str:
    """Why a review is open, as a sentence; an unknown reason reads as itself."""
    return REVIEW_REASONS.get(str(code), str(code))


@register.simple_tag(name="failure_title")
def failure_title_tag(code: object) -> str:
    """A failure code in a few words."""
    return failure_title(str(code or ""))


@register.simple_tag
def failure(code: object, it: object = "") -> str:
    """A failure code as a sentence; ``it`` is the receiver, node or effect type that the run names."""
    return failure_sentence(str(code or ""), str(it or ""))


# -- ids, times, amounts ----------------------------------------------------------------------------------------

ID_START, ID_END = 4, 4


def middle_cut(value: str) -> str:
    """run_01J…4K2F: the prefix, the first and the last few characters; short ids stay whole."""
    prefix, dash, rest = value.partition("_")
    head = prefix + dash if dash else ""
    body = rest if dash else value
    if len(body) <= ID_START + ID_END + 2:
        return value
    return f"{head}{body[:ID_START]}…{body[-ID_END:]}"


@register.simple_tag(name="id")
def id_chip(value: object, href: str = "", copy: bool = True) -> SafeString:
    """An id: middle-cut, whole on focus and on hover, with a copy button; a link where ``href`` is given.

    ``copy=False`` leaves the button out, for rows whose link already leads to the thing.
    """
    text = str(value or "")
    if not text:
        return NOTHING
    parts = format_html(
        '<span class="id__short" aria-hidden="true">{}</span><span class="id__full">{}</span>',
        middle_cut(text),
        text,
    )
    spoken = f"Copy {text}"
    if not href and not copy:
        return format_html('<span class="id" title="{}">{}</span>', text, parts)
    if not href:
        return format_html(
            '<button type="button" class="id" data-copy="{}" title="{}" aria-label="{}">{}{}</button>',
            text, text, spoken, parts, icon("copy"),
        )  # fmt: skip
    link = format_html('<a href="{}" title="{}" aria-label="{}">{}</a>', href, text, text, parts)
    return format_html('<span class="id">{}{}</span>', link, copy_button(text, spoken) if copy else "")


@register.simple_tag
def copy_button(value: object, label: str = "Copy") -> SafeString:
    """A small button that copies ``value``; not shown without a script."""
    return format_html(
        '<button type="button" class="copy needs-js" data-copy="{}" title="{}" aria-label="{}">{}</button>',
        str(value), label, label, icon("copy"),
    )  # fmt: skip


def utc_words(moment: datetime) -> str:
    """2026-11-30 20:38:23 UTC"""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(moment: datetime, now: datetime, bare: bool = False) -> str:
    """now, 12 s ago, 4 min ago, 3 h ago, in 2 d; a date beyond thirty days. ``bare`` drops "ago" and "in".

    static/js/app.js says the same words while the page stays open.
    """
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    if size >= 30 * 86400:
        return f"{moment.astimezone(UTC):%d %b %Y}".lstrip("0")
    if size < 5:
        return "0 s" if bare else "now"
    if size < 60:
        text = f"{int(size)} s"
    elif size < 3600:
        text = f"{int(size // 60)} min"
    elif size < 86400:
        text = f"{int(size // 3600)} h"
    else:
        text = f"{int(size // 86400)} d"
    if bare:
        return text
    return f"{text} ago" if seconds > 0 else f"in {text}"


@register.simple_tag(name="time")
def time_tag(moment: datetime | None, look: str = "relative") -> SafeString:
    """A moment, with the exact UTC on hover. ``look``: "relative" (4 min ago), "age" (4 min), "exact" or "clock".

    The exact looks are in UTC until the script puts them into the viewer's zone. A moment without a zone is a bug of
    the caller: it raises ValueError.
    """
    if moment is None:
        return NOTHING
    if timezone.is_naive(moment):
        raise ValueError("a time without a zone cannot be shown")
    exact = utc_words(moment)
    text = {
        "exact": exact,
        "clock": exact[11:19],
        "age": relative(moment, timezone.now(), bare=True),
    }.get(look) or relative(moment, timezone.now())
    stamp = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return format_html('<time datetime="{}" title="{}" data-time="{}">{}</time>', stamp, exact, look, text)


@register.filter
def duration(length: timedelta | float | Decimal | None) -> SafeString:
    """A length of time (a timedelta, or seconds) in two units at most: 0.8 s, 3 min 20 s."""
    if length is None:
        return NOTHING
    delta = length if isinstance(length, timedelta) else timedelta(seconds=float(length))
    return format_html('<span class="num">{}</span>', elapsed(delta))


# ISO 4217: the currencies whose minor unit is not a hundredth.
NO_MINOR = frozenset(
    [
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    ]
)
THOUSANDTHS = frozenset(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"])
CURRENCY = re.compile(r"[A-Z]{3}")


def money_words(minor: int, currency: str) -> str:
    """1240000, "EUR" → 12,400.00 EUR: integer arithmetic, never a float."""
    places = 0 if currency in NO_MINOR else 3 if currency in THOUSANDTHS else 2
    sign = "−" if minor < 0 else ""
    whole, rest = divmod(abs(minor), 10**places)
    tail = f".{rest:0{places}d}" if places else ""
    return f"{sign}{whole:,}{tail} {currency}"


@register.simple_tag
def money(minor: object, currency: object) -> SafeString:
    """An amount in minor units with its currency. What is not a whole number is shown as it is, marked: an amount is
    never guessed."""
    if minor is None:
        return NOTHING
    code = str(currency)
    if isinstance(minor, bool) or not isinstance(minor, int) or not CURRENCY.fullmatch(code):
        return format_html(
            '<span class="num" title="not an amount in minor units">{} {} (?)</span>', str(minor), code
        )
    return format_html('<span class="num">{}</span>', money_words(minor, code))


@register.filter
def pct(value: float) -> str:
    """A percentage for an SVG attribute: 12.5 → "12.5%", whatever the locale."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


# -- text that may hide something -------------------------------------------------------------------------------

NAMES = {
    "\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\u200e": "LRM", "\u200f": "RLM", "\u202a": "LRE", "\u202b": "RLE",
    "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO", "\u2060": "WJ", "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI",
    "\u2069": "PDI", "\ufeff": "BOM", "\u00ad": "SHY", "\u061c": "ALM",
}  # fmt: skip
# Not of a hidden category, and yet nothing to be seen: fillers, the braille blank, the joiner of graphemes.
BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f")
SELECTORS = frozenset(chr(c) for c in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
HIDDEN_KINDS = frozenset({"Cf", "Cc", "Cs", "Co", "Zl", "Zp"})
PLAIN_CONTROLS = frozenset("\n\t\r")
ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _is_pictograph(char: str) -> bool:
    return bool(char) and (unicodedata.category(char) in {"So", "Sk"} or char in "#*0123456789©®‼⁉™↔↕")


def _is_joining_script(char: str) -> bool:
    """Arabic to Sinhala: scripts in which the joiners are spelling."""
    return "\u0600" <= char <= "\u0dff" and unicodedata.category(char)[0] in "LM"


def _is_hidden(text: str, at: int) -> bool:
    char = text[at]
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    if char in SELECTORS:  # one selector after a pictograph is how emoji are spelled; more carry a message
        return not (char in "\ufe0e\ufe0f" and _is_pictograph(before))
    if char == "\u200d" and (_is_pictograph(before) or before == "\ufe0f") and _is_pictograph(after):
        return False
    if char in "\u200c\u200d" and _is_joining_script(before):
        return False
    return char in BLANK or (unicodedata.category(char) in HIDDEN_KINDS and char not in PLAIN_CONTROLS)


def _mark(char: str) -> SafeString:
    point = f"U+{ord(char):04X}"
    name = unicodedata.name(char, "control character").lower()
    return format_html(
        '<span class="hidden-char" title="{}, {}">{}</span>', name, point, NAMES.get(char, point)
    )


def hidden_count(value: object) -> int:
    """How many characters of a text cannot be seen or turn its direction."""
    text = str(value)
    return 0 if _is_plain(text) else sum(_is_hidden(text, at) for at in range(len(text)))


def _is_plain(text: str) -> bool:
    """The quick answer for most texts: ASCII without controls hides nothing."""
    return text.isascii() and not ASCII_CONTROL.search(text)


@register.filter
def has_hidden(value: object) -> bool:
    """Whether a text holds invisible or direction-turning characters."""
    return hidden_count(value) > 0


@register.filter
def reveal_hidden(value: object) -> SafeString:
    """Text, escaped, in which each invisible or direction-turning character stands as a visible mark."""
    text = "" if value is None else str(value)
    if _is_plain(text):
        return escape(text)
    out: list[str] = []
    start = 0
    for at in range(len(text)):
        if _is_hidden(text, at):
            out += [escape(text[start:at]), _mark(text[at])]
            start = at + 1
    return mark_safe("".join([*out, escape(text[start:])]))  # noqa: S308  every part is escaped above


@register.simple_tag
def hidden_warning(*values: object) -> SafeString:
    """A warning where any of the texts hides characters; nothing otherwise. Goes above what a person decides on."""
    count = sum(hidden_count(value) for value in values if isinstance(value, str))
    return _warning(count)


def _warning(count: int) -> SafeString:
    if not count:
        return SafeString("")
    words = "One hidden character" if count == 1 else f"{count} hidden characters"
    return format_html(
        '<p class="notice tone--warn" role="note">{}<span><span class="notice__title">{}</span> '
        "in this text. They are shown as marks: read it as it stands here.</span></p>",
        icon("triangle-alert"), words,
    )  # fmt: skip


# -- values as trees --------------------------------------------------------------------------------------------

LONG = 160
MAX_TEXT = 20_000
MAX_NODES = 600
MAX_DEPTH = 24
PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class _Budget:
    """What is left to draw; shared by the whole tree, so that a hostile value cannot make an endless page."""

    nodes: int
    depth: int
    open_to: int
    cut: bool = False
    hidden: int = 0


@register.simple_tag
def tree(
    value: object, open_to: int = 2, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH
) -> SafeString:
    """A JSON value as an open-and-shut tree: exact numbers, long text folded, masks as masks, a button for each path.

    Draws at most ``max_nodes`` values and ``max_depth`` levels, and says so when that leaves something out.
    ``open_to`` levels stand open at first.
    """
    budget = _Budget(max_nodes, max_depth, open_to)
    body = _node(value, "", "", 0, budget)
    note = (
        mark_safe('<p class="tree__more">Shown partly: the value is larger than what a page can hold.</p>')
        if budget.cut
        else ""
    )
    return format_html('{}<ul class="tree">{}</ul>{}', _warning(budget.hidden), body, note)


def _node(value: object, key: str, path: str, level: int, budget: _Budget) -> SafeString:
    budget.nodes -= 1
    budget.hidden += hidden_count(key)
    label = format_html('<span class="tree__key">{}</span>', reveal_hidden(key)) if key else SafeString("")
    if is_masked(value):
        return format_html('<li class="leaf">{}{}</li>', label, masked(value))
    if isinstance(value, Mapping):
        pairs = [(str(k), _join(path, str(k)), v) for k, v in value.items()]
        return _branch(pairs, "{}", ("field", "fields"), label, path, level, budget)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        pairs = [(str(n), f"{path}[{n}]", v) for n, v in enumerate(value)]
        return _branch(pairs, "[]", ("item", "items"), label, path, level, budget)
    return format_html('<li class="leaf">{}{} {}</li>', label, _leaf(value, budget), _path_button(path))


def _branch(
    pairs: Sequence[tuple[str, str, object]], empty: str, unit: tuple[str, str], label: SafeString,
    path: str, level: int, budget: _Budget,
) -> SafeString:  # fmt: skip
    if not pairs:
        return format_html('<li class="leaf">{}<span class="tree__size">{}</span></li>', label, empty)
    size = f"{len(pairs):,} {unit[0] if len(pairs) == 1 else unit[1]}"
    if level >= budget.depth:
        budget.cut = True
        return format_html(
            '<li class="leaf">{}<span class="tree__more">{}, not shown</span></li>', label, size
        )
    rows: list[SafeString] = []
    for key, below, value in pairs:
        if budget.nodes <= 0:
            budget.cut = True
            left = len(pairs) - len(rows)
            rows.append(format_html('<li class="leaf tree__more">{} more, not shown</li>', f"{left:,}"))
            break
        rows.append(_node(value, key, below, level + 1, budget))
    return format_html(
        '<li class="branch"><details{}><summary>{}<span class="tree__size">{}</span></summary><ul>{}</ul></details>{}</li>',
        mark_safe(" open") if level < budget.open_to else "",
        label,
        size,
        format_html_join("", "{}", ((row,) for row in rows)),
        _path_button(path),
    )


@register.filter
def masked(value: object) -> SafeString:
    """A marker of console.kernel.masking as a person reads it: that something is there, and how long a text it is."""
    marker = value if isinstance(value, Mapping) else {}
    length = marker.get("length")
    note = f"{length:,} characters" if isinstance(length, int) else str(marker.get("kind", ""))
    return format_html('<span class="tree__mask">{}<span class="tree__size"> {}</span></span>', MASKED, note)


def _leaf(value: object, budget: _Budget) -> SafeString:
    if value is None or isinstance(value, bool):
        return format_html('<span class="tree__lit">{}</span>', json.dumps(value))
    if isinstance(value, int | float | Decimal):
        return format_html('<span class="tree__num">{}</span>', str(value))
    text = value if isinstance(value, str) else str(value)
    budget.hidden += hidden_count(text)
    if len(text) <= LONG and "\n" not in text:
        return format_html('<span class="tree__str">“{}”</span>', reveal_hidden(text))
    first = text.split("\n", 1)[0][:80]
    size = f"{len(text):,} characters"
    if len(text) > MAX_TEXT:
        budget.cut = True
        text, size = text[:MAX_TEXT], f"{size}, the first {MAX_TEXT:,} shown"
    return format_html(
        '<details><summary><span class="tree__str">“{}…</span> <span class="tree__size">{}</span></summary>'
        '<div class="tree__long">{}</div></details>',
        reveal_hidden(first), size, reveal_hidden(text),
    )  # fmt: skip


def _join(path: str, key: str) -> str:
    if PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key, ensure_ascii=True)}]"


def _path_button(path: str) -> SafeString:
    return copy_button(path, f"Copy the path {path}") if path else SafeString("")


# -- lineage ----------------------------------------------------------------------------------------------------

#: Runs made of runs made of runs …: from here on they stand below one another, each with whose it is.
DEEPEST = 8


@dataclass(frozen=True)
class LineageRow:
    """One run of a lineage in the order of reading. *opens* a list of its own; *closes*: a step for each list that ends."""

    node: Mapping[str, Any]
    opens: bool
    closes: range
    cut: bool


@register.filter
def lineage_rows(root: object) -> list[LineageRow]:
    """A tree of runs, flat: neither the template nor the page nests as deep as a lineage may."""
    if not isinstance(root, Mapping):
        return []
    found: list[tuple[Mapping[str, Any], int]] = []
    stack: list[tuple[Mapping[str, Any], int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        found.append((node, depth))
        stack += [(child, depth + 1) for child in reversed(node.get("children") or [])]
    rows = []
    for index, (node, depth) in enumerate(found):
        here = min(depth, DEEPEST)
        after = min(found[index + 1][1], DEEPEST) if index + 1 < len(found) else 0
        rows.append(LineageRow(node, after > here, range(max(here - after, 0)), depth > DEEPEST))
    return rows


# -- forms and levers -------------------------------------------------------------------------------------------


@register.inclusion_tag("components/field.html")
def field(bound: BoundField, hint: str | None = None, mono: bool = False) -> dict[str, Any]:
    """A form field with label, hint and errors, tied together for screen readers. ``hint`` replaces the help text; empty, there is none."""
    text = str(bound.help_text or "") if hint is None else hint
    base = bound.id_for_label or bound.html_name
    described = [f"{base}_hint"] if text else []
    described += [f"{base}_error"] if bound.errors else []
    attrs: dict[str, Any] = {}
    if described:
        attrs["aria-describedby"] = " ".join(described)
    if bound.errors:
        attrs["aria-invalid"] = "true"
    if mono:
        attrs["class"] = f"{bound.field.widget.attrs.get('class', '')} mono".strip()
    return {
        "bound": bound,
        "widget": bound.as_widget(attrs=attrs),
        "hint": text,
        "base": base,
        "check": isinstance(bound.field.widget, CheckboxInput),
        "group": bound.field.widget.use_fieldset,
    }


@register.simple_tag
def disabled_reason(label: str, reason: str, sign: str = "") -> SafeString:
    """A lever that cannot be pulled now: in its place, reachable by keyboard, with the reason in words."""
    return format_html(
        '<button type="button" class="button is-off" aria-disabled="true">{}{}<span class="button__why">{}</span></button>',
        icon(sign) if sign else "", label, reason,
    )  # fmt: skip


@register.filter
def day(value: date | None) -> str:
    """30 Nov 2026"""
    return f"{value:%d %b %Y}".lstrip("0") if value else "–"
