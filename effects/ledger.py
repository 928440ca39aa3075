"""The ledger's two verbs: propose (save the intent) and perform (bring it about, once a visit).

It knows nothing of runs. What holds an effect's origin is an interface; the worker's side implements it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from django.db import transaction
from django.utils import timezone

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal, seal_json
from console.kernel.errors import Invalid, Refusal
from console.kernel.ids import effect_id as identity
from console.kernel.live import announce
from effects import moves, receivers
from effects.contracts import EffectContract, Payload, contract
from effects.models import Command, Effect, EffectAttempt, EffectRevision, Receiver, Standing
from effects.receivers import Answer
from effects.selectors import answer_of, request_of, revision_of
from effects.states import Dedup, EffectStatus, Outcome, Reversibility, ReviewReason, SubState

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


class Refused(Refusal):
    """The receiver refused the effect for good: nothing exists there."""

    code = "effect_refused"
    status = 422

    def __init__(self, message: str, *, effect_id: str, receiver: str) -> None:
        super().__init__(message)
        self.effect_id = effect_id
        self.receiver = receiver


class Unreachable(Refused):
    """The receiver could not be reached in all the time there was. Nothing was sent."""

    code = "receiver_unreachable"


class NoReceiver(Refusal):
    """The workspace has no receiver of the name that the contract uses."""

    code = "no_receiver"
    status = 422


class OriginLost(Exception):
    """The sender no longer holds its origin: the run was cancelled, or another worker has it."""


class Origin(Protocol):
    """What an effect comes from, as far as the ledger needs to know it."""

    @property
    def workspace_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def customer_ref(self) -> str: ...
    @property
    def name(self) -> str:
        """For the attempt's row: the execution or the order."""

    @property
    def worker_id(self) -> str: ...

    def hold(self) -> None:
        """Lock the origin's row until the transaction ends, or raise OriginLost."""


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


@dataclass(frozen=True)
class Result:
    """What became of an effect: brought about, or turned down by a person."""

    effect_id: str
    status: str
    reference: str = ""
    answer: JSONValue = None
    rejected: bool = False
    reason: str = ""

    @property
    def completed(self) -> bool:
        return self.status == EffectStatus.COMPLETED


@dataclass(frozen=True)
class Wait:
    """Not settled: the caller pauses and comes again when there is something to do."""

    effect_id: str
    why: str


@dataclass
class Visit:
    """One go of a worker at a node: an effect is sent at most once in it."""

    sent: set[str] = field(default_factory=set)


def propose(
    origin: Origin, effect_type: str, command_key: str, payload: Mapping[str, Any], why: Why
) -> Proposal:
    """Save the intent before anything is sent; the same call again finds what it saved.

    Raises Invalid (nothing is written), Conflict (sent already with another payload), OriginLost (cancelled, or
    no longer ours).
    """
    promise = contract(effect_type)
    plain = promise.validated(payload)
    if len(command_key) > LONGEST_KEY:
        raise Invalid(f"The command key is longer than {LONGEST_KEY} characters.", field="command")
    try:
        return _propose(origin, promise, command_key, plain, why)
    except TooManyChanges as changes:
        # In a transaction of its own: the refused proposal's is rolled back.
        with transaction.atomic():
            effect = Effect.objects.select_for_update().get(id=changes.effect_id)
            moves.open_review(effect, ReviewReason.CONTRADICTION, changes.message)
            announce(origin.workspace_id, f"run:{origin.run_id}", f"effect:{effect.id}", "home")
        raise


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


def _record(
    origin: Origin, command: Command, promise: EffectContract, payload: Payload, hashed: str
) -> Effect:
    receiver = Receiver.objects.filter(
        workspace_id=origin.workspace_id, name=promise.receiver, standing=Standing.LIVE
    ).first()
    if receiver is None:
        raise NoReceiver(f"This workspace has no live receiver named {promise.receiver!r}.", field="receiver")
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
        receiver=receiver,
        account=receiver.account,
        recipient=promise.shown_recipient(payload),
        key=made,
        request_hash=hashed,
        needs_approval=promise.asking is not None,
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


