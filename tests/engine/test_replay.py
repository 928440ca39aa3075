"""Replay from checkpoint, on the real engine: from every checkpoint of a graph that has everything in it."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import pytest
from django.db import connection

from console.kernel.errors import Forbidden
from effects.models import Effect, EffectAttempt, WouldHave
from effects.states import Asked, Decision
from runs import execution
from runs.commands import permit_type, replay
from runs.models import Checkpoint, Run
from runs.states import Failure, RunMode, RunStatus
from tests.engine.conftest import Engine
from tests.engine.journey import Outside, journey
from tests.engine.recovering import die, take_back


@pytest.fixture
def apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """This process takes replays as a replayer does. It is not bound for ever to a mode: tests/process shows that."""
    monkeypatch.setattr(execution, "bind", lambda run: None)
    return engine


def go(engine: Engine, run: Run) -> Run:
    engine.process.apart = run.mode != RunMode.LIVE
    try:
        return engine.go(run)
    finally:
        engine.process.apart = False


def launch(engine: Engine, checkpoint: Checkpoint, mode: RunMode, **fields: Any) -> Run:
    world = engine.world
    by = world.actor(world.developer)
    run, made = replay.replay(
        by, checkpoint.run_id, checkpoint.id, mode=mode, token=str(uuid.uuid4()), reason="To see.", **fields
    )
    assert made
    return run


def travelled(engine: Engine, outside: Outside) -> Run:
    """A run of the journey to its end, killed once on its way, with its two questions and its approval answered."""
    run = engine.begin(journey(outside), {"log": []})
    run = take_back(die(engine, run)) if outside.crashes else run
    run = engine.go(run)
    run = engine.answer(run, "yes")
    run = engine.answer(run, "within")
    (approval,) = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    return run


def rows_of(run: Run) -> str:
    """A hash of every row of the run: ours, the engine's, the ledger's."""
    digest = hashlib.sha256()
    with connection.cursor() as cursor:
        for table, column in (
            ("runs_run", "id"),
            *(
                (f"runs_{name}", "run_id")
                for name in ("checkpoint", "execution", "step", "pause", "recording")
            ),
            *((f"effects_{name}", "run_id") for name in ("command", "effect", "approval")),
            *(
                (f"engine.{name}", "thread_id")
                for name in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
            ),
        ):
            cursor.execute(f"SELECT t::text FROM {table} t WHERE {column} = %s ORDER BY 1", [run.id])
            for (row,) in cursor.fetchall():
                digest.update(f"{table} {row}\n".encode())
    return digest.hexdigest()


def checkpoints_of(run: Run, namespace: str | None = "") -> list[Checkpoint]:
    found = Checkpoint.objects.filter(run=run).order_by("engine_id")
    return list(found if namespace is None else found.filter(namespace=namespace))


def test_every_checkpoint_replays_in_evidence_to_the_same_end_and_asks_nobody(apart: Engine) -> None:
    outside = Outside()
    original = travelled(apart, outside)
    before, asked, end = rows_of(original), outside.times, apart.state_of(original)
    effects = Effect.objects.filter(workspace=apart.world.workspace).count()

    checkpoints = checkpoints_of(original, namespace=None)
    assert len(checkpoints) >= 16
    for checkpoint in checkpoints:
        again = go(apart, launch(apart, checkpoint, RunMode.EVIDENCE))
        said = (checkpoint.namespace, checkpoint.number, again.failure_text)
        assert again.status == RunStatus.COMPLETED, said
        assert again.failure_text == "", said
        assert apart.state_of(again) == end, said

    assert outside.times == asked
    assert rows_of(original) == before
    assert Effect.objects.filter(workspace=apart.world.workspace).count() == effects


def test_every_checkpoint_replays_in_simulation_and_sends_nothing(apart: Engine) -> None:
    outside = Outside()
    original = travelled(apart, outside)
    before, asked = rows_of(original), outside.times
    attempts = EffectAttempt.objects.filter(effect__workspace=apart.world.workspace).count()

    for checkpoint in checkpoints_of(original):
        again = simulated_to_its_end(apart, checkpoint)
        said = (checkpoint.number, again.status, again.failure_text)
        assert again.status == RunStatus.COMPLETED, said
        state = apart.state_of(again)
        assert state["log"][-1] == "final completed", said
        assert not Effect.objects.filter(run_id=again.id).exists(), said

    assert outside.times == asked, "what was recorded was given back"
    assert rows_of(original) == before
    assert EffectAttempt.objects.filter(effect__workspace=apart.world.workspace).count() == attempts
    assert WouldHave.objects.filter(effect_type="test.final_offer").count() >= 1


def simulated_to_its_end(engine: Engine, checkpoint: Checkpoint) -> Run:
    """Launched, and what it asks answered by its launcher, who is nobody's approver."""
    run = go(engine, launch(engine, checkpoint, RunMode.SIMULATION))
    for _ in range(4):
        if run.status != RunStatus.WAITING_APPROVAL:
            break
        for approval in engine.asked(run):
            assert approval.simulated_for == engine.world.developer
            with pytest.raises(Forbidden, match="they launched the simulation"):
                engine.decide(approval)
            by = engine.world.developer
            if approval.asks == Asked.QUESTION:
                engine.decide(approval, Decision.RESPOND, answer="simulated", by=by)
            else:
                engine.decide(approval, by=by)
        run = go(engine, run)
    return run


