"""The one door for authors of workflows.

Inside a node: ``propose`` an effect, ``ask_approval`` for it, ``perform`` it; ``ask_model``, ``recorded_tool`` and
``recorded_fact`` for what comes from outside; ``post_message`` to answer in the conversation. For LangChain agents
``LedgerMiddleware`` does the same around the agent's own model and tools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd, load
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import interrupt

from console.kernel.canonical import JSONValue
from console.kernel.live import announce
from effects import attachments, doubles, intents, ledger
from effects.contracts import contract
from effects.intents import Proposal
from effects.ledger import Wait
from effects.models import Effect, WouldHave
from effects.origin import OriginLost, Result
from effects.states import Decision, Stance, SubState
from runs import selectors
from runs.engine.advance import OURS
from runs.engine.going import Stopped, Task, Unrecorded, current_task
from runs.engine.recording import recorded
from runs.engine.registry import Migration, Workflow
from runs.models import Asked, Direction, Message, Recorded

__all__ = [
    "Decided",
    "LedgerMiddleware",
    "Migration",
    "Workflow",
    "ask_approval",
    "ask_model",
    "attach",
    "perform",
    "post_message",
    "propose",
    "read_attachment",
    "recorded_fact",
    "recorded_tool",
]


@dataclass(frozen=True)
class Decided:
    """What people decided about a proposal. *edited*: the bytes are not the ones the machine proposed."""

    approved: bool
    edited: bool = False
    rejected: bool = False
    reason: str = ""


def propose(effect_type: str, *, command: str, **payload: Any) -> Proposal:
    """Save the intent of an effect; nothing is sent. Keep ``.effect_id`` in the state for ``perform``.

    *command* names the intent within this node: give items of a list each their own. The node may run again any
    number of times: the same call finds the same effect. Raises Invalid for a payload that does not fit its
    contract, Conflict when another payload has been sent under this command.
    """
    return _propose(current_task(), effect_type, command, payload)


def _propose(
    task: Task,
    effect_type: str,
    command_key: str,
    payload: Mapping[str, Any],
    *,
    tool: str = "",
    tool_call_id: str = "",
) -> Proposal:
    why = task.why(tool=tool, tool_call_id=tool_call_id, arguments=_jsonable(payload))
    with _stopping(task):
        proposal = intents.propose(task.going, effect_type, command_key, payload, why)
    task.proposed.add(proposal.effect_id)
    return proposal


@contextmanager
def _stopping(task: Task) -> Iterator[None]:
    """Turn a lost origin, or a database that went away, into a stop that the guard sees even if the node catches it.

    Neither is the node's fault: the run is cancelled, or it is taken up again when its lease ends. So does what the
    recording lacks: evidence ends there.
    """
    try:
        yield
    except doubles.Unanswered as missing:
        raise task.stop(_unrecorded_effect(task, missing)) from missing
    except (OriginLost, OperationalError, InterfaceError) as error:
        raise task.stop(Stopped(str(error))) from error


def _unrecorded_effect(task: Task, missing: doubles.Unanswered) -> Unrecorded:
    row = missing.intended
    return Unrecorded(
        missing.message,
        node=task.node,
        place=task.place,
        kind=Asked.EFFECT,
        name=row.effect_type,
        asked=row.shown,
        recorded_effect=row.stands_for,
    )


def ask_approval(proposal: Proposal | str) -> Decided:
    """Pause until people have decided about a proposed effect; at once when its contract asks nobody.

    Reads the ledger and nothing else: no answer that comes through the engine can approve.
    """
    task = current_task()
    with _stopping(task):
        effect_id = ledger.own_id(task.going, _id_of(proposal))
    while True:
        with _stopping(task):
            standing = _standing(task, effect_id)
        if isinstance(standing, Decided):
            return standing
        interrupt({OURS: "approval", "effect_id": effect_id, **standing})


def _id_of(effect: Proposal | str) -> str:
    return effect if isinstance(effect, str) else effect.effect_id


def _standing(task: Task, effect_id: str) -> Decided | dict[str, JSONValue]:
    """What people decided about an effect, or what they are to be asked about."""
    if effect_id.startswith(doubles.PREFIX):
        return _simulated(ledger.intended(task.going, effect_id))
    effect = Effect.objects.get(id=effect_id)
    if effect.sub_state == SubState.REJECTED:
        return Decided(approved=False, rejected=True, reason=effect.problem)
    if effect.sub_state not in (SubState.RECORDED, SubState.AWAITING_APPROVAL):
        edited = effect.revisions.filter(n=effect.revision, by__isnull=False).exists()
        return Decided(approved=True, edited=edited)
    return {"revision": effect.revision, "request_hash": effect.request_hash}


def _simulated(row: WouldHave) -> Decided | dict[str, JSONValue]:
    decision = doubles.decision_on(row)
    if decision is not None:
        approved = decision.decision == Decision.APPROVE
        return Decided(approved=approved, rejected=not approved, reason=decision.reason)
    if contract(row.effect_type).asking is None:
        return Decided(approved=True)
    return {"revision": 1, "request_hash": row.request_hash}


def perform(effect: Proposal | str, *, until: str = "completed") -> Result:
    """Bring the effect about and return what became of it; pause while that is not known.

    Sends at most once a visit of the worker. The stored result comes back when it is settled already; a rejection
    by a person is a result with ``.rejected``. Raises Refused and Unreachable, where nothing exists.
    """
    if until not in ("completed", "accepted"):
        raise ValueError("until is 'completed' or 'accepted'")
    effect_id = _id_of(effect)
    while True:
        task = current_task()
        with _stopping(task):
            outcome = ledger.perform(task.going, effect_id, task.visit, until=until)
        if isinstance(outcome, Result):
            return outcome
        _wait(outcome)


def _wait(outcome: Wait) -> None:
    """Such a pause is never answered through the engine, only woken; a wait for approval is one for its effect."""
    interrupt({OURS: "wait", "effect_id": outcome.effect_id})


def ask_model(model: BaseChatModel, messages: Sequence[BaseMessage], **options: Any) -> AIMessage:
    """The model's answer to *messages*; the recorded one when this node runs again."""
    name = str(getattr(model, "model_name", None) or type(model).__name__)
    answer = recorded(
        Recorded.MODEL,
        name,
        {"messages": [_without_ids(message) for message in messages], "options": _jsonable(options)},
        lambda: _dumped(model.invoke(list(messages), **options)),
        source_version=name,
    )
    message = _loaded(answer)
    assert isinstance(message, AIMessage)
    return message


