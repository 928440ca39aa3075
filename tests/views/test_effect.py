"""One effect: how it stands in words, why it was meant, what was tried, and what may never be seen here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent
from effects.commands import repeat
from effects.models import Effect, Observation, Review
from effects.states import ReviewReason, SubState
from effects.views.telling import standing as standing_of
from runs.models import Run
from tests.people import World
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, asked_action, intend, paused_run
from tests.views.conftest import Decides, Reads, words_of
from tests.views.test_approvals import edited

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
ROLES = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def uncertain(acme: World, run: Run) -> Effect:
    """An offer whose first answer was lost."""
    return standing.uncertain(intend(acme, run, "crm.create_offer", OFFER))


@pytest.mark.parametrize("role", ROLES)
def test_protected_values_are_masked_for_everybody(acme: World, run: Run, reads: Reads, role: str) -> None:
    effect = intend(acme, run, "test.asked_mail", MAIL)
    page = reads(getattr(acme, role), f"effects/{effect.id}/")
    assert page.status_code == 200
    assert MAIL["to"] not in page.content.decode()
    assert "secret discount" not in page.content.decode()
    assert "•••• masked" in words_of(page)
    assert MAIL["subject"] in words_of(page)


def test_an_uncertain_one_is_told_as_it_is(acme: World, uncertain: Effect, reads: Reads) -> None:
    said = words_of(reads(acme.viewer, f"effects/{uncertain.id}/"))
    for words in (
        "Uncertain",
        "crm may or may not have it",
        "It is sent again with the same key, inside its window, or crm is asked.",
        "ReadTimeout",
        "Attempt 1",
        "Unknown",
        "1500 ms",
        "Idempotency key: inside its window, the same key",
        "may be sent again until",
        "Nothing so far",
        "approve_offer",
        uncertain.command.id,
        "5,760.00 EUR",
    ):
        assert words in said


def test_what_was_learned_later_and_what_is_in_review_stand_there(
    acme: World, uncertain: Effect, reads: Reads
) -> None:
    Observation.objects.create(
        effect=uncertain, kind="look_up", found="mismatch", sentence="crm has another amount."
    )
    Review.objects.create(
        workspace=acme.workspace,
        effect=uncertain,
        reason=ReviewReason.MISMATCH,
        sentence="Another amount is there.",
    )
    said = words_of(reads(acme.viewer, f"effects/{uncertain.id}/"))
    assert "Look-up" in said
    assert "crm has another amount." in said.partition("Said last")[2]
    assert "A releaser has to settle it: the receiver holds something else." in said


def test_the_key_s_window_is_told_when_it_has_closed(acme: World, uncertain: Effect, reads: Reads) -> None:
    Effect.objects.filter(id=uncertain.id).update(key_until=timezone.now())
    said = words_of(reads(acme.viewer, f"effects/{uncertain.id}/"))
    assert "Its window closed" in said
    assert "may be sent again until" not in said


def test_an_edit_shows_both_revisions_and_the_difference(acme: World, reads: Reads, decides: Decides) -> None:
    approval = asked_action(acme)
    assert decides(acme.approver, approval, "edit", **edited(priority='"high"')).status_code == 303
    said = words_of(reads(acme.viewer, f"effects/{approval.effect_id}/"))
    assert "Revision 2 by Approver" in said
    assert "Revision 1 by the workflow" in said
    assert "low" in said.partition("Revision 2")[2]
    assert "Edited by Approver" in said


def test_a_changed_contract_is_told(acme: World, run: Run, reads: Reads) -> None:
    effect = intend(acme, run, "crm.create_offer", OFFER)
    assert "The contract has changed since" not in words_of(reads(acme.viewer, f"effects/{effect.id}/"))
    Effect.objects.filter(id=effect.id).update(contract_version=99)
    assert "The contract has changed since" in words_of(reads(acme.viewer, f"effects/{effect.id}/"))


def test_a_type_without_a_contract_is_still_shown(acme: World, run: Run, reads: Reads, settings: Any) -> None:
    from effects.contracts import contracts

    effect = intend(acme, run, "test.asked_mail", MAIL)
    settings.CONTRACTS = ["demo.contracts:CONTRACTS"]
    contracts.cache_clear()
    said = words_of(reads(acme.viewer, f"effects/{effect.id}/"))
    assert "test.asked_mail" in said
    assert "•••• masked" in said


@pytest.mark.parametrize("sub_state", [sub for sub in SubState if sub])
def test_every_sub_state_has_its_sentence(acme: World, run: Run, sub_state: SubState) -> None:
    effect = intend(acme, run, "crm.create_offer", OFFER)
    effect.sub_state = sub_state
    assert standing_of(effect).endswith(".")


@pytest.mark.parametrize(
    ("effect_type", "payload", "window", "then"),
    [
        ("crm.create_offer", OFFER, standing.DAYS, "inside its window, or crm is asked."),
        ("crm.create_offer", OFFER, -standing.DAYS, "crm is asked; it is not sent again by itself."),
        ("desk.open_ticket", TICKET, standing.DAYS, "desk is asked before anything is sent again."),
        ("test.queried", TICKET, standing.DAYS, "desk is asked; it is not sent again by itself."),
        ("mail.send", MAIL, standing.DAYS, "mail can't be asked, and it is not sent again by itself."),
    ],
)
def test_what_happens_next_to_an_uncertain_one_is_what_its_dedup_lets_happen(
    acme: World,
    run: Run,
    reads: Reads,
    effect_type: str,
    payload: dict[str, Any],
    window: timedelta,
    then: str,
) -> None:
    effect = standing.uncertain(intend(acme, run, effect_type, payload), window=window)
    assert then in words_of(reads(acme.viewer, f"effects/{effect.id}/"))
    standing.reviewed(effect)
    said = words_of(reads(acme.viewer, f"effects/{effect.id}/"))
    assert "It is not sent again by itself: a person settles it." in said
    assert then not in said


def test_what_is_sent_anew_says_that_and_not_that_it_could_be(acme: World, run: Run, reads: Reads) -> None:
    """The lever's reason is about the act that is left: of a completed one only a new effect may go."""
    effect = standing.completed(intend(acme, run, "test.offer", OFFER))
    repeat.send_as_new(
        acme.actor(acme.releaser), effect.id, reason="Another site.", token="n" * 32, typed_id="", accepts=""
    )
    said = words_of(reads(acme.releaser, f"effects/{effect.id}/"))
    assert "send it as a new effect" not in said
    assert "Its successor" in said


