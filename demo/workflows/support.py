"""support_agent 1: an ordinary LangChain agent under the ledger. Only the last line of its middleware is ours."""

from __future__ import annotations

import json
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from demo import outside
from runs.authoring import LedgerMiddleware, Workflow


@tool
def look_up_customer(email: str) -> str:
    """Find the customer with this e-mail address in the CRM."""
    return json.dumps(outside.find_customer(email) or {"error": "no such customer"}, ensure_ascii=False)


@tool
def search_articles(query: str) -> str:
    """Search the help articles."""
    return json.dumps(outside.search_articles(query), ensure_ascii=False)


@tool
def open_ticket(
    customer_id: str, subject: str, description: str, priority: Literal["low", "normal", "high"]
) -> str:
    """Open a support ticket for a fault that a person has to look at."""
    raise RuntimeError("open_ticket is bound to a contract: the ledger performs it")


def _model() -> BaseChatModel:
    return outside.model()


agent = create_agent(
    _model(),
    tools=[look_up_customer, search_articles, open_ticket],
    system_prompt="You are the support desk. Look the customer up first, then help them.",
    middleware=[
        HumanInTheLoopMiddleware(
            interrupt_on={"open_ticket": {"allowed_decisions": ["approve", "edit", "reject"]}}
        ),
        LedgerMiddleware(tools={"open_ticket": "desk.open_ticket"}),
    ],
    name="support_agent",
)


def first_message(given: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [HumanMessage(f"From: {given['email']}\n\n{given['message']}", id="request")]}


workflow = Workflow(
    name="support_agent",
    version="1",
    schema_version=1,
    graph=agent,
    title="Support",
    summary="Answers a customer's question; opens a ticket for a fault once a person has approved it.",
    input_schema={
        "type": "object",
        "properties": {
            "email": {"type": "string", "format": "email", "title": "Customer's e-mail"},
            "message": {
                "type": "string",
                "title": "Message",
                "minLength": 5,
                "maxLength": 20000,
                "x-multiline": True,
            },
        },
        "required": ["email", "message"],
        "additionalProperties": False,
    },
    effect_types=("desk.open_ticket",),
    step_seconds=120,
    to_state=first_message,
)