def recorded_tool(
    name: str,
    arguments: JSONValue,
    call: Callable[[], JSONValue],
    *,
    double: Callable[[], JSONValue] | None = None,
) -> JSONValue:
    """A read from outside (a search, a look-up): its result is a recorded fact of this run.

    *double* answers in a simulation that asks for what was never recorded; without one such a simulation stops there.
    """
    return recorded(Recorded.TOOL, name, arguments, call, double=double)


def recorded_fact(name: str, read: Callable[[], JSONValue]) -> JSONValue:
    """Time, randomness, configuration: whatever the code would read differently the next time."""
    return recorded(Recorded.FACT, name, None, read)


def post_message(text: str, *, author: str = "Agent", key: str = "reply") -> str:
    """Post to the run's conversation, once for (node's place, *key*) however often the node runs. Returns its id.

    In evidence nothing is posted: it is the message that the recorded run posted here. What a simulation would have
    posted is kept beside the conversation.
    """
    task = current_task()
    if not task.going.conversation_id:
        raise ValueError("This run has no conversation to post to; declare needs_conversation=True.")
    post_key = hashlib.sha256(f"{task.position}:{key}".encode()).hexdigest()
    if task.going.stance == Stance.EVIDENCE:
        return _posted_before(task, post_key, text)
    with _stopping(task), transaction.atomic():
        task.going.hold()
        message, _ = Message.objects.get_or_create(
            run_id=task.going.run_id,
            post_key=post_key,
            defaults={
                "conversation_id": task.going.conversation_id,
                "direction": Direction.OUTBOUND,
                "author": author,
                "text": text,
                "would_be": task.going.stance == Stance.SIMULATION,
            },
        )
        announce(task.going.workspace_id, f"run:{task.going.run_id}")
    return message.id


def _posted_before(task: Task, post_key: str, text: str) -> str:
    """The recorded message, if it says the same; else evidence ends here."""
    posted = Message.objects.filter(run_id=task.going.lineage.source_id, post_key=post_key).first()
    if posted is not None and posted.text == text:
        return posted.id
    raise task.stop(
        Unrecorded(
            "Another message was posted here." if posted else "No message was posted here.",
            node=task.node,
            place=task.place,
            kind=Asked.MESSAGE,
            name="message",
            asked=text,
        )
    )


def attach(data: bytes, *, name: str, media_type: str) -> dict[str, JSONValue]:
    """Keep a file by its content and return the reference to keep in the state, or in an effect's payload.

    The same bytes are the same file, for every run: what a replay or branch attaches never takes the place of what
    the original refers to. Raises Invalid for a file that is too large or has no proper name or media type.
    """
    task = current_task()
    with _stopping(task), transaction.atomic():
        task.going.hold()
        kept = attachments.keep(task.going.workspace_id, data, name=name, media_type=media_type)
    return kept.as_json()


