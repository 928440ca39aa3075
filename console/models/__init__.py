from console.models.audit import AuditEvent
from console.models.roles import Capability, Role
from console.models.token import ApiToken
from console.models.worker import Worker
from console.models.workspace import Group, Membership, User, Workspace

__all__ = [
    "ApiToken",
    "AuditEvent",
    "Capability",
    "Group",
    "Membership",
    "Role",
    "User",
    "Worker",
    "Workspace",
]
