"""Create branch, on the real engine: from every checkpoint of a graph that has everything in it, and its refusals."""

from __future__ import annotations

import operator
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from django.db import connection
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from console.kernel.errors import AlreadyDone, Invalid, KeyReused, NotFound, Refusal, Stale
from console.models import AuditEvent
from effects.models import Approval, Effect, EffectAttempt, WouldHave
from effects.states import ApprovalStatus, Asked, Decision
from runs import execution
from runs.commands import branch
from runs.commands.branch import Edit, Preview
from runs.engine import branching
from runs.inspection import state_of
from runs.models import BranchEdit, Checkpoint, Run
from runs.states import RunKind, RunMode, RunStatus
from tests.engine.conftest import Engine
from tests.engine.journey import Outside
from tests.engine.test_replay import (
    answered_to_its_end,
    checkpoints_of,
    go,
    launch,
    rows_of,
    travelled,
)
from tests.engine.workflows import line
from tests.people import make_world

EXACT = 3544790567247868102


@pytest.fixture(autouse=True)
def apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The console holds what the worker holds, and this process takes a simulation as a replayer does."""
    monkeypatch.setattr(branching, "workflows", lambda: engine.process.held)
    monkeypatch.setattr(execution, "bind", lambda run: None)
    return engine


def make(engine: Engine, checkpoint: Checkpoint, edit: Edit, **fields: Any) -> Run:
    given: dict[str, Any] = {"reason": "To see.", "token": str(uuid.uuid4()), **fields}
    run, made = branch.branch(
        engine.world.actor(engine.world.developer), checkpoint.run_id, checkpoint.id, edit=edit, **given
    )
    assert made
    return run


def look(engine: Engine, checkpoint: Checkpoint, edit: Edit, **fields: Any) -> Preview:
    by = engine.world.actor(engine.world.developer)
    return branch.preview(by, checkpoint.run_id, checkpoint.id, edit=edit, **fields)


def refused(engine: Engine, checkpoint: Checkpoint, edit: Edit, **fields: Any) -> Refusal:
    """Why it is refused; no run and no checkpoint is left."""
    runs, checkpoints = Run.objects.count(), Checkpoint.objects.count()
    with pytest.raises(Refusal) as refusal:
        make(engine, checkpoint, edit, **fields)
    assert (Run.objects.count(), Checkpoint.objects.count()) == (runs, checkpoints)
    return refusal.value


def standing(engine: Engine, run: Run) -> tuple[list[str], dict[str, Any], list[str]]:
    """What comes next in the newest checkpoint, its values, and the ids of its tasks, as the engine reads its rows."""
    graph = engine.process.held[str(run.workflow)].compiled.copy({"checkpointer": engine_saver(run)})
    snapshot = graph.get_state({"configurable": {"thread_id": run.id}})
    names = sorted(task.name for task in snapshot.tasks)
    return names, dict(snapshot.values), sorted(task.id for task in snapshot.tasks)


def engine_saver(run: Run) -> Any:
    return branching.reading(branching.workflow_of(run))


def at(run: Run, number: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run, namespace="", number=number)


# -- every checkpoint of the journey ------------------------------------------------------------------------------

ADDED: Edit = {"log": {"append": ["edited"]}}


def chosen(checkpoint: Checkpoint) -> str:
    """The first of the nodes that ran side by side before it; empty where only one did."""
    nodes = branch._nodes(checkpoint)
    return nodes[0] if len(nodes) > 1 else ""


def test_every_checkpoint_branches_and_stands_as_it_was_shown(apart: Engine) -> None:
    original = travelled(apart, Outside())
    before = rows_of(original)

    checkpoints = [one for one in checkpoints_of(original) if one.number >= 0]
    assert len(checkpoints) >= 10
    for checkpoint in checkpoints:
        as_node = chosen(checkpoint)
        shown = look(apart, checkpoint, ADDED, as_node=as_node)
        run = make(apart, checkpoint, ADDED, as_node=as_node, shown_next=shown.next_nodes)
        next_nodes, values, _ = standing(apart, run)
        said = (checkpoint.number, shown.as_node)
        # What comes next is what came next in the original, for nothing that a router reads was edited.
        assert shown.next_nodes == shown.next_before == next_nodes, said
        was: dict[str, Any] = {"log": [], "answers": [], **(state_of(checkpoint).values or {})}
        assert values == {**was, "log": [*was["log"], "edited"]}, said
        assert sorted(one.number for one in checkpoints_of(run)) == [checkpoint.number, checkpoint.number + 1]
        assert not has_writes(run), said
        assert shown.changes[0].path == f"log[{len(was['log'])}]" or not was["log"]
        assert (run.kind, run.mode, run.status) == (RunKind.BRANCH, RunMode.SIMULATION, RunStatus.QUEUED)
        assert BranchEdit.objects.get(run=run).next_nodes == shown.next_nodes
    assert rows_of(original) == before


def has_writes(run: Run) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM engine.checkpoint_writes WHERE thread_id = %s", [run.id])
        return bool(cursor.fetchone()[0])


def test_the_tasks_that_come_next_are_those_that_were_computed(apart: Engine) -> None:
    """The very same engine ids: what was computed is what is written, not computed once more."""
    original = travelled(apart, Outside(crashes=False))
    source = at(original, 5)
    by = apart.world.actor(apart.world.developer)
    computed: list[branching.Edited] = []
    write = branching.write_edited

    def noting(edit: branching.Edited, *rest: Any) -> Checkpoint:
        computed.append(edit)
        return write(edit, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branch, "write_edited", noting)
        run, _ = branch.branch(
            by,
            source.run_id,
            source.id,
            edit=ADDED,
            reason="To see.",
            token=str(uuid.uuid4()),
            as_node=chosen(source),
        )
    assert standing(apart, run)[2] == computed[0].task_ids


def test_live_branches_ask_afresh_and_act_under_ids_of_their_own(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    before = rows_of(original)
    first = Effect.objects.get(run_id=original.id, effect_type="test.asked_offer")
    answered = Approval.objects.filter(run_id=original.id).exclude(status=ApprovalStatus.PENDING).count()
    assert answered == 3
    # Before its first question: nothing that people said to the original counts.
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["asks"])
    run = make(apart, source, ADDED, mode=RunMode.LIVE)
    run = go(apart, run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    (question,) = apart.asked(run)
    assert question.asks == Asked.QUESTION
    run = answered_to_its_end(apart, run)
    own = Effect.objects.get(run_id=run.id, effect_type="test.asked_offer")
    assert own.id != first.id
    assert (len(apart.made(own)), len(apart.made(first))) == (1, 1)
    state = apart.state_of(run)
    assert "edited" in state["log"]
    # The inner graph gives back what it was given; none of the original's later history is there.
    assert state["answers"] == ["first live", "first live", "second live"]
    assert rows_of(original) == before


def nodes_next(checkpoint: Checkpoint) -> list[str]:
    return state_of(checkpoint).next_nodes


def test_a_branch_in_simulation_sends_nothing(apart: Engine) -> None:
    outside = Outside(crashes=False)
    original = travelled(apart, outside)
    before, asked = rows_of(original), outside.times
    attempts = EffectAttempt.objects.filter(effect__workspace=apart.world.workspace).count()
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["asks"])
    run = go(apart, make(apart, source, ADDED))
    for _ in range(4):
        if run.status != RunStatus.WAITING_APPROVAL:
            break
        for approval in apart.asked(run):
            by = apart.world.developer
            assert approval.simulated_for == by
            if approval.asks == Asked.QUESTION:
                apart.decide(approval, Decision.RESPOND, answer="simulated", by=by)
            else:
                apart.decide(approval, by=by)
        run = go(apart, run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert apart.state_of(run)["log"][-1] == "final completed"
    assert not Effect.objects.filter(run_id=run.id).exists()
    assert WouldHave.objects.filter(run_id=run.id).count() >= 1
    assert outside.times == asked, (
        "the same request of the same node was given its recorded answer, a step off"
    )
    assert EffectAttempt.objects.filter(effect__workspace=apart.world.workspace).count() == attempts
    assert rows_of(original) == before


def test_what_was_settled_before_the_checkpoint_is_history(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    first = Effect.objects.get(run_id=original.id, effect_type="test.asked_offer")
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["sends_final"])
    run = go(apart, make(apart, source, ADDED, mode=RunMode.LIVE))
    assert not Effect.objects.filter(run_id=run.id, effect_type="test.asked_offer").exists()
    assert len(apart.made(first)) == 1


def test_two_branches_of_one_checkpoint_keep_their_own_edits(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["asks"])
    runs = [make(apart, source, {"log": {"append": [said]}}) for said in ("one", "other")]
    assert [standing(apart, run)[1]["log"][-1] for run in runs] == ["one", "other"]
    assert set(Run.objects.filter(parent_checkpoint=source, kind=RunKind.BRANCH)) == set(runs)


def test_evidence_of_a_branch_begins_after_its_edit(apart: Engine) -> None:
    outside = Outside(crashes=False)
    original = travelled(apart, outside)
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["asks"])
    run = answered_to_its_end(apart, go(apart, make(apart, source, ADDED, mode=RunMode.LIVE)))
    copied, own, *_ = checkpoints_of(run)
    assert (copied.fence, own.fence, own.source) == (0, 0, "update")
    runs = Run.objects.count()
    with pytest.raises(AlreadyDone, match="begins after its edit"):
        launch(apart, copied, RunMode.EVIDENCE)
    assert Run.objects.count() == runs
    asked = outside.times
    for checkpoint in checkpoints_of(run)[1:]:
        again = go(apart, launch(apart, checkpoint, RunMode.EVIDENCE))
        assert again.status == RunStatus.COMPLETED, (checkpoint.number, again.failure_text)
        assert apart.state_of(again)["answers"] == apart.state_of(run)["answers"]
    assert outside.times == asked


def test_a_branch_of_a_branch_and_of_a_replay_of_it(apart: Engine) -> None:
    """The nodes that led there are found through the copies."""
    original = travelled(apart, Outside(crashes=False))
    source = next(one for one in checkpoints_of(original) if nodes_next(one) == ["each"])
    first = make(apart, source, ADDED)
    copied, own = checkpoints_of(first)
    again = launch(apart, own, RunMode.SIMULATION)
    for checkpoint in (copied, own, checkpoints_of(again)[0]):
        assert branch._nodes(checkpoint) == ["join"]
        second = make(apart, checkpoint, {"log": {"append": ["twice"]}})
        assert standing(apart, second)[0] == ["each"] * 4


# -- what may be done to a field ----------------------------------------------------------------------------------


class Fields(TypedDict, total=False):
    number: int
    name: str
    ratio: float
    nested: dict[str, Any]
    log: Annotated[list[str], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]
    free: Any
    since: datetime


def writes(state: Fields) -> dict[str, Any]:
    return {
        "number": EXACT,
        "name": "one",
        "ratio": 1.0,
        "nested": {"exact": EXACT, "small": 1},
        "log": ["a", "b"],
        "messages": [
            HumanMessage("Hello", id="m1"),
            AIMessage("", id="m2", tool_calls=[{"name": "t", "args": {"n": 1}, "id": "c1"}]),
        ],
        "free": {"a": ("a", "tuple"), "at": datetime(2026, 3, 1, tzinfo=UTC)},
        "since": datetime(2026, 3, 1, tzinfo=UTC),
    }


def waits(state: Fields) -> dict[str, Any]:
    return {"name": str(interrupt("Go on?"))}


@pytest.fixture
def written(apart: Engine) -> Checkpoint:
    """A run with a state of every kind, after its first node."""
    return at(apart.run(line(writes, waits, schema=Fields)), 1)


def kept(run: Run) -> dict[str, tuple[str, bytes]]:
    """The state's blobs of the newest checkpoint as they stand in the database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (channel) channel, type, blob FROM engine.checkpoint_blobs "
            "WHERE thread_id = %s AND checkpoint_ns = '' AND type <> 'empty' ORDER BY channel, version DESC",
            [run.id],
        )
        return {channel: (kind, bytes(blob)) for channel, kind, blob in cursor.fetchall()}


