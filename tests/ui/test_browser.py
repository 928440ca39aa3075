"""app.js in a real Chromium, under the product's Content-Security-Policy; the server is this file's routes."""

from __future__ import annotations

import itertools
import mimetypes
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.template import engines
from django.template.loader import render_to_string
from django.test import RequestFactory
from playwright.sync_api import Browser, Page, Route, expect

from console.views.styleguide import styleguide, styleguide_page

pytestmark = pytest.mark.browser

STATIC = Path(__file__).resolve().parents[2] / "static"
ORIGIN = "http://signalbox.localhost"
POLICY = (
    "default-src 'none'; script-src 'nonce-n0nce'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The stream, in the test's hands: what was opened, and a way to drop it and to speak through it.
FAKE_STREAM = """
window.streams = [];
window.EventSource = class extends EventTarget {
  constructor(url) { super(); this.url = url; this.readyState = 0; window.streams.push(this); setTimeout(() => this.up(), 0); }
  up() { this.readyState = 1; this.dispatchEvent(new Event("open")); }
  down() { this.readyState = 0; this.dispatchEvent(new Event("error")); }
  say(topic) { this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify({ topic, version: 1 }) })); }
  close() { this.readyState = 2; }
};
window.EventSource.CLOSED = 2;
"""
LIVE_PAGE = """{% extends "base.html" %}{% block head %}<h1>Live</h1>{% endblock %}{% block content %}<a href="/" id="first">first</a>
<div id="part" data-live="run:1" hx-get="/part" hx-trigger="live" hx-swap="morph:outerHTML">{{ inner|safe }}</div>{% endblock %}"""
INNER = """<p id="count">%s</p><details id="more"><summary>More</summary>text</details>
<input id="typed" name="typed" value="server %s"><input id="other" value=""><a id="row" href="/x">row</a>"""


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Browser:
    return chromium


class Server:
    """Answers the page's requests and remembers them."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.paths: dict[str, Callable[[Route], tuple[int, str]]] = {}
        self.asked: list[str] = []
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on(
            "console",
            lambda said: self.problems.append(said.text) if "Security Policy" in said.text else None,
        )
        page.route("**/*", self.answer)

    def answer(self, route: Route) -> None:
        path = re.sub(r"\?.*", "", route.request.url.removeprefix(ORIGIN))
        if path.startswith("/static/"):
            file = STATIC / path.removeprefix("/static/")
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            return (
                route.fulfill(body=file.read_bytes(), content_type=kind)
                if file.is_file()
                else route.fulfill(status=404)
            )
        self.asked.append(f"{route.request.method} {path}")
        status, body = self.paths[path](route) if path in self.paths else (404, "")
        headers = {"Content-Security-Policy": POLICY, "Content-Type": "text/html; charset=utf-8"}
        return route.fulfill(status=status, body=body, headers=headers)

    def open(self, path: str) -> None:
        self.page.goto(ORIGIN + path)


@pytest.fixture
def server(browser: Browser) -> Iterator[Server]:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.set_default_timeout(5_000)
    served = Server(page)
    yield served
    context.close()
    assert served.problems == []


def until(page: Page, script: str) -> None:
    """Waits for a condition; Playwright's own wait evaluates strings inside the page, which the policy forbids."""
    for _ in range(100):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    raise AssertionError(script)


def request_of(route: Route | None = None) -> Any:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    request.csp_nonce = "n0nce"  # type: ignore[attr-defined]
    request.htmx = bool(route and route.request.headers.get("hx-request"))  # type: ignore[attr-defined]
    return request


def pattern(name: str) -> Callable[[Route], tuple[int, str]]:
    return lambda route: (200, styleguide_page(request_of(route), name).content.decode())


def live_page(counter: list[int], extra: str = "") -> Callable[[Route], tuple[int, str]]:
    def answer(route: Route) -> tuple[int, str]:
        counter[0] += 1
        inner = INNER % (counter[0], counter[0]) + extra
        context = {"inner": inner, "live_url": "/live"}
        whole = engines["django"].from_string(LIVE_PAGE).render(context, request_of())
        part = f'<div id="part" data-live="run:1" hx-get="/part" hx-trigger="live" hx-swap="morph:outerHTML">{inner}</div>'
        return 200, part if route.request.headers.get("hx-request") else whole

    return answer


@pytest.fixture
def live(server: Server) -> Server:
    server.page.add_init_script(FAKE_STREAM)
    server.paths["/"] = server.paths["/part"] = live_page([0])
    server.open("/")
    until(server.page, "window.streams.length === 1 && window.streams[0].readyState === 1")
    return server


# -- live -----------------------------------------------------------------------------------------------------


def test_the_stream_asks_for_the_topics_of_the_page(live: Server) -> None:
    assert live.page.evaluate("window.streams[0].url") == "/live?topic=run%3A1"


def test_an_event_fetches_what_shows_its_topic_once(live: Server) -> None:
    live.page.evaluate("for (let n = 0; n < 5; n++) window.streams[0].say('run:1')")
    expect(live.page.locator("#count")).to_have_text("2")
    live.page.wait_for_timeout(300)
    assert live.asked.count("GET /part") == 1


def test_an_event_of_another_topic_fetches_nothing(live: Server) -> None:
    live.page.evaluate("window.streams[0].say('run:2')")
    live.page.wait_for_timeout(300)
    assert "GET /part" not in live.asked


def test_an_update_loses_no_focus_no_text_and_no_opened_part(live: Server) -> None:
    page = live.page
    page.fill("#typed", "mine")
    page.fill("#other", "also mine")
    page.click("#more summary")
    page.focus("#row")
    page.evaluate("window.streams[0].say('run:1')")
    expect(page.locator("#count")).to_have_text("2")
    assert page.input_value("#typed") == "mine"
    assert page.input_value("#other") == "also mine"
    assert page.locator("#more").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.id") == "row"


def test_what_was_not_touched_follows_the_server(live: Server) -> None:
    live.page.evaluate("window.streams[0].say('run:1')")
    expect(live.page.locator("#count")).to_have_text("2")
    assert live.page.input_value("#typed") == "server 2"


def preview_of(revision: int, shown: str = "") -> str:
    """The part of a page that has the receiver asked what is there now."""
    effect = SimpleNamespace(receiver=SimpleNamespace(name="crm"))
    seen = SimpleNamespace(problem=shown, at=datetime(2026, 12, 1, 9, tzinfo=UTC)) if shown else None
    comparison = {"action": "/ask", "effect": effect, "shown": seen, "mark": f"eff_1-{revision}"}
    return render_to_string("effects/_preview.html", {"comparison": comparison}, request_of())


def test_what_is_there_now_is_asked_once_when_the_page_opens_and_stays_while_it_is_about_the_same(
    server: Server,
) -> None:
    page, answers = server.page, [0]
    page.add_init_script(FAKE_STREAM)
    asks = itertools.count(1)
    server.paths["/ask"] = lambda route: (200, preview_of(1, f"answer {next(asks)}."))
    server.paths["/"] = server.paths["/part"] = live_page(answers, extra=preview_of(1))
    server.open("/")
    until(page, "window.streams.length === 1 && window.streams[0].readyState === 1")
    expect(page.locator("[id^=preview]")).to_contain_text("answer 1.")
    page.evaluate("window.streams[0].say('run:1')")
    expect(page.locator("#count")).to_have_text("2")
    expect(page.locator("[id^=preview]")).to_contain_text("answer 1.")
    assert server.asked.count("POST /ask") == 1
    page.get_by_role("button", name="Look again").click()
    expect(page.locator("[id^=preview]")).to_contain_text("answer 2.")

    # Another payload: what was shown is about the one before.
    server.paths["/ask"] = lambda route: (200, preview_of(2, "of the second."))
    server.paths["/part"] = live_page([6], extra=preview_of(2))
    page.evaluate("window.streams[0].say('run:1')")
    expect(page.locator("#count")).to_have_text("7")
    expect(page.locator("[id^=preview]")).not_to_contain_text("answer 2.")
    expect(page.locator("[id^=preview]")).to_contain_text("of the second.")


def test_a_lost_connection_is_said_and_caught_up_after(live: Server) -> None:
    page = live.page
    page.evaluate("window.streams[0].down()")
    expect(page.locator("#connection")).to_be_visible()
    page.evaluate("window.streams[0].up()")
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.locator("#count")).to_have_text("2")


