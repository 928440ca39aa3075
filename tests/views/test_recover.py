"""Bulk recover: the dry run, its start, how far it is, its stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, User
from effects.commands import bulk_recover, stop_sending
from effects.models import Effect, Order, Recovery, RecoveryItem
from effects.states import StopScope
from runs.models import Run
from tests.people import World
from tests.views import standing
from tests.views.asking import MAIL, OFFER, TICKET, intend, paused_run
from tests.views.bulks import EVERYBODY, REFUSED, TOKEN, WHY, BulkPages
from tests.views.conftest import Reads, words_of

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
OTHERS = [role for role in EVERYBODY if role != "releaser"]
RECOVER = BulkPages(Recovery, "recover/", "recoveries/")
path, begin, begun = RECOVER.path, RECOVER.begin, RECOVER.begun


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def held(acme: World, run: Run) -> Effect:
    return standing.held(intend(acme, run, "test.offer", OFFER))


@pytest.fixture
def asked(acme: World, run: Run) -> Effect:
    return standing.uncertain(intend(acme, run, "test.queried", TICKET))


@pytest.fixture
def alone(acme: World, run: Run) -> Effect:
    """A mail that may have arrived, and nobody can be asked."""
    return standing.uncertain(intend(acme, run, "mail.send", MAIL))


# -- the dry run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", EVERYBODY)
def test_everybody_sees_the_dry_run_masked(
    acme: World, held: Effect, alone: Effect, reads: Reads, role: str
) -> None:
    page = reads(getattr(acme, role), "recover/")
    assert {item.effect.id for item, _ in page.context["items"]} == {held.id, alone.id}
    assert MAIL["to"] not in page.content.decode()
    assert not Recovery.objects.exists()


def test_each_effect_has_a_verdict_and_its_reason(
    acme: World, held: Effect, asked: Effect, alone: Effect, reads: Reads
) -> None:
    page = reads(acme.releaser, "recover/")
    assert {item.effect.id: item.verdict.value for item, _ in page.context["items"]} == {
        held.id: "deliver",
        asked.id: "look",
        alone.id: "skip",
    }
    said = words_of(page)
    for words in ("Create an offer", "desk is asked whether it has it; nothing is sent.", "Left alone"):
        assert words in said


def test_the_counts_and_the_filter_stand_on_the_button(
    acme: World, held: Effect, asked: Effect, alone: Effect, reads: Reads
) -> None:
    assert "Recover 2 of 3 (1 left alone)" in words_of(reads(acme.releaser, "recover/"))
    page = reads(acme.releaser, "recover/", receiver="crm", sub_state="held")
    assert "Recover 1 of 1" in words_of(page)
    assert "Receiver: crm" in words_of(page)
    assert f"{path(acme, 'recover/start/')}?receiver=crm&amp;sub_state=held" in page.content.decode()


def test_each_reason_to_leave_alone_has_its_count(
    acme: World, run: Run, held: Effect, alone: Effect, reads: Reads
) -> None:
    standing.uncertain(intend(acme, run, "mail.send", MAIL))
    standing.in_flight(intend(acme, run, "mail.send", MAIL))
    said = words_of(reads(acme.releaser, "recover/"))
    assert "3 left alone" in said
    assert "2 It needs a second person: order it on its own page." in said
    assert "1 It is in flight: wait until this attempt has ended." in said


def test_nothing_to_do_is_off_and_says_so(acme: World, alone: Effect, reads: Reads) -> None:
    page = reads(acme.releaser, "recover/")
    assert "Recover 0 of 1" in words_of(page)
    assert 'aria-disabled="true"' in page.content.decode()
    assert "recover/start/" not in page.content.decode()
    empty = words_of(reads(acme.releaser, "recover/", receiver="crm"))
    assert "Nothing here is stuck" in empty
    assert "Recover 0 of 0" in empty


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"status": "sent"}, "Status: there is no “sent” here."),
        ({"receiver": "nobody"}, "Receiver"),
        ({"q": "eff_1"}, "takes no single id"),
        ({"review": "open"}, "takes no single id"),
    ],
)
def test_a_filter_that_can_not_be_read_starts_nothing(
    acme: World, held: Effect, client_of: ClientOf, query: dict[str, str], said: str
) -> None:
    client = client_of(acme.releaser)
    page = client.get(path(acme), query)
    assert page.status_code == 400
    assert said in words_of(page)
    given = {"form_token": TOKEN, "digest": "x", "per_minute": "60", "reason": WHY}
    name, value = next(iter(query.items()))
    assert client.post(f"{path(acme, 'recover/start/')}?{name}={value}", given).status_code == 400
    assert not Recovery.objects.exists()


def test_the_log_leads_there_with_its_filter(acme: World, held: Effect, reads: Reads) -> None:
    log = reads(acme.viewer, "effects/", receiver="crm").content.decode()
    assert f'href="{path(acme)}?receiver=crm"' in log
    assert "Recover these" in log
    assert "Recover these" not in reads(acme.viewer, "effects/", q=held.id).content.decode()


# -- starting it ---------------------------------------------------------------------------------------------------


def test_it_starts_once_and_says_what_it_has(
    acme: World, held: Effect, asked: Effect, alone: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    for _ in range(2):
        answer = begin(client, acme, "?status=pending")
        found = Recovery.objects.get(workspace=acme.workspace)
        assert (answer.status_code, answer["Location"]) == (303, path(acme, f"recoveries/{found.id}/"))
    assert (found.by, found.reason, found.per_minute) == (acme.releaser, WHY, 60)
    assert RecoveryItem.objects.filter(recovery=found).count() == 3
    page = client.get(path(acme, f"recoveries/{found.id}/"))
    for words in ("0 of 2 done, 1 left alone", "Status: Pending", WHY, "2 waiting", "Running"):
        assert words in words_of(page)
    listed = client.get(path(acme, "recoveries/"))
    assert "0 of 2" in words_of(listed)
    assert f"recovery:{found.id}" in listed.content.decode()


@pytest.mark.parametrize("role", OTHERS)
def test_nobody_else_is_shown_the_form_or_may(
    acme: World, held: Effect, client_of: ClientOf, role: str
) -> None:
    client = client_of(getattr(acme, role))
    page = client.get(path(acme))
    assert "only a releaser may recover in bulk" in words_of(page)
    assert "recover/start/" not in page.content.decode()
    assert begin(client, acme).status_code == 403
    assert not Recovery.objects.exists()
    assert AuditEvent.objects.filter(workspace_id=acme.workspace.id, verb="recovery.not_started").count() == 1
    assert begin(client_of(acme.releaser), acme).status_code == 303


@pytest.mark.parametrize(("typed", "status", "said"), REFUSED)
def test_a_refusal_says_why_and_keeps_what_was_typed(
    acme: World, held: Effect, client_of: ClientOf, typed: dict[str, str], status: int, said: str
) -> None:
    RECOVER.check_refused(client_of(acme.releaser), acme, "?receiver=crm", typed, status, said)


def test_what_moved_since_is_refused_and_the_fresh_list_can_be_started(
    acme: World, run: Run, held: Effect, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    digest = client.get(path(acme)).context["plan"].digest
    standing.held(intend(acme, run, "test.offer", OFFER))
    page = begin(client, acme, digest=digest)
    assert page.status_code == 409
    assert "Recover 2 of 2" in words_of(page)
    assert begin(client, acme, digest=page.context["plan"].digest).status_code == 303


def test_what_went_away_keeps_the_words(acme: World, alone: Effect, client_of: ClientOf) -> None:
    page = begin(client_of(acme.releaser), acme, reason="kept words")
    assert page.status_code == 409
    assert "kept words" in words_of(page)


def test_without_a_token_it_was_not_made_here(acme: World, held: Effect, client_of: ClientOf) -> None:
    assert client_of(acme.releaser).post(path(acme, "recover/start/"), {"reason": WHY}).status_code == 400
    assert client_of(acme.releaser).get(path(acme, "recover/start/")).status_code == 405


# -- how far it is, and its stop -----------------------------------------------------------------------------------


def test_what_came_of_each_is_said(acme: World, held: Effect, alone: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    found = begun(acme, client)
    while bulk_recover.work():
        pass
    page = client.get(path(acme, f"recoveries/{found.id}/"))
    said = words_of(page)
    for words in (
        "1 of 1 done, 1 left alone",
        "Ordered to be delivered again.",
        "Done",
        "Runs that crm failed",
    ):
        assert words in said
    assert Order.objects.filter(effect=held).count() == 1
    assert f"{path(acme, 'runs/')}?status=failed&amp;of=crm&amp;more=1" in page.content.decode()
    assert client.get(f"{path(acme, 'runs/')}?status=failed&of=crm&more=1").status_code == 200


def test_it_is_stopped_once_with_a_confirmation_in_words(
    acme: World, held: Effect, asked: Effect, client_of: ClientOf
) -> None:
    clients = client_of(acme.releaser), [client_of(getattr(acme, role)) for role in OTHERS]
    RECOVER.check_stopped_once(
        clients,
        acme,
        acme.releaser,
        "recovery.stopped",
        "No further effect is taken: 2 that wait stay as they are.",
    )


def test_a_kill_switch_is_said_while_it_runs(acme: World, held: Effect, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    found = begun(acme, client)
    stop_sending.stop_sending(
        acme.actor(acme.releaser), scope=StopScope.WORKSPACE, reason="Stop.", token="stop-it"
    )
    assert "A kill switch is on." in words_of(client.get(path(acme, f"recoveries/{found.id}/")))
    assert "Recover 0 of 1" in words_of(client.get(path(acme)))


def test_nobody_elses(acme: World, held: Effect, client: Client, client_of: ClientOf) -> None:
    found = begun(acme, client_of(acme.releaser))
    RECOVER.check_nobody_elses(acme, found, lambda other: client_of(other.releaser), client)


def test_empty_list_of_recoveries(acme: World, reads: Reads) -> None:
    assert "Nothing was recovered in bulk yet" in words_of(reads(acme.viewer, "recoveries/"))
    assert reads(acme.viewer, "recoveries/", cursor="zzz").status_code == 400


def test_htmx_gets_exactly_the_part_of_the_page(acme: World, held: Effect, client_of: ClientOf) -> None:
    found = begun(acme, client_of(acme.releaser))
    RECOVER.check_fragments(client_of(acme.viewer), acme, found, "?receiver=crm")


def test_hostile_text_is_text(acme: World, run: Run, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    standing.held(intend(acme, run, "test.offer", {**OFFER, "customer_id": evil}))
    client = client_of(acme.releaser)
    assert begin(client, acme, reason=evil).status_code == 303
    found = Recovery.objects.get(workspace=acme.workspace)
    for rest in ("recover/", "recoveries/", f"recoveries/{found.id}/"):
        assert "<img" not in client.get(path(acme, rest)).content.decode()


def test_more_effects_take_no_more_queries(
    acme: World, run: Run, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.releaser)
    found = None
    for n in range(2):
        standing.held(intend(acme, run, "test.offer", OFFER))
        client.get(path(acme))
        with django_assert_num_queries(15):
            client.get(path(acme))
        assert begin(client, acme, form_token=str(n) * 32).status_code == 303
        found = Recovery.objects.filter(workspace=acme.workspace).latest("at")
        with django_assert_num_queries(10):
            client.get(path(acme, "recoveries/"))
        with django_assert_num_queries(12):
            client.get(path(acme, f"recoveries/{found.id}/"))
