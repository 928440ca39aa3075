"""Find: an id leads to its page, a reference to its effect, words to what holds them."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from django.test import Client

from console.models import User
from effects.commands import bulk_recover
from effects.commands.repeat import deliver_again
from effects.commands.stop_sending import stop_sending
from effects.models import OrphanScan, Probe
from effects.states import EffectStatus, StopScope, SubState
from runs.models import Checkpoint, Message
from tests.people import World, make_world
from tests.views import desk, rows, standing
from tests.views.asking import OFFER, intend, paused_run

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def ask(client: Client, world: World, text: str) -> tuple[int, str]:
    response = client.get(f"/w/{world.workspace.id}/search?q={quote(text)}")
    return response.status_code, response.get("Location", "") or response.content.decode()


def test_an_id_leads_to_its_page(acme: World, client_of: ClientOf) -> None:
    run = rows.run_in(acme)
    made = rows.effect(acme, run)
    claim = rows.execution(run)
    step = rows.step(claim, "classify", 1)
    checkpoint = Checkpoint.objects.create(run=run, engine_id="e", fence=1, number=1, source="loop", size=1)
    message = Message.objects.create(
        conversation=acme.conversation, direction="inbound", author="a", text="t"
    )
    client, base = client_of(acme.viewer), f"/w/{acme.workspace.id}"
    for asked, address in {
        run.id: f"{base}/runs/{run.id}/",
        f"  {run.id.upper()} ": f"{base}/runs/{run.id}/",
        made.id: f"{base}/effects/{made.id}/",
        made.command_id: f"{base}/effects/{made.id}/",
        acme.conversation.id: f"{base}/conversations/{acme.conversation.id}/",
        checkpoint.id: f"{base}/runs/{run.id}/checkpoints/{checkpoint.id}/",
        step.id: f"{base}/runs/{run.id}/?show={step.id}",
        claim.id: f"{base}/runs/{run.id}/",
        message.id: f"{base}/conversations/{acme.conversation.id}/",
    }.items():
        assert ask(client, acme, asked) == (302, address)


@pytest.mark.usefixtures("contracts_that_ask")
def test_ids_of_what_people_did_about_effects_lead_to_their_pages(acme: World, client_of: ClientOf) -> None:
    actor = acme.actor(acme.releaser)
    held = standing.held(intend(acme, paused_run(acme), "test.offer", OFFER))
    review = desk.ticket_in_review(acme, paused_run(acme))
    plan = bulk_recover.dry_run(actor, {})
    recovery = bulk_recover.start(actor, {}, digest=plan.digest, reason="r", per_minute=1, token="recovery-1")
    order = deliver_again(actor, held.id, reason="r", token="order-001")
    stop = stop_sending(actor, scope=StopScope.RECEIVER, target="crm", reason="r", token="stop-001")
    crm = acme.workspace.receivers.get(name="crm")
    newest = Probe.objects.get(receiver=crm, effect_type="crm.create_offer")
    scan = OrphanScan.objects.create(
        workspace=acme.workspace, receiver=crm, effect_type="x", since=stop.at, token="scan-001"
    )
    client, base = client_of(acme.viewer), f"/w/{acme.workspace.id}"
    other = client_of(make_world("other").viewer)
    for asked, address in {
        order.id: f"{base}/effects/{held.id}/#{order.id}",
        review.id: f"{base}/reviews/{review.id}/",
        recovery.id: f"{base}/recoveries/{recovery.id}/",
        stop.id: f"{base}/stops/#{stop.id}",
        newest.id: f"{base}/contracts/crm.create_offer/#probe",
        scan.id: f"{base}/reviews/?scan={scan.id}#{scan.id}",
    }.items():
        assert ask(client, acme, asked) == (302, address)
        assert client.get(address.partition("#")[0]).status_code == 200
        world = other.get("/")["Location"]
        assert other.get(f"{world}search?q={asked}").status_code == 200


def test_a_receivers_reference_leads_to_the_effect(acme: World, client_of: ClientOf) -> None:
    made = rows.effect(
        acme, rows.run_in(acme), status=EffectStatus.COMPLETED, sub=SubState.NONE, reference="off_000042"
    )
    client = client_of(acme.viewer)
    assert ask(client, acme, "off_000042") == (302, f"/w/{acme.workspace.id}/effects/{made.id}/")


def test_words_find_conversations_and_runs(acme: World, client_of: ClientOf) -> None:
    rows.run_in(acme, title="A very special run")
    status, shown = ask(client_of(acme.viewer), acme, "SPECIAL")
    assert status == 200
    assert "A very special run" in shown
    assert acme.conversation.subject in ask(client_of(acme.viewer), acme, "brückner")[1]


@pytest.mark.parametrize(
    "text", ["", "nothing has this", "run_00000000000000000000000000", "%_\\", "<script>x</script>"]
)
def test_nothing_found_is_said(acme: World, client_of: ClientOf, text: str) -> None:
    status, shown = ask(client_of(acme.viewer), acme, text)
    assert status == 200
    assert "Nothing" in shown or not text
    assert "<script>x" not in shown


def test_what_is_another_workspaces_is_not_found(acme: World, client: Client, client_of: ClientOf) -> None:
    other = make_world("other")
    run = rows.run_in(other)
    made = rows.effect(other, run, status=EffectStatus.COMPLETED, sub=SubState.NONE, reference="off_1")
    for text in (run.id, made.id, made.command_id, other.conversation.id, "off_1"):
        assert ask(client_of(other.viewer), other, text)[0] == 302
        assert ask(client_of(acme.viewer), acme, text)[0] == 200
    assert client.get(f"/w/{acme.workspace.id}/search?q=x").status_code == 302
    assert client_of(other.viewer).get(f"/w/{acme.workspace.id}/search?q=x").status_code == 404
