"""What each kind of pause asks of people, and how their answer is said to the engine.

Understood as they are: our own pauses for effects, LangChain's HumanInTheLoopMiddleware (batched and per call), the
agent-inbox schema, and a plain question with an optional schema for its answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from effects import approvals, doubles, rounds
from effects.approvals import Request
from effects.models import Command, Effect, WouldHave
from effects.rounds import Answered
from effects.states import Asked, Decision
from runs.engine.advance import NO_ANSWER, PendingPause
from runs.models import Pause
from runs.states import ANSWERED_BY_ENGINE, PauseKind

#: agent-inbox: what its configuration allows, and what its answers are called.
_INBOX_ALLOWS = {
    "allow_accept": Decision.APPROVE,
    "allow_edit": Decision.EDIT,
    "allow_respond": Decision.RESPOND,
    "allow_ignore": Decision.REJECT,
}


def requests_of(run_id: str, pause: PendingPause) -> list[Request]:
    """What the pause asks, one request for each action. Empty where it only waits for an effect."""
    if pause.effect_id.startswith(doubles.PREFIX):
        return [approvals.request_for_would_have(WouldHave.objects.get(id=pause.effect_id))]
    if pause.kind in (PauseKind.EFFECT_APPROVAL, PauseKind.EFFECT_WAIT):
        effect = Effect.objects.get(id=pause.effect_id)
        asked = effect.needs_approval and approvals.can_still_be_asked(effect)
        return [approvals.request_for_effect(effect)] if asked else []
    if pause.kind == PauseKind.ACTIONS:
        return _actions(run_id, pause)
    return [_question(pause)]


def _question(pause: PendingPause) -> Request:
    value = pause.value
    text = value if isinstance(value, str) else ""
    if isinstance(value, dict):
        text = str(value.get("question") or value.get("title") or value.get("message") or "")
    return Request(
        asks=Asked.QUESTION,
        title=text or f"{pause.node} asks",
        body=value,
        allows=(Decision.RESPOND,),
        answer_schema=pause.response_schema,
        asked_of=str(value.get("group", "")) if isinstance(value, dict) else "",
    )


def _actions(run_id: str, pause: PendingPause) -> list[Request]:
    value = pause.value
    if isinstance(value, dict) and value.get("type") == "tool_approval":
        allows = _allowed_by_schema(pause.response_schema)
        about = _about(run_id, str(value.get("tool_call_id", "")), str(value["name"]))
        return [_action(value["name"], value["args"], str(value.get("description", "")), allows, about)]
    if isinstance(value, dict) and "action_requests" in value:
        return _batched(run_id, pause, value)
    return [_from_inbox(item) for item in (value if isinstance(value, list) else [value])]


def _batched(run_id: str, pause: PendingPause, value: dict[str, Any]) -> list[Request]:
    allowed = {
        str(one.get("action_name")): tuple(
            Decision(word) for word in one.get("allowed_decisions") or () if word in Decision.values
        )
        for one in value.get("review_configs") or ()
        if isinstance(one, dict)
    }
    unmatched = list(pause.calls)
    requests = []
    for action in value["action_requests"]:
        call = next(
            (one for one in unmatched if one["name"] == action["name"] and one["args"] == action["args"]),
            None,
        )
        if call is not None:
            unmatched.remove(call)
        about = _about(run_id, str(call["id"]), str(call["name"])) if call else None
        allows = allowed.get(action["name"]) or (Decision.APPROVE, Decision.REJECT)
        requests.append(
            _action(action["name"], action["args"], str(action.get("description", "")), allows, about)
        )
    return requests


def _action(
    name: str, args: Any, description: str, allows: tuple[Decision, ...], about: Request | None
) -> Request:
    if about is not None:
        # A person's words never stand in for a tool that changes the outside world.
        allows = tuple(decision for decision in allows if decision != Decision.RESPOND)
        title, asked_of, due, expires = about.title, about.asked_of, about.due, about.expires
    else:
        title, asked_of, due, expires = f"Use the tool {name}", "", Request.due, Request.expires
    return Request(
        asks=Asked.ACTION,
        title=title,
        body={"name": name, "args": args},
        allows=allows,
        effect_id=about.effect_id if about else "",
        would_have_id=about.would_have_id if about else "",
        # LangChain's own description ends in the arguments; they are shown from the sealed body, masked.
        why=description.partition("\n\nTool: ")[0],
        asked_of=asked_of,
        due=due,
        expires=expires,
    )


def _from_inbox(item: dict[str, Any]) -> Request:
    action = item.get("action_request") or {}
    given = item.get("config")
    config = given if isinstance(given, dict) else {}
    allows = tuple(decision for word, decision in _INBOX_ALLOWS.items() if config.get(word))
    return Request(
        asks=Asked.ACTION,
        title=str(action.get("action") or "An agent asks"),
        body={"name": action.get("action"), "args": action.get("args")},
        allows=allows or (Decision.APPROVE, Decision.REJECT),
        why=str(item.get("description") or ""),
    )


def _allowed_by_schema(schema: Any) -> tuple[Decision, ...]:
    """The decisions that a per-call pause's answer schema has a branch for."""
    text = json.dumps(schema)
    return tuple(
        decision
        for decision in Decision
        if f'"const": "{decision.value}"' in text or f'["{decision.value}"]' in text
    ) or (Decision.APPROVE, Decision.REJECT)