def test_what_a_look_found_is_said_in_words(acme: World, uncertain: Effect, reads: Reads) -> None:
    standing.looked(uncertain)
    standing.looked(uncertain, "found")
    said = words_of(reads(acme.viewer, f"effects/{uncertain.id}/"))
    assert "Look-up Not found" in said
    assert "Look-up Found at the receiver" in said


def test_it_is_not_there_for_others_and_looking_writes_nothing(
    acme: World, run: Run, client: Client, client_of: Any
) -> None:
    effect = intend(acme, run, "crm.create_offer", OFFER)
    address = f"/w/{acme.workspace.id}/effects/{effect.id}/"
    events = AuditEvent.objects.count()
    assert client_of(acme.viewer).get(address).status_code == 200
    assert AuditEvent.objects.count() == events
    assert client_of(acme.outsider).get(address).status_code == 404
    assert client.get(address).status_code == 302
    assert client_of(acme.viewer).get(f"/w/{acme.workspace.id}/effects/eff_none/").status_code == 404
    assert client_of(acme.viewer).post(address).status_code == 405


def test_another_workspace_s_effect_is_not_there(acme: World, run: Run, client_of: Any) -> None:
    from tests.people import make_world

    effect = intend(acme, run, "crm.create_offer", OFFER)
    other = make_world("other")
    assert client_of(acme.viewer).get(f"/w/{acme.workspace.id}/effects/{effect.id}/").status_code == 200
    assert client_of(other.viewer).get(f"/w/{other.workspace.id}/effects/{effect.id}/").status_code == 404


def test_the_page_s_queries(
    acme: World, uncertain: Effect, client_of: Any, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client: Client = client_of(acme.viewer)
    with django_assert_num_queries(24):
        client.get(f"/w/{acme.workspace.id}/effects/{uncertain.id}/")


def test_htmx_gets_the_effect_alone(acme: World, run: Run, client_of: Any) -> None:
    effect = intend(acme, run, "crm.create_offer", OFFER)
    address = f"/w/{acme.workspace.id}/effects/{effect.id}/"
    part = client_of(acme.viewer).get(address, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert f'data-live="effect:{effect.id} approvals stops"' in part
