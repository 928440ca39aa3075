"""What a replay in evidence or simulation would have sent, and what it is answered in the receiver's place."""

from __future__ import annotations

from dataclasses import dataclass

from console.kernel.canonical import JSONValue, canonicalise
from console.kernel.crypto import seal, unseal_json
from console.kernel.errors import Refusal
from effects.contracts import EffectContract, Payload, contract
from effects.models import ApprovalDecision, WouldHave
from effects.states import ApprovalStatus

#: What an id of a would-be effect begins with: nothing of it is ever sent.
PREFIX = "wld_"


class Unanswered(Refusal):
    """Nothing answers in the receiver's place. *intended*: what was asked for."""

    def __init__(self, message: str, *, intended: WouldHave) -> None:
        super().__init__(message)
        self.intended = intended


class NoDouble(Unanswered):
    """The contract declares no double, so a simulation has nothing to answer with."""

    code = "no_double"
    status = 422


class NotRecorded(Unanswered):
    """The recording holds no result for this effect, and evidence asks nobody."""

    code = "not_recorded"
    status = 409


@dataclass(frozen=True)
class Intent:
    """What is meant, wherever it comes from. *hashed*: of the payload's canonical form."""

    workspace_id: str
    run_id: str
    position: str
    place: dict[str, object]
    node: str
    effect_type: str
    command_key: str
    hashed: str
    tool_call_id: str = ""
    stands_for: str = ""


def would_have(intent: Intent, promise: EffectContract, payload: Payload) -> WouldHave:
    """The row of a would-be effect; the same intent again finds it. It has no status, no key and never an attempt."""
    row, _ = WouldHave.objects.get_or_create(
        workspace_id=intent.workspace_id,
        run_id=intent.run_id,
        position=intent.position,
        effect_type=intent.effect_type,
        command_key=intent.command_key,
        request_hash=intent.hashed,
        defaults={
            "place": intent.place,
            "node": intent.node,
            "tool_call_id": intent.tool_call_id,
            "stands_for": intent.stands_for,
            "contract_version": promise.version,
            "recipient": promise.shown_recipient(payload),
            "payload": seal(canonicalise(payload), workspace=intent.workspace_id, owner=intent.run_id),
            "shown": promise.shown(payload),
        },
    )
    return row


def doubled(row: WouldHave) -> JSONValue:
    """What the contract's double answers. Raises NoDouble, naming the type."""
    promise = contract(row.effect_type)
    if promise.double is None:
        raise NoDouble(
            f"{promise.title}: its contract declares no double, so it can't be simulated.", intended=row
        )
    payload = unseal_json(row.payload, workspace=row.workspace_id, owner=row.run_id)
    return promise.double(payload if isinstance(payload, dict) else {})


def decision_on(row: WouldHave) -> ApprovalDecision | None:
    """What the launcher of the simulation decided about it; the newest, and None while nothing stands decided."""
    newest = row.approvals.order_by("-round").first()
    if newest is None or newest.status != ApprovalStatus.DECIDED:
        return None
    return newest.decisions.order_by("-at").first()
