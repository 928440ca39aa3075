from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from django.db import connection, models
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from console.kernel import paging
from console.kernel.errors import BadRequest
from console.kernel.paging import Page, keyset

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIELDS = ("created_at", "id")


class Entry(models.Model):
    """A table of this test's own: temporary, gone with its transaction."""

    id = models.CharField(primary_key=True, max_length=30)
    created_at = models.DateTimeField()
    number = models.IntegerField()
    note = models.TextField(null=True)  # noqa: DJ001 - a nullable column is what is being refused
    parent = models.ForeignKey("self", on_delete=models.CASCADE)

    objects: ClassVar[models.Manager[Entry]] = models.Manager()

    class Meta:
        app_label = "kernel_tests"
        managed = False
        # Must never show through: not in the order of a page, and not through a foreign key.
        ordering = ["note"]


@pytest.fixture
def table(db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TEMPORARY TABLE {Entry._meta.db_table} (id text PRIMARY KEY, created_at timestamptz NOT NULL, "
            "number integer NOT NULL, note text, parent_id text)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {Entry._meta.db_table}")


def _add(*names: str, at: datetime = START, number: int = 0) -> None:
    Entry.objects.bulk_create(Entry(id=name, created_at=at, number=number, parent_id=name) for name in names)


def _page(cursor: str | None = None, size: int = 3) -> Page[Entry]:
    return keyset(Entry.objects.all(), cursor=cursor, size=size)


def _names(page: Page[Entry]) -> str:
    return "".join(row.id for row in page.rows)


def _columns(fields: tuple[str, ...] = FIELDS) -> list[paging._Column]:
    return paging._columns(Entry, fields)


# The text of a cursor


@given(
    st.sampled_from(["<", "<=", ">", ">="]),
    st.datetimes(timezones=st.timezones(), allow_imaginary=False).filter(lambda at: 2 < at.year < 9998),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.integers(-(2**31), 2**31 - 1),
)
def test_a_cursor_is_read_as_it_was_written(operator: Any, at: datetime, name: str, number: int) -> None:
    columns = _columns(("created_at", "number", "id"))
    cursor = paging._Cursor(operator, (at.astimezone(UTC), number, name))
    text = paging._encode(paging._Cursor(operator, (at, number, name)), columns)
    assert paging._decode(text, columns) == cursor
    assert quote(text, safe="") == text


def _forged(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


GOOD = ("<", "created_at", "id", "2026-03-01T12:00:00+00:00", "a")


def test_the_forger_of_this_test_can_forge() -> None:
    assert paging._decode(_forged(*GOOD), _columns()).values == (START, "a")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "!!!",
        "é",
        "\0",
        "=",
        " ",
        "e30",
        "W10",
        "bnVsbA",
        _forged(*GOOD) + "=",
        _forged(*GOOD)[:-1],
        _forged(*GOOD) + "\n",
        _forged("=", *GOOD[1:]),
        _forged("; DROP TABLE", *GOOD[1:]),
        _forged("<", "id", "created_at", *GOOD[3:]),
        _forged("<", "password", "id", *GOOD[3:]),
        _forged(*GOOD, "more"),
        _forged(*GOOD[:-1]),
        _forged(*GOOD[:3], "not a time", "a"),
        _forged(*GOOD[:3], "2026-03-01", "a"),
        _forged(*GOOD[:3], "2026-03-01T12:00:00", "a"),
        _forged(*GOOD[:3], "2026-03-01T14:00:00+02:00", "a"),
        _forged(*GOOD[:3], "0001-01-01T00:00:00+05:00", "a"),
        _forged(*GOOD[:3], 5, "a"),
        _forged(*GOOD[:3], None, "a"),
        _forged(*GOOD[:4], "a\0b"),
        _forged(*GOOD[:4], "a\ud800"),
        _forged(*GOOD[:4], "a" * 31),
        _forged(*GOOD[:4], ["a"]),
        "W" * 5000,
        base64.urlsafe_b64encode(b"[" * 1400).decode(),
    ],
)
def test_a_cursor_that_was_not_made_here_is_a_bad_request(cursor: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        keyset(Entry.objects.all(), cursor=cursor)
    assert refusal.value.field == "cursor"


@given(st.text())
def test_any_text_is_a_cursor_or_a_bad_request(text: str) -> None:
    if text:
        with pytest.raises(BadRequest):
            keyset(Entry.objects.all(), cursor=text)


def test_a_number_past_its_column_is_a_bad_request() -> None:
    with pytest.raises(BadRequest):
        keyset(Entry.objects.all(), fields=("number",), cursor=_forged("<", "number", str(2**31)))
    with pytest.raises(BadRequest):
        keyset(Entry.objects.all(), fields=("number",), cursor=_forged("<", "number", "٣"))


# The query


def test_the_query_is_one_row_comparison_and_counts_nothing() -> None:
    columns = _columns()
    asked = paging._decode(_forged(*GOOD), columns)
    sql = str(paging._query(Entry.objects.filter(number=1).order_by("note"), columns, asked).query)
    assert '"number" = 1' in sql
    assert '("kernel_tests_entry"."created_at", "kernel_tests_entry"."id") < (' in sql
    assert sql.endswith('ORDER BY "kernel_tests_entry"."created_at" DESC, "kernel_tests_entry"."id" DESC')
    assert "COUNT" not in sql
    assert " OR " not in sql


def test_a_foreign_key_orders_by_its_own_column() -> None:
    sql = str(paging._query(Entry.objects.all(), _columns(("parent",)), None).query)
    assert sql.endswith('ORDER BY "kernel_tests_entry"."parent_id" DESC')
    assert "JOIN" not in sql


def test_the_way_back_runs_through_the_same_index_the_other_way() -> None:
    columns = _columns()
    asked = paging._decode(_forged(">", *GOOD[1:]), columns)
    sql = str(paging._query(Entry.objects.all(), columns, asked).query)
    assert ") > (" in sql
    assert sql.endswith('ORDER BY "kernel_tests_entry"."created_at" ASC, "kernel_tests_entry"."id" ASC')


@pytest.mark.parametrize("size", [0, -1, 501])
def test_a_page_has_a_size(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 500"):
        keyset(Entry.objects.all(), cursor=None, size=size)


def test_a_column_that_may_be_null_orders_nothing() -> None:
    with pytest.raises(ValueError, match="note is not a column"):
        keyset(Entry.objects.all(), fields=("note", "id"), cursor=None)
    with pytest.raises(ValueError, match="at least one"):
        keyset(Entry.objects.all(), fields=(), cursor=None)


# The pages


@pytest.mark.usefixtures("table")
def test_pages_lead_there_and_back() -> None:
    _add(*"abcdefgh")
    first = _page()
    second = _page(first.older)
    third = _page(second.older)
    assert [_names(page) for page in (first, second, third)] == ["hgf", "edc", "ba"]
    assert first.newer is None
    assert third.older is None
    back = _page(third.newer)
    assert _names(back) == "edc"
    assert _names(_page(back.newer)) == "hgf"
    assert _page(back.newer).newer is None
    assert _page(_page(back.newer).older) == back


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("rows", "pages"), [("", [""]), ("abc", ["cba"]), ("abcdef", ["fed", "cba"])])
def test_a_full_last_page_has_nothing_after_it(rows: str, pages: list[str]) -> None:
    _add(*rows)
    seen, cursor = [], None
    while True:
        page = _page(cursor)
        seen.append(_names(page))
        cursor = page.older
        if cursor is None:
            break
    assert seen == pages


@pytest.mark.usefixtures("table")
def test_ties_are_told_apart_and_times_come_first() -> None:
    _add("a", "z", at=START)
    _add("b", "y", at=START + timedelta(microseconds=1))
    _add("c", at=START - timedelta(days=1))
    first = _page(size=2)
    second = _page(first.older, size=2)
    assert (_names(first), _names(second), _names(_page(second.older))) == ("yb", "za", "c")


@pytest.mark.usefixtures("table")
def test_rows_that_come_meanwhile_neither_repeat_nor_hide_one() -> None:
    _add(*"bdfh")
    first = _page(size=2)
    _add("c", "e", "x")
    second = _page(first.older, size=2)
    assert (_names(first), _names(second)) == ("hf", "ed")
    back = _page(second.newer, size=2)
    assert _names(back) == "hf"
    assert back.newer is not None
    assert _names(_page(back.newer, size=2)) == "x"


@pytest.mark.usefixtures("table")
def test_the_row_a_cursor_names_may_be_gone() -> None:
    _add(*"abcde")
    first = _page(size=2)
    Entry.objects.filter(id="d").delete()
    assert _names(_page(first.older, size=2)) == "cb"


@pytest.mark.usefixtures("table")
def test_an_empty_page_leads_back() -> None:
    _add(*"abc")
    older = _page(size=2).older
    Entry.objects.filter(id="a").delete()
    empty = _page(older, size=2)
    assert (_names(empty), empty.older) == ("", None)
    assert _names(_page(empty.newer, size=2)) == "cb"
    newer = _forged(">", "created_at", "id", START.isoformat(), "c")
    nothing_newer = _page(newer, size=2)
    assert (_names(nothing_newer), nothing_newer.newer) == ("", None)
    assert _names(_page(nothing_newer.older, size=2)) == "cb"


@pytest.mark.usefixtures("table")
def test_each_page_is_one_query_within_the_given_rows() -> None:
    _add("a", "c", "e", number=1)
    _add("b", "d", number=2)
    ones = Entry.objects.filter(number=1).order_by("id")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        first = keyset(ones, cursor=None, size=2)
        second = keyset(ones, cursor=first.older, size=2)
    assert (_names(first), _names(second)) == ("ec", "a")
    assert len(queries) == 2


@pytest.mark.usefixtures("table")
def test_other_columns_numbers_and_keys_of_other_rows() -> None:
    for number, name in enumerate("abcd"):
        _add(name, number=number // 2)
    fields = ("number", "parent")
    first = keyset(Entry.objects.all(), fields=fields, cursor=None, size=3)
    assert _names(first) == "dcb"
    assert _names(keyset(Entry.objects.all(), fields=fields, cursor=first.older, size=3)) == "a"
    with pytest.raises(BadRequest):
        keyset(Entry.objects.all(), cursor=first.older)


@pytest.mark.usefixtures("table")
def test_a_walk_sees_every_row_once_in_order() -> None:
    """Many rows in few moments: the order must be total, and every page must end where the next begins."""
    for moment in range(7):
        _add(*(f"{moment}{index:02}" for index in range(11)), at=START + timedelta(seconds=moment // 2))
    expected = list(Entry.objects.order_by("-created_at", "-id").values_list("id", flat=True))
    for size in (1, 4, 77, 78):
        page = _page(size=size)
        seen = [row.id for row in page.rows]
        while page.older:
            page = _page(page.older, size=size)
            seen += [row.id for row in page.rows]
        assert seen == expected
        back = [row.id for row in reversed(page.rows)]
        while page.newer:
            page = _page(page.newer, size=size)
            back += [row.id for row in reversed(page.rows)]
        assert back == expected[::-1]