def read_attachment(reference: JSONValue) -> bytes:
    """The bytes that a reference in the state names. Raises Invalid for what is none, NotFound."""
    task = current_task()
    with _stopping(task):
        return attachments.read(task.going.workspace_id, reference)


class LedgerMiddleware(AgentMiddleware):
    """Puts an agent of LangChain under the ledger. It must be the last middleware in the list.

    Model answers and tool results are recorded. A tool that is bound to a contract is never executed: its call is
    proposed when the model makes it (so that a pause shows the saved intent) and performed when the agent reaches
    it. *tools* maps tool names to effect types.
    """

    def __init__(self, tools: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.bound = dict(tools or {})

    @property
    def name(self) -> str:
        return "LedgerMiddleware"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        asked: JSONValue = {
            "system": _without_ids(request.system_message) if request.system_message else None,
            "messages": [_without_ids(message) for message in request.messages],
            "tools": [_jsonable(convert_to_openai_tool(one)) for one in request.tools],
            "choice": _jsonable(request.tool_choice),
            "settings": _jsonable(request.model_settings),
        }
        name = str(getattr(request.model, "model_name", None) or type(request.model).__name__)

        def ask() -> JSONValue:
            response = handler(request)
            return {
                "result": [_dumped(message) for message in response.result],
                "structured": _jsonable(response.structured_response),
            }

        answer = recorded(Recorded.MODEL, name, asked, ask, source_version=name)
        assert isinstance(answer, dict)
        results = answer["result"]
        assert isinstance(results, list)
        return ModelResponse(
            result=[_loaded(message) for message in results], structured_response=answer["structured"]
        )

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """Propose every bound call of the newest message, before any other middleware pauses for it."""
        task = current_task()
        message = state["messages"][-1]
        for index, call in enumerate(getattr(message, "tool_calls", None) or []):
            if effect_type := self.bound.get(call["name"]):
                _propose(
                    task,
                    effect_type,
                    f"{call['name']}:{index}",
                    call["args"],
                    tool=call["name"],
                    tool_call_id=call["id"] or "",
                )
        return None

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        call = request.tool_call
        effect_type = self.bound.get(call["name"])
        if effect_type is None:
            return self._recorded_tool(request, handler)
        effect_id = _effect_of_call(current_task(), call["id"] or "", effect_type)
        result = perform(effect_id)
        return ToolMessage(
            content=_told(effect_type, result),
            name=call["name"],
            tool_call_id=call["id"],
            status="error" if result.rejected else "success",
        )

    def _recorded_tool(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        call = request.tool_call
        answer = recorded(
            Recorded.TOOL,
            call["name"],
            _jsonable(call["args"]),
            lambda: _dumped(handler(request)),
        )
        message = _loaded(answer)
        if isinstance(message, ToolMessage):
            message.tool_call_id = call["id"] or ""
        return message


def _effect_of_call(task: Task, tool_call_id: str, effect_type: str) -> str:
    """The effect that was proposed for this tool call; an unknown one is refused, never sent."""
    going = task.going
    found = selectors.effect_of_call(
        going.lineage, tool_call_id, effect_type, evidence=going.stance == Stance.EVIDENCE
    )
    if not found:
        raise intents.Conflict(
            f"The call {tool_call_id} of {effect_type} was never proposed, so nothing is sent for it."
        )
    return found


def _told(effect_type: str, result: Result) -> str:
    title = contract(effect_type).title
    if result.rejected:
        return f"{title}: not done. {result.reason}"
    return f"{title}: done, reference {result.reference}."


def _dumped(message: Any) -> JSONValue:
    if not isinstance(message, BaseMessage):
        raise TypeError(f"only messages can be recorded, not a {type(message).__name__}")
    dumped = dumpd(message)
    return _jsonable(dumped)


def _loaded(answer: JSONValue) -> BaseMessage:
    message = load(answer, allowed_objects="messages")
    assert isinstance(message, BaseMessage)
    return message


def _without_ids(message: BaseMessage) -> JSONValue:
    """What a model was asked, without the random ids that differ each time the same is asked."""
    data = message.model_dump(mode="json", exclude={"id", "response_metadata", "usage_metadata"})
    data.pop("tool_call_id", None)
    for call in data.get("tool_calls") or []:
        call.pop("id", None)
    data.get("additional_kwargs", {}).pop("tool_calls", None)
    return _jsonable(data)


def _jsonable(value: Any) -> JSONValue:
    """JSON of what an author or a library handed over; what JSON lacks becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_jsonable(one) for one in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)
