"""Intents: saved before anything is sent, found again by whoever asks again, changed only while nothing was sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal, seal_json, unseal_json
from console.kernel.errors import Invalid, Refusal
from console.kernel.ids import effect_id as identity
from console.kernel.ids import successor_effect_id
from console.kernel.live import announce
from effects import doubles, moves
from effects.contracts import EffectContract, Payload, contract
from effects.models import Command, Effect, EffectRevision, Receiver, Standing, WouldHave
from effects.models.command import ORIGINAL_WAS
from effects.origin import Origin
from effects.selectors import payload_of, request_of, revision_of
from effects.states import NEVER_SENDS, EffectStatus, ReviewReason, Stance, SubState

#: How often the machine may change its mind about one command before a person has to look.
REVISIONS_BY_MACHINE = 3


#: As long as its column.
LONGEST_KEY = 200


class Conflict(Refusal):
    """Another payload under a command that has been sent already. The original stays as it is."""

    code = "effect_conflict"
    status = 409


class TooManyChanges(Conflict):
    """The machine has changed its mind about one command too often."""

    def __init__(self, message: str, *, effect_id: str) -> None:
        super().__init__(message)
        self.effect_id = effect_id


class NoReceiver(Refusal):
    """The workspace has no receiver of the name that the contract uses."""

    code = "no_receiver"
    status = 422


@dataclass(frozen=True)
class Why:
    """Where in the graph an intent was made, and by what."""

    position: str
    place: dict[str, Any]
    node: str
    tool: str = ""
    tool_call_id: str = ""
    arguments: JSONValue = None
    recording_id: str = ""


@dataclass(frozen=True)
class Proposal:
    """An intent that is saved. *effect_id* is what a workflow keeps in its state."""

    effect_id: str
    revision: int
    request_hash: str


def propose(
    origin: Origin, effect_type: str, command_key: str, payload: Mapping[str, Any], why: Why
) -> Proposal:
    """Save the intent before anything is sent; the same call again finds what it saved.

    Raises Invalid (nothing is written), Conflict (sent already with another payload), OriginLost (cancelled, or
    no longer ours).
    """
    return propose_under(origin, contract(effect_type), command_key, payload, why)


def propose_under(
    origin: Origin, promise: EffectContract, command_key: str, payload: Mapping[str, Any], why: Why
) -> Proposal:
    """The same under a contract that the caller brings: a probe's asks nobody, and speaks for no customer."""
    plain = promise.validated(payload)
    if len(command_key) > LONGEST_KEY:
        raise Invalid(f"The command key is longer than {LONGEST_KEY} characters.", field="command")
    if origin.stance in NEVER_SENDS:
        return _would_have(origin, promise, command_key, plain, why)
    try:
        return _propose(origin, promise, command_key, plain, why)
    except TooManyChanges as changes:
        # In a transaction of its own: the refused proposal's is rolled back.
        with transaction.atomic():
            effect = Effect.objects.select_for_update().get(id=changes.effect_id)
            moves.open_review(effect, ReviewReason.CONTRADICTION, changes.message)
            announce(origin.workspace_id, f"run:{origin.run_id}", f"effect:{effect.id}", "home")
        raise


def _would_have(
    origin: Origin, promise: EffectContract, command_key: str, plain: Payload, why: Why
) -> Proposal:
    hashed = request_hash(canonicalise(plain))
    earlier = origin.earlier(why.position, promise.type, command_key)
    intent = doubles.Intent(
        workspace_id=origin.workspace_id,
        run_id=origin.run_id,
        position=why.position,
        place=why.place,
        node=why.node,
        effect_type=promise.type,
        command_key=command_key,
        hashed=hashed,
        tool_call_id=why.tool_call_id,
        stands_for=earlier.id if earlier else "",
    )
    with transaction.atomic():
        origin.hold()
        row = doubles.would_have(intent, promise, plain)
        announce(origin.workspace_id, f"run:{origin.run_id}")
    if origin.stance == Stance.EVIDENCE and earlier is not None and proposed_by_machine(earlier, hashed):
        # The state must come out as it was recorded, and the recorded one carries this id.
        return Proposal(earlier.id, earlier.revision, earlier.request_hash)
    return Proposal(row.id, 1, hashed)


def proposed_by_machine(effect: Effect, hashed: str) -> bool:
    """Whether the workflow itself proposed a payload of this hash for *effect*, whatever people made of it later."""
    return EffectRevision.objects.filter(effect=effect, by=None, request_hash=hashed).exists()


