"""Approvals: open, decide, expire. The one door to a grant.

The caller holds the run's row; here the locks go on in the order approval → effect → audit. The decision, the grant,
and the audit event are one transaction, the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Now
from jsonschema import Draft202012Validator

from console import audit
from console.access import Actor
from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal_json, unseal_json
from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound, Stale
from console.models import Capability
from effects import moves
from effects.contracts import Asking, contract
from effects.intents import save_revision
from effects.models import Approval, ApprovalDecision, Effect, WouldHave
from effects.rounds import (
    arguments_of,
    as_object,
    body_of,
    decided,
    edited_before,
    editors_of,
    newest_of,
)
from effects.second_person import decide_order, end_order, may_second
from effects.selectors import payload_of, revision_of
from effects.states import (
    ApprovalStatus,
    Asked,
    Decision,
    EffectStatus,
    OrderStatus,
    Reversibility,
    SubState,
)


class Expired(AlreadyDone):
    code = "expired"


@dataclass(frozen=True)
class Pause:
    """The pause that an approval is opened for: where the run stands, and what the pause carried."""

    workspace_id: str
    run_id: str
    checkpoint_id: str
    workflow: str
    fingerprint: str
    node: str
    interrupt_id: str
    interrupt_hash: str
    #: The id of who launched the simulation that asks; empty where the answer counts.
    simulated_for: str = ""


@dataclass(frozen=True)
class Request:
    """What one approval asks: about an effect, an agent's action (perhaps bound to an effect), or a question."""

    asks: Asked
    title: str
    body: JSONValue
    allows: tuple[Decision, ...]
    effect_id: str = ""
    would_have_id: str = ""
    why: str = ""
    answer_schema: Any = None
    asked_of: str = ""
    due: float = Asking.due
    expires: float = Asking.expires


def open_for(pause: Pause, requests: Sequence[Request], *, again: bool = True) -> None:
    """See that each request of a pause is before a person: the same one stands, another opens the next round.

    Called with the run's row held, each time a worker finds the pause. What was asked and is open, or is decided
    and has yet to be delivered, stands; after a superseded or closed round the next one opens. After an expired one
    it opens only with *again*: a person has asked for it by Continue.
    """
    for action, request in enumerate(requests):
        if _asked_elsewhere(pause, request):
            continue
        newest = newest_of(pause.run_id, pause.interrupt_id, action)
        if newest is not None and _stands(newest, pause, request):
            continue
        same = newest is not None and newest.interrupt_hash == pause.interrupt_hash
        if newest is not None and same and newest.status == ApprovalStatus.EXPIRED and not again:
            continue
        if newest is not None and newest.status == ApprovalStatus.PENDING:
            _end(newest, ApprovalStatus.SUPERSEDED, "Asked again")
        _open(pause, request, round_number=newest.round + 1 if newest else 1, action=action)


def _asked_elsewhere(pause: Pause, request: Request) -> bool:
    """Another pause asks about the same effect: its one request stands for both."""
    return bool(request.effect_id) and (
        Approval.objects.filter(
            effect_id=request.effect_id, revision=F("effect__revision"), status=ApprovalStatus.PENDING
        )
        .exclude(interrupt_id=pause.interrupt_id)
        .exists()
    )


def _stands(newest: Approval, pause: Pause, request: Request) -> bool:
    if newest.interrupt_hash != pause.interrupt_hash:
        return False
    if request.asks == Asked.EFFECT and newest.effect is not None:
        open_for_these_bytes = (
            newest.status == ApprovalStatus.PENDING and newest.revision == newest.effect.revision
        )
        return open_for_these_bytes or not can_still_be_asked(newest.effect)
    return newest.status in (ApprovalStatus.PENDING, ApprovalStatus.DECIDED)


