"""Contracts with short times, for tests that wait for leases and look-ups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from demo.contracts import create_offer, open_ticket, send_mail
from effects.contracts import EffectContract


def _short(contract: EffectContract, name: str, **changes: Any) -> EffectContract:
    return replace(contract, type=name, deadline=1.5, settle=0.5, **changes)


offer_by_key = _short(create_offer, "test.offer_by_key", asking=None)
asked_offer = _short(create_offer, "test.asked_offer")
ticket = _short(open_ticket, "test.ticket")
mail = _short(send_mail, "test.mail")

CONTRACTS = (offer_by_key, asked_offer, ticket, mail)
