"""Bulk Continue: the dry run, its start, how far it is, its stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from console.bulk import MOST
from console.kernel.ids import new_id
from console.models import AuditEvent, User, Worker
from effects.commands import stop_sending
from effects.states import StopScope, SubState
from runs.commands import bulk_continue
from runs.models import BulkContinue, BulkContinueItem, Run
from runs.selectors import held
from runs.states import RunMode, RunStatus, StepOutcome
from tests.people import World
from tests.views import rows
from tests.views.bulks import EVERYBODY, REFUSED, TOKEN, WHY, BulkPages
from tests.views.conftest import Reads, words_of

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db
#: Who may run: product.md, roles.
MAY = ["operator", "developer"]
OTHERS = [role for role in EVERYBODY if role not in MAY]
CONTINUE = BulkPages(BulkContinue, "runs/continue/", "runs/continues/")
path, begin, begun = CONTINUE.path, CONTINUE.begin, CONTINUE.begun


@pytest.fixture
def failed(acme: World) -> Run:
    run = rows.stands(rows.run_in(acme, title="The failed one"), RunStatus.FAILED, fence=1)
    claim = rows.execution(run)
    rows.step(claim, "classify", 1)
    rows.step(claim, "draft_offer", 3, outcome=StepOutcome.FAILED)
    return run


@pytest.fixture
def paused(acme: World) -> Run:
    return rows.stands(rows.run_in(acme, title="The paused one"), RunStatus.PAUSED)


@pytest.fixture
def asking(acme: World) -> Run:
    return rows.stands(rows.run_in(acme, title="The asking one"), RunStatus.WAITING_APPROVAL)


def shown_in(page: Any) -> list[str]:
    return [row["item"].run.title for row in page.context["rows"]]


# -- the dry run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", EVERYBODY)
def test_everybody_sees_the_dry_run(acme: World, failed: Run, asking: Run, reads: Reads, role: str) -> None:
    page = reads(getattr(acme, role), "runs/continue/")
    assert page.status_code == 200
    assert shown_in(page) == [failed.title, asking.title]
    assert ("Continue 1 of 2 (1 left alone)" in words_of(page)) == (role in MAY)
    assert not BulkContinue.objects.exists()


def test_it_says_run_by_run_what_would_be_done(acme: World, failed: Run, asking: Run, reads: Reads) -> None:
    rows.effect(acme, failed, sub=SubState.UNCERTAIN)
    said = words_of(reads(acme.operator, "runs/continue/"))
    for words in (
        "Runs draft_offer, under sales_offer_agent@7.",
        "Sent again with the same key and the same bytes",
        "It waits for a decision.",
        "no worker holds it : they wait until one does",
        "1 left alone: 1 It waits for a decision.",
    ):
        assert words in said


def test_the_workers_that_hold_the_version_are_counted(acme: World, failed: Run, reads: Reads) -> None:
    Worker.objects.create(host="here", pid=1, versions=[held(failed.workflow, failed.fingerprint)])
    assert "1 of sales_offer_agent@7, held by 1 worker" in words_of(reads(acme.operator, "runs/continue/"))


def test_a_kill_switch_is_said_beside_what_it_stops(acme: World, failed: Run, reads: Reads) -> None:
    rows.effect(acme, failed, sub=SubState.READY)
    stop_sending.stop_sending(
        acme.actor(acme.releaser), scope=StopScope.WORKSPACE, reason="Wrong prices.", token="stop-it"
    )
    assert "Not sent: sending is stopped (everything). Wrong prices." in words_of(
        reads(acme.operator, "runs/continue/")
    )


def test_the_filter_is_the_runs_pages_and_is_repeated(
    acme: World, failed: Run, paused: Run, reads: Reads
) -> None:
    page = reads(acme.operator, "runs/continue/", status="failed", failure="node_error", more="1")
    assert shown_in(page) == [failed.title]
    said = words_of(page)
    assert "Status: Failed" in said
    assert "Continue 1 of 1" in said
    assert (
        f"{path(acme, 'runs/continue/start/')}?status=failed&amp;failure=node_error" in page.content.decode()
    )
    assert shown_in(reads(acme.operator, "runs/continue/", q="PAUSED")) == [paused.title]


def test_what_has_ended_is_not_counted_and_what_runs_apart_is_never_continued(
    acme: World, failed: Run, reads: Reads
) -> None:
    rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    rows.stands(rows.run_in(acme), RunStatus.CANCELLED)
    said = words_of(reads(acme.operator, "runs/continue/"))
    assert "Continue 1 of 1" in said
    none = words_of(reads(acme.operator, "runs/continue/", mode=RunMode.SIMULATION))
    assert "No run here is unfinished" in none
    assert "Continue 0 of 0" in none


def test_nothing_to_do_is_off_and_says_so(acme: World, asking: Run, reads: Reads) -> None:
    page = reads(acme.operator, "runs/continue/")
    assert "Continue 0 of 1" in words_of(page)
    assert 'aria-disabled="true"' in page.content.decode()
    assert "continue/start/" not in page.content.decode()


@pytest.mark.parametrize("query", ["?status=sent", "?kind=x", "?failure=none"])
def test_a_filter_that_can_not_be_read_starts_nothing(
    acme: World, failed: Run, client_of: ClientOf, query: str
) -> None:
    client = client_of(acme.operator)
    assert client.get(f"{path(acme)}{query}").status_code == 400
    given = {"form_token": TOKEN, "digest": "x", "per_minute": "60", "reason": WHY}
    assert client.post(f"{path(acme, 'runs/continue/start/')}{query}", given).status_code == 400
    assert not BulkContinue.objects.exists()


def test_the_runs_page_leads_there_with_its_filter(
    acme: World, failed: Run, asking: Run, reads: Reads
) -> None:
    page = reads(acme.operator, "runs/", workflow="sales_offer_agent").content.decode()
    assert f'href="{path(acme)}?workflow=sales_offer_agent"' in page
    assert "Continue 1 of 2…" in page
    assert path(acme) not in reads(acme.operator, "runs/", status="waiting_approval").content.decode()
    assert path(acme) not in reads(acme.viewer, "runs/").content.decode()


# -- starting it ---------------------------------------------------------------------------------------------------


def test_it_starts_once_and_says_what_it_has(
    acme: World, failed: Run, paused: Run, asking: Run, client_of: ClientOf
) -> None:
    client = client_of(acme.operator)
    for _ in range(2):
        answer = begin(client, acme, "?status=needs_a_person")
        found = BulkContinue.objects.get(workspace=acme.workspace)
        assert (answer.status_code, answer["Location"]) == (303, path(acme, f"runs/continues/{found.id}/"))
    assert (found.by, found.reason, found.per_minute) == (acme.operator, WHY, 60)
    assert found.filters == {"status": "needs_a_person"}
    assert BulkContinueItem.objects.filter(bulk=found).count() == 3
    said = words_of(client.get(path(acme, f"runs/continues/{found.id}/")))
    for words in ("0 of 2 continued, 1 left alone", "Status: Needs a person", WHY, "2 waiting", "Running"):
        assert words in said
    listed = client.get(path(acme, "runs/continues/"))
    assert "0 of 2" in words_of(listed)
    assert f"bulk:{found.id}" in listed.content.decode()


def test_the_same_form_of_another_person_is_refused(acme: World, failed: Run, client_of: ClientOf) -> None:
    begun(acme, client_of(acme.operator))
    page = begin(client_of(acme.developer), acme)
    assert page.status_code == 422
    assert "This form was used for another bulk Continue." in words_of(page)
    assert BulkContinue.objects.count() == 1


@pytest.mark.parametrize("role", OTHERS)
def test_nobody_else_is_shown_the_form_or_may(
    acme: World, failed: Run, client_of: ClientOf, role: str
) -> None:
    client = client_of(getattr(acme, role))
    page = client.get(path(acme))
    assert "only an operator may continue runs" in words_of(page)
    assert "continue/start/" not in page.content.decode()
    assert begin(client, acme).status_code == 403
    assert not BulkContinue.objects.exists()
    assert AuditEvent.objects.filter(workspace_id=acme.workspace.id, verb="bulk.not_started").count() == 1
    for who in MAY:
        assert begin(client_of(getattr(acme, who)), acme, form_token=who.ljust(32, "0")).status_code == 303


@pytest.mark.parametrize(("typed", "status", "said"), REFUSED)
def test_a_refusal_says_why_and_keeps_what_was_typed(
    acme: World, failed: Run, client_of: ClientOf, typed: dict[str, str], status: int, said: str
) -> None:
    CONTINUE.check_refused(client_of(acme.operator), acme, "?status=failed", typed, status, said)


def test_what_moved_since_is_refused_and_the_fresh_list_can_be_started(
    acme: World, failed: Run, paused: Run, client_of: ClientOf
) -> None:
    client = client_of(acme.operator)
    digest = client.get(path(acme)).context["plan"].digest
    rows.effect(acme, failed, sub=SubState.UNCERTAIN)
    page = begin(client, acme, digest=digest)
    assert page.status_code == 409, "what would be sent is not what was shown"
    assert begin(client, acme, digest=page.context["plan"].digest).status_code == 303


def test_what_went_away_keeps_the_words(acme: World, asking: Run, client_of: ClientOf) -> None:
    page = begin(client_of(acme.operator), acme, reason="kept words")
    assert page.status_code == 409
    assert "kept words" in words_of(page)


def test_without_a_token_it_was_not_made_here(acme: World, failed: Run, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    assert begin(client, acme, form_token="f" * 61).status_code == 400
    assert client.post(path(acme, "runs/continue/start/"), {"reason": WHY}).status_code == 400
    assert client.get(path(acme, "runs/continue/start/")).status_code == 405


# -- how far it is, and its stop -----------------------------------------------------------------------------------


def test_what_came_of_each_is_said(acme: World, failed: Run, asking: Run, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    found = begun(acme, client)
    while bulk_continue.work():
        pass
    said = words_of(client.get(path(acme, f"runs/continues/{found.id}/")))
    for words in ("1 of 1 continued, 1 left alone", "Continued.", "It waits for a decision.", "Queued"):
        assert words in said
    assert Run.objects.get(id=failed.id).status == RunStatus.QUEUED
    assert AuditEvent.objects.filter(subject=failed.id, verb="run.continued").count() == 1


def test_it_is_stopped_once_with_a_confirmation_in_words(
    acme: World, failed: Run, paused: Run, client_of: ClientOf
) -> None:
    clients = client_of(acme.operator), [client_of(getattr(acme, role)) for role in OTHERS]
    CONTINUE.check_stopped_once(
        clients,
        acme,
        acme.operator,
        "bulk.stopped",
        "No further run is continued: 2 that wait stay as they are.",
    )


def test_nobody_elses(acme: World, failed: Run, client: Client, client_of: ClientOf) -> None:
    found = begun(acme, client_of(acme.operator))
    CONTINUE.check_nobody_elses(acme, found, lambda other: client_of(other.operator), client)


def test_its_id_finds_it(acme: World, failed: Run, client_of: ClientOf) -> None:
    found = begun(acme, client_of(acme.operator))
    answer = client_of(acme.viewer).get(f"/w/{acme.workspace.id}/search", {"q": found.id})
    assert answer["Location"] == path(acme, f"runs/continues/{found.id}/")


def test_empty_list(acme: World, reads: Reads) -> None:
    assert "Nothing was continued in bulk yet" in words_of(reads(acme.viewer, "runs/continues/"))
    assert reads(acme.viewer, "runs/continues/", cursor="zzz").status_code == 400


def test_htmx_gets_exactly_the_part_of_the_page(acme: World, failed: Run, client_of: ClientOf) -> None:
    found = begun(acme, client_of(acme.operator))
    CONTINUE.check_fragments(client_of(acme.viewer), acme, found, "?status=failed")


def test_hostile_text_is_text(acme: World, failed: Run, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    rows.change(failed, title=evil, failure_of=evil)
    client = client_of(acme.operator)
    assert begin(client, acme, f"?of={evil}", reason=evil).status_code == 303
    found = BulkContinue.objects.get(workspace=acme.workspace)
    for rest in (f"continue/?of={evil}", "continues/", f"continues/{found.id}/", ""):
        assert "<img" not in client.get(path(acme, f"runs/{rest}")).content.decode()


# -- many ----------------------------------------------------------------------------------------------------------


def many(run: Run, count: int) -> None:
    """Copies of a run, each a second younger; by the database alone, since ten thousand objects take their time."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO runs_run SELECT copy.* FROM runs_run r, generate_series(1, %s) n,
                LATERAL jsonb_populate_record(r, jsonb_build_object('id', 'run_' || lpad(n::text, 26, '0'),
                    'command_token', 'copy-' || n, 'created_at', r.created_at + n * interval '1 s')) copy
            WHERE r.id = %s
            """,
            [count, run.id],
        )


def test_ten_thousand_runs_are_cut_and_take_a_few_questions(
    acme: World, failed: Run, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    many(failed, 9_999)
    rows.effect(acme, failed, sub=SubState.UNCERTAIN)
    client = client_of(acme.operator)
    client.get(path(acme))
    with django_assert_max_num_queries(7):
        plan = bulk_continue.dry_run(acme.actor(acme.operator), {})
    assert (len(plan.items), plan.eligible, plan.cut) == (MOST, MOST, True)
    with django_assert_max_num_queries(16):
        page = client.get(path(acme))
    assert len(page.context["rows"]) == 200
    said = words_of(page)
    assert "The first 200 of 2000 are shown. All are counted, and all would be taken." in said
    assert "There are more than one bulk Continue takes: it takes the first 2000." in said
    assert "Continue 99+…" in words_of(client.get(path(acme, "runs/")))


def test_more_runs_take_no_more_queries(
    acme: World, failed: Run, client_of: ClientOf, django_assert_num_queries: Any
) -> None:
    client = client_of(acme.operator)
    for n in range(2):
        run = rows.stands(rows.run_in(acme), RunStatus.FAILED)
        rows.effect(acme, run, sub=SubState.UNCERTAIN)
        rows.change(rows.stands(rows.run_in(acme), RunStatus.PAUSED), command_token=new_id("run"))
        client.get(path(acme))
        with django_assert_num_queries(11):
            client.get(path(acme))
        assert begin(client, acme, form_token=str(n) * 32).status_code == 303
        found = BulkContinue.objects.filter(workspace=acme.workspace).latest("at")
        with django_assert_num_queries(8):
            client.get(path(acme, "runs/continues/"))
        with django_assert_num_queries(9):
            client.get(path(acme, f"runs/continues/{found.id}/"))
