"""The contracts' pages: what each promises, what trying it showed, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import User
from demo.contracts import create_offer
from effects.contracts import Fact, contracts
from effects.models import Probe, Receiver
from tests.people import World, make_world, probe_of
from tests.views.conftest import Reads, words_of

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]


@pytest.fixture
def crm(acme: World) -> Receiver:
    acme.receivers("http://127.0.0.1:9", 9)
    return acme.workspace.receivers.get(name="crm")


def row(page: Any, effect_type: str) -> Any:
    return next(row for row, _ in page.context["rows"] if row.promise.type == effect_type)


def probed(receiver: Receiver, effect_type: str = "crm.create_offer", **fields: Any) -> Probe:
    made = probe_of(receiver, contracts()[effect_type], **fields)
    made.save(force_insert=True)
    return made


@pytest.mark.parametrize("role", EVERYBODY)
def test_everybody_sees_what_each_promises(acme: World, crm: Receiver, reads: Reads, role: str) -> None:
    page = reads(getattr(acme, role), "contracts/")
    said = words_of(page)
    for words in (
        "Create an offer",
        "crm.create_offer",
        crm.account,
        "Idempotency key: inside its window, the same key with the same bytes is known as a repeat.",
        "May be sent again by itself, as its promise allows.",
        "Never sent again by itself, whatever a probe shows.",
    ):
        assert words in said
    assert len(page.context["rows"]) == len(contracts())


def test_each_verdict_and_what_follows(acme: World, crm: Receiver, reads: Reads) -> None:
    def verdict() -> tuple[str, str]:
        found = row(reads(acme.viewer, "contracts/"), "crm.create_offer")
        return found.probed, found.follows

    once = "Sent once, and not again by itself: a person decides."
    assert verdict() == ("passed", "May be sent again by itself, as its promise allows.")
    probed(crm, passed=False)
    assert verdict() == ("failed", once)
    probed(crm, contract_version=99)
    assert verdict() == ("outdated", once)
    probed(crm)
    Receiver.objects.filter(id=crm.id).update(account="another")
    assert verdict() == ("outdated", once)
    said = words_of(reads(acme.viewer, "contracts/crm.create_offer/"))
    assert "now another" in said


def test_never_probed_and_nowhere(acme: World, reads: Reads) -> None:
    found = row(reads(acme.viewer, "contracts/"), "crm.create_offer")
    assert (found.probed, found.receiver) == ("nowhere", None)
    assert "no live receiver crm" in words_of(reads(acme.viewer, "contracts/crm.create_offer/"))
    Receiver.objects.create(
        workspace=acme.workspace, name="crm", account="a", standing="live", base_url="http://x", hosts=["x"]
    )
    assert row(reads(acme.viewer, "contracts/"), "crm.create_offer").probed == "never"
    said = words_of(reads(acme.viewer, "contracts/crm.create_offer/"))
    assert "It has not been tried at crm." in said
    assert f"manage.py probe crm.create_offer --workspace {acme.workspace.id}" in said


def test_one_contract_in_plain_words_and_its_probe_case_by_case(
    acme: World, crm: Receiver, reads: Reads
) -> None:
    probe = probed(
        crm,
        passed=False,
        cases=[
            {"name": "answer_lost", "title": "The answer is lost", "passed": True, "seen": "crm has one."},
            {"name": "same_key", "passed": False, "seen": "crm made <b>two</b>."},
        ],
    )
    page = reads(acme.viewer, "contracts/crm.create_offer/")
    said = words_of(page)
    for words in (
        "When an answer is lost",
        "The same key with the same bytes goes again, inside the key's window.",
        "Can it be undone?",
        "The answer is lost",
        "crm has one.",
        "same key",
        "crm made <b>two</b>.",
        probe.id,
        "Effects of this type",
    ):
        assert words in said
    assert "<b>two" not in page.content.decode()
    assert f"/w/{acme.workspace.id}/effects/?type=crm.create_offer" in page.content.decode()


def test_facts_have_their_source_and_date(
    acme: World, crm: Receiver, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = (
        Fact("A key lives for a day.", "https://crm.example/docs", date(2026, 3, 4)),
        Fact("They said so on the phone.", "javascript:alert(1)", date(2026, 3, 5)),
    )
    monkeypatch.setattr("effects.views.contracts.contracts", lambda: {"crm.create_offer": with_facts(facts)})
    page = reads(acme.viewer, "contracts/crm.create_offer/").content.decode()
    assert 'href="https://crm.example/docs" rel="noreferrer"' in page
    assert "A key lives for a day." in page
    assert "2026" in page
    assert 'href="javascript' not in page


def with_facts(facts: tuple[Fact, ...]) -> Any:
    from dataclasses import replace

    return replace(create_offer, facts=facts)


def test_what_there_is_not_is_not_found(acme: World, client: Client, client_of: ClientOf) -> None:
    here = f"/w/{acme.workspace.id}/contracts/"
    assert client_of(acme.viewer).get(f"{here}crm.nothing/").status_code == 404
    assert client_of(make_world("other").viewer).get(here).status_code == 404
    assert client.get(here).status_code == 302
    assert client_of(acme.viewer).post(here).status_code == 405


def test_another_workspaces_probe_is_not_ours(acme: World, reads: Reads) -> None:
    make_world("other").receivers("http://127.0.0.1:9", 9)
    assert row(reads(acme.viewer, "contracts/"), "crm.create_offer").probed == "nowhere"


def test_no_contract_at_all_is_said(acme: World, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("effects.views.contracts.contracts", dict)
    assert "This deployment has no contract" in words_of(reads(acme.viewer, "contracts/"))


def test_more_probes_take_no_more_queries(
    acme: World, crm: Receiver, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.viewer)
    client.get(f"/w/{acme.workspace.id}/contracts/")
    for _ in range(2):
        probed(crm)
        with django_assert_num_queries(9):
            client.get(f"/w/{acme.workspace.id}/contracts/")
