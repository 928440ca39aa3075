"""A payload as people read it: facts, tables and texts first, the whole tree behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.kernel.canonical import JSONValue
from console.kernel.masking import is_masked
from console.kernel.words import MASKED

#: More than this cannot be read on a page: where it is exceeded a payload is not shown whole.
MOST_VALUES = 1_500
LONGEST_TEXT = 20_000
DEEPEST = 24
#: A text of one line up to this length is a fact; a longer one is shown as a text.
ONE_LINE = 120
WIDEST_TABLE = 7

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One value on the page. *minor* and *currency* are set for an amount in minor units."""

    label: str
    value: JSONValue
    minor: int | None = None
    currency: str = ""

    @property
    def is_mask(self) -> bool:
        return self.value == MASKED

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


@dataclass(frozen=True)
class Table:
    label: str
    heads: list[Cell]
    rows: list[list[Cell]]


@dataclass
class Sheet:
    """What a payload says: *amount* when it has one, *facts*, *tables* of flat objects, *texts*; *tree* is all of it.

    *is_whole* says that the page leaves nothing out; *has_masks* that protected values are hidden. *characters* is every text in
    it, for the warning about hidden characters.
    """

    tree: JSONValue
    amount: Cell | None = None
    facts: list[Cell] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    texts: list[Cell] = field(default_factory=list)
    is_whole: bool = True
    has_masks: bool = False
    characters: str = ""


def sheet(
    payload: JSONValue, schema: Schema | None = None, *, without: frozenset[str] = frozenset()
) -> Sheet:
    """*payload* laid out by its values' shapes and the titles of *schema*. *without*: fields that the page says elsewhere."""
    shown = readable(payload)
    made = Sheet(tree=shown, is_whole=fits(payload), has_masks=has_masks(payload))
    made.characters = "\n".join(_texts(shown))
    if not isinstance(shown, dict):
        if shown is not None:
            _place(made, Cell("", shown), {}, "")
        return made
    currency = shown.get("currency")
    code = currency if isinstance(currency, str) else ""
    rules: Schema = (schema or {}).get("properties", {})
    for name, value in shown.items():
        if name in without or (
            name == "currency" and _is_amount("amount_minor", shown.get("amount_minor"), code)
        ):
            continue
        _place(made, _cell(name, value, rules, code), rules.get(name, {}), code)
    return made


def _place(made: Sheet, cell: Cell, rule: Schema, currency: str) -> None:
    value = cell.value
    if cell.minor is not None and made.amount is None:
        made.amount = cell
    elif (rows := _flat_objects(value)) is not None:
        made.tables.append(_table(cell.label, rows, rule.get("items", {}).get("properties", {}), currency))
    elif isinstance(value, str) and (len(value) > ONE_LINE or "\n" in value):
        made.texts.append(cell)
    elif not isinstance(value, dict | list):
        made.facts.append(cell)


def _cell(name: str, value: JSONValue, rules: Schema, currency: str) -> Cell:
    label = str(rules.get(name, {}).get("title") or name.replace("_", " ").capitalize())
    if _is_amount(name, value, currency) and isinstance(value, int):
        return Cell(label.removesuffix(" in minor units").removesuffix(" minor"), value, value, currency)
    return Cell(label, value)


def _is_amount(name: str, value: object, currency: str) -> bool:
    return (
        name.endswith("_minor") and isinstance(value, int) and not isinstance(value, bool) and bool(currency)
    )


def _flat_objects(value: JSONValue) -> list[dict[str, JSONValue]] | None:
    """The rows of a list of objects of plain values with few fields, else None."""
    if not isinstance(value, list) or not value:
        return None
    rows = [item for item in value if isinstance(item, dict)]
    flat = all(not isinstance(one, dict | list) for row in rows for one in row.values())
    names = {name for row in rows for name in row}
    return rows if flat and len(rows) == len(value) and len(names) <= WIDEST_TABLE else None


def _table(label: str, rows: list[dict[str, JSONValue]], rules: Schema, currency: str) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: list(rules).index(name) if name in rules else len(rules))
    cells = [[_cell(name, row.get(name), rules, currency) for name in names] for row in rows]
    return Table(label, cells[0], cells)


def readable(value: JSONValue) -> JSONValue:
    """A copy in which each marker of a protected value is the word that pages show in its place."""
    if is_masked(value):
        return MASKED
    if isinstance(value, dict):
        return {key: readable(one) for key, one in value.items()}
    return [readable(one) for one in value] if isinstance(value, list) else value


def fits(value: JSONValue) -> bool:
    """Whether a page shows all of it: not too many values, none too long, none too deep."""
    return _walk(value, 0, [MOST_VALUES])


def _walk(value: JSONValue, depth: int, left: list[int]) -> bool:
    left[0] -= 1
    if left[0] < 0 or depth > DEEPEST:
        return False
    if isinstance(value, dict):
        return all(_walk(one, depth + 1, left) for one in value.values())
    if isinstance(value, list):
        return all(_walk(one, depth + 1, left) for one in value)
    return not isinstance(value, str) or len(value) <= LONGEST_TEXT


def has_masks(value: JSONValue) -> bool:
    """Whether a protected value is hidden anywhere in it."""
    if is_masked(value):
        return True
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_masks(one) for one in below)


def _texts(value: JSONValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