def test_what_was_not_edited_keeps_every_byte_and_every_digit(apart: Engine, written: Checkpoint) -> None:
    run = make(apart, written, {"name": {"replace": "two"}})
    _, values, _ = standing(apart, run)
    _, original, _ = standing(apart, written.run)
    assert values == {**original, "name": "two"}
    assert values["number"] == values["nested"]["exact"] == EXACT
    assert [type(message) for message in values["messages"]] == [HumanMessage, AIMessage]
    assert {name: one for name, one in kept(run).items() if not name.startswith(("branch:", "__"))} == {
        name: one for name, one in kept(written.run).items() if not name.startswith(("branch:", "__"))
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT checkpoint -> 'channel_values' ->> 'number' FROM engine.checkpoints WHERE thread_id = %s",
            [run.id],
        )
        assert cursor.fetchall() == [(str(EXACT),)] * 2


def test_whole_numbers_are_edited_exactly(apart: Engine, written: Checkpoint) -> None:
    edit: Edit = {
        "number": {"replace": EXACT + 1},
        "nested": {"replace": {"exact": EXACT + 1, "small": 1}},
    }
    assert [(one.path, one.after) for one in look(apart, written, edit).changes] == [
        ("nested.exact", str(EXACT + 1)),
        ("number", str(EXACT + 1)),
    ]
    _, values, _ = standing(apart, make(apart, written, edit))
    assert (values["number"], values["nested"]["exact"]) == (EXACT + 1, EXACT + 1)


