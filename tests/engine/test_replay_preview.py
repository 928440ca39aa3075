"""The preview of a replay against a real run of a graph with everything in it: what it says is what the run did."""

from __future__ import annotations

from runs.commands.replay_preview import Fate, NodePlan, preview
from runs.states import RunMode
from tests.engine.conftest import Engine
from tests.engine.journey import Outside
from tests.engine.test_replay import checkpoints_of, travelled


def fates(plan: NodePlan) -> list[Fate]:
    return [line.fate for line in plan.lines]


def test_each_mode_says_of_each_node_what_the_run_did_there(engine: Engine) -> None:
    outside = Outside()
    original = travelled(engine, outside)
    asked = outside.times
    first = checkpoints_of(original)[0]
    plans = {mode: {plan.node: plan for plan in preview(original, first, mode).nodes} for mode in RunMode}
    for mode, by_node in plans.items():
        assert all(plan.ran for plan in by_node.values()), mode
        assert [
            line.fate for plan in by_node.values() for line in plan.lines if line.fate == Fate.STOPS
        ] == []
    evidence, simulation, live = (
        plans[mode] for mode in (RunMode.EVIDENCE, RunMode.SIMULATION, RunMode.LIVE)
    )
    assert fates(evidence["loop"]) == [Fate.RECOMPUTED, Fate.RECORDED]
    assert evidence["loop"].lines[1].what.startswith("3 model answers")
    assert evidence["within › inner_a"].lines[1].fate == Fate.RECORDED
    assert fates(evidence["asks"]) == [Fate.RECOMPUTED, Fate.RECORDED]
    assert fates(simulation["proposes"]) == [Fate.RECOMPUTED, Fate.DOUBLED, Fate.PEOPLE]
    assert fates(simulation["sends_final"]) == [Fate.RECOMPUTED, Fate.DOUBLED]
    assert fates(live["left"]) == fates(live["right"]) == [Fate.RECOMPUTED, Fate.ASKED]
    assert fates(live["sends_final"]) == [Fate.RECOMPUTED, Fate.BLOCKED]
    assert outside.times == asked, "a preview asks nobody"


def test_from_the_checkpoint_before_the_sending_the_sending_is_of_the_node_that_sent(engine: Engine) -> None:
    original = travelled(engine, Outside(crashes=False))
    step = original.steps.filter(node="sends").latest("started_at")
    (at,) = [one for one in checkpoints_of(original) if one.number == step.number - 1]
    shown = preview(original, at, RunMode.LIVE)
    by_node = {plan.node: plan for plan in shown.nodes}
    assert list(by_node) == ["sends", "sends_final"]
    assert Fate.SENT in fates(by_node["sends"])
    assert shown.carried == []
    assert shown.next_nodes == ["sends"]
    last = preview(original, checkpoints_of(original)[-1], RunMode.LIVE)
    assert last.ends
    assert last.kept.settled_before == 2