def test_a_refused_stream_is_opened_again(live: Server) -> None:
    live.page.evaluate(
        "window.streams[0].readyState = 2; window.streams[0].dispatchEvent(new Event('error'))"
    )
    until(live.page, "window.streams.length === 2")
    expect(live.page.locator("#count")).to_have_text("2")


def test_a_final_page_closes_the_stream(live: Server) -> None:
    live.paths["/part"] = live_page([8], extra="<i data-final></i>")
    live.page.evaluate("window.streams[0].say('run:1')")
    expect(live.page.locator("#count")).to_have_text("9")
    until(live.page, "window.streams[0].readyState === 2")


# -- dialogs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def run(server: Server) -> Server:
    for name in ("run_failed", "dialog", "approval"):
        server.paths[f"/styleguide/{name}"] = pattern(name)
    server.open("/styleguide/run_failed")
    return server


def test_a_dialog_opens_over_the_page_with_the_focus_on_the_safe_button(run: Server) -> None:
    run.page.click("text=Continue…")
    dialog = run.page.locator("#dialog")
    expect(dialog).to_be_visible()
    expect(dialog.locator("text=Leave it failed")).to_be_focused()
    expect(dialog.locator("text=Is kept")).to_be_visible()
    assert run.page.url.endswith("/run_failed")
    run.page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()


