from __future__ import annotations

import re
from collections import Counter

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import Http404, HttpResponse
from django.template.loader import render_to_string
from django.test import RequestFactory

from console.kernel import words
from console.views.styleguide import styleguide, styleguide_page
from console.views.styleguide_samples import PATTERNS


def get(view: object, *args: str, query: str = "", method: str = "get") -> HttpResponse:
    request = getattr(RequestFactory(), method)(f"/styleguide/{query}")
    request.user = AnonymousUser()
    answer = view(request, *args)  # type: ignore[operator]
    assert isinstance(answer, HttpResponse)
    return answer


def page(name: str) -> str:
    return get(styleguide_page, name).content.decode()


def ids_twice(html: str) -> list[str]:
    return [name for name, count in Counter(re.findall(r'\sid="([^"]+)"', html)).items() if count > 1]


def test_the_styleguide_shows_every_status_and_failure() -> None:
    html = get(styleguide).content.decode()
    for table in words.TABLES.values():
        for word in table.values():
            assert word.text in html
    for code in words.FAILURES:
        assert f"<code>{code}</code>" in html


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_can_be_asked_for(theme: str) -> None:
    assert (
        f'<html lang="en" data-theme="{theme}">' in get(styleguide, query=f"?theme={theme}").content.decode()
    )


def test_a_theme_that_is_none_is_ignored() -> None:
    assert '<html lang="en">' in get(styleguide, query="?theme=%22%3E%3Cscript%3E").content.decode()


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_every_pattern_renders_in_the_frame(name: str) -> None:
    html = page(name)
    assert 'id="main"' in html
    assert html.count("<h1") == 1
    assert ids_twice(html) == []


def test_a_pattern_that_is_none_is_not_found() -> None:
    with pytest.raises(Http404):
        page("nope")


def test_nothing_is_posted_here() -> None:
    assert get(styleguide, method="post").status_code == 405


def test_the_frame_says_which_page_is_current_and_how_many_approvals_wait() -> None:
    context = {
        "url": "/w/acme/approvals/",
        "name": "approvals",
        "nav": "approvals",
        "word": "Approvals",
        "count": 3,
    }
    html = render_to_string("components/nav_link.html", context)
    assert 'aria-current="page"' in html
    assert "3<" in html
    assert "waiting for you" in html
    assert "aria-current" not in render_to_string("components/nav_link.html", {**context, "nav": "runs"})


def test_a_page_that_does_not_exist_yet_is_named_and_not_linked() -> None:
    html = render_to_string("components/nav_link.html", {"url": "", "name": "audit", "word": "Audit"})
    assert "Audit" in html
    assert "<a" not in html


@pytest.mark.parametrize("code", [400, 403, 404, 409, 500])
def test_error_pages_render_without_any_context(code: int) -> None:
    html = render_to_string(f"errors/{code}.html")
    assert str(code) in html
    assert "<h1>" in html


def test_error_pages_escape_their_reason() -> None:
    assert "<script>x" not in render_to_string(
        "errors/409.html", {"message": "<script>x", "title": "<script>x"}
    )


def test_a_dialog_is_a_page_of_its_own_and_a_fragment_for_htmx() -> None:
    whole = page("dialog")
    request = RequestFactory().get("/styleguide/dialog/")
    request.htmx = True  # type: ignore[attr-defined]
    request.user = AnonymousUser()
    fragment = styleguide_page(request, "dialog").content.decode()
    assert "<html" in whole
    assert "<html" not in fragment
    for text in ("Continue the run", "Is kept", "Outside", "csrfmiddlewaretoken"):
        assert text in whole
        assert text in fragment
    assert "autofocus" in fragment
    assert "autofocus" not in whole