def test_every_checkpoint_replays_live_under_ids_of_its_own_and_asks_afresh(engine: Engine) -> None:
    outside = Outside()
    original = travelled(engine, outside)
    before = rows_of(original)
    first = Effect.objects.get(run_id=original.id, effect_type="test.asked_offer")
    settled_at = first.settled_at
    assert settled_at is not None

    for checkpoint in checkpoints_of(original):
        again = go(engine, launch(engine, checkpoint, RunMode.LIVE))
        again = answered_to_its_end(engine, again)
        said = (checkpoint.number, again.status, again.failure, again.failure_text)
        if not checkpoint_is_before(original, checkpoint, "sends_final"):
            assert again.status == RunStatus.COMPLETED, said
            continue
        assert (again.status, again.failure) == (RunStatus.FAILED, Failure.EFFECT_BLOCKED), said
        made = list(Effect.objects.filter(run_id=again.id))
        own = [effect for effect in made if effect.effect_type == "test.asked_offer"]
        assert len(own) == (0 if settled_at <= checkpoint.at else 1), said
        for effect in own:
            assert effect.id != first.id
            assert effect.request_hash == first.request_hash
            assert len(engine.made(effect)) == 1
        (final,) = [effect for effect in made if effect.effect_type == "test.final_offer"]
        assert (final.status, final.tries) == ("pending", 0)
        assert engine.made(final) == []

    assert rows_of(original) == before
    assert len(engine.made(first)) == 1


def checkpoint_is_before(run: Run, checkpoint: Checkpoint, node: str) -> bool:
    step = run.steps.filter(node=node, namespace="").latest("started_at")
    return bool(step.number > checkpoint.number)


def answered_to_its_end(engine: Engine, run: Run) -> Run:
    for _ in range(6):
        if run.status != RunStatus.WAITING_APPROVAL:
            break
        for approval in engine.asked(run):
            if approval.asks == Asked.QUESTION:
                engine.decide(approval, Decision.RESPOND, answer="live")
            else:
                engine.decide(approval)
        run = go(engine, run)
    return run


def test_a_releaser_permits_the_type_and_the_live_replay_sends(engine: Engine) -> None:
    original = travelled(engine, Outside(crashes=False))
    last = checkpoints_of(original)[-2]
    again = go(engine, launch(engine, last, RunMode.LIVE))
    assert again.failure == Failure.EFFECT_BLOCKED
    releaser = engine.world.actor(engine.world.releaser)
    with pytest.raises(Forbidden):
        permit_type.permit_type(
            engine.world.actor(engine.world.developer),
            again.id,
            "test.final_offer",
            reason="Yes.",
            token="p1",
        )
    permit_type.permit_type(
        releaser, again.id, "test.final_offer", reason="Checked with the customer.", token="p2"
    )
    again = answered_to_its_end(engine, engine.continue_(again))
    assert again.status == RunStatus.COMPLETED, again.failure_text
    effect = Effect.objects.get(run_id=again.id, effect_type="test.final_offer")
    assert len(engine.made(effect)) == 1
