"""The whole story, at two people's browsers: start, wait, approve, sent exactly once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from effects.models import Effect
from runs.models import Run
from tests.browser.conftest import Person
from tests.people import World
from tests.process.journeys import Receiver
from tests.stack import Stack

pytestmark = [pytest.mark.process, pytest.mark.browser]

CLINICS = "priya.raman@lumenstreet.example"
REQUEST = "Please send us an offer for 25 seats and one day of onboarding."


def test_an_offer_from_start_to_sent(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    here = f"/w/{live.workspace.id}"
    conversation = live.conversation
    operator, approver = at_the_browser(live.operator), at_the_browser(live.approver, width=360, height=740)

    page = operator.goes_to(f"{here}/runs/start/sales_offer_agent/")
    page.get_by_label("Conversation").select_option(value=conversation.id)
    page.get_by_label("Customer's e-mail").fill(CLINICS)
    page.get_by_label("Request").fill(REQUEST)
    page.get_by_role("button", name="Start the run").dblclick()
    page.wait_for_url("**/runs/run_*/")
    page.evaluate("window.neverReloaded = true")
    expect(page.locator("#run .subject__state")).to_contain_text("Waiting for approval", timeout=20_000)
    run = Run.objects.get(workspace=live.workspace)
    assert page.evaluate("window.neverReloaded")

    inbox = approver.goes_to(f"{here}/approvals/")
    inbox.get_by_role("link", name="Create an offer").first.click()
    expect(inbox.locator("#approval")).to_contain_text("cus_000012")
    assert Receiver(stack, live.account).requests() == []
    inbox.get_by_role("button", name="Approve").click()
    expect(inbox.locator("#approval")).to_contain_text("Approved by Approver")

    # The run's own mark: its first effect is completed earlier, and says so on the same page.
    expect(page.locator("#run .subject__state")).to_contain_text("Completed", timeout=20_000)
    assert page.evaluate("window.neverReloaded")

    offer = Effect.objects.get(run_id=run.id, effect_type="crm.create_offer")
    mail = Effect.objects.get(run_id=run.id, effect_type="mail.send")
    receiver = Receiver(stack, live.account)
    assert [one["external_id"] for one in receiver.effects()] == [offer.id]
    # Others write to this customer too, in workspaces of their own.
    assert len([one for one in receiver.mails(CLINICS) if mail.id in one["message_id"]]) == 1
    shown = page.locator("#run").inner_html()
    assert offer.id in shown
    assert mail.id in shown
    assert offer.provider_reference in shown


def test_the_same_story_without_javascript(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    """Start, reject with a reason and read the outcome, as plain forms and pages."""
    here = f"/w/{live.workspace.id}"
    operator = at_the_browser(live.operator, script=False)
    conversation = live.conversation
    page = operator.goes_to(f"{here}/runs/start/sales_offer_agent/")
    page.get_by_label("Conversation").select_option(value=conversation.id)
    page.get_by_label("Customer's e-mail").fill(CLINICS)
    page.get_by_label("Request").fill(REQUEST)
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url("**/runs/run_*/")
    run = Run.objects.get(workspace=live.workspace)
    from tests.process.journeys import asked, reaches

    approval = asked(reaches(run, "waiting_approval"))
    approver = at_the_browser(live.approver, script=False, width=360, height=740)
    form = approver.goes_to(f"{here}/approvals/{approval.id}/")
    form.get_by_role("button", name="Reject").click()
    assert approval.decisions.count() == 0
    form.get_by_label("Reason").fill("The discount that we promised is missing.")
    form.get_by_role("button", name="Reject").click()
    expect(form.locator("#approval")).to_contain_text("Rejected by Approver")

    reaches(run, "completed")
    page.reload()
    expect(page.locator("#run .subject__state")).to_contain_text("Completed")
    assert Receiver(stack, live.account).requests() == []


def test_a_worker_killed_in_the_middle_is_seen_and_sends_once(
    stack: Stack, live: World, at_the_browser: Callable[..., Person]
) -> None:
    """The page shows the loss; the run goes on by itself and the receiver holds exactly one offer."""
    from tests.process.journeys import begin, reaches

    operator = at_the_browser(live.operator)
    run = begin(live, "test_offers", makes=["offer"], kill="after_receiver_commits", subject="seen")
    page = operator.goes_to(f"/w/{live.workspace.id}/runs/{run.id}/")
    reaches(run, "completed")
    expect(page.locator("#run .subject__state")).to_contain_text("Completed", timeout=10_000)
    expect(page.locator("#run")).to_contain_text("lost")
    assert len(Receiver(stack, live.account).effects()) == 1
