"""What the endpoint answers, decided from the request alone: the same request gets the same words."""

from __future__ import annotations

import json
from typing import Any, Final

from demo.model_endpoint import agent
from demo.model_endpoint.agent import Call, Say, Turn
from demo.model_endpoint.language import classify
from demo.model_endpoint.offers import draft
from demo.model_endpoint.reading import Conversation
from demo.model_endpoint.schema import fit

CLASSIFY: Final = "[classify]"
DRAFT_OFFER: Final = "[draft_offer]"


def kind_of(talk: Conversation) -> str:
    """What the script takes the request for."""
    if CLASSIFY in talk.system:
        return "classify"
    if DRAFT_OFFER in talk.system:
        return "draft_offer"
    return "agent" if set(talk.tools) & set(agent.KNOWN_TOOLS) else "chat"


def turn(talk: Conversation) -> Turn:
    """The answer: words, or one tool call."""
    kind = kind_of(talk)
    if kind in ("classify", "draft_offer"):
        value = classify(talk.last_user) if kind == "classify" else draft(talk.last_user, talk.digest)
        return shaped(talk, value)
    if talk.forced_tool or talk.wants_json:
        return shaped(talk, agent.facts(talk))
    decided = agent.next_turn(talk) if talk.may_call else Say(agent.answer(talk))
    if isinstance(decided, Say) and talk.must_call and talk.tools:
        return forced(talk, answer_tool(talk), agent.facts(talk))
    return decided


def shaped(talk: Conversation, value: dict[str, Any]) -> Turn:
    """*value* in the form that the request asks for: a tool's arguments, a schema, or plain JSON."""
    if talk.forced_tool or (talk.must_call and talk.tools):
        return forced(talk, talk.forced_tool or answer_tool(talk), value)
    if talk.answer_schema is not None:
        value = fit(value, talk.answer_schema)
    return Say(json.dumps(value, ensure_ascii=False))


def forced(talk: Conversation, name: str, value: dict[str, Any]) -> Call:
    return Call(name, fit(value, talk.tools[name].parameters))


def answer_tool(talk: Conversation) -> str:
    """Where some tool must be called: one that is not of the agent's own, which is how answers in a schema are asked for."""
    return next((name for name in talk.tools if name not in agent.KNOWN_TOOLS), next(iter(talk.tools)))