def test_a_value_is_taken_as_the_schema_types_it(apart: Engine, written: Checkpoint) -> None:
    edit: Edit = {"since": {"replace": "2027-03-01T00:00:00Z"}, "free": {"replace": {"a": 1}}}
    _, values, _ = standing(apart, make(apart, written, edit))
    assert (values["since"], values["free"]) == (datetime(2027, 3, 1, tzinfo=UTC), {"a": 1})


@pytest.mark.parametrize(
    ("ways", "log"),
    [
        ({"replace": ["c"]}, ["c"]),
        ({"replace": []}, []),
        ({"append": ["c"]}, ["a", "b", "c"]),
    ],
)
def test_a_reducer_is_passed_or_used(
    apart: Engine, written: Checkpoint, ways: dict[str, Any], log: list[str]
) -> None:
    assert standing(apart, make(apart, written, {"log": ways}))[1]["log"] == log


def test_messages_are_edited_by_id_removed_and_appended(apart: Engine, written: Checkpoint) -> None:
    edit: Edit = {
        "messages": {
            "edit": {"m2": "An answer."},
            "remove": ["m1"],
            "append": [{"role": "user", "content": "And now?"}],
        }
    }
    shown = look(apart, written, edit)
    _, values, _ = standing(apart, make(apart, written, edit))
    edited, added = values["messages"]
    assert (edited.id, edited.content, edited.tool_calls[0]["args"]) == ("m2", "An answer.", {"n": 1})
    assert (type(added), added.content) == (HumanMessage, "And now?")
    assert any("And now?" in change.after for change in shown.changes)


