"""Pictures of the pages of effects in each of their states: ``python -m tests.shots FOLDER [SCENE …]``.

A real web process against a database of its own, seeded by the ledger at the demo's receivers; a real Chromium.
Each is taken at 1440 and 360 px, light and dark; those named second-… with the eyes of the second person. Those that
docs show are copied to docs/shots by hand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from playwright.sync_api import Browser, Page, sync_playwright

from tests.shots.stage import PASSWORD, company_at, set_up

if TYPE_CHECKING:
    from effects.models import Effect
    from tests.shots.scenes import Scenes

Theme = Literal["light", "dark"]
HEIGHTS = {1440: 900, 360: 740}
THEMES: tuple[Theme, ...] = ("light", "dark")
#: Whose eyes the second person's pages are seen with.
SECOND = "approver"


def main(arguments: list[str]) -> None:
    asked = _asked(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack = set_up(folder, ending)
        from tests.shots.desk import DeskScenes
        from tests.shots.outage import OutageScenes
        from tests.shots.scenes import Scenes

        scenes = Scenes(company_at(stack), stack.receiver, stack.mail)
        desk = DeskScenes(scenes)
        browser = _chromium(ending)
        looks = [(width, theme) for width in asked.width or HEIGHTS for theme in asked.theme or THEMES]
        at = cache(partial(_at_the_browser, browser, stack.web))
        pages = chain(
            desk.before_anything(asked.scenes),
            _pages(scenes, asked.scenes),
            desk.every(asked.scenes),
            OutageScenes(scenes).every(asked.scenes),
            _last(scenes, asked.scenes),
        )
        for name, address in pages:
            login = SECOND if name.startswith("second-") else asked.login
            for width, theme in looks:
                page, look = at(login, width, theme), f"{width}-{theme}"
                page.goto(address)
                page.wait_for_load_state("networkidle")
                file = asked.folder / f"{name}-{look}.png"
                page.screenshot(path=file, full_page=True)
                print(file, flush=True)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.shots", description=__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="where the pictures go")
    add("scenes", nargs="*", help="which scenes; all without")
    add("--width", type=int, choices=HEIGHTS, action="append", help="which widths; both without")
    add("--theme", choices=THEMES, action="append", help="which themes; both without")
    add("--login", default="releaser", help="whose eyes it is seen with (default %(default)s)")
    return parser.parse_args(arguments)


def _chromium(ending: ExitStack) -> Browser:
    from tests.conftest import CHROMIUM

    assert CHROMIUM, "no Chromium on this machine"
    playwright = ending.enter_context(sync_playwright())
    args = ["--no-sandbox", "--disable-gpu"]
    return playwright.chromium.launch(executable_path=CHROMIUM, args=args)


def _at_the_browser(browser: Browser, web: str, login: str, width: int, theme: str) -> Page:
    viewport = {"width": width, "height": HEIGHTS[width]}
    context = browser.new_context(viewport=viewport, base_url=web, color_scheme=cast(Theme, theme))  # type: ignore[arg-type]
    page = context.new_page()
    page.goto("/accounts/login/")
    page.get_by_label("Email").fill(f"{login}@acme.example")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/w/**")
    return page


def _pages(scenes: Scenes, names: list[str]) -> Iterator[tuple[str, str]]:
    """Each page's name, and its address; made when it is asked for."""
    for name, make in scenes.every().items():
        if not names or name in names:
            yield from _of(name, make())


def _last(scenes: Scenes, names: list[str]) -> Iterator[tuple[str, str]]:
    """What stops or lists them all."""
    here = f"/w/{scenes.company.workspace.id}"
    if not names or "stopped" in names:
        effect = scenes.held()
        scenes.stop()
        yield from _of("stopped", effect)
        yield "recover-stopped", f"{here}/recover/?receiver=desk"
    if not names or "lists" in names:
        yield "list-effects", f"{here}/effects/"
        yield "list-approvals", f"{here}/approvals/"


def _of(name: str, effect: Effect) -> Iterator[tuple[str, str]]:
    from effects.models import Approval

    here = f"/w/{effect.workspace_id}/effects/{effect.id}/"
    yield f"effect-{name}", here
    yield f"repeat-{name}", f"{here}repeat/"
    if name == "completed":
        yield f"compensate-{name}", f"{here}compensate/"
    for successor in effect.successors.all():
        yield f"successor-{name}", f"/w/{effect.workspace_id}/effects/{successor.id}/"
    for approval in Approval.objects.filter(order__effect=effect):
        request = f"/w/{effect.workspace_id}/approvals/{approval.id}/"
        yield f"request-{name}", request
        yield f"second-request-{name}", request


if __name__ == "__main__":
    main(sys.argv[1:])
