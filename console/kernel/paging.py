"""Pages of long, growing tables by key instead of by number.

A page begins after a row, not after a count of rows: rows that are added or taken away elsewhere neither repeat
nor hide one, the thousandth page costs as much as the first, and nothing is counted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, Literal, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import BooleanField, F, Field, ForeignKey, Func, Model, QuerySet, Value
from django.db.models.expressions import Combinable

from console.kernel.canonical import parse_json
from console.kernel.errors import BadRequest, Refusal

Row = TypeVar("Row", bound=Model)

MAX_SIZE: Final = 500

_MAX_CURSOR: Final = 2000
_Operator = Literal["<", "<=", ">", ">="]
_OPERATORS: Final[tuple[_Operator, ...]] = ("<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows in descending order, and the cursors of the pages beside them.

    ``older`` is None at the oldest row and ``newer`` at the newest, as the page was read. The side that one came
    from always has a cursor.
    """

    rows: list[Row]
    older: str | None
    newer: str | None


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the order, and the field that reads its text.

    Queries use the attribute (``run_id``, not ``run``): ordering by a relation means ordering as the other model does.
    """

    name: str
    attribute: str
    field: Field[Any, Any]


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Which side of a row a page lies on. Inclusive operators lead back to a row that left an empty page behind."""

    operator: _Operator
    values: tuple[object, ...]

    @property
    def towards_newer(self) -> bool:
        return self.operator.startswith(">")


def keyset(
    queryset: QuerySet[Row],
    *,
    fields: Sequence[str] = ("created_at", "id"),
    cursor: str | None,
    size: int = 50,
) -> Page[Row]:
    """The page of ``queryset`` that ``cursor`` asks for, newest first; without a cursor the newest one.

    ``fields`` are columns of the model that are never null and together unique; the order is by all of them,
    descending, whatever order the queryset had. One query, which an index on the same fields answers.

    A cursor is an opaque text made here. It is no secret and grants nothing: it holds the values of one row's
    ``fields`` and only narrows ``queryset``, whose own restrictions stay.

    Raises BadRequest for a cursor that was not made for these fields, ValueError for a size outside 1 to 500.
    """
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"a page has 1 to {MAX_SIZE} rows")
    columns = _columns(queryset.model, fields)
    asked = None if not cursor else _decode(cursor, columns)
    found = list(_query(queryset, columns, asked)[: size + 1])
    more, rows = len(found) > size, found[:size]
    if asked is not None and asked.towards_newer:
        return _newer_page(rows[::-1], columns, asked, more)
    return _older_page(rows, columns, asked, more)


def _older_page(rows: list[Row], columns: list[_Column], asked: _Cursor | None, more: bool) -> Page[Row]:
    """A page read from the top, or from a row downwards."""
    older = _cursor_at(rows[-1], "<", columns) if more else None
    if asked is None:
        return Page(rows, older, None)
    newer = _cursor_at(rows[0], ">", columns) if rows else _back(asked, columns)
    return Page(rows, older, newer)


def _newer_page(rows: list[Row], columns: list[_Column], asked: _Cursor, more: bool) -> Page[Row]:
    """A page read from a row upwards."""
    newer = _cursor_at(rows[0], ">", columns) if more else None
    older = _cursor_at(rows[-1], "<", columns) if rows else _back(asked, columns)
    return Page(rows, older, newer)


def _back(asked: _Cursor, columns: list[_Column]) -> str:
    """From an empty page back to the row it began after: that row itself is on the other side."""
    return _encode(_Cursor("<=" if asked.towards_newer else ">=", asked.values), columns)


def _query(queryset: QuerySet[Row], columns: list[_Column], asked: _Cursor | None) -> QuerySet[Row]:
    if asked is None:
        return queryset.order_by(*(f"-{column.attribute}" for column in columns))
    direction = "" if asked.towards_newer else "-"
    return queryset.filter(_comparison(columns, asked)).order_by(
        *(f"{direction}{column.attribute}" for column in columns)
    )


def _comparison(columns: list[_Column], asked: _Cursor) -> Func:
    """``(created_at, id) < (…, …)``: a row comparison, which an index answers in one descent.

    The same written with OR makes the database read through every row that shares the first value.
    """
    row = _tuple([F(column.attribute) for column in columns])
    values = _tuple(
        [Value(value, output_field=column.field) for column, value in zip(columns, asked.values, strict=True)]
    )
    return Func(
        row, values, template="%(expressions)s", arg_joiner=f" {asked.operator} ", output_field=BooleanField()
    )


def _tuple(members: Sequence[Combinable]) -> Func:
    # The output field is never used: a row of values has no single type.
    return Func(*members, template="(%(expressions)s)", output_field=BooleanField())


def _columns(model: type[Model], fields: Sequence[str]) -> list[_Column]:
    columns = [_column(model, name) for name in fields]
    if not columns:
        raise ValueError("keyset paging needs at least one field")
    return columns


def _column(model: type[Model], name: str) -> _Column:
    field = model._meta.get_field(name)
    if not isinstance(field, Field) or field.null:
        raise ValueError(f"{name} is not a column that is never null")
    reader = field.target_field if isinstance(field, ForeignKey) else field
    return _Column(name, field.attname, reader)


def _cursor_at(row: Model, operator: _Operator, columns: list[_Column]) -> str:
    return _encode(_Cursor(operator, tuple(getattr(row, column.attribute) for column in columns)), columns)


def _encode(cursor: _Cursor, columns: list[_Column]) -> str:
    parts = [cursor.operator, *(column.name for column in columns), *map(_text, cursor.values)]
    data = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else str(value)


def _decode(cursor: str, columns: list[_Column]) -> _Cursor:
    """The cursor, if and only if :func:`_encode` would make exactly this text of it."""
    try:
        decoded = _read(cursor, columns)
        if _encode(decoded, columns) == cursor:
            return decoded
    except (Refusal, ValidationError, ValueError, TypeError, ArithmeticError):
        pass  # base64, JSON, Unicode, a field's own refusal: one answer for all of them
    raise BadRequest("This page link cannot be read; start again from the first page.", field="cursor")


def _read(cursor: str, columns: list[_Column]) -> _Cursor:
    if len(cursor) > _MAX_CURSOR:
        raise ValueError("too long")
    data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    operator, *texts = _parts(parse_json(data))
    known = _operator(operator)
    values = [_value(text, column) for text, column in zip(texts[len(columns) :], columns, strict=True)]
    return _Cursor(known, tuple(values))


def _operator(text: str) -> _Operator:
    for known in _OPERATORS:
        if known == text:
            return known
    raise ValueError("not an operator")


def _parts(loaded: object) -> list[str]:
    if not isinstance(loaded, list) or not all(isinstance(part, str) and "\0" not in part for part in loaded):
        raise ValueError("not a list of texts")
    return loaded


def _value(text: str, column: _Column) -> object:
    value: object = column.field.to_python(text)
    # The validators know the column's range and length: a value past them would be a database error.
    column.field.run_validators(value)
    return value
