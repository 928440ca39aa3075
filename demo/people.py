"""Who works at the demo's company, and what they work with: workspace, people, group, receivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction

from console.access import Actor, actor_in
from console.models import Group, Membership, Role, User, Workspace
from effects.models import HookSource, Receiver, Standing

COMPANY: Final = "Northgate Software"
WORKFLOWS: Final = ("sales_offer_agent", "support_agent")
APPROVERS: Final = "Sales approvers"


@dataclass(frozen=True)
class Person:
    """One of the company's people. *login* is the part of their address before the @."""

    login: str
    name: str
    role: Role


# A login for each role bears the role's name; approvals that were edited need a second approver.
PEOPLE: Final = (
    Person("viewer", "Vera Novák", Role.VIEWER),
    Person("operator", "Olivia Brandt", Role.OPERATOR),
    Person("approver", "Mara Lindqvist", Role.APPROVER),
    Person("jonas", "Jonas Okafor", Role.APPROVER),
    Person("auditor", "Anton Weiss", Role.AUDITOR),
    Person("releaser", "Renske Vos", Role.RELEASER),
    Person("developer", "Deniz Arslan", Role.DEVELOPER),
    Person("administrator", "Adaeze Obi", Role.ADMINISTRATOR),
)


@dataclass(frozen=True)
class Company:
    """The seeded workspace, seen by its people."""

    workspace: Workspace

    def actor(self, login: str) -> Actor:
        """The person of that login, with the rights they have now."""
        return actor_in(User.objects.get(email=address(login, self.workspace.id)), self.workspace.id)


def address(login: str, workspace_id: str) -> str:
    return f"{login}@{workspace_id}.example"


def account(workspace_id: str) -> str:
    """The company's account at the test receiver: the part of the receivers' secrets before the colon."""
    return f"{workspace_id}-live"


def found(workspace_id: str, *, password: str, receivers: Mapping[str, str]) -> Company:
    """Make what is missing of the company, and return it.

    The CRM's webhooks are listened to, with the secret of the name crm-hook.

    Everybody has *password* afterwards, as the greeting says, whatever they had before; and the *receivers* (name →
    address) are where they are now: ports may change between two starts.
    """
    with transaction.atomic():
        workspace, _ = Workspace.objects.get_or_create(
            id=workspace_id, defaults={"name": COMPANY, "is_demo": True, "workflows": list(WORKFLOWS)}
        )
        group, _ = Group.objects.get_or_create(workspace=workspace, name=APPROVERS)
        for person in PEOPLE:
            user, _ = User.objects.get_or_create(
                email=address(person.login, workspace_id), defaults={"name": person.name}
            )
            Membership.objects.get_or_create(
                workspace=workspace, user=user, defaults={"roles": [person.role.value]}
            )
            if person.role == Role.APPROVER:
                group.members.add(user)
        let_everybody_in(workspace_id, password)
        for name, url in receivers.items():
            connect(workspace, name, url)
        listen(workspace, "crm")
    return Company(workspace)


def let_everybody_in(workspace_id: str, password: str) -> None:
    """Give everybody *password*. One hash for all of them: it is one password, and a hash is slow by design."""
    users = User.objects.filter(email__in=[address(person.login, workspace_id) for person in PEOPLE])
    known = users.order_by("id").values_list("password", flat=True)[0]
    shared = known if check_password(password, known) else make_password(password)
    users.exclude(password=shared).update(password=shared)


def connect(workspace: Workspace, name: str, url: str) -> None:
    Receiver.objects.update_or_create(
        workspace=workspace,
        name=name,
        standing=Standing.LIVE,
        defaults={"base_url": url},
        create_defaults={
            "base_url": url,
            "account": account(workspace.id),
            "hosts": ["127.0.0.1"],
            "secret_name": "" if url.startswith("smtp:") else name,
        },
    )


def listen(workspace: Workspace, name: str) -> HookSource:
    """The address at which the receiver of that name may tell what became of its commands: the one there is, or a new one."""
    receiver = Receiver.objects.get(workspace=workspace, name=name, standing=Standing.LIVE)
    source, _ = HookSource.objects.get_or_create(
        workspace=workspace, receiver=receiver, secret_name=f"{name}-hook", closed_at=None
    )
    return source