def test_a_whole_list_of_messages_keeps_those_that_stand_in_it(apart: Engine, written: Checkpoint) -> None:
    shown: Any = state_of(written).values
    _, second = shown["messages"]
    edit: Edit = {"messages": {"replace": [second, {"role": "system", "content": "Be brief."}]}}
    _, values, _ = standing(apart, make(apart, written, edit))
    kept_one, new = values["messages"]
    assert kept_one == standing(apart, written.run)[1]["messages"][1]
    assert (new.type, new.content) == ("system", "Be brief.")


@pytest.mark.parametrize(
    ("edit", "names", "words"),
    [
        ({}, "edit", "changes nothing"),
        ({"name": {"replace": "one"}}, "edit", "changes nothing"),
        ({"log": {"append": []}}, "edit", "changes nothing"),
        ({"name": {"replace": "one"}, "number": {"replace": 2}}, "name", "stay as it is"),
        ({"nmae": {"replace": "two"}}, "nmae", "no such field"),
        ({"branch:to:waits": {"replace": None}}, "branch:to:waits", "no such field"),
        ({"__pregel_tasks": {"replace": []}}, "__pregel_tasks", "no such field"),
        ({"number": {"replace": "five"}}, "number", "valid integer"),
        ({"number": {"replace": 1.5}}, "number", "valid integer"),
        ({"number": {"replace": True}}, "number", "valid integer"),
        ({"log": {"append": ["a", 1]}}, "log[1]", "valid string"),
        ({"name": {"append": "x"}}, "name", "append can't be done"),
        ({"log": {"remove": ["a"]}}, "log", "remove can't be done"),
        ({"log": {"replace": [], "append": []}}, "log", "one thing"),
        ({"log": {}}, "log", "one thing"),
        ({"messages": {"remove": ["gone"]}}, "messages", "no message gone"),
        ({"messages": {"edit": {"gone": "x"}}}, "messages", "no message gone"),
        ({"messages": {"append": [{"content": "x"}]}}, "messages", "needs a role"),
        (
            {"messages": {"append": [{"role": "user", "content": "x", "id": "m1"}]}},
            "messages",
            "edit it instead",
        ),
        ({"messages": {"append": [{"role": "user", "content": "x", "mood": 1}]}}, "messages", "no mood"),
        ({"name": {"replace": "a\x00b"}}, "", "U+0000"),
        ({"free": {"replace": {"a": 1, "at": "2027-03-01"}}}, "free", "free.at holds an object"),
        ({"since": {"replace": "yesterday"}}, "since", "valid datetime"),
    ],
)
def test_what_is_not_a_change_of_this_state_is_refused_by_name(
    apart: Engine, written: Checkpoint, edit: Edit, names: str, words: str
) -> None:
    refusal = refused(apart, written, edit)
    assert isinstance(refusal, Invalid)
    assert words in refusal.message
    assert names in (refusal.field or "") or names in dict(refusal.errors)