def _open(pause: Pause, request: Request, *, round_number: int, action: int) -> Approval:
    request = _as_edited(pause, request, action)
    effect = Effect.objects.select_for_update().get(id=request.effect_id) if request.effect_id else None
    hashed = request_hash(canonicalise(request.body))
    if effect is not None:
        if effect.needs_approval:
            moves.await_approval(effect.id, revision=effect.revision)
        elif request.asks == Asked.ACTION:
            moves.require_approval(effect.id)
        effect.refresh_from_db()
        hashed = effect.request_hash
    return Approval.objects.create(
        workspace_id=pause.workspace_id,
        run_id=pause.run_id,
        checkpoint_id=pause.checkpoint_id,
        workflow=pause.workflow,
        fingerprint=pause.fingerprint,
        node=pause.node,
        interrupt_id=pause.interrupt_id,
        interrupt_hash=pause.interrupt_hash,
        round=round_number,
        action=action,
        asks=request.asks,
        effect=effect,
        revision=effect.revision if effect else None,
        contract_version=effect.contract_version if effect else None,
        payload_hash=hashed,
        title=request.title[:200],
        why=request.why,
        body=seal_json(request.body, workspace=pause.workspace_id, owner=pause.run_id),
        answer_schema=request.answer_schema,
        allows=[decision.value for decision in request.allows],
        asked_of=request.asked_of or (effect.asked_of if effect else ""),
        simulated_for_id=pause.simulated_for or None,
        would_have_id=request.would_have_id or None,
        irreversible=bool(effect and effect.reversibility == Reversibility.IRREVERSIBLE),
        due_at=Now() + timedelta(seconds=request.due),
        expires_at=Now() + timedelta(seconds=request.expires),
    )


def _as_edited(pause: Pause, request: Request, action: int) -> Request:
    """An action asked about again shows the arguments as a co-author left them: those are what would be sent."""
    newest = newest_of(pause.run_id, pause.interrupt_id, action)
    if request.asks != Asked.ACTION or newest is None or newest.interrupt_hash != pause.interrupt_hash:
        return request
    edited = edited_before(newest)
    return request if edited is None else replace(request, body={**as_object(request.body), "args": edited})


def may_decide(actor: Actor, approval: Approval, *, involved: frozenset[str]) -> str:
    """Why *actor* may not decide this approval, in words; empty when they may.

    *involved*: the ids of the people who started, launched or edited what is asked about (four eyes).
    """
    if approval.simulated_for is not None:
        mine = approval.simulated_for_id == actor.user.id
        return (
            "" if mine else f"Only {approval.simulated_for.name} decides this: they launched the simulation."
        )
    if approval.order_id:
        return may_second(actor, approval, involved)
    if not actor.may(Capability.DECIDE):
        return f"Your roles in {actor.workspace.name} do not let you decide approvals."
    if approval.asked_of and approval.asked_of not in actor.group_names:
        return f"This is for {approval.asked_of}; you are not one of them."
    if actor.user.id in involved:
        return "Four eyes: you started or edited this, so somebody else decides it."
    return ""


def decide(
    actor: Actor,
    approval_id: str,
    *,
    decision: Decision,
    payload_hash: str,
    version: int,
    token: str,
    reason: str = "",
    answer: JSONValue = None,
    involved: frozenset[str] = frozenset(),
) -> ApprovalDecision:
    """Decide one approval, once, inside the caller's transaction that holds the run's row.

    The same *token* again returns what it decided. Raises AlreadyDone or Expired (409, with what happened), Stale
    (409: the payload is not the one that was shown), Forbidden (403), Invalid (422).
    """
    approval, late = _locked(actor, approval_id)
    earlier = ApprovalDecision.objects.filter(token=token).first()
    if earlier is not None:
        return _same_form(earlier, approval, actor, decision)
    _check_open(approval, late=late)
    if refusal := may_decide(actor, approval, involved=involved | editors_of(approval)):
        raise Forbidden(refusal)
    if approval.payload_hash != payload_hash or approval.version != version:
        raise Stale("What is asked has changed since you opened it. Look at it again before you decide.")
    _check_fits(approval, decision, reason, answer)
    row = ApprovalDecision.objects.create(
        approval=approval,
        decision=decision,
        by=actor.user,
        reason=reason,
        payload_hash=payload_hash,
        answer=None
        if answer is None
        else seal_json(answer, workspace=approval.workspace_id, owner=approval.id),
        token=token,
    )
    _end(approval, ApprovalStatus.DECIDED, decided(decision, actor.user.name))
    if decision == Decision.EDIT and isinstance(answer, dict):
        _ask_a_second(actor, approval, answer)
    elif approval.order is not None:
        decide_order(actor, approval, approval.order, decision, reason)
    elif approval.effect is not None:
        _move_effect(actor, approval, decision, reason)
    _record(actor, approval, decision, reason)
    return row