def perform(origin: Origin, effect_id: str, visit: Visit, *, until: str = "completed") -> Result | Wait:
    """Bring the effect about, or say what became of it. Sends at most once a visit, and never sleeps.

    Raises Refused or Unreachable where nothing exists and nothing more will be tried, OriginLost when the origin is
    no longer ours. The stored result comes back when the effect is settled already.
    """
    effect = _own(origin, effect_id)
    if effect_id not in visit.sent and effect.status == EffectStatus.PENDING:
        # Before the claim: whatever holds this process up from here on counts against the time to send.
        began = time.monotonic()
        attempt = _claim(origin, effect)
        if attempt is not None:
            visit.sent.add(effect_id)
            _send(effect, attempt, began)
        effect = _own(origin, effect_id)
    return outcome_of(effect, until=until)


def _own(origin: Origin, effect_id: str) -> Effect:
    """The effect of this run: an id from another run's state is never acted on."""
    effect = (
        Effect.objects.select_related("receiver", "command")
        .filter(id=effect_id, workspace_id=origin.workspace_id, run_id=origin.run_id)
        .first()
    )
    if effect is None:
        raise Conflict(f"This run has no effect {effect_id}.")
    return effect


def outcome_of(effect: Effect, *, until: str = "completed") -> Result | Wait:
    """Read the row: a result, a wait, or the refusal that it stands for."""
    if effect.status == EffectStatus.COMPLETED or (
        effect.status == EffectStatus.ACCEPTED and until == "accepted"
    ):
        return Result(effect.id, effect.status, effect.provider_reference, answer_of(effect))
    if effect.sub_state == SubState.REJECTED:
        return Result(effect.id, effect.status, rejected=True, reason=effect.problem)
    if effect.sub_state == SubState.REFUSED:
        raise Refused(
            f"{effect.receiver.name} refused {effect.effect_type}: {effect.problem}",
            effect_id=effect.id,
            receiver=effect.receiver.name,
        )
    if effect.sub_state == SubState.HELD:
        raise Unreachable(
            f"{effect.receiver.name} could not be reached for {effect.effect_type}; nothing was sent. {effect.problem}",
            effect_id=effect.id,
            receiver=effect.receiver.name,
        )
    if effect.sub_state == SubState.CANCELLED:
        raise OriginLost(f"effect {effect.id} was cancelled")
    return Wait(effect.id, effect.get_sub_state_display() if effect.sub_state else "Accepted, not final")


def _claim(origin: Origin, effect: Effect) -> EffectAttempt | None:
    """Take the effect in one transaction with the origin's row. The attempt is committed before the first byte."""
    promise = contract(effect.effect_type)
    with transaction.atomic():
        origin.hold()
        if promise.version != effect.contract_version and effect.sub_state in _CLAIMED_FROM:
            _contract_drifted(effect, promise)
            return None
        if effect.account != effect.receiver.account:
            moves.open_review(
                effect,
                ReviewReason.MISMATCH,
                f"The account at {effect.receiver.name} changed since this was asked for.",
            )
            return None
        if moves.void_grant(effect.id):
            return None
        return moves.claim(
            effect,
            lease=timedelta(seconds=promise.lease),
            key_window=promise.key_window,
            worker_id=origin.worker_id,
            origin=origin.name,
        )


_CLAIMED_FROM = (SubState.READY, SubState.BACKOFF, SubState.UNCERTAIN)


def _contract_drifted(effect: Effect, promise: EffectContract) -> None:
    moves.open_review(
        effect,
        ReviewReason.MISMATCH,
        f"The contract of {effect.effect_type} is version {promise.version} now; "
        f"this was asked for under version {effect.contract_version}.",
    )


def _send(effect: Effect, attempt: EffectAttempt, began: float) -> None:
    """Outside any transaction: deliver the stored bytes once, then settle. *began*: monotonic, before the claim."""
    promise = contract(effect.effect_type)
    request = request_of(effect, revision_of(effect, attempt.revision))
    left = promise.lease - promise.deadline - (time.monotonic() - began)
    answer = receivers.deliver(promise, effect, request, send_by=left)
    settle(effect, attempt, promise, answer)


def settle(effect: Effect, attempt: EffectAttempt, promise: EffectContract, answer: Answer) -> None:
    """Write what came of an attempt, by the fence it holds. A late one becomes an observation."""
    with transaction.atomic():
        locked = Effect.objects.select_for_update().get(id=effect.id)
        latency = _latency(attempt)
        landed = moves.end_attempt(
            attempt,
            answer.outcome,
            latency_ms=latency,
            answer_status=answer.status,
            provider_reference=answer.reference,
            problem=answer.problem,
        )
        if not landed or locked.fence != attempt.fence or locked.sub_state != SubState.IN_FLIGHT:
            _late(locked, answer)
        else:
            _move(locked, attempt, promise, answer)
        announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects")


