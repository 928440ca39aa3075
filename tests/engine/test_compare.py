"""Two runs side by side, on the real engine: an original beside its replays, whole and part, alike and not."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from effects.models import Effect, WouldHave
from effects.states import Asked, Decision
from runs import comparing, execution
from runs.authoring import Workflow, ask_model, perform
from runs.commands import branch
from runs.comparing import Comparison, Sameness, Where, compare
from runs.engine import branching
from runs.models import Run
from runs.states import RunMode, RunStatus
from tests.engine.conftest import Engine
from tests.engine.journey import Outside
from tests.engine.test_replay import checkpoints_of, go, launch, simulated_to_its_end, travelled
from tests.engine.workflows import Scripted, State, offer, said, workflow_of


@pytest.fixture
def apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The console holds what the worker holds, and this process takes replays as a replayer does."""
    monkeypatch.setattr(branching, "workflows", lambda: engine.process.held)
    monkeypatch.setattr(execution, "bind", lambda run: None)
    return engine


def again(engine: Engine, original: Run, after: int, mode: RunMode, **fields: Any) -> Run:
    """A replay from the outermost checkpoint after step *after*, taken as far as it goes."""
    checkpoint = next(one for one in checkpoints_of(original) if one.number == after)
    return go(engine, launch(engine, checkpoint, mode, **fields))


def nodes(found: Comparison, where: Where, *, earlier: bool = False) -> list[str]:
    return [row.either.node for row in found.steps if row.where == where and row.earlier == earlier]


def test_an_evidence_replay_is_the_original_to_the_last_byte(apart: Engine) -> None:
    original = travelled(apart, Outside())
    replay = again(apart, original, 2, RunMode.EVIDENCE)
    assert replay.status == RunStatus.COMPLETED

    found = compare(original, replay)
    assert (found.ending.sameness, found.ending.why) == (Sameness.SAME, "")
    assert (found.parting, found.shorter, found.cut) == (None, None, [])
    assert nodes(found, Where.FIRST) == nodes(found, Where.SECOND) == []
    assert nodes(found, Where.FIRST, earlier=True) == ["loop", "loop"], "what lies before the replay's begin"
    assert [row.either.node for row in found.steps].count("each") == 4
    assert [row.inside for row in found.steps if row.either.node.startswith("inner")] == ["within"] * 3

    assert {point.sameness for point in found.points} == {Sameness.SAME}
    assert len(found.points) == len(checkpoints_of(replay, namespace=None))
    asked = [answer for answer in found.answers if not answer.earlier]
    assert len(asked) == replay.recordings.count() == 8
    assert all(answer.sameness == Sameness.SAME and answer.asked_alike for answer in asked)
    assert [row.sameness for row in found.effects] == [Sameness.SAME, Sameness.SAME]
    assert all(
        row.first and row.first.is_real and row.second and not row.second.is_real for row in found.effects
    )


