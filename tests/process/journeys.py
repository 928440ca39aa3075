"""What process tests do and look at: start a run, decide, and read the receiver's own records."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import httpx

from effects.models import Approval, ApprovalDecision, Effect
from effects.states import ApprovalStatus, Decision
from runs.commands.decide import decide
from runs.commands.start import start
from runs.models import Run, WorkflowVersion
from tests.people import World
from tests.stack import Stack, wait_for


def begin(world: World, workflow: str, **given: Any) -> Run:
    """Start a run as the operator, in the world's conversation."""
    version = WorkflowVersion.objects.get(name=workflow)
    run, _ = start(
        world.actor(world.operator),
        workflow=version,
        conversation=world.conversation,
        given=given,
        token=str(uuid.uuid4()),
    )
    return run


def reaches(run: Run, *statuses: str, within: float = 45) -> Run:
    """Wait until the run stands at one of *statuses*."""

    def look() -> bool:
        run.refresh_from_db()
        return run.status in statuses

    try:
        wait_for(f"{run.id} to be {' or '.join(statuses)}", look, within=within)
    except AssertionError as error:
        raise AssertionError(
            f"{error}; it is {run.status}: {run.failure_text}; effects: {standing(run)}"
        ) from None
    return run


def standing(run: Run) -> list[tuple[str, str, str]]:
    return [
        (effect.effect_type, effect.status, effect.sub_state)
        for effect in Effect.objects.filter(run_id=run.id)
    ]


def asked(run: Run, action: int = 0) -> Approval:
    """The open approval of the run."""
    found = wait_for(
        "an open approval",
        lambda: Approval.objects.filter(run_id=run.id, status=ApprovalStatus.PENDING, action=action).first(),
    )
    assert isinstance(found, Approval)
    return found


def approve(world: World, approval: Approval, by: Any = None, **fields: Any) -> ApprovalDecision:
    return decide(
        world.actor(by or world.approver),
        approval.id,
        **{
            "decision": Decision.APPROVE,
            "payload_hash": approval.payload_hash,
            "version": approval.version,
            "token": str(uuid.uuid4()),
            **fields,
        },
    )


@dataclass
class Receiver:
    """The test receiver's own records of one account, and the mail catcher's of one recipient."""

    stack: Stack
    account: str

    def effects(self) -> list[dict[str, Any]]:
        found = httpx.get(f"{self.stack.receiver}/_records/effects", params={"account": self.account})
        return list(found.raise_for_status().json()["effects"])

    def requests(self, method: str = "POST") -> list[dict[str, Any]]:
        found = httpx.get(f"{self.stack.receiver}/_records/requests", params={"account": self.account})
        return [one for one in found.raise_for_status().json()["requests"] if one["method"] == method]

    def mails(self, to: str) -> list[dict[str, Any]]:
        found = httpx.get(f"{self.stack.mail}/_records/messages", params={"to": to})
        return list(found.raise_for_status().json()["messages"])

    def order(self, kind: str, **order: Any) -> None:
        httpx.post(
            f"{self.stack.receiver}/_faults", json={"account": self.account, "kind": kind, **order}
        ).raise_for_status()

    def order_mail(self, kind: str, to: str, **order: Any) -> None:
        httpx.post(
            f"{self.stack.mail}/_faults", json={"kind": kind, "match": {"to": to}, **order}
        ).raise_for_status()
