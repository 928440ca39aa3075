"""The scripted support agent: it looks the customer up, searches articles, opens a ticket, and then answers.

Each step is decided anew from the tool results that the conversation already holds, as a model would: it keeps nothing
between calls, so an agent that is continued elsewhere gets the same next step. Only the ids of tool calls are random,
as they are with real providers; whoever relies on them shall find out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from demo.model_endpoint.language import FAULT, FREQUENT, HOW_TO, classify, detect, hits, words_of
from demo.model_endpoint.phrases import phrase
from demo.model_endpoint.reading import Conversation, Tool, ToolResult
from demo.model_endpoint.schema import fit

LOOK_UP: Final = "look_up_customer"
SEARCH: Final = "search_articles"
TICKET: Final = "open_ticket"
KNOWN_TOOLS: Final = (LOOK_UP, SEARCH, TICKET)

EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
CUSTOMER_ID: Final = re.compile(r"\bcus_\w+")
TICKET_ID: Final = re.compile(r"\btic_\w+")
URGENT: Final = (
    "urgent",
    "asap",
    "immediately",
    "down",
    "outage",
    "dringend",
    "sofort",
    "ausfall",
    "urgente",
    "spoed",
    "至急",
)
FAILED: Final = re.compile(r"^\W*(error|exception|traceback|failed)\b", re.IGNORECASE)
REJECTED: Final = re.compile(
    r"user rejected|rejected the tool call|rejected by|person rejected|has been rejected|was rejected",
    re.IGNORECASE,
)
REJECTED_STATUSES: Final = ("rejected", "rejected_by_person")


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


Turn = Say | Call


def next_turn(talk: Conversation) -> Turn:
    """The agent's next step: one tool call, or the final answer. Nothing is called again once a person said no."""
    step = None if any(map(is_rejected, talk.results)) else next_tool(talk)
    if step is None:
        return Say(answer(talk))
    return Call(step.name, arguments(step, facts(talk)))


def next_tool(talk: Conversation) -> Tool | None:
    done = {result.name for result in talk.results}
    wanted = (
        (LOOK_UP, True),
        (SEARCH, hits(talk.last_user, HOW_TO) > 0),
        (TICKET, hits(talk.last_user, FAULT) > 0),
    )
    return next(
        (talk.tools[name] for name, needed in wanted if needed and name in talk.tools and name not in done),
        None,
    )


def is_rejected(result: ToolResult) -> bool:
    """Whether a person stopped the call: told in words by the middleware, or as a status."""
    value = result.value
    if isinstance(value, dict):
        return value.get("rejected") is True or value.get("status") in REJECTED_STATUSES
    return REJECTED.search(result.text[:200]) is not None


def has_failed(result: ToolResult) -> bool:
    value = result.value
    return "error" in value if isinstance(value, dict) else FAILED.search(result.text) is not None


def arguments(tool: Tool, known: dict[str, Any]) -> dict[str, Any]:
    """What is known, in the shape of the tool's own parameters."""
    fitted: dict[str, Any] = fit(known, tool.parameters)
    return {name: value for name, value in fitted.items() if value is not None}


def facts(talk: Conversation) -> dict[str, Any]:
    """What the conversation says, under the names that tools and schemas commonly give it."""
    text = talk.last_user
    email, customer_id = EMAIL.search(text), CUSTOMER_ID.search(text) or customer_id_in(talk.results)
    subject = subject_of(text)
    keywords = keywords_of(text)
    about = classify(text)
    found: dict[str, Any] = {
        **about,
        **dict.fromkeys(("email", "customer_email", "sender"), email and email.group()),
        **dict.fromkeys(("customer_id", "customer", "customer_ref"), customer_id and customer_id.group()),
        **dict.fromkeys(("subject", "title", "summary"), subject),
        **dict.fromkeys(("body", "description", "details", "message", "text", "problem"), text.strip()),
        **dict.fromkeys(("keywords", "search", "topic", "question"), keywords),
        **dict.fromkeys(("priority", "severity", "urgency"), "high" if hits(text, URGENT) else "normal"),
        "category": about["intent"],
        "query": keywords
        if LOOK_UP in {result.name for result in talk.results}
        else customer_named(email, customer_id, keywords),
        "answer": answer(talk),
        "content": answer(talk),
    }
    return {name: value for name, value in found.items() if value is not None}


