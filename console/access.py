"""Who may: the actor in a workspace, and the fetch that is the permission."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from console.kernel.errors import Forbidden, NotFound
from console.models import Capability, Group, Membership, Role, User, Workspace
from console.models.roles import capabilities


@dataclass(frozen=True)
class Actor:
    """A person in one workspace, with the roles they hold now.

    *without* are capabilities that the way in takes away: an API token acts as its maker with fewer rights.
    """

    user: User
    workspace: Workspace
    roles: frozenset[Role]
    without: frozenset[Capability] = field(default_factory=frozenset)

    def may(self, capability: Capability) -> bool:
        return capability in capabilities(self.roles) - self.without

    def require(self, capability: Capability) -> None:
        """Raise Forbidden, naming what is lacking."""
        if not self.may(capability):
            raise Forbidden(f"Your roles in {self.workspace.name} do not let you {capability.label}.")

    @cached_property
    def group_names(self) -> frozenset[str]:
        return frozenset(
            Group.objects.filter(workspace=self.workspace, members=self.user).values_list("name", flat=True)
        )


def actor_in(user: User, workspace_id: str, *, without: frozenset[Capability] = frozenset()) -> Actor:
    """The actor that *user* is in the workspace. NotFound when it is not theirs to see, or is not there."""
    membership = (
        Membership.objects.select_related("workspace").filter(user=user, workspace_id=workspace_id).first()
        if user.is_active
        else None
    )
    if membership is None:
        raise NotFound("There is no such workspace, or it is not yours to see.")
    return Actor(
        user=user,
        workspace=membership.workspace,
        roles=frozenset(Role(role) for role in membership.roles),
        without=without,
    )
