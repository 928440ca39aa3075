"""Reading a chat completion request: who said what, and which tool said what in answer to whom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class BadRequest(ValueError):
    """The request is not one that a chat completion can answer; ``field`` says where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


@dataclass(frozen=True)
class ToolResult:
    name: str
    text: str

    @property
    def value(self) -> Any:
        """The result as JSON, or its text where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Conversation:
    """The parts of a request that the script looks at."""

    model: str
    system: str
    last_user: str
    results: list[ToolResult]
    tools: dict[str, Tool]
    forced_tool: str | None
    must_call: bool
    may_call: bool
    answer_schema: Mapping[str, Any] | None
    wants_json: bool
    stream: bool
    include_usage: bool
    prompt_size: int
    digest: bytes


def read(document: object) -> Conversation:
    """The conversation in a request's JSON. Raises BadRequest."""
    if not isinstance(document, dict):
        raise BadRequest("", "the body is not a JSON object")
    messages = document.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not all(isinstance(message, dict) for message in messages)
    ):
        raise BadRequest("messages", "messages must be a list of at least one message")
    tools = tools_in(document)
    choice = document.get("tool_choice")
    answer_format = document.get("response_format") or {}
    canonical = json.dumps([messages, sorted(tools), answer_format], sort_keys=True).encode()
    return Conversation(
        model=str(document.get("model") or "scripted-1"),
        system="\n".join(
            text_of(message) for message in messages if message.get("role") in ("system", "developer")
        ),
        last_user=next(
            (text_of(message) for message in reversed(messages) if message.get("role") == "user"), ""
        ),
        results=results_in(messages),
        tools=tools,
        forced_tool=forced_tool(choice, tools),
        must_call=choice in ("required", "any"),
        may_call=choice != "none",
        answer_schema=answer_schema(answer_format),
        wants_json=answer_format.get("type") in ("json_object", "json_schema"),
        stream=document.get("stream") is True,
        include_usage=bool((document.get("stream_options") or {}).get("include_usage")),
        prompt_size=len(canonical),
        digest=hashlib.sha256(canonical).digest(),
    )


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text; of a list of parts, the text parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def results_in(messages: list[dict[str, Any]]) -> list[ToolResult]:
    """What tools answered since the last user message, in order; the name is that of the call it answers."""
    last_user = max(
        (place for place, message in enumerate(messages) if message.get("role") == "user"), default=-1
    )
    names: dict[str, str] = {}
    results = []
    for message in messages[last_user + 1 :]:
        for call in message.get("tool_calls") or ():
            names[str(call.get("id"))] = str((call.get("function") or {}).get("name", ""))
        if message.get("role") == "tool":
            name = names.get(str(message.get("tool_call_id")), str(message.get("name", "")))
            results.append(ToolResult(name, text_of(message)))
    return results


def tools_in(document: Mapping[str, Any]) -> dict[str, Tool]:
    functions = [tool.get("function") or {} for tool in document.get("tools") or () if isinstance(tool, dict)]
    return {
        str(function["name"]): Tool(str(function["name"]), function.get("parameters") or {})
        for function in functions
        if function.get("name")
    }


def forced_tool(choice: object, tools: Mapping[str, Tool]) -> str | None:
    """The one tool that has to be called. Raises BadRequest for one that is not among the tools."""
    if not isinstance(choice, dict):
        return None
    name = str((choice.get("function") or {}).get("name", ""))
    if name not in tools:
        raise BadRequest("tool_choice", f"there is no tool {name!r}")
    return name


def answer_schema(answer_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if answer_format.get("type") != "json_schema":
        return None
    schema = (answer_format.get("json_schema") or {}).get("schema")
    if not isinstance(schema, dict):
        raise BadRequest("response_format", "json_schema needs a schema")
    return schema
