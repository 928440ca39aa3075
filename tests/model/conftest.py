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
from tests.model.promises import RECEIVER
from tests.model.telling import SECRET, SECRET_NAME
from tests.people import World, make_world, probe_of


@pytest.fixture(scope="package")
def setting(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Setting]:
    """The workspace, its people and the probes are committed once; no effect ever is."""
    only_ours = override_settings(
        CONTRACTS=["tests.model.promises:CONTRACTS"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    with django_db_blocker.unblock(), only_ours:
        contracts.cache_clear()
        world = make_world("model")
        source = HookSource.objects.create(
            workspace=world.workspace, receiver=_receiver(world), secret_name=SECRET_NAME
        )
        Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], SECRET_NAME).write_text(SECRET)
        # This is the database that the ledger is written in: committed, since each example is undone.
        restored.check()
        names = ("operator", "approver", "second_approver", "releaser", "second_releaser")
        people = {name: world.actor(_person(world, name)) for name in names}
        for actor in people.values():
            # Read once: it is the same person in every example.
            assert actor.group_names is not None
        yield Setting(world, people, Figures(), hook_id=source.id)
    contracts.cache_clear()


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