def test_a_small_screen_cuts_no_consequence_off(run: Server) -> None:
    run.page.set_viewport_size({"width": 360, "height": 560})
    run.page.click("text=Continue…")
    expect(run.page.locator("#dialog")).to_be_visible()
    cut = "e => e.scrollHeight - e.clientHeight"
    assert run.page.locator("#dialog .consequences").evaluate(cut) == 0
    assert run.page.locator("#dialog .dialog-card__body").evaluate(cut) > 0  # it scrolls
    expect(run.page.locator("#dialog >> text=Continue the run")).to_be_in_viewport()


def test_escape_closes_a_dialog(run: Server) -> None:
    run.page.click("text=Continue…")
    expect(run.page.locator("#dialog")).to_be_visible()
    run.page.keyboard.press("Escape")
    expect(run.page.locator("#dialog")).to_be_hidden()


def test_where_the_form_cannot_be_had_the_link_leads_to_its_page(run: Server) -> None:
    run.paths["/styleguide/dialog"] = lambda route: (403, "You may not")
    run.page.click("text=Continue…")
    run.page.wait_for_url("**/styleguide/dialog")
    expect(run.page.locator("body")).to_have_text("You may not")


def test_without_a_script_the_link_leads_to_the_page(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    server = Server(context.new_page())
    for name in ("run_failed", "dialog"):
        server.paths[f"/styleguide/{name}"] = pattern(name)
    server.open("/styleguide/run_failed")
    server.page.click("text=Continue…")
    expect(server.page.locator("h1")).to_contain_text("Continue")
    expect(server.page.locator("text=Continue the run")).to_be_visible()
    context.close()


def test_a_lever_that_is_off_does_nothing(run: Server) -> None:
    run.page.click("text=nothing is asked", force=True)
    assert run.page.url.endswith("/run_failed")


# -- forms -----------------------------------------------------------------------------------------------------

FORM = """<!doctype html><title>t</title><body><form method="post" action="/send"><input name="a" value="1">
<button name="decision" value="approve">Approve</button></form><script src="/static/js/app.js" nonce="n0nce"></script></body>"""


def test_a_double_click_sends_one_form_with_its_button(server: Server) -> None:
    bodies: list[str] = []

    def sent(route: Route) -> tuple[int, str]:
        bodies.append(route.request.post_data or "")
        return 204, ""

    server.paths.update({"/": lambda route: (200, FORM), "/send": sent})
    server.open("/")
    server.page.dblclick("text=Approve")
    server.page.wait_for_timeout(200)
    assert bodies == ["a=1&decision=approve"]


def test_after_an_error_the_form_can_be_sent_again(server: Server) -> None:
    bodies: list[str] = []

    def refused(route: Route) -> tuple[int, str]:
        bodies.append(route.request.post_data or "")
        return 422, FORM

    server.paths.update({"/": lambda route: (200, FORM), "/send": refused})
    server.open("/")
    for count in (1, 2):
        server.page.click("text=Approve")
        server.page.wait_for_load_state()
        assert len(bodies) == count
    server.page.go_back()
    before = len(bodies)
    server.page.click("text=Approve")
    server.page.wait_for_load_state()
    assert len(bodies) == before + 1


# -- keys, rows, copying, themes -----------------------------------------------------------------------------------


@pytest.fixture
def rows(server: Server) -> Server:
    for name in ("runs", "run"):
        server.paths[f"/styleguide/{name}"] = pattern(name)
    server.open("/styleguide/runs")
    return server


def test_j_k_and_enter_walk_the_rows_and_open_one(rows: Server) -> None:
    page = rows.page
    for key in "jjk":
        page.keyboard.press(key)
    expect(page.locator(".row-link").first).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(".row-link").nth(1)).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator(".row-check").nth(1)).not_to_be_checked()
    page.locator(".row-link").nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/styleguide/run")


