"""No ready-made contract promises more than is documented, and each says where."""

from __future__ import annotations

import importlib
from datetime import date
from typing import Any
from urllib.parse import urlsplit

import pytest

from effects.catalogue.listed import READY, Ready
from effects.contracts import EffectContract, contracts
from effects.states import Dedup
from effects.wires import HttpWire
from tests.catalogue.deployment import CONTRACTS

EVERY = [contract for ready in READY for contract in ready.contracts]

#: The providers' own pages, and the bodies that publish the standards.
PUBLISHERS = {
    "docs.stripe.com",
    "developer.zendesk.com",
    "docs.github.com",
    "developer.salesforce.com",
    "datatracker.ietf.org",
    "www.rfc-editor.org",
    "github.com",
}


def named(contract: EffectContract) -> str:
    return contract.type


@pytest.mark.parametrize("contract", EVERY, ids=named)
def test_every_promise_has_a_source_and_a_day(contract: EffectContract) -> None:
    assert contract.facts
    for fact in contract.facts:
        assert fact.says.endswith(".")
        assert urlsplit(fact.source).scheme == "https"
        assert urlsplit(fact.source).hostname in PUBLISHERS
        assert fact.checked >= date(2026, 12, 1)


@pytest.mark.parametrize("contract", EVERY, ids=named)
def test_what_is_not_documented_is_taken_for_the_worst(contract: EffectContract) -> None:
    """None of these providers documents how soon a look-up is true, and only two how long a key is kept."""
    assert not contract.authoritative
    published = {"stripe": 24 * 3600, "zendesk": 2 * 3600}
    assert contract.retention == published.get(contract.receiver, 0)
    if contract.dedup == Dedup.KEY and not contract.retention:
        assert contract.key_window.total_seconds() < 0


@pytest.mark.parametrize("contract", EVERY, ids=named)
def test_a_deadline_fits_into_the_window(contract: EffectContract) -> None:
    assert 10 <= contract.deadline <= 60
    if contract.retention:
        assert contract.key_window.total_seconds() > contract.deadline


def test_all_of_them_can_be_deployed_together() -> None:
    """The settings of this folder name them: a contract that can't be used would stop the process at its start."""
    assert set(contracts()) >= {contract.type for contract in CONTRACTS}


@pytest.mark.parametrize(
    "ready", [ready for ready in READY if ":" in ready.naming], ids=lambda ready: ready.provider
)
def test_what_is_said_to_be_named_can_be(ready: Ready) -> None:
    module, _, name = ready.naming.split(",")[0].partition(":")
    assert getattr(importlib.import_module(module), name) == ready.contracts


def test_every_module_is_listed() -> None:
    """By the receivers and types that its contracts have here."""
    assert {ready.naming.split(":")[0].split("(")[0] for ready in READY} == {
        "effects.catalogue.stripe",
        "effects.catalogue.zendesk",
        "effects.catalogue.github.create_issue",
        "effects.catalogue.idempotency_key.by_key",
        "effects.catalogue.natural_key.create_only",
        "effects.catalogue.natural_key.upsert",
        "effects.catalogue.natural_key.salesforce_upsert",
        "effects.catalogue.webhook",
        "effects.catalogue.mail.send_mail",
    }


SAMPLES: dict[str, dict[str, Any]] = {
    "stripe.create_customer": {"email": "a@example.com", "name": "A"},
    "stripe.create_invoice_item": {
        "customer": "cus_1",
        "amount": 100,
        "currency": "eur",
        "description": "x",
    },
    "stripe.create_payment": {
        "customer": "cus_1",
        "payment_method": "pm_1",
        "amount": 100,
        "currency": "eur",
    },
    "stripe.refund": {"payment_intent": "pi_1", "amount": 100},
    "zendesk.create_ticket": {
        "subject": "S",
        "comment": {"body": "B"},
        "requester": {"name": "N", "email": "n@example.com"},
    },
    "github.create_issue": {"repository": "owner/repository", "title": "T", "body": "B"},
    "example.by_key": {"customer": "c"},
    "example.create": {"customer": "c"},
    "example.upsert": {"customer": "c"},
    "example.salesforce": {"customer": "c"},
    "webhook.send": {"type": "a.b", "timestamp": "2026-12-01T09:00:00Z", "data": {}},
    "mail.send": {"to": "a@example.com", "subject": "S", "body": "B"},
}


@pytest.mark.parametrize("contract", EVERY, ids=named)
def test_a_payload_is_shown_summed_up_and_simulated(contract: EffectContract) -> None:
    payload = contract.validated(SAMPLES[contract.type])
    assert contract.recipient_of(payload)
    if contract.summary:
        assert contract.summary(payload)
    if contract.double:
        assert isinstance(contract.double(payload), dict)
    for protected in contract.mask:
        whole = contract.recipient_of(payload, protected)
        assert not whole or whole not in str(contract.shown(payload))
        assert whole not in contract.shown_recipient(payload) or not whole


@pytest.mark.parametrize("contract", [one for one in EVERY if one.harmless], ids=named)
def test_a_harmless_payload_fits(contract: EffectContract) -> None:
    assert contract.harmless
    assert contract.validated(contract.harmless("probe-1")) != contract.validated(
        contract.harmless("probe-2")
    )


@pytest.mark.parametrize("contract", EVERY, ids=named)
def test_the_key_can_be_told_from_all_others(contract: EffectContract) -> None:
    """By key, by natural key or by asking: what is made bears it, or the request does."""
    wire = contract.wire
    if contract.dedup == Dedup.NONE:
        return
    assert isinstance(wire, HttpWire)
    assert wire.carries_key or wire.key_header
    if contract.dedup in (Dedup.NATURAL, Dedup.QUERY):
        assert wire.carries_key
        assert wire.look_up
