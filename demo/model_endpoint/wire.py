"""The wire format of chat completions: whole, or as server-sent events."""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

from demo.model_endpoint.agent import Call, Say, Turn
from demo.model_endpoint.reading import Conversation
from demo.receiver.loopback import Answer

FINGERPRINT: Final = "fp_scripted"
#: Text and arguments are streamed in pieces of about this many characters, cut behind blanks.
PIECE: Final = 24


def usage(talk: Conversation, turn: Turn) -> dict[str, int]:
    """Token counts by the rule of thumb of four characters a token."""
    said = turn.text if isinstance(turn, Say) else turn.name + arguments_of(turn)
    prompt, completion = math.ceil(talk.prompt_size / 4), max(1, math.ceil(len(said) / 4))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def arguments_of(call: Call) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


def finish_reason(turn: Turn) -> str:
    return "tool_calls" if isinstance(turn, Call) else "stop"


def envelope(talk: Conversation, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{talk.digest.hex()[:24]}",
        "object": kind,
        "created": int(time.time()),
        "model": talk.model,
        "system_fingerprint": FINGERPRINT,
    }


def tool_call(call: Call) -> dict[str, Any]:
    """A tool call with an id that no other call ever had."""
    function = {"name": call.name, "arguments": arguments_of(call)}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def completion(talk: Conversation, turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(turn, Call):
        message["tool_calls"] = [tool_call(turn)]
    else:
        message["content"] = turn.text
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(turn)}
    return {**envelope(talk, "chat.completion"), "choices": [choice], "usage": usage(talk, turn)}


def events(talk: Conversation, turn: Turn) -> Iterator[bytes]:
    """The same answer as server-sent events, ending with ``[DONE]``."""
    head = envelope(talk, "chat.completion.chunk")
    for delta in deltas(turn):
        yield event(
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
        )
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish_reason(turn)}
    yield event({**head, "choices": [end]})
    if talk.include_usage:
        yield event({**head, "choices": [], "usage": usage(talk, turn)})
    yield b"data: [DONE]\n\n"


def deltas(turn: Turn) -> Iterator[dict[str, Any]]:
    if isinstance(turn, Say):
        yield {"role": "assistant", "content": ""}
        for piece in pieces(turn.text):
            yield {"content": piece}
        return
    call = tool_call(turn)
    whole = call["function"].pop("arguments")
    call["function"]["arguments"] = ""
    yield {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]}
    for piece in pieces(whole):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def pieces(text: str) -> list[str]:
    return re.findall(rf"(?s).{{1,{PIECE}}}(?:\s+|$)|.{{1,{PIECE}}}", text)


def event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def error(
    status: int, kind: str, message: str, *, field: str | None = None, retry_after: int | None = None
) -> Answer:
    """An error in the wire format's own shape."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer.of(
        status, {"error": {"message": message, "type": kind, "param": field, "code": None}}, headers
    )