def _propose(origin: Origin, promise: EffectContract, command_key: str, plain: Payload, why: Why) -> Proposal:
    hashed = request_hash(canonicalise(plain))
    with transaction.atomic():
        origin.hold()
        command, made = Command.objects.get_or_create(
            workspace_id=origin.workspace_id,
            run_id=origin.run_id,
            position=why.position,
            effect_type=promise.type,
            command_key=command_key,
            defaults={
                "place": why.place,
                "node": why.node,
                "tool": why.tool,
                "tool_call_id": why.tool_call_id,
                "arguments": seal_json(why.arguments, workspace=origin.workspace_id, owner=origin.run_id),
                "recording_id": why.recording_id,
                "machine_hash": hashed,
            },
        )
        if made:
            effect = _record(origin, command, promise, plain, hashed)
        else:
            _refresh_tool_call(command, why)
            effect = _asked_again(command, promise, plain, hashed)
        announce(origin.workspace_id, f"run:{origin.run_id}", "effects")
    return Proposal(effect.id, effect.revision, effect.request_hash)


def _refresh_tool_call(command: Command, why: Why) -> None:
    """A model that is asked again may give the same call a fresh random id; the command is the same."""
    if why.tool_call_id and command.tool_call_id != why.tool_call_id:
        Command.objects.filter(id=command.id).update(tool_call_id=why.tool_call_id)


def adopt(origin: Origin, effect: Effect) -> str:
    """Make an intent of an earlier run *origin*'s own, as people left it; the id under which *origin* acts on it.

    A live replay or branch gets an effect of its own, which always asks; a simulation what it would have sent. The
    same call again finds what it made.
    """
    command = effect.command
    payload = payload_of(effect, revision_of(effect))
    why = Why(
        position=command.position,
        place=command.place,
        node=command.node,
        tool=command.tool,
        tool_call_id=command.tool_call_id,
        arguments=None,
        recording_id=command.recording_id,
    )
    plain = payload if isinstance(payload, dict) else {}
    return propose(origin, effect.effect_type, command.command_key, plain, why).effect_id


def adopt_intended(origin: Origin, row: WouldHave) -> str:
    """The same for what an earlier simulation would have sent: a simulation of that one would send it too."""
    payload = unseal_json(row.payload, workspace=row.workspace_id, owner=row.run_id)
    why = Why(position=row.position, place=row.place, node=row.node, tool_call_id=row.tool_call_id)
    plain = payload if isinstance(payload, dict) else {}
    return propose(origin, row.effect_type, row.command_key, plain, why).effect_id


def _live_receiver(workspace_id: str, promise: EffectContract) -> Receiver:
    receiver = Receiver.objects.filter(
        workspace_id=workspace_id, name=promise.receiver, standing=Standing.LIVE
    ).first()
    if receiver is None:
        raise NoReceiver(f"This workspace has no live receiver named {promise.receiver!r}.", field="receiver")
    return receiver


def record_ordered(
    original: Effect,
    promise: EffectContract,
    payload: Payload,
    *,
    successor_of: Effect | None = None,
    compensates: Effect | None = None,
    amount_minor: int | None = None,
) -> Effect:
    """The intent of a person's order: an effect linked to *original*, with a command, an id and a key of its own.

    It belongs to the original's run and is no obligation of any of its nodes. It always asks. Inside the order's
    transaction, which holds the original's row: that row numbers what is linked to it.
    """
    n = original.successors.count() + original.compensations.count() + 1
    made = successor_effect_id(original.id, n)
    hashed = request_hash(canonicalise(payload))
    command = Command.objects.create(
        workspace_id=original.workspace_id,
        run_id=original.run_id,
        position=f"order:{made}",
        place={"order": True, "original": original.id, ORIGINAL_WAS: original.status},
        effect_type=promise.type,
        command_key=f"again:{n}" if successor_of else f"compensation:{n}",
        node=original.command.node,
        arguments=seal_json(None, workspace=original.workspace_id, owner=original.run_id),
        machine_hash=hashed,
    )
    receiver = _live_receiver(original.workspace_id, promise)
    effect = Effect.objects.create(
        id=made,
        workspace_id=original.workspace_id,
        command=command,
        run_id=original.run_id,
        customer_ref=original.customer_ref,
        effect_type=promise.type,
        contract_version=promise.version,
        reversibility=promise.reversibility,
        dedup=promise.dedup,
        creates=promise.creates,
        receiver=receiver,
        account=receiver.account,
        recipient=promise.shown_recipient(payload),
        key=made,
        request_hash=hashed,
        needs_approval=True,
        sub_state=SubState.AWAITING_APPROVAL,
        successor_of=successor_of,
        compensates=compensates,
        amount_minor=amount_minor,
    )
    save_revision(effect, promise, payload, n=1, hashed=hashed)
    return effect


