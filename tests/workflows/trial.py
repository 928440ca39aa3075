"""Effects of every way in which a receiver tells repeats, sent side by side: what the kill trials run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from effects.intents import Proposal
from runs.authoring import Workflow, perform, propose

#: The effects by the name of the node that sends each.
EFFECTS = ("first_offer", "second_offer", "ticket", "marked_ticket", "mail")


def _merged(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    return {**one, **other}


class State(TypedDict, total=False):
    makes: list[str]
    subject: str
    effects: dict[str, str]
    references: Annotated[dict[str, str], _merged]


def intend(state: State) -> State:
    """Save every intent; nothing is sent here."""
    return {"effects": {name: _propose(name, state["subject"]).effect_id for name in state["makes"]}}


def _propose(name: str, subject: str) -> Proposal:
    if name.endswith("offer"):
        return propose(
            "test.offer_by_key",
            command=name,
            customer_id="cus_000001",
            subject=subject,
            lines=[{"sku": "SEAT", "description": name, "quantity": 2, "unit_minor": 500}],
            amount_minor=1000,
            currency="USD",
        )
    if name.endswith("ticket"):
        return propose(
            f"test.{name}",
            command=name,
            customer_id="cus_000001",
            subject=subject,
            description="It does not start.",
            priority="normal",
        )
    return propose(
        "test.mail",
        command=name,
        to=f"{subject}@harborpine.example",
        subject=subject,
        body="Your offer.",
        customer_id="cus_000001",
    )


def _sends(name: str) -> Callable[[State], dict[str, Any]]:
    def send(state: State) -> dict[str, Any]:
        if name not in state["effects"]:
            return {}
        return {"references": {name: perform(state["effects"][name]).reference}}

    return send


def finish(state: State) -> State:
    return {"subject": state["subject"] + " (done)"}


graph = StateGraph(State)
graph.add_node("intend", intend)
graph.add_node("finish", finish)
graph.add_edge(START, "intend")
for _name in EFFECTS:
    graph.add_node(_name, _sends(_name))  # type: ignore[arg-type]  # a function, as any other
    graph.add_edge("intend", _name)
graph.add_edge(list(EFFECTS), "finish")
graph.add_edge("finish", END)

workflow = Workflow(
    name="test_trial",
    version="1",
    schema_version=1,
    graph=graph,
    title="Five effects",
    input_schema={
        "type": "object",
        "properties": {
            "makes": {"type": "array", "items": {"enum": list(EFFECTS)}},
            "subject": {"type": "string"},
        },
        "required": ["makes", "subject"],
        "additionalProperties": False,
    },
    effect_types=("test.offer_by_key", "test.ticket", "test.marked_ticket", "test.mail"),
)