def _locked(actor: Actor, approval_id: str) -> tuple[Approval, bool]:
    """The approval, locked, and whether its time is over by the database's clock."""
    approval = (
        Approval.objects.select_for_update(of=("self",))
        .select_related("effect", "order")
        .filter(id=approval_id, workspace=actor.workspace)
        .annotate(late=Q(expires_at__lte=Now()))
        .first()
    )
    if approval is None:
        raise NotFound(f"There is no approval {approval_id} here.")
    return approval, bool(approval.late)


def _record(actor: Actor, approval: Approval, decision: Decision, reason: str) -> None:
    """The audit event, in the words that the page says."""
    audit.record(
        workspace_id=approval.workspace_id,
        actor=actor.user,
        verb=f"approval.{decision}",
        subject=approval.id,
        run_id=approval.run_id,
        reason=reason,
        sentence=f"{decided(decision, actor.user.name)}: {approval.title}"
        + (f" — {reason}" if reason else ""),
        effect=approval.effect_id or "",
        revision=approval.revision,
        payload_hash=approval.payload_hash,
    )


def _same_form(
    earlier: ApprovalDecision, approval: Approval, actor: Actor, decision: Decision
) -> ApprovalDecision:
    """The same form again answers with what it did; its token on anything else is refused."""
    if (earlier.approval_id, earlier.by_id, earlier.decision) != (approval.id, actor.user.id, decision):
        raise KeyReused("This form was used for another decision. Open the request again.")
    return earlier


def _check_open(approval: Approval, *, late: bool) -> None:
    if approval.status == ApprovalStatus.DECIDED:
        last = approval.decisions.select_related("by").last()
        who = (
            decided(Decision(last.decision), last.by.name if last.by else "the system") if last else "decided"
        )
        raise AlreadyDone(f"This has been decided already: {who}.")
    if approval.status == ApprovalStatus.EXPIRED or (approval.status == ApprovalStatus.PENDING and late):
        raise Expired("This request has expired. Nothing was decided and nothing will be sent.")
    if approval.status != ApprovalStatus.PENDING:
        raise AlreadyDone(f"This request is no longer open: {approval.ended_why or approval.status}.")