def test_a_replay_from_within_a_subgraph_begins_there(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    inside = [one for one in checkpoints_of(original, namespace=None) if one.namespace and one.number == 1]
    replay = go(apart, launch(apart, inside[0], RunMode.EVIDENCE))
    assert replay.status == RunStatus.COMPLETED
    found = compare(original, replay)
    assert found.ending.sameness == Sameness.SAME
    assert found.parting is None
    assert nodes(found, Where.FIRST) == []
    before = nodes(found, Where.FIRST, earlier=True)
    assert (before[-1], "inner_b" in before) == ("inner_a", False)
    assert all(answer.earlier for answer in found.answers), "no model was left to ask"


def test_a_simulation_that_is_answered_otherwise_differs_from_there_on(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    first = next(one for one in checkpoints_of(original) if one.number == 5)
    replay = simulated_to_its_end(apart, first)
    assert replay.status == RunStatus.COMPLETED

    found = compare(original, replay)
    assert found.parting is None, "another answer, the same way"
    assert found.ending.sameness == Sameness.DIFFERS
    assert set(found.ending.fields) == {"answers", "offer"}
    outer = {point.number: point for point in found.points if not point.inside}
    assert [number for number, point in outer.items() if point.sameness == Sameness.SAME] == [5, 6, 7]
    assert [(change.path, change.before, change.after) for change in outer[8].changes] == [
        ("answers[0]", "first yes", "first simulated")
    ]
    assert all(answer.sameness == Sameness.SAME for answer in found.answers if not answer.earlier)
    assert [row.sameness for row in found.effects] == [Sameness.SAME, Sameness.SAME]


def test_models_that_are_asked_anew_say_which_words_they_changed(apart: Engine) -> None:
    outside = Outside(crashes=False)
    original = travelled(apart, outside)
    outside.model.script.extend(AIMessage(f"answer {n} at last") for n in range(1, 40))
    replay = again(apart, original, 1, RunMode.SIMULATION, models_asked=True)

    found = compare(original, replay)
    changed = [answer for answer in found.answers if answer.sameness == Sameness.DIFFERS]
    assert {answer.either.name for answer in changed} == {"Scripted"}
    assert changed[0].asked_alike
    (passage,) = changed[0].passages
    assert passage.path == "content"
    assert "".join(piece.text for piece in passage.pieces if piece.kind != "new") == "answer 2"
    assert any(piece.kind == "new" and piece.text.endswith("at last") for piece in passage.pieces)
    assert found.shorter == Where.SECOND, "it waits where the original was answered"
    assert found.ending.why == "B has not ended, so there are no two final states to compare."


def forks(model: Scripted) -> Workflow:
    """Goes one way or the other, as people answer, and proposes another amount on each."""

    def asks(state: State) -> dict[str, Any]:
        return {"value": interrupt("Which way?")}

    def high(state: State) -> dict[str, Any]:
        proposal = offer("one", amount=900)
        return {"effect": proposal.effect_id, "log": [ask_model(model, said("High road.")).text]}

    def low(state: State) -> dict[str, Any]:
        return {"effect": offer("one").effect_id}

    def sends(state: State) -> dict[str, Any]:
        both = offer("both", amount=900 if state["value"] == "high" else 700)
        return {"log": [perform(both).status]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    for one in (asks, high, low, sends):
        graph.add_node(one.__name__, one)
    graph.add_edge(START, "asks")
    graph.add_conditional_edges("asks", lambda state: state["value"], ["high", "low"])
    graph.add_edge("high", "sends")
    graph.add_edge("low", "sends")
    graph.add_edge("sends", END)
    return workflow_of(graph, effect_types=("test.offer_by_key",))


def test_where_the_paths_part_is_marked_and_what_each_would_send_is_compared(apart: Engine) -> None:
    original = apart.answer(apart.run(forks(Scripted())), "high")
    assert original.status == RunStatus.COMPLETED, original.failure_text
    replay = again(apart, original, 0, RunMode.SIMULATION)
    (approval,) = apart.asked(replay)
    assert approval.asks == Asked.QUESTION
    apart.decide(approval, Decision.RESPOND, answer="low", by=apart.world.developer)
    replay = go(apart, replay)
    assert replay.status == RunStatus.COMPLETED, replay.failure_text

    found = compare(original, replay)
    assert found.parting is not None
    assert (found.parting.number, found.parting.either.node, found.parting.where) == (2, "high", Where.FIRST)
    assert [row.parts for row in found.steps] == [False, True, False, False]
    assert nodes(found, Where.SECOND) == ["low"]
    points = {point.number: point for point in found.points}
    assert 2 not in points, "after other nodes' work there is nothing in common"
    assert points[3].sameness == Sameness.DIFFERS
    assert [(one.node, one.where) for one in found.answers] == [("high", Where.FIRST)]

    at = {row.node: row for row in found.effects}
    assert (at["high"].where, at["low"].where) == (Where.FIRST, Where.SECOND)
    assert at["sends"].sameness == Sameness.DIFFERS
    assert ("amount_minor", "900", "700") in [
        (change.path, change.before, change.after) for change in at["sends"].changes
    ]
    assert Effect.objects.filter(run_id=replay.id).count() == 0
    assert WouldHave.objects.filter(run_id=replay.id).count() == 2


def test_of_a_long_run_so_much_is_compared_and_the_rest_is_said(
    apart: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = travelled(apart, Outside(crashes=False))
    replay = again(apart, original, -1, RunMode.EVIDENCE)
    monkeypatch.setattr(comparing, "MAX_STEPS", 3)
    monkeypatch.setattr(comparing, "MAX_ANSWERS", 2)
    monkeypatch.setattr(comparing, "MAX_CHECKPOINTS", 4)
    monkeypatch.setattr(comparing, "MAX_READ", 0)
    found = compare(original, replay)
    assert (len(found.steps), len(found.answers), len(found.points)) == (3, 2, 4)
    assert found.ending.sameness == Sameness.SAME, "the end is looked at whatever lies before it"
    said_of_both = [f"Of {run.id} the first 3 steps are compared; it has more." for run in (original, replay)]
    assert set(said_of_both) <= set(found.cut)


def test_a_branch_is_compared_step_for_step_though_its_edit_counts_as_one(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    at = next(one for one in checkpoints_of(original) if one.number == 6)
    made, _ = branch.branch(
        apart.world.actor(apart.world.developer),
        original.id,
        at.id,
        edit={"rounds": {"replace": 4}},
        reason="To see.",
        token=str(uuid.uuid4()),
    )
    made = go(apart, made)
    assert made.status == RunStatus.WAITING_APPROVAL, made.failure_text

    found = compare(original, made)
    assert found.parting is None
    assert nodes(found, Where.SECOND) == []
    assert [row.either.node for row in found.steps if row.where == Where.BOTH] == [*["each"] * 4, "asks"]
    points = {point.number: point for point in found.points}
    assert [(one.path, one.before, one.after) for one in points[6].changes] == [("rounds", "3", "4")]
    assert {point.sameness for point in found.points} == {Sameness.DIFFERS}
