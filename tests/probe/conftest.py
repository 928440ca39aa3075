"""A workspace whose receivers are the demo's real ones and servers that break their promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from effects.models import Effect, EffectAttempt, Probe, Receiver, Review, Standing
from effects.states import Outcome, SubState
from tests.effects.book import Witness
from tests.effects.conftest import outside as outside
from tests.people import World, make_world
from tests.plugin import ROOT
from tests.probe.servers import KINDS, Fair, Serving
from tests.stack import wait_for


@dataclass
class Ground:
    """The workspace that is probed, and what each receiver has."""

    world: World
    witness: Witness
    servers: dict[str, Serving] = field(default_factory=dict)

    def begin(self, *arguments: str, contracts: str = "CONTRACTS") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", "probe", "--workspace", self.world.workspace.id, *arguments],
            cwd=ROOT,
            env={**os.environ, "SIGNALBOX_CONTRACTS": f"tests.probe.contracts:{contracts}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, contracts: str = "CONTRACTS") -> tuple[int, str]:
        """The command's exit status and what it said."""
        process = self.begin(*arguments, contracts=contracts)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def effects(self, effect_type: str = "") -> Any:
        mine = Effect.objects.filter(workspace=self.world.workspace)
        return mine.filter(effect_type=effect_type) if effect_type else mine

    def attempts(self, effect_type: str) -> int:
        """Those that may have reached the receiver."""
        tried = EffectAttempt.objects.filter(effect__in=self.effects(effect_type))
        return tried.exclude(outcome=Outcome.NOT_SENT).count()

    def probe(self, effect_type: str) -> Probe:
        """The newest of the type."""
        return Probe.objects.filter(receiver__workspace=self.world.workspace, effect_type=effect_type).latest(
            "at"
        )

    def failed(self, effect_type: str) -> set[str]:
        """The names of the cases that failed in the newest probe of the type."""
        return {case["name"] for case in self.probe(effect_type).cases if not case["passed"]}

    def seen(self, effect_type: str, case: str) -> str:
        return str(next(one["seen"] for one in self.probe(effect_type).cases if one["name"] == case))

    def keeper(self, name: str) -> Fair:
        return self.servers[name].keeper

    def connect(self, name: str, url: str, **fields: Any) -> Receiver:
        return Receiver.objects.create(
            **{
                "workspace": self.world.workspace,
                "name": name,
                "account": self.world.account,
                "standing": Standing.LIVE,
                "base_url": url,
                "hosts": ["127.0.0.1"],
                **fields,
            }
        )


def _ground(outside: Witness) -> Ground:
    ground = Ground(make_world("probe"), outside)
    secrets = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"])
    (secrets / ground.world.workspace.id).write_text(f"{ground.world.account}:s3cret")
    outside.account = ground.world.account
    for name in ("crm", "desk"):
        ground.connect(name, outside.receiver, secret_name=ground.world.workspace.id)
    ground.connect("mail", f"smtp://127.0.0.1:{outside.smtp_port}")
    return ground


@pytest.fixture(scope="package")
def ground(django_db_setup: None, django_db_blocker: Any, outside: Witness) -> Iterator[Ground]:
    """Committed rows: the probe is a process of its own."""
    with django_db_blocker.unblock():
        made = _ground(outside)
        for name, kind in KINDS.items():
            made.servers[name] = Serving(kind())
            made.connect(name, made.servers[name].url)
        try:
            yield made
        finally:
            for server in made.servers.values():
                server.stop()


@dataclass
class Probed:
    """The workspace after every contract was probed once, and what the command said."""

    ground: Ground
    status: int
    said: str


@pytest.fixture(scope="package")
def probed(ground: Ground) -> Iterator[Probed]:
    """A probe that is killed in the middle, and then all of them."""
    process = ground.begin("probed.offer", "--yes")
    wait_for("a sender to be killed", lambda: ground.effects().filter(sub_state="in_flight").count() or None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not Probe.objects.filter(receiver__workspace=ground.world.workspace).exists()
    status, said = ground.run("--all", "--yes")
    yield Probed(ground, status, said)
    Review.objects.filter(workspace=ground.world.workspace, closed_at=None).update(closed_at=Now())
    # Nothing of it may keep another test's sweep busy.
    ground.effects().filter(sub_state__in=[SubState.UNCERTAIN, SubState.IN_FLIGHT]).update(due_at=None)
