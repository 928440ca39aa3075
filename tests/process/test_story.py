"""The whole line with real processes: a worker, a sweep, a receiver, a mail server."""

from __future__ import annotations

import pytest

from effects.models import Effect
from tests.people import World
from tests.process.journeys import Receiver, approve, asked, begin, reaches
from tests.stack import Stack

pytestmark = pytest.mark.process

BRUECKNER = "j.brueckner@brueckner-maschinen.example"


def test_an_offer_is_approved_created_mailed_and_answered_once(stack: Stack, live: World) -> None:
    run = begin(
        live,
        "sales_offer_agent",
        email=BRUECKNER,
        request="Bitte ein Angebot für 40 Plätze und 2 Tage Schulung.",
    )
    reaches(run, "waiting_approval")
    approve(live, asked(run))
    reaches(run, "completed")

    receiver = Receiver(stack, live.account)
    offer = Effect.objects.get(run_id=run.id, effect_type="crm.create_offer")
    mail = Effect.objects.get(run_id=run.id, effect_type="mail.send")
    made = receiver.effects()
    assert [one["external_id"] for one in made] == [offer.id]
    assert [one["key"] for one in made] == [offer.key]
    assert offer.provider_reference == made[0]["object_id"]
    mails = [one for one in receiver.mails(BRUECKNER) if mail.id in one["message_id"]]
    assert len(mails) == 1
    assert live.conversation.messages.filter(run_id=run.id).count() == 1
