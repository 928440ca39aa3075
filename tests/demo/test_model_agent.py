"""The scripted agent behind an ordinary LangChain agent, with its pause for a person."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import SecretStr

from tests.demo.conftest import Process


@tool
def look_up_customer(email: str) -> str:
    """Find a customer by email."""
    return json.dumps({"data": [{"id": "cus_000008", "name": "Sanne de Wit", "email": email}]})


@tool
def search_articles(query: str, language: str) -> str:
    """Search the help centre."""
    return json.dumps(
        [
            {
                "id": "kb_12",
                "title": "Set up single sign-on",
                "url": "https://help.example/kb_12",
                "for": language,
            }
        ]
    )


@tool
def open_ticket(
    customer_id: str, subject: str, description: str, priority: Literal["low", "normal", "high"] = "normal"
) -> str:
    """Open a ticket."""
    return json.dumps({"reference": "tic_000042", "subject": subject})


TOOLS = [look_up_customer, search_articles, open_ticket]
FAULT = "Hello, since this morning the label printer export fails with error 500. Write to sanne@dewit-kassenbouw.example."
HOW_TO = "Hello, how do I set up single sign-on? sanne@dewit-kassenbouw.example"


def model(process: Process) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{process.url}/v1", api_key=SecretStr("none"), model="m", max_retries=0)


def run(process: Process, text: str) -> list[BaseMessage]:
    agent: Any = create_agent(model(process), TOOLS, system_prompt="You help customers.")
    messages: list[BaseMessage] = agent.invoke({"messages": [HumanMessage(text)]})["messages"]
    return messages


def tools_called(messages: list[BaseMessage]) -> list[str]:
    return [
        call["name"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls
    ]


def test_a_fault_is_looked_up_ticketed_and_answered(model_process: Process) -> None:
    messages = run(model_process, FAULT)
    assert tools_called(messages) == ["look_up_customer", "open_ticket"]
    ticket = next(
        m.tool_calls[0]["args"]
        for m in messages
        if isinstance(m, AIMessage) and "open_ticket" in str(m.tool_calls)
    )
    assert ticket["customer_id"] == "cus_000008"
    assert "error 500" in ticket["subject"]
    assert ticket["description"] == FAULT
    assert "tic_000042" in str(messages[-1].content)
    assert "Hello Sanne de Wit," in str(messages[-1].content)


def test_a_question_is_answered_with_the_article_and_no_ticket(model_process: Process) -> None:
    messages = run(model_process, HOW_TO)
    assert tools_called(messages) == ["look_up_customer", "search_articles"]
    assert "Set up single sign-on" in str(messages[-1].content)
    assert "https://help.example/kb_12" in str(messages[-1].content)


def test_both_in_one_message(model_process: Process) -> None:
    messages = run(
        model_process,
        "Hoe stel ik de scanner in? Hij werkt niet, storing sinds gisteren. sanne@dewit.example",
    )
    assert tools_called(messages) == ["look_up_customer", "search_articles", "open_ticket"]
    assert str(messages[-1].content).startswith("Beste Sanne de Wit,")


def test_a_second_message_of_the_conversation_starts_anew(model_process: Process) -> None:
    earlier = run(model_process, HOW_TO)
    agent: Any = create_agent(model(model_process), TOOLS)
    later = agent.invoke({"messages": [*earlier, HumanMessage(FAULT)]})["messages"]
    assert tools_called(later[len(earlier) :]) == ["look_up_customer", "open_ticket"]


def ask(process: Process, *messages: BaseMessage) -> AIMessage:
    answer = model(process).bind_tools(TOOLS).invoke([SystemMessage("You help."), *messages])
    assert isinstance(answer, AIMessage)
    return answer


def test_tool_call_ids_are_fresh_and_all_else_is_the_same(model_process: Process) -> None:
    first, second = (ask(model_process, HumanMessage(FAULT)).tool_calls[0] for _ in range(2))
    assert first["id"] != second["id"]
    assert (first["name"], first["args"]) == (second["name"], second["args"])


def test_tool_calls_can_be_streamed(model_process: Process) -> None:
    chunks = list(model(model_process).bind_tools(TOOLS).stream([HumanMessage(FAULT)]))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk  # type: ignore[assignment]
    assert isinstance(whole, AIMessage)
    assert whole.tool_calls[0]["name"] == "look_up_customer"
    assert whole.tool_calls[0]["args"] == {"email": "sanne@dewit-kassenbouw.example"}


def after_ticket(result: str) -> list[BaseMessage]:
    """A conversation whose customer is looked up, and whose ticket call got *result*."""
    calls = [("look_up_customer", "call_1", "{}"), ("open_ticket", "call_2", result)]
    messages: list[BaseMessage] = [HumanMessage(FAULT)]
    for name, call_id, text in calls:
        messages.append(AIMessage("", tool_calls=[{"name": name, "args": {}, "id": call_id}]))
        messages.append(ToolMessage(text, tool_call_id=call_id))
    return messages


@pytest.mark.parametrize(
    "result",
    [
        "User rejected the tool call for `open_ticket` with reason: a duplicate",
        '{"rejected": true, "reason": "a duplicate"}',
        '{"status": "rejected_by_person"}',
        "This was rejected by Mara.",
    ],
)
def test_a_rejected_call_is_not_made_again(model_process: Process, result: str) -> None:
    answer = ask(model_process, *after_ticket(result))
    assert answer.tool_calls == []
    assert "decided that it should not be done automatically" in str(answer.content)


def test_a_failed_tool_is_said_and_not_called_again(model_process: Process) -> None:
    answer = ask(model_process, *after_ticket("Error: the ticket system does not answer"))
    assert answer.tool_calls == []
    assert "did not answer as expected" in str(answer.content)


def test_a_rejected_look_up_ends_it_too(model_process: Process) -> None:
    call = AIMessage("", tool_calls=[{"name": "look_up_customer", "args": {}, "id": "call_1"}])
    said = ToolMessage("User rejected the tool call for `look_up_customer`", tool_call_id="call_1")
    assert ask(model_process, HumanMessage(FAULT), call, said).tool_calls == []


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"type": "approve"}, "tic_000042"),
        ({"type": "reject", "message": "already known"}, "decided that it should not be done automatically"),
        (
            {
                "type": "edit",
                "edited_action": {
                    "name": "open_ticket",
                    "args": {"customer_id": "cus_000008", "subject": "Edited by Mara", "description": "d"},
                },
            },
            "tic_000042",
        ),
    ],
)
def test_the_agent_goes_on_after_a_person_decided(
    model_process: Process, decision: dict[str, Any], said: str
) -> None:
    agent: Any = create_agent(
        model(model_process),
        TOOLS,
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"open_ticket": True})],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t"}}
    paused = agent.invoke({"messages": [HumanMessage(FAULT)]}, config)
    assert paused["__interrupt__"]
    messages = agent.invoke(Command(resume={"decisions": [decision]}), config)["messages"]
    assert tools_called(messages) == ["look_up_customer", "open_ticket"]
    assert said in str(messages[-1].content)


def test_tool_choice_is_obeyed(model_process: Process) -> None:
    chat = model(model_process)
    forced = chat.bind_tools(TOOLS, tool_choice="open_ticket").invoke([HumanMessage(FAULT)])
    assert isinstance(forced, AIMessage)
    assert forced.tool_calls[0]["name"] == "open_ticket"
    none = chat.bind_tools(TOOLS, tool_choice="none").invoke([HumanMessage(FAULT)])
    assert isinstance(none, AIMessage)
    assert none.tool_calls == []