def test_without_a_reason_there_is_no_branch(apart: Engine, written: Checkpoint) -> None:
    for reason in ("", "  \n", "x" * 301, "a\x00b"):
        assert refused(apart, written, {"name": {"replace": "two"}}, reason=reason).field == "reason"


def test_a_branch_in_evidence_there_is_none(apart: Engine, written: Checkpoint) -> None:
    refusal = refused(apart, written, {"name": {"replace": "two"}}, mode=RunMode.EVIDENCE)
    assert (refusal.field, refusal.status) == ("mode", 422)


def test_the_input_is_no_checkpoint_to_branch_from(apart: Engine, written: Checkpoint) -> None:
    refusal = refused(apart, at(written.run, -1), {"name": {"replace": "two"}})
    assert "new input" in refusal.message
    assert refusal.field == "checkpoint"


def test_before_the_first_node_the_input_is_edited(apart: Engine) -> None:
    first = at(apart.run(line(writes, waits, schema=Fields), {}), 0)
    shown = look(apart, first, {"name": {"replace": "given"}})
    assert (shown.as_node, shown.next_nodes) == (branching.FIRST_NODE, ["writes"])
    assert standing(apart, make(apart, first, {"name": {"replace": "given"}}))[1] == {
        "name": "given",
        "log": [],
        "messages": [],
    }


def test_a_checkpoint_within_a_step_is_not_edited(apart: Engine) -> None:
    original = travelled(apart, Outside(crashes=False))
    inner = Checkpoint.objects.filter(run=original).exclude(namespace="").first()
    assert inner is not None
    assert "graph around it" in refused(apart, inner, ADDED).message


def test_a_checkpoint_of_another_run_or_workspace_is_not_there(apart: Engine, written: Checkpoint) -> None:
    other = apart.run(line(writes, waits, schema=Fields))
    by = apart.world.actor(apart.world.developer)
    edit: Edit = {"name": {"replace": "two"}}
    runs = Run.objects.count()
    with pytest.raises(NotFound):
        branch.branch(by, other.id, written.id, edit=edit, reason="x", token="elsewhere")
    stranger = make_world("stranger")
    with pytest.raises(NotFound):
        branch.branch(
            stranger.actor(stranger.developer),
            written.run_id,
            written.id,
            edit=edit,
            reason="x",
            token="other",
        )
    assert Run.objects.count() == runs


