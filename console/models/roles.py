"""Roles and capabilities: the one table of who may do what in a workspace (docs/roles.md is made from it)."""

from __future__ import annotations

from django.db.models import TextChoices


class Role(TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    APPROVER = "approver", "Approver"
    AUDITOR = "auditor", "Auditor"
    RELEASER = "releaser", "Releaser"
    DEVELOPER = "developer", "Developer"
    ADMINISTRATOR = "administrator", "Administrator"


class Capability(TextChoices):
    SEE = "see", "see runs and effects (masked)"
    RUN = "run", "start, continue, pause or cancel runs, or ask again"
    EVIDENCE = "evidence", "replay in evidence or ask the receiver"
    SIMULATE = "simulate", "replay or branch in simulation"
    LIVE = "live", "replay or branch live, or migrate state"
    PERMIT = "permit", "permit an irreversible type on a live replay or branch"
    DECIDE = "decide", "decide approvals of their groups"
    REPEAT = "repeat", "repeat effects, recover in bulk, settle reviews or use the kill switch"
    SECOND = "second", "be the second person for a repeat, a recovery or a review"
    REVEAL = "reveal", "reveal protected values"
    AUDIT = "audit", "see and export the audit trail"
    ADMINISTER = "administer", "manage members, groups, policy, tokens, receivers and retention"


_EVERYBODY = frozenset(Role)

#: Which roles hold a capability. A person may hold several roles; four eyes still means two people.
HOLDERS: dict[Capability, frozenset[Role]] = {
    Capability.SEE: _EVERYBODY,
    Capability.RUN: frozenset({Role.OPERATOR, Role.DEVELOPER}),
    Capability.EVIDENCE: frozenset({Role.OPERATOR, Role.AUDITOR, Role.RELEASER, Role.DEVELOPER}),
    Capability.SIMULATE: frozenset({Role.OPERATOR, Role.DEVELOPER}),
    Capability.LIVE: frozenset({Role.DEVELOPER}),
    Capability.PERMIT: frozenset({Role.RELEASER}),
    # An approver is shown the whole of the request before them (and only that): see effects.approvals.
    Capability.DECIDE: frozenset({Role.APPROVER}),
    Capability.REPEAT: frozenset({Role.RELEASER}),
    Capability.SECOND: frozenset({Role.APPROVER, Role.RELEASER}),
    Capability.REVEAL: frozenset({Role.AUDITOR, Role.RELEASER}),
    Capability.AUDIT: frozenset({Role.AUDITOR, Role.ADMINISTRATOR}),
    Capability.ADMINISTER: frozenset({Role.ADMINISTRATOR}),
}


def capabilities(roles: frozenset[Role]) -> frozenset[Capability]:
    """Every capability that at least one of *roles* holds."""
    return frozenset(capability for capability, holders in HOLDERS.items() if holders & roles)
