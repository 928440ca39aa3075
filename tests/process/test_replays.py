"""Replays in processes of their own: what the receiver and the model endpoint record of them is nothing."""

from __future__ import annotations

import os
import signal
import uuid
from typing import Any

import httpx
import psutil
import pytest

from console.models import Worker
from effects.models import Effect
from runs.commands.replay import replay
from runs.models import Checkpoint, Execution, Run
from runs.states import Cause, RunMode, RunStatus
from tests.people import World
from tests.process.journeys import Receiver, approve, asked, begin, reaches
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.process

BRUECKNER = "j.brueckner@brueckner-maschinen.example"


def launch(world: World, run: Run, mode: RunMode, number: int = -1, **fields: Any) -> Run:
    checkpoint = Checkpoint.objects.get(run=run, namespace="", number=number)
    made, _ = replay(
        world.actor(world.developer),
        run.id,
        checkpoint.id,
        mode=mode,
        token=str(uuid.uuid4()),
        reason="To see.",
        **fields,
    )
    return made


def models_asked(stack: Stack) -> int:
    return len(httpx.get(f"{stack.model}/_records/calls").raise_for_status().json()["calls"])


@pytest.mark.parametrize("way", ["http", "program", "datagram", "name", "database"])
def test_a_nodes_stray_request_is_refused_and_stops_the_run_that_caught_it(
    stack: Stack, live: World, way: str
) -> None:
    world, receiver = live, Receiver(stack, live.account)
    address = f"{stack.receiver}/v1/offers"
    original = reaches(begin(world, "test_stray", way=way, address=address), RunStatus.COMPLETED)
    before = len(receiver.requests())
    again = reaches(launch(world, original, RunMode.EVIDENCE), RunStatus.DIVERGED, RunStatus.COMPLETED)
    assert again.status == RunStatus.DIVERGED, again.failure_text
    assert "made a request of its own" in again.failure_text
    assert again.divergence.kind == "request"
    assert len(receiver.requests()) == before
    assert not again.steps.filter(node="after").exists()
    simulated = reaches(launch(world, original, RunMode.SIMULATION), RunStatus.FAILED, RunStatus.COMPLETED)
    assert (simulated.status, simulated.failure) == (RunStatus.FAILED, "stray_request")


def test_a_node_that_asks_nothing_replays(live: World) -> None:
    world = live
    original = reaches(begin(world, "test_stray", way="none", address="-"), RunStatus.COMPLETED)
    again = reaches(launch(world, original, RunMode.EVIDENCE), RunStatus.COMPLETED, RunStatus.DIVERGED)
    assert (again.status, again.failure_text) == (RunStatus.COMPLETED, "")


def test_an_offer_replays_in_evidence_and_nobody_outside_hears_of_it(stack: Stack, live: World) -> None:
    world, receiver = live, Receiver(stack, live.account)
    original = begin(
        world,
        "sales_offer_agent",
        email=BRUECKNER,
        request="Bitte ein Angebot für 40 Plätze und 2 Tage Schulung.",
    )
    reaches(original, RunStatus.WAITING_APPROVAL)
    approve(world, asked(original))
    reaches(original, RunStatus.COMPLETED)
    effects, requests, mails = receiver.effects(), receiver.requests(), receiver.mails(BRUECKNER)
    asked_so_far = models_asked(stack)
    messages = original.conversation.messages.count() if original.conversation else 0
    for checkpoint in Checkpoint.objects.filter(run=original, namespace="").order_by("number"):
        again = launch(world, original, RunMode.EVIDENCE, checkpoint.number)
        reaches(again, RunStatus.COMPLETED, RunStatus.DIVERGED, RunStatus.FAILED)
        assert (again.status, again.failure_text) == (RunStatus.COMPLETED, ""), checkpoint.number
        assert not Effect.objects.filter(run_id=again.id).exists()
    assert (receiver.effects(), receiver.requests(), receiver.mails(BRUECKNER)) == (effects, requests, mails)
    assert models_asked(stack) == asked_so_far
    assert original.conversation is not None
    assert original.conversation.messages.count() == messages


def test_a_killed_replayer_is_replaced_and_the_replay_goes_on(stack: Stack, live: World) -> None:
    world = live
    original = reaches(begin(world, "test_slow", subject="Slow", seconds=1.5), RunStatus.COMPLETED)
    again = launch(world, original, RunMode.EVIDENCE)

    def taken() -> str:
        again.refresh_from_db()
        return again.worker_id if again.status == RunStatus.RUNNING else ""

    worker = Worker.objects.get(id=wait_for("the replay to be taken", taken))
    assert worker.replayer
    (child,) = psutil.Process(worker.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    reaches(again, RunStatus.COMPLETED, RunStatus.DIVERGED, RunStatus.FAILED)
    assert (again.status, again.failure_text) == (RunStatus.COMPLETED, "")
    causes = Execution.objects.filter(run=again).order_by("fence").values_list("cause", "outcome")
    assert list(causes) == [(Cause.START, "lost"), (Cause.RECOVERY, "finished")]
