from console.models.audit import AuditEvent
from console.models.bulk import Bulk, BulkItem, BulkStatus, ItemState
from console.models.roles import Capability, Role
from console.models.token import ApiToken
from console.models.worker import Worker
from console.models.workspace import Group, Membership, User, Workspace

__all__ = [
    "ApiToken",
    "AuditEvent",
    "Bulk",
    "BulkItem",
    "BulkStatus",
    "Capability",
    "Group",
    "ItemState",
    "Membership",
    "Role",
    "User",
    "Worker",
    "Workspace",
]