def test_other_code_is_refused(apart: Engine, written: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    Run.objects.filter(id=written.run_id).update(fingerprint="fp1:other")
    refusal = refused(apart, written, {"name": {"replace": "two"}})
    assert (refusal.code, refusal.status) == ("version_mismatch", 409)
    monkeypatch.setattr(branching, "workflows", dict)
    assert "does not hold" in refused(apart, written, {"name": {"replace": "two"}}).message


def test_a_state_that_is_gone_is_refused(apart: Engine, written: Checkpoint) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM engine.checkpoints WHERE thread_id = %s", [written.run_id])
    assert refused(apart, written, {"name": {"replace": "two"}}).status == 409


def test_the_same_form_makes_one_branch_and_with_other_input_none(apart: Engine, written: Checkpoint) -> None:
    by = apart.world.actor(apart.world.developer)

    def post(edit: Edit, **fields: Any) -> tuple[Run, bool]:
        given = {"reason": "To see.", "token": "the-same-form", **fields}
        return branch.branch(by, written.run_id, written.id, edit=edit, **given)

    edit: Edit = {"number": {"replace": EXACT + 1}}
    (run, made), (same, again) = post(edit), post(edit)
    assert (made, again, same.id) == (True, False, run.id)
    others: list[tuple[Edit, dict[str, Any]]] = [
        ({"number": {"replace": EXACT + 2}}, {}),
        (edit, {"reason": "Another."}),
        (edit, {"mode": RunMode.LIVE}),
        (edit, {"as_node": "writes"}),
    ]
    for changed, fields in others:
        with pytest.raises(KeyReused):
            post(changed, **fields)
    assert Run.objects.filter(parent_checkpoint=written).count() == 1
    event = AuditEvent.objects.get(subject=run.id, verb="run.branched")
    assert event.reason == "To see."


def test_what_comes_next_is_what_was_shown(apart: Engine, written: Checkpoint) -> None:
    refusal = refused(apart, written, {"name": {"replace": "two"}}, shown_next=["elsewhere"])
    assert isinstance(refusal, Stale)


# -- the node that an edit counts as ------------------------------------------------------------------------------


def one(state: Fields) -> dict[str, Any]:
    return {"log": ["one"], "name": "one"}


def two(state: Fields) -> dict[str, Any]:
    return {"log": ["two"]}


def after_one(state: Fields) -> dict[str, Any]:
    return {"log": ["after one"]}


def after_two(state: Fields) -> dict[str, Any]:
    return {"log": ["after two"]}


def parallel() -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Fields)
    for node in (one, two, after_one, after_two):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "one")
    graph.add_edge(START, "two")
    graph.add_conditional_edges(
        "one", lambda s: END if s.get("name") == "end" else "after_one", ["after_one", END]
    )
    graph.add_edge("two", "after_two")
    return graph


def test_an_ambiguous_node_is_asked_for_and_its_sibling_keeps_its_way(apart: Engine) -> None:
    source = at(apart.run(parallel()), 1)
    edit: Edit = {"name": {"replace": "two"}}
    refusal = refused(apart, source, edit)
    assert (refusal.status, refusal.field) == (422, "as_node")
    assert "one, two" in refusal.message
    assert refused(apart, source, edit, as_node="after_one").field == "as_node"
    for as_node in ("one", "two"):
        shown = look(apart, source, edit, as_node=as_node)
        assert shown.next_nodes == ["after_one", "after_two"]
        run = make(apart, source, edit, as_node=as_node)
        assert standing(apart, run)[0] == shown.next_nodes
        run = go(apart, run)
        assert sorted(apart.state_of(run)["log"]) == ["after one", "after two", "one", "two"]


def test_a_router_chooses_anew_and_the_preview_says_so(apart: Engine) -> None:
    source = at(apart.run(parallel()), 1)
    shown = look(apart, source, {"name": {"replace": "end"}}, as_node="one")
    assert (shown.next_before, shown.next_nodes) == (["after_one", "after_two"], ["after_two"])
    run = make(apart, source, {"name": {"replace": "end"}}, as_node="one")
    assert standing(apart, run)[0] == ["after_two"]


def test_a_router_that_raises_is_a_refusal_without_its_words(apart: Engine) -> None:
    def chooses(state: Fields) -> str:
        if state["name"] != "one":
            raise KeyError(state["name"])
        return "two"

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Fields)
    graph.add_node("one", one)
    graph.add_node("two", two)
    graph.add_edge(START, "one")
    graph.add_conditional_edges("one", chooses, ["two"])
    source = at(apart.run(graph), 1)
    refusal = refused(apart, source, {"name": {"replace": "s3cret"}})
    assert "KeyError" in refusal.message
    assert "s3cret" not in refusal.message


def test_what_a_node_chose_without_an_edge_stays(apart: Engine) -> None:
    def jumps(state: Fields) -> Command[Any]:
        return Command(update={"name": "one"}, goto="two")

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Fields)
    graph.add_node("jumps", jumps, destinations=("two",))
    graph.add_node("two", two)
    graph.add_edge(START, "jumps")
    source = at(apart.run(graph), 1)
    shown = look(apart, source, {"name": {"replace": "edited"}})
    assert (shown.next_nodes, shown.held) == (["two"], ["two"])
    run = go(apart, make(apart, source, {"name": {"replace": "edited"}}))
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert apart.state_of(run)["name"] == "edited"
    assert apart.state_of(run)["log"] == ["two"]
