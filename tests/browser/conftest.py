"""A real Chromium on the running stack; every page that a test opens is watched for what a person must never meet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from console.models import User
from tests.people import PASSWORD
from tests.stack import Stack


@dataclass
class Person:
    """Somebody at their own browser, logged in."""

    stack: Stack
    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list)

    def hears(self, said: ConsoleMessage) -> None:
        """Errors count. Chromium also logs each 409 and 422: those are answers that the test itself asked for."""
        if said.type == "error" and not re.search(r"status of (409|422)", said.text):
            self.problems.append(said.text)

    def goes_to(self, path: str) -> Page:
        self.page.goto(f"{self.stack.web}{path}")
        return self.page


@pytest.fixture
def at_the_browser(stack: Stack, chromium: Browser) -> Iterator[Callable[..., Person]]:
    """Log somebody in through the login page. Afterwards: no console error, no CSP violation, in any of their pages."""
    people: list[Person] = []

    def log_in(user: User, *, width: int = 1440, height: int = 900, script: bool = True) -> Person:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, java_script_enabled=script, base_url=stack.web
        )
        page = context.new_page()
        person = Person(stack, context, page)
        page.on("pageerror", lambda error: person.problems.append(str(error)))
        page.on("console", person.hears)
        people.append(person)
        page.goto("/accounts/login/")
        page.get_by_label("Email").fill(user.email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/w/**")
        return person

    yield log_in
    problems = [problem for person in people for problem in person.problems]
    for person in people:
        person.context.close()
    assert problems == []