def _check_fits(approval: Approval, decision: Decision, reason: str, answer: JSONValue) -> None:
    if decision not in approval.allows:
        raise Invalid(f"This request does not allow you to {decision.label.lower()}.", field="decision")
    if decision == Decision.REJECT and not reason.strip():
        raise Invalid("Say why you reject it.", field="reason")
    if decision == Decision.APPROVE and approval.must_say and not reason.strip():
        raise Invalid("Say in your own words that you accept the risk of a second one.", field="reason")
    try:
        json.dumps(answer, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise Invalid("The answer holds something that JSON can't carry.", field="answer") from None
    if decision == Decision.RESPOND:
        if answer is None or answer == "":
            raise Invalid("Write an answer.", field="answer")
        _check_schema(approval.answer_schema, answer)
    if decision == Decision.EDIT:
        if not isinstance(answer, dict):
            raise Invalid("The edited arguments are not an object.", field="answer")
        _check_edit(approval, answer)


def _check_schema(schema: Any, answer: JSONValue) -> None:
    errors = [
        (".".join(str(part) for part in error.absolute_path) or "answer", error.message)
        for error in Draft202012Validator(schema or True).iter_errors(answer)
    ]
    if errors:
        raise Invalid(f"The answer does not fit: {errors[0][1]}", field="answer", errors=errors)


def _check_edit(approval: Approval, answer: dict[str, JSONValue]) -> None:
    """An edit keeps the type of every value and adds no key; a bound effect's schema checks the rest."""
    before = arguments_of(approval)
    for name, value in answer.items():
        if name not in before:
            raise Invalid(f"{name} is not among the arguments.", field=name)
        if before[name] is not None and _kind(value) != _kind(before[name]):
            raise Invalid(f"{name} must stay a {_kind(before[name])}.", field=name)
    if approval.effect is not None:
        contract(approval.effect.effect_type).validated({**before, **answer})


def _kind(value: JSONValue) -> str:
    return {bool: "yes or no", int: "number", float: "number", str: "text", list: "list", dict: "object"}.get(
        type(value), "empty value"
    )


def _move_effect(actor: Actor, approval: Approval, decision: Decision, reason: str) -> None:
    effect = Effect.objects.select_for_update().get(id=approval.effect_id)
    revision = approval.revision or effect.revision
    if decision == Decision.APPROVE:
        asking = contract(effect.effect_type).asking or Asking()
        landed = moves.grant(
            effect.id,
            approval=approval,
            revision=revision,
            request_hash=approval.payload_hash,
            valid=timedelta(seconds=asking.grant),
        )
    else:
        verb = "Rejected" if decision == Decision.REJECT else "Answered instead"
        landed = moves.reject(
            effect.id,
            revision=revision,
            problem=f"{verb} by {actor.user.name}" + (f": {reason}" if reason else ""),
        )
    if not landed:
        raise Stale("The effect has moved since you opened this. Look at it again.")


def _ask_a_second(actor: Actor, approval: Approval, answer: dict[str, JSONValue]) -> None:
    """An edit makes its editor a co-author: the edited payload is a new revision, and somebody else approves it."""
    edited = {**arguments_of(approval), **answer}
    effect, title = approval.effect, approval.title
    body = as_object(body_of(approval))
    if approval.asks == Asked.ACTION:
        body = {**body, "args": edited}
    hashed = request_hash(canonicalise(body))
    if effect is not None:
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect.id)
        _revise(actor, effect, edited)
        if approval.asks == Asked.EFFECT:
            body = {"effect": effect.id, "revision": effect.revision}
        title, hashed = request_for_effect(effect).title[:200], effect.request_hash
    Approval.objects.create(
        **{name: getattr(approval, name) for name in _CARRIED},
        title=title,
        round=approval.round + 1,
        effect=effect,
        revision=effect.revision if effect else None,
        payload_hash=hashed,
        body=seal_json(body, workspace=approval.workspace_id, owner=approval.run_id),
        why=f"Edited by {actor.user.name}. {approval.why}".strip(),
        due_at=Now() + (approval.due_at - approval.created_at),
        expires_at=approval.expires_at,
    )


#: What the second person's request takes over from the one that was edited.
_CARRIED = (
    "workspace_id",
    "run_id",
    "checkpoint_id",
    "workflow",
    "fingerprint",
    "node",
    "interrupt_id",
    "interrupt_hash",
    "action",
    "asks",
    "contract_version",
    "answer_schema",
    "allows",
    "asked_of",
    "irreversible",
    "simulated_for_id",
    "would_have_id",
)


def _revise(actor: Actor, effect: Effect, payload: dict[str, JSONValue]) -> None:
    """A person's payload is a new revision; the machine's own hash stays, so that its asking again finds this one."""
    promise = contract(effect.effect_type)
    plain = promise.validated(payload)
    hashed = request_hash(canonicalise(plain))
    was = effect.revision
    if not moves.revise(
        effect.id,
        was=was,
        request_hash=hashed,
        recipient=promise.shown_recipient(plain),
        customer_ref=promise.customer_of(plain) or effect.customer_ref,
    ):
        raise Stale("The effect has moved since you opened this. Look at it again.")
    save_revision(effect, promise, plain, n=was + 1, hashed=hashed, by=actor.user)
    moves.await_approval(effect.id, revision=was + 1)
    effect.refresh_from_db()


