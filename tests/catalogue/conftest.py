"""The ledger with the ready-made contracts, and servers of this machine as their receivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.test import override_settings

from effects import intents, ledger, reconcile
from effects.contracts import contracts
from effects.ledger import Visit, Wait
from effects.models import Effect, EffectAttempt, Observation, Probe, Receiver, Standing
from effects.origin import Result
from tests.catalogue.servers import LocalServer, Reply, Seen
from tests.effects.book import Run, at
from tests.people import World, probe_of


@pytest.fixture(scope="package", autouse=True)
def _deployed() -> Iterator[None]:
    with override_settings(CONTRACTS=[*settings.CONTRACTS, "tests.catalogue.deployment:CONTRACTS"]):
        contracts.cache_clear()
        yield
    contracts.cache_clear()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Seen], Reply]], LocalServer]]:
    """Start a server that responds so."""
    started: list[LocalServer] = []

    def start(respond: Callable[[Seen], Reply]) -> LocalServer:
        started.append(LocalServer(respond))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@dataclass
class Desk:
    """One run of a workspace that proposes, performs and looks, and what the ledger has of it."""

    world: World
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        self.run = Run(self.world.workspace.id)

    def receiver(self, name: str, url: str, secret: str = "") -> None:
        if secret:
            folder = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"])
            (folder / f"{self.world.workspace.id}-{name}").write_text(secret)
        row, made = Receiver.objects.update_or_create(
            workspace=self.world.workspace,
            name=name,
            standing=Standing.LIVE,
            defaults={
                "account": "the account",
                "base_url": url,
                "hosts": ["127.0.0.1"],
                "secret_name": f"{self.world.workspace.id}-{name}" if secret else "",
            },
        )
        if made:
            Probe.objects.bulk_create(
                probe_of(row, promise) for promise in contracts().values() if promise.receiver == name
            )

    def propose(self, effect_type: str, *, command: str = "one", **payload: Any) -> str:
        return intents.propose(self.run, effect_type, command, payload, at("a place")).effect_id

    def perform(self, effect_id: str) -> Result | Wait:
        """One visit, as soon as the effect is due."""
        Effect.objects.filter(id=effect_id).update(due_at=Now())
        return ledger.perform(self.run, effect_id, Visit())

    def send(self, effect_type: str, **payload: Any) -> str:
        effect_id = self.propose(effect_type, **payload)
        self.perform(effect_id)
        return effect_id

    def look(self, effect_id: str) -> str:
        Effect.objects.filter(id=effect_id).update(due_at=Now())
        return reconcile.look(effect_id)

    def effect(self, effect_id: str) -> Effect:
        return Effect.objects.select_related("receiver").get(id=effect_id)

    def standing(self, effect_id: str) -> tuple[str, str]:
        effect = self.effect(effect_id)
        return effect.status, effect.sub_state

    def attempts(self, effect_id: str) -> list[tuple[str, str]]:
        rows = EffectAttempt.objects.filter(effect_id=effect_id).order_by("n")
        return list(rows.values_list("outcome", "answer_status"))

    def reviews(self, effect_id: str) -> list[str]:
        open_ones = self.effect(effect_id).reviews.filter(closed_at=None)
        return sorted(open_ones.values_list("reason", flat=True))

    def said(self, effect_id: str) -> list[str]:
        return list(Observation.objects.filter(effect_id=effect_id).values_list("sentence", flat=True))


@pytest.fixture
def desk(acme: World) -> Desk:
    return Desk(acme)
