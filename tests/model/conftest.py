"""The committed workspace that every example of the model works in and leaves as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from console.models import Role, User
from effects import restored
from effects.contracts import contracts
from effects.models import HookSource, Probe, Receiver, Standing
from tests.model.figures import Figures
from tests.model.machine import Setting
from tests.model.playing import PROCESSES
from tests.model.promises import RECEIVER
from tests.model.telling import SECRET, SECRET_NAME
from tests.people import World, make_world, probe_of


@pytest.fixture(scope="package")
def settings(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[Setting]]:
    """A workspace for each process that plays, with its people and probes: committed once; no effect ever is.

    Of its own, because an example is one transaction that never commits: in one workspace two of them may wait for each
    other for ever, which no two of the product's short ones do.
    """
    only_ours = override_settings(
        CONTRACTS=["tests.model.promises:CONTRACTS"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    with django_db_blocker.unblock(), only_ours:
        contracts.cache_clear()
        Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], SECRET_NAME).write_text(SECRET)
        made = [_setting(share) for share in range(PROCESSES)]
        # This is the database that the ledger is written in: committed, since each example is undone.
        restored.check()
        yield made
    contracts.cache_clear()


@pytest.fixture(scope="package")
def setting(settings: list[Setting]) -> Setting:
    return settings[0]


def _setting(share: int) -> Setting:
    # Effects' ids are made of it, and rows are drawn in the order of their ids.
    world = make_world("model", workspace_id=f"model-{share}")
    source = HookSource.objects.create(
        workspace=world.workspace, receiver=_receiver(world), secret_name=SECRET_NAME
    )
    names = ("operator", "approver", "second_approver", "third_approver", "releaser", "second_releaser")
    people = {name: world.actor(_person(world, name)) for name in names}
    for actor in people.values():
        # Read once: it is the same person in every example.
        assert actor.group_names is not None
    return Setting(world, people, Figures(), hook_id=source.id, share=share)


def _person(world: World, name: str) -> User:
    return world.person(name, Role.RELEASER) if name == "second_releaser" else getattr(world, name)


def _receiver(world: World) -> Receiver:
    receiver = Receiver.objects.create(
        workspace=world.workspace,
        name=RECEIVER,
        account=world.account,
        standing=Standing.LIVE,
        base_url="http://127.0.0.1:9",
        hosts=["127.0.0.1"],
    )
    Probe.objects.bulk_create(probe_of(receiver, promise) for promise in contracts().values())
    return receiver