def _about(run_id: str, tool_call_id: str, tool: str) -> Request | None:
    """What the newest command with this call would ask: models may number the calls of each message anew."""
    command = (
        Command.objects.filter(run_id=run_id, tool_call_id=tool_call_id, tool=tool)
        .select_related("effect")
        .order_by("-created_at", "-id")
        .first()
    )
    if command is not None:
        return approvals.request_for_effect(command.effect)
    intended = WouldHave.objects.filter(run_id=run_id, tool_call_id=tool_call_id).order_by(
        "-created_at", "-id"
    )
    row = intended.first() if tool_call_id else None
    return approvals.request_for_would_have(row) if row else None


def answer_of(run_id: str, pause: PendingPause) -> Any:
    """What to hand to the engine for this pause, or NO_ANSWER while a decision is still missing.

    Only for the pause exactly as it was asked: its value's hash must be the one that people saw.
    """
    requests = requests_of(run_id, pause)
    answered = rounds.answers_of(run_id, pause.interrupt_id, pause.value_hash, len(requests))
    if not answered:
        return NO_ANSWER
    if pause.kind == PauseKind.QUESTION:
        return answered[0].answer
    value = pause.value
    if isinstance(value, dict) and value.get("type") == "tool_approval":
        return _decision(requests[0], answered[0])
    if isinstance(value, dict) and "action_requests" in value:
        return {
            "decisions": [_decision(request, one) for request, one in zip(requests, answered, strict=True)]
        }
    return [_inbox_answer(request, one) for request, one in zip(requests, answered, strict=True)]


def recorded_answer(source_id: str, pause: PendingPause) -> Any:
    """What people answered at the same pause of the run that a replay follows, or NO_ANSWER where they have not.

    Found by the task's place, and by how many answers the task had by then: ids differ in every run. A pause that
    asks something else than what was recorded there is given no answer.
    """
    asked = Pause.objects.filter(
        run_id=source_id, position=pause.position, kind__in=ANSWERED_BY_ENGINE
    ).order_by("id")
    in_order = list(dict.fromkeys(asked.values_list("interrupt_id", flat=True)))
    if not pause.position or len(in_order) <= pause.answers_before:
        return NO_ANSWER
    interrupt_id = in_order[pause.answers_before]
    return answer_of(source_id, replace(pause, interrupt_id=interrupt_id))


def _decision(request: Request, answered: Answered) -> dict[str, Any]:
    if answered.decision == Decision.REJECT:
        return {"type": "reject", "message": answered.reason}
    if answered.decision == Decision.RESPOND:
        return {"type": "respond", "message": str(answered.answer)}
    if answered.edited is not None:
        body = request.body if isinstance(request.body, dict) else {}
        return {"type": "edit", "edited_action": {"name": body.get("name"), "args": answered.edited}}
    return {"type": "approve"}


def _inbox_answer(request: Request, answered: Answered) -> dict[str, Any]:
    if answered.edited is not None and answered.decision == Decision.APPROVE:
        name = request.body.get("name") if isinstance(request.body, dict) else None
        return {"type": "edit", "args": {"action": name, "args": answered.edited}}
    word = {
        Decision.APPROVE: "accept",
        Decision.REJECT: "ignore",
        Decision.RESPOND: "response",
        Decision.EDIT: "edit",
    }[answered.decision]
    return {"type": word, "args": answered.answer}
