"""sales_offer_agent 7: from a customer's request to an approved offer that is created, mailed and answered."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from demo import outside
from runs.authoring import (
    Workflow,
    ask_approval,
    ask_model,
    perform,
    post_message,
    propose,
    recorded_tool,
)


class Offer(TypedDict):
    subject: str
    body: str
    lines: list[dict[str, Any]]
    amount_minor: int
    currency: str


class State(TypedDict, total=False):
    email: str
    request: str
    intent: str
    language: str
    customer: dict[str, Any]
    offer: Offer
    offer_effect: str
    approved: bool
    decision: str
    offer_no: str
    message_id: str
    outcome: str


def classify(state: State) -> State:
    answer = ask_model(
        outside.model(),
        [
            SystemMessage("[classify] Say what the customer wants, as JSON: intent, language, confidence."),
            HumanMessage(state["request"]),
        ],
    )
    found = json.loads(str(answer.content))
    return {"intent": found["intent"], "language": found["language"]}


def find_customer(state: State) -> State:
    found = recorded_tool(
        "crm.find_customer", {"email": state["email"]}, lambda: outside.find_customer(state["email"])
    )
    if not isinstance(found, dict):
        raise LookupError(f"The CRM has no customer with the address {state['email']}.")
    return {"customer": found}


def draft_offer(state: State) -> State:
    customer = state["customer"]
    task = {
        "customer": {name: customer[name] for name in ("name", "company", "language", "currency")},
        "catalogue": outside.CATALOGUE,
        "request": state["request"],
    }
    answer = ask_model(
        outside.model(),
        [
            SystemMessage(
                "[draft_offer] Draft an offer from the catalogue, as JSON, in the customer's language."
            ),
            HumanMessage(json.dumps(task, ensure_ascii=False)),
        ],
    )
    offer: Offer = json.loads(str(answer.content))
    return {"offer": offer}


def approve_offer(state: State) -> State:
    offer, customer = state["offer"], state["customer"]
    proposal = propose(
        "crm.create_offer",
        command="offer",
        customer_id=customer["id"],
        subject=offer["subject"],
        lines=offer["lines"],
        amount_minor=offer["amount_minor"],
        currency=offer["currency"],
    )
    decided = ask_approval(proposal)
    return {
        "offer_effect": proposal.effect_id,
        "approved": decided.approved,
        "decision": decided.reason or ("approved" if decided.approved else "rejected"),
    }


def create_offer(state: State) -> State:
    return {"offer_no": perform(state["offer_effect"]).reference}


def mail_offer(state: State) -> State:
    offer, customer = state["offer"], state["customer"]
    mail = propose(
        "mail.send",
        command="mail",
        to=customer["email"],
        subject=f"{offer['subject']} · {state['offer_no']}",
        body=offer["body"],
        customer_id=customer["id"],
    )
    return {"message_id": perform(mail).reference}


def reply(state: State) -> State:
    post_message(state["offer"]["body"], author="Sales agent")
    return {"outcome": "offered"}


def decline(state: State) -> State:
    post_message(
        "Thank you for your request. A colleague will come back to you about it in person.",
        author="Sales agent",
    )
    return {"outcome": "handed over"}


def after_approval(state: State) -> str:
    return "create_offer" if state["approved"] else "decline"


graph = StateGraph(State)
for node in (classify, find_customer, draft_offer, approve_offer, create_offer, mail_offer, reply, decline):
    graph.add_node(node.__name__, node)
graph.add_edge(START, "classify")
graph.add_edge("classify", "find_customer")
graph.add_edge("find_customer", "draft_offer")
graph.add_edge("draft_offer", "approve_offer")
graph.add_conditional_edges("approve_offer", after_approval, ["create_offer", "decline"])
graph.add_edge("create_offer", "mail_offer")
graph.add_edge("mail_offer", "reply")
graph.add_edge("reply", END)
graph.add_edge("decline", END)

workflow = Workflow(
    name="sales_offer_agent",
    version="7",
    schema_version=4,
    graph=graph,
    title="Sales offer",
    summary="Reads a customer's request, drafts an offer, asks Sales approvers, then creates and mails it.",
    input_schema={
        "type": "object",
        "properties": {
            "email": {"type": "string", "format": "email", "title": "Customer's e-mail"},
            "request": {
                "type": "string",
                "title": "Request",
                "minLength": 5,
                "maxLength": 20000,
                "x-multiline": True,
            },
        },
        "required": ["email", "request"],
        "additionalProperties": False,
    },
    effect_types=("crm.create_offer", "mail.send"),
    masks=("email", "customer.email", "customer.phone", "offer.body"),
    needs_conversation=True,
    step_seconds=120,
    # A mail that takes longer than this to hand over is for a person to look at.
    node_seconds={"mail_offer": 12},
)