def test_a_click_anywhere_in_a_row_opens_it(rows: Server) -> None:
    rows.page.locator("tbody tr").nth(4).locator("td").nth(2).click()
    rows.page.wait_for_url("**/styleguide/run")


def test_keys_do_nothing_while_typing(rows: Server) -> None:
    rows.page.focus("#f-text")
    rows.page.keyboard.type("jg/?")
    assert rows.page.input_value("#f-text") == "jg/?"


def test_slash_finds_and_question_mark_shows_the_keys(rows: Server) -> None:
    rows.page.keyboard.press("/")
    expect(rows.page.locator("#find")).to_be_focused()
    rows.page.keyboard.press("Escape")
    rows.page.keyboard.press("?")
    expect(rows.page.locator("#keys")).to_be_visible()


def test_the_first_row_is_near_the_top_and_rows_are_one_line(rows: Server) -> None:
    heights = rows.page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(r => r.getBoundingClientRect().height)"
    )
    assert len(heights) == 40
    assert all(36 <= height <= 42 for height in heights)
    assert rows.page.evaluate("document.querySelector('tbody tr').getBoundingClientRect().top") < 180


def test_an_id_is_copied_whole(run: Server) -> None:
    run.page.click(".subject__name button.id")
    until(run.page, "document.querySelector('.is-copied')")
    assert run.page.evaluate("navigator.clipboard.readText()") == "run_01JQ8M4T7ZC3XK9V2B6N5H0WK2"


def test_a_chosen_theme_is_kept_in_a_cookie(rows: Server) -> None:
    rows.page.click("summary:has(.icon--sun-moon)")
    rows.page.click("text=Dark")
    assert rows.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert "theme=dark" in rows.page.evaluate("document.cookie")


# -- small screens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["home", "runs", "run", "run_failed", "approval", "dialog", "all"])
@pytest.mark.parametrize("width", [360, 768, 1100, 1440])
def test_no_page_scrolls_sideways(server: Server, name: str, width: int) -> None:
    server.page.set_viewport_size({"width": width, "height": 780})
    everything = lambda route: (200, styleguide(request_of(route)).content.decode())  # noqa: E731
    server.paths["/p/"] = everything if name == "all" else pattern(name)
    server.open("/p/")
    assert server.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_navigation_opens_on_a_phone_without_a_script(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 780})
    server = Server(context.new_page())
    server.paths["/"] = pattern("home")
    server.open("/")
    server.page.click(".navmenu summary")
    expect(server.page.locator(".navmenu >> text=Effects")).to_be_visible()
    context.close()
