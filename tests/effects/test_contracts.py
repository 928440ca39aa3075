"""Contracts that can't keep what they promise are refused when the process starts, each by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

from effects.contracts import ContractError, EffectContract, UnknownType, contract, contracts
from effects.states import Dedup
from effects.wires import HttpWire
from tests.effects import promises

deployed: tuple[EffectContract, ...] = ()

assert isinstance(promises.offer.wire, HttpWire)

REFUSED: dict[str, tuple[EffectContract, ...]] = {
    "no receiver": (replace(promises.offer, receiver=""),),
    "two of one type": (promises.offer, replace(promises.offer, version=2)),
    "by key, and no key is sent": (
        replace(promises.offer, wire=replace(promises.offer.wire, key_header="")),
    ),
    "by key, in a mail": (replace(promises.mail, dedup=Dedup.KEY),),
    "a mask that can't be read": (replace(promises.offer, mask=("lines[",)),),
    # Nothing could ever settle what it leaves uncertain.
    "by natural key, and nobody is asked": (
        replace(promises.ticket, wire=replace(promises.offer.wire, look_up=None)),
    ),
    "by query, and nobody is asked": (
        replace(promises.ticket, dedup=Dedup.QUERY, wire=replace(promises.offer.wire, look_up=None)),
    ),
    # The look-up would find nothing: what it looks for is never written.
    "by natural key, and no id is written": (
        replace(promises.ticket, wire=replace(promises.offer.wire, external_id="", listing=None)),
    ),
}


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read these contracts as the deployment's."""

    def read(*several: EffectContract) -> Any:
        monkeypatch.setattr(f"{__name__}.deployed", several)
        with override_settings(CONTRACTS=[f"{__name__}:deployed"]):
            contracts.cache_clear()
            return contracts()

    yield read
    contracts.cache_clear()


@pytest.mark.parametrize("name", REFUSED)
def test_a_contract_that_can_not_keep_its_promise_is_refused_by_name(
    deploy: Callable[..., Any], name: str
) -> None:
    several = REFUSED[name]
    with pytest.raises(ContractError, match=several[0].type):
        deploy(*several)


def test_a_schema_that_is_none_is_refused_by_name(deploy: Callable[..., Any]) -> None:
    with pytest.raises(ContractError, match=r"ledger\.offer"):
        deploy(replace(promises.offer, schema={"type": "nonsense"}))


def test_a_module_that_is_not_there_is_named(settings: Any) -> None:
    settings.CONTRACTS = ["tests.effects.nowhere:CONTRACTS"]
    contracts.cache_clear()
    with pytest.raises(ContractError, match=r"tests\.effects\.nowhere"):
        contracts()
    contracts.cache_clear()


def test_every_contract_of_this_folder_is_taken(deploy: Callable[..., Any]) -> None:
    assert set(deploy(*promises.CONTRACTS)) == {one.type for one in promises.CONTRACTS}


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnknownType, match=r"crm\.delete_everything"):
        contract("crm.delete_everything")


def test_undeclared_is_irreversible_and_repeats_untold() -> None:
    """What an author says nothing about is taken for the worst."""
    plain = EffectContract(
        type="t", version=1, title="T", receiver="crm", wire=promises.mail.wire, recipient="to", schema={}
    )
    assert (plain.reversibility, plain.dedup, plain.retention, plain.authoritative) == (
        "irreversible",
        "X",
        0,
        False,
    )


def test_the_window_of_a_key_is_shorter_than_its_retention() -> None:
    """now + total deadline + skew < first attempt + 0.8 × retention."""
    one_day = replace(promises.offer, retention=86_400, deadline=10)
    assert one_day.key_window.total_seconds() == 0.8 * 86_400 - 10 - 60
    assert promises.no_window.key_window.total_seconds() < 0
    assert one_day.lease > one_day.deadline
