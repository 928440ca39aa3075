"""Addresses of a list's pages, and whether htmx asks for the list alone."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from console.kernel.paging import Page


def is_fragment(request: HttpRequest) -> bool:
    """htmx asks for the part that changes; a boosted or restored page is a whole page."""
    htmx = request.htmx  # type: ignore[attr-defined]
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def paged(request: HttpRequest, page: Page[Any] | None) -> dict[str, str]:
    """The addresses of the pages beside *page*, with the filters of this one; empty where there is none."""
    return {
        "older": _with_cursor(request, page.older if page else None),
        "newer": _with_cursor(request, page.newer if page else None),
    }


def _with_cursor(request: HttpRequest, cursor: str | None) -> str:
    if cursor is None:
        return ""
    query = request.GET.copy()
    query["cursor"] = cursor
    return f"?{query.urlencode()}"
