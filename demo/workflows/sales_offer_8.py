"""sales_offer_agent 8: reads intent and language into one field, and checks an offer's sum before anybody is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langgraph.graph import END, START, StateGraph

from demo.workflows import sales_offer as seven
from runs.authoring import Migration


class State(seven.State, total=False):
    reading: dict[str, str]
    sum_minor: int


def classify(state: State) -> dict[str, Any]:
    found = seven.classify(state)
    return {**found, "reading": {"intent": found["intent"], "language": found["language"]}}


def check_offer(state: State) -> dict[str, Any]:
    """A computation that comes out the same each time: nothing outside is asked."""
    lines = state["offer"]["lines"]
    total = sum(line["quantity"] * line["unit_minor"] for line in lines)
    if total != state["offer"]["amount_minor"]:
        raise ValueError(
            f"The lines of the offer make {total}, and it says {state['offer']['amount_minor']}."
        )
    return {"sum_minor": total}


graph = StateGraph(State)
for node in (
    classify,
    seven.find_customer,
    seven.draft_offer,
    check_offer,
    seven.approve_offer,
    seven.create_offer,
    seven.mail_offer,
    seven.reply,
    seven.decline,
):
    graph.add_node(node.__name__, node)
graph.add_edge(START, "classify")
graph.add_edge("classify", "find_customer")
graph.add_edge("find_customer", "draft_offer")
graph.add_edge("draft_offer", "check_offer")
graph.add_edge("check_offer", "approve_offer")
graph.add_conditional_edges("approve_offer", seven.after_approval, ["create_offer", "decline"])
graph.add_edge("create_offer", "mail_offer")
graph.add_edge("mail_offer", "reply")
graph.add_edge("reply", END)
graph.add_edge("decline", END)


def from_seven(state: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if "intent" in state:
        changed["reading"] = {"intent": state["intent"], "language": state["language"]}
    if "offer" in state:
        changed["sum_minor"] = state["offer"]["amount_minor"]
    return changed


workflow = replace(
    seven.workflow,
    version="8",
    schema_version=5,
    graph=graph,
    summary="Reads a customer's request, drafts and checks an offer, asks Sales approvers, then creates and mails it.",
    migrations={
        "7": Migration(
            summary="Intent and language move into one field; an offer that was drafted is taken to be summed up right.",
            convert=from_seven,
        )
    },
)
