"""Fixtures for all tests. See tests/plugin.py for the servers, tests/stack.py for the processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from django.test import Client
from playwright.sync_api import Browser, sync_playwright
from pytest_django import DjangoDbBlocker

from console.models import User
from tests.people import World, make_world
from tests.stack import Stack, environment

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Playwright keeps an event loop in this thread; the tests' own reads of the database are synchronous all the same.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
# How long one example takes tells how busy the machine is, and beside other workers it always is.
hypothesis.settings.register_profile("signalbox", deadline=None)
hypothesis.settings.load_profile("signalbox")


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> None:
    """The plugin has set the database up already. The workflows' rows are made once, for all tests."""
    # The first page of a test would load the engine with all that stands on it, in the middle of the test's transaction:
    # on a busy machine that takes longer than a transaction may stand idle.
    import console.urls  # noqa: F401
    from runs.execution import register_workflows

    with django_db_blocker.unblock():
        register_workflows()


@pytest.fixture
def acme(db: None) -> World:
    """A workspace with its people, rolled back after the test."""
    return make_world()


@pytest.fixture
def client_of(db: None) -> Callable[[User], Client]:
    def log_in(user: User) -> Client:
        client = Client()
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return client

    return log_in


@pytest.fixture(scope="session")
def stack(django_db_setup: None) -> Iterator[Stack]:
    """The running stack, for process and browser tests. Shown logs are in its folder when something fails."""
    with tempfile.TemporaryDirectory(prefix="signalbox-stack-", ignore_cleanup_errors=True) as folder:
        running = Stack(Path(folder), environment())
        try:
            running.begin()
            yield running
        except BaseException:
            for process in running.processes.values():
                print(f"--- {process.name}\n{process.log.read_text(errors='replace')[-3000:]}")
            raise
        finally:
            running.end()


@pytest.fixture
def live(stack: Stack, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """A committed workspace that the stack's processes see too. It stays: the next test makes its own."""
    with django_db_blocker.unblock():
        world = make_world("live")
        world.receivers(stack.receiver, stack.smtp_port)
        yield world


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real Chromium. Without one the browser tests are skipped, unless this run requires them.

    For one module at a time: while Playwright is there its event loop runs in this thread, and nothing else's can.
    """
    if not CHROMIUM:
        assert not os.environ.get("SIGNALBOX_REQUIRE_BROWSER"), "no Chromium, and this run requires one"
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
        )
        yield browser
        browser.close()
