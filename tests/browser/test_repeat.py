"""Repeat external effect at two people's browsers: ordered with one double click, agreed to without a script, sent once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from effects.models import Approval, Effect, Order
from effects.states import SubState
from tests.browser.conftest import Person
from tests.people import World
from tests.process.journeys import Receiver, begin
from tests.stack import Stack, wait_for

pytestmark = [pytest.mark.process, pytest.mark.browser]


def test_R4_a_mail_that_may_have_arrived_is_delivered_again_once(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    subject = f"repeat-{live.workspace.id}"
    to = f"{subject}@harborpine.example"
    receiver = Receiver(stack, live.account)
    receiver.order_mail("drop_after_data", to)
    run = begin(live, "test_offers", makes=["mail"], kill="", subject=subject)
    uncertain = Effect.objects.filter(run_id=run.id, sub_state=SubState.UNCERTAIN)
    effect = wait_for("the mail to be uncertain", uncertain.first)
    here = f"/w/{live.workspace.id}/effects/{effect.id}/"

    page = at_the_browser(live.releaser).goes_to(here)
    page.get_by_role("link", name="Repeat external effect…").click()
    page.wait_for_url("**/repeat/")
    expect(page.get_by_role("link", name="Leave it as it is")).to_be_focused()
    act = page.get_by_role("region", name="Deliver again")
    act.get_by_label("Reason").fill("She says that nothing came.")
    act.get_by_label("Accept a second one").fill("Two of them would do no harm.")
    act.get_by_label("Type the effect's id").fill("eff_another")
    act.get_by_role("button", name="Deliver the mail to").click()
    expect(act).to_contain_text("Type the effect's id, exactly")
    assert not Order.objects.filter(effect=effect).exists()
    act.get_by_label("Type the effect's id").fill(effect.id)
    act.get_by_role("button", name="Deliver the mail to").dblclick()
    page.wait_for_url(f"**{here}")
    expect(page.locator("#effect")).to_contain_text("Waiting for a second person")
    order = Order.objects.get(effect=effect)
    assert len(receiver.mails(to)) == 1

    request = Approval.objects.get(order=order)
    form = at_the_browser(live.approver, width=360, height=740, script=False).goes_to(
        f"/w/{live.workspace.id}/approvals/{request.id}/"
    )
    expect(form.locator("#approval")).to_contain_text("Two of them would do no harm.")
    assert form.evaluate("document.documentElement.scrollWidth") <= 360
    form.get_by_label("In your own words").fill("I would rather send two than none.")
    form.get_by_role("button", name="Approve and deliver the mail again").click()
    expect(form.locator("#approval")).to_contain_text("Approved by Approver")

    # The releaser's page says it by itself.
    expect(page.locator("#effect .subject__state")).to_contain_text("Completed", timeout=20_000)
    expect(page.locator("#effect")).to_contain_text("I would rather send two than none.")
    assert len(receiver.mails(to)) == 2
    assert effect.attempts.count() == 2


def test_the_screen_fits_a_phone_and_is_walked_by_keyboard(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    subject = f"phone-{live.workspace.id}"
    Receiver(stack, live.account).order_mail("drop_after_data", f"{subject}@harborpine.example")
    run = begin(live, "test_offers", makes=["mail"], kill="", subject=subject)
    uncertain = Effect.objects.filter(run_id=run.id, sub_state=SubState.UNCERTAIN)
    effect = wait_for("the mail to be uncertain", uncertain.first)
    person = at_the_browser(live.releaser, width=360, height=740)
    page = person.goes_to(f"/w/{live.workspace.id}/effects/{effect.id}/repeat/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(
            str(page.evaluate("document.activeElement.id || document.activeElement.innerText.trim()"))
        )
    walked = [
        one for one in seen if one.startswith(("deliver_again_", "send_as_new_", "Deliver the", "Send the"))
    ]
    # The round through the page begins anew at its end.
    assert [one.partition(" ")[0] for one in dict.fromkeys(walked)] == [
        "deliver_again_reason",
        "deliver_again_accepts",
        "deliver_again_typed_id",
        "Deliver",
        "send_as_new_reason",
        "send_as_new_accepts",
        "send_as_new_typed_id",
        "Send",
    ]