def _record(
    origin: Origin, command: Command, promise: EffectContract, payload: Payload, hashed: str
) -> Effect:
    receiver = _live_receiver(origin.workspace_id, promise)
    made = identity(
        workspace=origin.workspace_id,
        run_id=origin.run_id,
        position=command.position,
        effect_type=promise.type,
        command_key=command.command_key,
    )
    effect = Effect.objects.create(
        id=made,
        workspace_id=origin.workspace_id,
        command=command,
        run_id=origin.run_id,
        customer_ref=promise.customer_of(payload) or origin.customer_ref,
        effect_type=promise.type,
        contract_version=promise.version,
        reversibility=promise.reversibility,
        dedup=promise.dedup,
        creates=promise.creates,
        receiver=receiver,
        account=receiver.account,
        recipient=promise.shown_recipient(payload),
        key=made,
        request_hash=hashed,
        needs_approval=promise.asking is not None or origin.stance == Stance.FRESH,
        asked_of=promise.asking.group if promise.asking else "",
    )
    save_revision(effect, promise, payload, n=1, hashed=hashed)
    if not effect.needs_approval:
        moves.make_ready_without_approval(effect.id)
    return effect


def save_revision(
    effect: Effect, promise: EffectContract, payload: Payload, *, n: int, hashed: str, by: Any = None
) -> EffectRevision:
    """Store the payload and the exact bytes, sealed; every later sending takes these bytes."""
    sealed = {"workspace": effect.workspace_id, "owner": effect.id}
    return EffectRevision.objects.create(
        effect=effect,
        n=n,
        by=by,
        payload=seal(canonicalise(payload), **sealed),
        request=seal(promise.wire.render(payload, key=effect.key), **sealed),
        shown=promise.shown(payload),
        recipient=promise.shown_recipient(payload),
        request_hash=hashed,
    )


def _asked_again(command: Command, promise: EffectContract, payload: Payload, hashed: str) -> Effect:
    """The machine asks again under a command that it made before: the same payload, or a change of mind."""
    effect = Effect.objects.select_for_update().get(command=command)
    if command.machine_hash == hashed:
        return effect
    if effect.tries > 0 or effect.status != EffectStatus.PENDING:
        raise Conflict(
            f"{promise.title} was asked for again with another payload, but the first one has been sent already."
        )
    by_machine = EffectRevision.objects.filter(effect=effect, by=None).count()
    if by_machine >= REVISIONS_BY_MACHINE:
        raise TooManyChanges(
            f"{promise.title}: the workflow changed its mind about it {by_machine} times; a person has to look.",
            effect_id=effect.id,
        )
    was = effect.revision
    if not moves.revise(
        effect.id,
        was=was,
        request_hash=hashed,
        recipient=promise.shown_recipient(payload),
        customer_ref=promise.customer_of(payload) or effect.customer_ref,
    ):
        raise Conflict(f"{promise.title} can't be changed where it stands ({effect.sub_state}).")
    save_revision(effect, promise, payload, n=was + 1, hashed=hashed)
    Command.objects.filter(id=command.id).update(machine_hash=hashed)
    if not effect.needs_approval:
        moves.make_ready_without_approval(effect.id)
    effect.refresh_from_db()
    return effect


def ask_under_new_version(effect: Effect, promise: EffectContract) -> None:
    """Unsent it is asked again under the new version, naming what changed. What may be there already is not sent anew."""
    if effect.unresolved:
        moves.open_review(
            effect,
            ReviewReason.MISMATCH,
            f"The contract of {effect.effect_type} is version {promise.version} now; "
            f"this was sent under version {effect.contract_version}, and is not sent again under another one.",
        )
        return
    payload = payload_of(effect, revision_of(effect))
    try:
        plain = promise.validated(payload if isinstance(payload, dict) else {})
    except Invalid as misfit:
        moves.open_review(
            effect,
            ReviewReason.MISMATCH,
            f"It does not fit version {promise.version} of its contract: {misfit.message}",
        )
        return
    was = effect.revision
    if moves.adopt_contract(effect, promise, why=_what_changed(effect, promise, plain)):
        effect.refresh_from_db()
        save_revision(effect, promise, plain, n=was + 1, hashed=effect.request_hash)


def _what_changed(effect: Effect, promise: EffectContract, payload: Payload) -> str:
    """The versions, and which parts of the request differ from those that were approved. No values: some are protected."""
    before = _parts_of(request_of(effect, revision_of(effect)))
    after = _parts_of(promise.wire.render(payload, key=effect.key))
    names = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
    differs = f"it changes {', '.join(names)} of the request" if names else "the request stays as it was"
    return (
        f"The contract of {effect.effect_type} went from version {effect.contract_version} to {promise.version} "
        f"since this was asked for: {differs}."
    )


def _parts_of(request: bytes) -> dict[str, Any]:
    """A stored request by its parts; a JSON body by its fields."""
    parts: dict[str, Any] = dict(json.loads(request))
    parts.pop("message", None)  # a mail's own date differs each time it is made
    body = parts.pop("body", None)
    try:
        fields = json.loads(base64.b64decode(body)) if body else None
    except ValueError:
        fields = None
    return {**parts, **fields} if isinstance(fields, dict) else {**parts, "body": body}