def _latency(attempt: EffectAttempt) -> int:
    return max(0, int((timezone.now() - attempt.started_at).total_seconds() * 1000))


def _move(effect: Effect, attempt: EffectAttempt, promise: EffectContract, answer: Answer) -> None:
    if answer.outcome == Outcome.COMPLETED:
        moves.complete(attempt, reference=answer.reference, answer=sealed_answer(effect, answer.body))
        moves.close_answered_reviews(effect.id, why="The receiver confirmed it.")
    elif answer.outcome == Outcome.ACCEPTED:
        moves.accept(
            attempt,
            reference=answer.reference,
            wait=wait_before(1, answer.retry_after),
            deadline=timedelta(seconds=promise.give_up),
        )
    elif answer.outcome == Outcome.REFUSED and moves.refuse(attempt, problem=answer.problem):
        pass
    elif answer.outcome == Outcome.NOT_SENT and moves.back_off(
        attempt,
        wait=wait_before(attempt.n - effect.tries_before, answer.retry_after),
        give_up=timedelta(seconds=promise.give_up),
        problem=answer.problem,
    ):
        moves.hold(effect.id, tries=promise.tries)
    else:
        # Unknown, or a later attempt's refusal after one that may have been carried out: look before sending.
        moves.leave_uncertain(
            attempt,
            wait=wait_before(attempt.n - effect.tries_before, answer.retry_after),
            problem=answer.problem,
        )
        review_if_hopeless(effect, promise, mismatch=answer.problem if answer.mismatch else "")


def wait_before(tries: int, retry_after: float | None = None) -> timedelta:
    """Before the next try or look: 1, 2, 4 … at most 60 seconds, or what the receiver asked for (at most an hour)."""
    if retry_after is not None:
        return timedelta(seconds=min(max(retry_after, 0.5), 3600))
    return timedelta(seconds=min(2 ** max(tries - 1, 0), 60))


def sealed_answer(effect: Effect, body: Any) -> bytes:
    return seal_json(body, workspace=effect.workspace_id, owner=effect.id)


def review_if_hopeless(effect: Effect, promise: EffectContract, *, mismatch: str = "") -> None:
    """An uncertain effect that no look-up and no repeat can settle goes to a person."""
    if mismatch:
        moves.open_review(effect, ReviewReason.MISMATCH, mismatch)
    elif promise.dedup == Dedup.NONE:
        what = "irreversible" if effect.reversibility == Reversibility.IRREVERSIBLE else "not repeatable"
        moves.open_review(
            effect,
            ReviewReason.UNQUERYABLE,
            f"It may or may not have been delivered. {effect.receiver.name} can't be asked, and it is {what}.",
        )


def _late(effect: Effect, answer: Answer) -> None:
    """What a sender learned after it had lost its effect. Positive evidence still completes it."""
    moves.observe(
        effect,
        "late_answer",
        {"completed": "found", "refused": "absent"}.get(answer.outcome, "unclear"),
        f"A late answer came: {answer.problem or answer.outcome}.",
        reference=answer.reference,
        status=answer.status,
    )
    if answer.outcome == Outcome.COMPLETED:
        found_at_receiver(
            effect, answer.reference, answer.body, why="A late answer of the receiver confirmed it."
        )


def found_at_receiver(effect: Effect, reference: str, body: Any, *, why: str) -> None:
    """Exact positive evidence: the receiver holds this effect. It completes it wherever that may still be said.

    On an effect that is settled otherwise, or was never sent, it contradicts the ledger: a person looks.
    """
    if moves.complete_by_evidence(effect.id, reference=reference, answer=sealed_answer(effect, body)):
        moves.close_answered_reviews(effect.id, why=why)
        return
    now = Effect.objects.get(id=effect.id)
    if now.status != EffectStatus.COMPLETED or now.provider_reference != reference:
        says = now.get_sub_state_display() if now.sub_state else now.get_status_display()
        known = f" as {now.provider_reference}" if now.provider_reference else ""
        moves.open_review(
            now,
            ReviewReason.CONTRADICTION,
            f"The receiver has it as {reference}, but the ledger says: {says.lower()}{known}.",
        )
