"""Graphs that make one effect, for rows that need a run."""

from __future__ import annotations

from typing import Any

from runs.authoring import ask_approval, perform, propose
from runs.engine.registry import Workflow
from tests.battery.bench import Bench
from tests.engine.workflows import Node, State, line, workflow_of


def sends(bench: Bench, effect_type: str, *, after: tuple[Node, ...] = (), **changes: Any) -> Workflow:
    """A run that proposes and performs it, then *after*."""

    def send(state: State) -> State:
        proposal = propose(effect_type, command="one", **bench.payload(effect_type, **changes))
        return {"log": [perform(proposal).status]}

    return workflow_of(line(send, *after), effect_types=(effect_type,))


def asks(bench: Bench, effect_type: str = "battery.asked_offer", **changes: Any) -> Workflow:
    """A run that proposes it, asks people, and performs it in the next node."""

    def ask(state: State) -> State:
        proposal = propose(effect_type, command="one", **bench.payload(effect_type, **changes))
        ask_approval(proposal)
        return {"effect": proposal.effect_id}

    def send(state: State) -> State:
        return {"log": [perform(state["effect"]).status]}

    return workflow_of(line(ask, send), effect_types=(effect_type,))
