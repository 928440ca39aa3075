"""The Review desk and bulk recover at people's browsers: by keyboard, by the second person, after a way back, live."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from console.models import AuditEvent
from effects.commands import stop_sending
from effects.models import Effect, Order, Recovery, Review
from effects.states import StopScope
from tests.browser.conftest import Person
from tests.people import World
from tests.process.journeys import Receiver, begin, reaches
from tests.stack import Stack, wait_for

pytestmark = [pytest.mark.process, pytest.mark.browser]


def focused(page: Page) -> str:
    """What a screen reader would be at: the text of the focused element, or its label's."""
    return str(
        page.evaluate(
            "(e => (e.labels && e.labels[0] ? e.labels[0] : e).innerText.trim())(document.activeElement)"
        )
    )


def walk_to(page: Page, text: str, *, at_most: int = 60) -> None:
    """Tab until *text* has the focus; every stop on the way is one that can be seen."""
    for _ in range(at_most):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", focused(page)
        if focused(page).startswith(text):
            return
    raise AssertionError(f"{text!r} is not reached by {at_most} tabs")


def test_a_review_is_proposed_by_keyboard_and_agreed_to_without_a_script(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    subject = f"desk-{live.workspace.id}"
    to = f"{subject}@harborpine.example"
    receiver = Receiver(stack, live.account)
    receiver.order_mail("drop_after_data", to)
    run = begin(live, "test_offers", makes=["mail"], kill="", subject=subject)
    found = wait_for("a review", Review.objects.filter(effect__run_id=run.id, closed_at=None).first)
    here = f"/w/{live.workspace.id}/reviews/"

    page = at_the_browser(live.releaser).goes_to(here)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{here}{found.id}/")
    walk_to(page, "The receiver's own reference of it")
    page.keyboard.type("<4711@mail.example>")
    walk_to(page, "What you found out, and how")
    page.keyboard.type("She has had it since this morning.")
    walk_to(page, "Propose: it was done")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#review")).to_contain_text("so somebody else confirms it")
    expect(page.locator("#review")).not_to_contain_text("Agree: it was done")
    proposals = AuditEvent.objects.filter(workspace=live.workspace, verb="review.proposed")
    assert proposals.count() == 1

    # The form from before is shown anew, and the proposal with it: nothing is proposed a second time.
    page.go_back()
    page.go_forward()
    expect(page.locator("#review")).to_contain_text("proposes: it was done")
    assert proposals.count() == 1

    second = at_the_browser(live.approver, width=360, height=740, script=False)
    form = second.goes_to(f"{here}{found.id}/")
    assert form.evaluate("document.documentElement.scrollWidth") <= 360
    expect(form.locator("#review")).to_contain_text("You are the second person")
    form.get_by_role("button", name="Agree: it was done").click()
    expect(form.locator("#review")).to_contain_text("Review closed")

    # The releaser's page says it by itself.
    expect(page.locator("#review .subject__state")).to_contain_text("Review closed", timeout=20_000)
    expect(page.locator("#review")).to_contain_text("and Approver as the second person")
    assert Effect.objects.get(run_id=run.id).provider_reference == "<4711@mail.example>"
    assert len(receiver.mails(to)) == 1


def test_a_recovery_is_started_once_and_its_page_follows_it(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    receiver = Receiver(stack, live.account)
    for n in range(2):
        receiver.order("401")
        run = begin(live, "test_offers", makes=["offer"], kill="", subject=f"recover-{n}")
        reaches(run, "failed")
    assert receiver.effects() == []
    here = f"/w/{live.workspace.id}"

    page = at_the_browser(live.releaser).goes_to(f"{here}/recover/?sub_state=refused")
    page.get_by_role("button", name="Recover 2 of 2").click()
    assert page.get_by_label("Why").evaluate(
        "field => document.activeElement === field && !field.validity.valid"
    )
    assert not Recovery.objects.filter(workspace=live.workspace).exists()
    page.get_by_label("Why").fill("crm has its key back.")
    page.get_by_role("button", name="Recover 2 of 2").dblclick()
    page.wait_for_url("**/recoveries/*/")
    expect(page.locator("#recovery .subject__state")).to_contain_text("Done", timeout=20_000)
    expect(page.locator("#recovery tbody")).to_contain_text("Completed", timeout=20_000)
    recovery = Recovery.objects.get(workspace=live.workspace)
    wait_for(
        "both to be completed",
        lambda: Effect.objects.filter(workspace=live.workspace, status="completed").count() == 2,
    )
    expect(page.locator("#recovery tbody .tone--bad")).to_have_count(0, timeout=20_000)

    # Back leads to the dry run as it would be now: there is nothing left to start.
    page.go_back()
    expect(page.locator("#recover")).to_contain_text("Recover 0 of 0")
    assert list(Recovery.objects.filter(workspace=live.workspace)) == [recovery]
    assert Order.objects.filter(workspace=live.workspace).count() == 2
    assert len(receiver.effects()) == 2


def test_the_pages_fit_a_phone_with_the_longest_names(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    """Texts without a space in them break, and a switch that is on says why: nothing is scrolled sideways."""
    long = "Tabellenblattuebersicht" * 8
    actor = live.actor(live.releaser)
    stop_sending.stop_sending(actor, scope=StopScope.WORKSPACE, reason=long, token="stop-all-of-it")
    run = begin(live, "test_offers", makes=["offer"], kill="", subject=long)
    reaches(run, "paused")
    effect = Effect.objects.get(run_id=run.id)
    Effect.objects.filter(id=effect.id).update(recipient="cus_" + "0123456789abcdef" * 6)
    here = f"/w/{live.workspace.id}/effects/{effect.id}/"
    person = at_the_browser(live.releaser, width=360, height=740)
    for path in (
        here,
        f"{here}repeat/",
        f"/w/{live.workspace.id}/stops/",
        f"/w/{live.workspace.id}/recover/",
    ):
        assert person.goes_to(path).evaluate("document.documentElement.scrollWidth") <= 360