def _end(approval: Approval, status: ApprovalStatus, why: str) -> None:
    Approval.objects.filter(id=approval.id, status=ApprovalStatus.PENDING).update(
        status=status, ended_at=Now(), ended_why=why[:200], version=F("version") + 1
    )


def expire(approval_id: str) -> bool:
    """pending → expired, once its time is over. False: it was decided in time. The caller holds the run's row."""
    approval = (
        Approval.objects.select_for_update()
        .filter(id=approval_id, status=ApprovalStatus.PENDING, expires_at__lte=Now())
        .first()
    )
    if approval is None:
        return False
    _end(approval, ApprovalStatus.EXPIRED, "Nobody decided in time")
    if approval.order is not None:
        end_order(approval.order, OrderStatus.REFUSED, "No second person agreed in time.")
    audit.record(
        workspace_id=approval.workspace_id,
        actor="system:sweep",
        verb="approval.expired",
        subject=approval.id,
        run_id=approval.run_id,
        sentence=f"Approval expired: {approval.title}",
    )
    return True


def take_back(run_id: str, interrupt_ids: Sequence[str], *, why: str) -> int:
    """decided → superseded: what was answered at these pauses made its node fail, and is asked in another round.

    Only answers to the engine: a decision about an effect is its grant, and stands. The caller holds the run's row.
    """
    return Approval.objects.filter(
        run_id=run_id, interrupt_id__in=interrupt_ids, effect=None, order=None, status=ApprovalStatus.DECIDED
    ).update(status=ApprovalStatus.SUPERSEDED, ended_why=why[:200], version=F("version") + 1)


def close_for_effect(effect_id: str, *, why: str) -> int:
    """The effect is not to be: what its run asked about it leaves the inbox in the same transaction."""
    return Approval.objects.filter(effect_id=effect_id, order=None, status=ApprovalStatus.PENDING).update(
        status=ApprovalStatus.CLOSED, ended_at=Now(), ended_why=why[:200], version=F("version") + 1
    )


def close_for_run(run_id: str, *, why: str) -> int:
    """The run has ended: its open approvals leave the inbox in the same transaction."""
    return Approval.objects.filter(run_id=run_id, order=None, status=ApprovalStatus.PENDING).update(
        status=ApprovalStatus.CLOSED, ended_at=Now(), ended_why=why[:200], version=F("version") + 1
    )


def request_for_effect(effect: Effect) -> Request:
    """What is asked about an effect: its contract's title, its masked recipient, approve or reject (or edit)."""
    promise = contract(effect.effect_type)
    payload = payload_of(effect, revision_of(effect))
    summary = promise.summary(payload) if promise.summary and isinstance(payload, dict) else effect.recipient
    asking = promise.asking or Asking()
    return Request(
        asks=Asked.EFFECT,
        title=f"{promise.title}: {summary}",
        body={"effect": effect.id, "revision": effect.revision},
        allows=(Decision.APPROVE, Decision.REJECT),
        effect_id=effect.id,
        # Why it is asked (again): its contract changed, or who approved it may no longer.
        why=effect.problem if effect.sub_state == SubState.AWAITING_APPROVAL else "",
        asked_of=effect.asked_of,
        due=asking.due,
        expires=asking.expires,
    )


def request_for_would_have(row: WouldHave) -> Request:
    """What a simulation asks of its launcher about what it would have sent, in the words of the real request."""
    promise = contract(row.effect_type)
    payload = as_object(unseal_json(row.payload, workspace=row.workspace_id, owner=row.run_id))
    summary = promise.summary(payload) if promise.summary else row.recipient
    asking = promise.asking or Asking()
    return Request(
        asks=Asked.ACTION,
        title=f"{promise.title}: {summary}",
        body={"name": row.effect_type, "args": payload},
        allows=(Decision.APPROVE, Decision.REJECT),
        would_have_id=row.id,
        due=asking.due,
        expires=asking.expires,
    )


def can_still_be_asked(effect: Effect) -> bool:
    return effect.status == EffectStatus.PENDING and effect.sub_state in (
        SubState.RECORDED,
        SubState.AWAITING_APPROVAL,
    )