def customer_named(email: re.Match[str] | None, customer_id: re.Match[str] | None, otherwise: str) -> str:
    """What a look-up by one free-text query is asked for."""
    match = email or customer_id
    return match.group() if match else otherwise


def customer_id_in(results: list[ToolResult]) -> re.Match[str] | None:
    return next((match for result in results if (match := CUSTOMER_ID.search(result.text))), None)


def subject_of(text: str) -> str:
    """The message's first sentence that says something, without its greeting, at most 80 characters."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+|。", text) if part.strip()]
    telling = [part for part in sentences if hits(part, FAULT) or hits(part, HOW_TO)] or sentences or [""]
    subject = telling[0]
    return subject if len(subject) <= 80 else subject[:79].rstrip() + "…"


def keywords_of(text: str) -> str:
    """The six longest telling words in their order; the sentence itself where words are not divided."""
    frequent = FREQUENT.get(detect(text), frozenset())
    plain = EMAIL.sub(" ", text)
    words = list(dict.fromkeys(word for word in words_of(plain) if word not in frequent and len(word) > 3))
    longest = sorted(words, key=len, reverse=True)[:6]
    return " ".join(word for word in words if word in longest)[:120] or subject_of(text)


def answer(talk: Conversation) -> str:
    """The closing message in the customer's language, naming what the tools brought."""
    language = detect(talk.last_user)
    name = next(customer_names(talk.results), None)
    greeting = phrase(language, "greeting", name=name) if name else phrase(language, "greeting_nobody")
    said = list(sentences(talk, language)) or [phrase(language, "nothing")]
    return "\n\n".join((greeting, *said, phrase(language, "close")))


def customer_names(results: list[ToolResult]) -> Iterator[str]:
    for result in results:
        if result.name == LOOK_UP:
            for entry in entries(result.value):
                yield from (str(entry[key]) for key in ("name", "contact", "company") if entry.get(key))


def sentences(talk: Conversation, language: str) -> Iterator[str]:
    """One sentence for each tool result that the customer should hear of."""
    for result in talk.results:
        if is_rejected(result):
            yield phrase(language, "rejected")
        elif result.name != LOOK_UP and has_failed(result):
            yield phrase(language, "failed")
        elif result.name == SEARCH:
            yield article_sentence(result, language)
        elif result.name == TICKET:
            yield ticket_sentence(result, language)


def article_sentence(result: ToolResult, language: str) -> str:
    found = [entry for entry in entries(result.value) if entry.get("title")]
    if found:
        source = next((found[0][key] for key in ("url", "id", "slug") if found[0].get(key)), SEARCH)
        return phrase(language, "article", title=found[0]["title"], source=source)
    if isinstance(result.value, str) and result.text.strip():
        return phrase(language, "article", title=first_line(result.text), source=SEARCH)
    return phrase(language, "no_article")


def ticket_sentence(result: ToolResult, language: str) -> str:
    """Names the ticket by the id in the result; quotes the result where it holds none."""
    named = TICKET_ID.search(result.text)
    if named:
        return phrase(language, "ticket", ticket=named.group())
    for entry in entries(result.value):
        for key in ("reference", "ticket_id", "ticket", "id", "number"):
            if entry.get(key):
                return phrase(language, "ticket", ticket=entry[key])
    return phrase(language, "ticket_unclear", said=first_line(result.text))


def entries(value: object) -> list[dict[str, Any]]:
    """The objects in a result: itself, its items, or the items of the first list in it."""
    if isinstance(value, dict):
        inner = next((part for part in value.values() if isinstance(part, list) and part), None)
        return entries(inner) if inner and isinstance(inner[0], dict) else [value]
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 140 else line[:139].rstrip() + "…"
