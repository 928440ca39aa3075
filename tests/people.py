"""Named actors in a workspace of their own: an operator, two approvers, an auditor, an outsider …"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from django.utils import timezone

from console.access import Actor, actor_in
from console.kernel.ids import new_id
from console.models import Group, Membership, Role, User, Workspace
from effects.contracts import EffectContract, contracts
from effects.models import Probe, Receiver, Standing
from runs.models import Conversation, WorkflowVersion

PASSWORD = "correct horse battery"
_numbers = itertools.count(1)


@dataclass
class World:
    """A workspace with one person for each role, and what they need to work."""

    workspace: Workspace

    def person(self, name: str, *roles: Role) -> User:
        user = User.objects.create_user(
            f"{name}@{self.workspace.id}.example", PASSWORD, name=name.replace("_", " ").title()
        )
        if roles:
            Membership.objects.create(
                workspace=self.workspace, user=user, roles=[role.value for role in roles]
            )
        return user

    @cached_property
    def operator(self) -> User:
        return self.person("operator", Role.OPERATOR)

    @cached_property
    def approver(self) -> User:
        return self._approver("approver")

    @cached_property
    def second_approver(self) -> User:
        return self._approver("second_approver")

    @cached_property
    def third_approver(self) -> User:
        return self._approver("third_approver")

    def _approver(self, name: str) -> User:
        user = self.person(name, Role.APPROVER)
        group, _ = Group.objects.get_or_create(workspace=self.workspace, name="Sales approvers")
        group.members.add(user)
        return user

    @cached_property
    def auditor(self) -> User:
        return self.person("auditor", Role.AUDITOR)

    @cached_property
    def viewer(self) -> User:
        return self.person("viewer", Role.VIEWER)

    @cached_property
    def releaser(self) -> User:
        return self.person("releaser", Role.RELEASER)

    @cached_property
    def developer(self) -> User:
        return self.person("developer", Role.DEVELOPER)

    @cached_property
    def administrator(self) -> User:
        return self.person("administrator", Role.ADMINISTRATOR)

    @cached_property
    def outsider(self) -> User:
        """Somebody who may log in and belongs to no workspace here."""
        return self.person("outsider")

    def actor(self, user: User) -> Actor:
        return actor_in(user, self.workspace.id)

    @cached_property
    def conversation(self) -> Conversation:
        return Conversation.objects.create(
            workspace=self.workspace,
            subject="40 seats for the Stuttgart office",
            customer_ref="cus_000003",
            customer_name="Brückner Maschinenbau GmbH",
            channel="mail",
            language="de",
        )

    @property
    def account(self) -> str:
        """The account at the receivers: one for each workspace."""
        return f"{self.workspace.id}-live"

    def receivers(self, http: str, smtp_port: int) -> None:
        """The three receivers of the demo's contracts, with a secret that names this workspace's account."""
        secrets = Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"])
        (secrets / self.workspace.id).write_text(f"{self.account}:s3cret")
        for name in ("crm", "desk"):
            self._receiver(name, http)
        self._receiver("mail", f"smtp://127.0.0.1:{smtp_port}")

    def _receiver(self, name: str, url: str) -> None:
        receiver = Receiver.objects.create(
            workspace=self.workspace,
            name=name,
            account=self.account,
            standing=Standing.LIVE,
            base_url=url,
            hosts=["127.0.0.1"],
            secret_name="" if name == "mail" else self.workspace.id,
        )
        Probe.objects.bulk_create(
            probe_of(receiver, promise) for promise in contracts().values() if promise.receiver == name
        )


def probe_of(receiver: Receiver, promise: EffectContract, **fields: Any) -> Probe:
    """A passed probe, unsaved: what the receiver's account needs for anything to be sent a second time by itself."""
    return Probe(
        **{
            "id": new_id("prb"),
            "receiver": receiver,
            "account": receiver.account,
            "effect_type": promise.type,
            "contract_version": promise.version,
            "passed": True,
            "cases": [{"name": "of_a_test", "passed": True}],
            "began_at": timezone.now(),
            **fields,
        }
    )


def make_world(name: str = "acme", *, workspace_id: str = "") -> World:
    """A new workspace that has enabled every workflow there is. *workspace_id*: for what is to come out the same again."""
    number = next(_numbers)
    workspace = Workspace.objects.create(
        id=workspace_id or f"{name}-{os.getpid()}-{number}",
        name=name.title(),
        workflows=list(WorkflowVersion.objects.values_list("name", flat=True).distinct()),
    )
    return World(workspace)
