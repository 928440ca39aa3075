"""Effects of each way a receiver tells repeats: by key, by natural key, not at all; and one that is accepted first.

The input names which of them to make, and where the worker is to be killed while it does.
"""

from __future__ import annotations

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from effects.intents import Proposal
from runs.authoring import Workflow, perform, propose
from tests.workflows import crashing

crashing.install()


class State(TypedDict, total=False):
    makes: list[str]
    kill: str
    subject: str
    effects: dict[str, str]
    references: dict[str, str]


def intend(state: State) -> State:
    """Save every intent; nothing is sent here."""
    effects = {}
    for what in state["makes"]:
        effects[what] = _propose(what, state["subject"]).effect_id
    return {"effects": effects}


def _propose(what: str, subject: str) -> Proposal:
    if what == "offer":
        return propose(
            "test.offer_by_key",
            command="offer",
            customer_id="cus_000001",
            subject=subject,
            lines=[{"sku": "SEAT", "description": "Seat", "quantity": 2, "unit_minor": 500}],
            amount_minor=1000,
            currency="USD",
        )
    if what == "ticket":
        return propose(
            "test.ticket",
            command="ticket",
            customer_id="cus_000001",
            subject=subject,
            description="It does not start.",
            priority="normal",
        )
    if what == "seats":
        return propose("test.seats", command="seats", customer_id="cus_000001", seats=40, until="2027-01-31")
    return propose(
        "test.mail",
        command="mail",
        to=f"{subject}@harborpine.example",
        subject=subject,
        body="Your offer.",
        customer_id="cus_000001",
    )


def send(state: State) -> State:
    return {
        "references": {what: perform(effect_id).reference for what, effect_id in state["effects"].items()}
    }


def finish(state: State) -> State:
    return {"subject": state["subject"] + " (done)"}


graph = StateGraph(State)
graph.add_node("intend", intend)
graph.add_node("send", send)
graph.add_node("finish", finish)
graph.add_edge(START, "intend")
graph.add_edge("intend", "send")
graph.add_edge("send", "finish")
graph.add_edge("finish", END)

workflow = Workflow(
    name="test_offers",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test offers",
    input_schema={
        "type": "object",
        "properties": {
            "makes": {"type": "array", "items": {"enum": ["offer", "ticket", "mail", "seats"]}},
            "kill": {"type": "string"},
            "subject": {"type": "string"},
        },
        "required": ["makes", "kill", "subject"],
        "additionalProperties": False,
    },
    effect_types=("test.offer_by_key", "test.ticket", "test.mail", "test.seats"),
)
