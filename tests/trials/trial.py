"""Kill trials: workers that send five effects a run are killed with SIGKILL at random moments. The outside is the witness.

While it lasts there are always runs under way. The end is waited for: every run completed, or waiting for what stands
in review. Then each effect of the ledger is held against what the receiver and the mail catcher have of it.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from django.db import connection

from console.models import Worker
from effects.models import Effect, Review
from effects.states import Outcome
from runs.commands.continue_run import continue_run
from runs.models import Execution, Run
from runs.states import ExecutionOutcome, RunStatus
from tests.people import World
from tests.process.journeys import Receiver, begin
from tests.stack import Process, Stack, wait_for
from tests.workflows.trial import EFFECTS

_EFFECT_ID = re.compile(r"eff_[0-9a-v]{32}")
#: So many runs are under way at a time.
AT_A_TIME = 12
#: A worker is killed at a moment between these, in seconds after it is seen to work.
SOONEST, LATEST = 0.0, 0.6
#: Longer than all looks that a receiver is asked until a person is.
PATIENCE = 400.0


@dataclass
class Figures:
    """What a trial showed. *reviews*: by dedup, reason, and whether the outside has it."""

    kills: int = 0
    runs: int = 0
    runs_completed: int = 0
    runs_in_review: int = 0
    continued: int = 0
    effects: int = 0
    attempts: int = 0
    executions_lost: int = 0
    attempts_lost: int = 0
    by_standing: Counter[str] = field(default_factory=Counter)
    reviews: Counter[str] = field(default_factory=Counter)
    longest_recovery: timedelta = timedelta()
    took: float = 0.0
    duplicates: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrongly_failed: list[str] = field(default_factory=list)
    unsent_requests: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.duplicates or self.lost or self.wrongly_failed or self.unsent_requests)

    def table(self) -> str:
        lines = [
            f"kills               {self.kills} (SIGKILL), which took {self.executions_lost} executions "
            f"and {self.attempts_lost} attempts with them, in {self.took:.0f} s",
            f"runs                {self.runs}: {self.runs_completed} completed, {self.runs_in_review} wait for a review; "
            f"{self.continued} were continued after a third loss in a row",
            f"effects             {self.effects} in {self.attempts} attempts",
            f"duplicates          {len(self.duplicates)}",
            f"lost                {len(self.lost)}",
            f"wrongly failed      {len(self.wrongly_failed)}",
            f"longest recovery    {self.longest_recovery.total_seconds():.1f} s from the kill to the next execution",
        ]
        for title, counted in (("effects", self.by_standing), ("in review", self.reviews)):
            lines += ["", title, *(f"  {count:>6}  {words}" for words, count in sorted(counted.items()))]
        for title, found in (
            ("duplicates", self.duplicates),
            ("lost", self.lost),
            ("wrongly failed", self.wrongly_failed),
            ("requests without an attempt", self.unsent_requests),
        ):
            lines += [f"  {title}: {one}" for one in found]
        return "\n".join(lines)


@dataclass
class Trial:
    stack: Stack
    world: World
    kills: int
    workers: int
    chance: random.Random
    makes: tuple[str, ...] = EFFECTS
    figures: Figures = field(default_factory=Figures)
    runs: list[Run] = field(default_factory=list)
    #: When each worker was killed, by its row's id.
    killed: dict[str, datetime] = field(default_factory=dict)

    def play(self) -> Figures:
        began = time.monotonic()
        nursery = self._nursery()
        try:
            while len(self.killed) < self.kills:
                self._keep_runs_going()
                self._kill_one(nursery)
            wait_for("every run to end or to stand in review", self._all_at_rest, within=PATIENCE)
        finally:
            nursery.stop()
        self.figures.took = time.monotonic() - began
        self._count()
        return self.figures

    def _nursery(self) -> Process:
        nursery = self.stack.run(
            "nursery",
            *("-m", "tests.trials.nursery", str(self.workers)),
            SIGNALBOX_WORKFLOWS="tests.workflows.trial:workflow",
        )
        wait_for("the workers' nursery", lambda: nursery.says("ready."))
        return nursery

    # -- while it lasts ------------------------------------------------------------------------------------------

    def _keep_runs_going(self) -> None:
        """As many as there shall be; those that failed for lost workers are continued, as an operator does."""
        self._continue_failed()
        under_way = Run.objects.filter(
            workspace=self.world.workspace, status__in=["queued", "running"]
        ).count()
        for _ in range(AT_A_TIME - under_way):
            self._delay_the_receiver()
            subject = f"{self.world.workspace.id}-{len(self.runs)}"
            self.runs.append(begin(self.world, "test_trial", makes=list(self.makes), subject=subject))

    def _delay_the_receiver(self) -> None:
        """So that some of the kills fall between a request and what comes of it."""
        receiver = Receiver(self.stack, self.world.account)
        receiver.order("slow", seconds=0.2)
        receiver.order("hang_after_commit", seconds=0.2, then="answer")

    def _continue_failed(self) -> None:
        for run in Run.objects.filter(workspace=self.world.workspace, status=RunStatus.FAILED):
            continue_run(self.world.actor(self.world.operator), run.id, token=f"{run.id} {run.fence}")
            self.figures.continued += 1

    def _kill_one(self, nursery: Process) -> None:
        """A random one of those that work, at a random moment of its work."""
        busy = Execution.objects.filter(run__workspace=self.world.workspace, ended_at=None).exclude(
            worker_id__in=list(self.killed)
        )
        found = sorted(set(busy.values_list("worker_id", flat=True)))
        if not found:
            time.sleep(0.02)
            return
        worker = self.chance.choice(found)
        pid = _pid_of(worker)
        time.sleep(self.chance.uniform(SOONEST, LATEST))
        if _parent_of(pid) != nursery.pid:
            return
        os.kill(pid, signal.SIGKILL)
        self.killed[worker] = _now()
        self.figures.kills += 1

    def _all_at_rest(self) -> bool:
        self._continue_failed()
        moving = Run.objects.filter(workspace=self.world.workspace).exclude(status=RunStatus.COMPLETED)
        return all(_stands_with_people(run) for run in moving)

    # -- afterwards ----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        figures = self.figures
        runs = Run.objects.filter(workspace=self.world.workspace)
        figures.runs = runs.count()
        figures.runs_completed = runs.filter(status=RunStatus.COMPLETED).count()
        figures.runs_in_review = figures.runs - figures.runs_completed
        lost = Execution.objects.filter(run__in=runs, outcome=ExecutionOutcome.LOST)
        figures.executions_lost = lost.count()
        figures.longest_recovery = max((self._recovery(one) for one in lost), default=timedelta())
        outside = Outside.of(self.stack, self.world)
        for run in runs:
            self._count_run(run, outside)

    def _recovery(self, lost: Execution) -> timedelta:
        """From the kill to the next worker that has the run."""
        heir = Execution.objects.filter(run_id=lost.run_id, fence__gt=lost.fence).order_by("fence").first()
        killed_at = self.killed.get(lost.worker_id)
        return heir.started_at - killed_at if heir and killed_at else timedelta()

    def _count_run(self, run: Run, outside: Outside) -> None:
        effects = list(Effect.objects.filter(run_id=run.id))
        if len(effects) != len(self.makes):
            self.figures.lost.append(f"{run.id} has {len(effects)} of its {len(self.makes)} intents")
        for effect in effects:
            self._count_effect(effect, outside)

    def _count_effect(self, effect: Effect, outside: Outside) -> None:
        figures = self.figures
        attempts = effect.attempts.count()
        made, requested = outside.objects(effect), outside.requests(effect)
        reasons = sorted(effect.reviews.filter(closed_at=None).values_list("reason", flat=True))
        standing = " ".join(filter(None, (effect.status, effect.sub_state)))
        words = (
            f"{effect.dedup} {effect.effect_type} {effect.id}: {standing}, {made} made, {attempts} attempts"
        )
        figures.effects += 1
        figures.attempts += attempts
        figures.attempts_lost += effect.attempts.filter(outcome=Outcome.UNKNOWN, answer_status="").count()
        figures.by_standing[f"{effect.dedup} {standing}{', in review' if reasons else ''}"] += 1
        for reason in reasons:
            figures.reviews[f"{effect.dedup} {reason}, {'it is there' if made else 'it is not there'}"] += 1
        if made > 1:
            figures.duplicates.append(words)
        if effect.status == "failed" and made:
            figures.wrongly_failed.append(words)
        if (effect.status == "completed" and not made) or (
            effect.status in ("pending", "accepted") and not reasons
        ):
            figures.lost.append(words)
        if requested > attempts:
            figures.unsent_requests.append(f"{words}, {requested} requests")


@dataclass(frozen=True)
class Outside:
    """What the receiver and the mail catcher have, and how often each effect was asked of them, by effect id."""

    made: Counter[str]
    asked: Counter[str]

    @classmethod
    def of(cls, stack: Stack, world: World) -> Outside:
        receiver = Receiver(stack, world.account)
        made, asked = Counter[str](), Counter[str]()
        for one in receiver.effects():
            made.update(_effects_in(one))
        for one in receiver.requests():
            asked.update(_effects_in(one))
        mails = httpx.get(f"{stack.mail}/_records/messages", params={"contains": world.workspace.id})
        for mail in mails.raise_for_status().json()["messages"]:
            made.update(_effects_in(mail))
            asked.update(_effects_in(mail))
        return cls(made, asked)

    def objects(self, effect: Effect) -> int:
        return self.made[effect.id]

    def requests(self, effect: Effect) -> int:
        return self.asked[effect.id]


def _effects_in(record: dict[str, Any]) -> set[str]:
    """The effect whose id a record bears: as its key, its external id, in its text, or in a mail's header."""
    return set(_EFFECT_ID.findall(json.dumps(record)))


def _stands_with_people(run: Run) -> bool:
    """Each effect of it is settled or in review, and at least one is in review."""
    open_reviews = Review.objects.filter(effect__run_id=run.id, closed_at=None)
    unsettled = Effect.objects.filter(run_id=run.id).exclude(status__in=["completed", "failed"])
    stands = open_reviews.exists() and not unsettled.exclude(reviews__in=open_reviews).exists()
    return stands and run.status in (RunStatus.WAITING_EFFECT, RunStatus.WAITING_APPROVAL)


def _pid_of(worker_id: str) -> int:
    return Worker.objects.get(id=worker_id).pid


def _parent_of(pid: int) -> int:
    """0 when there is no such process any more."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        found = cursor.fetchone()
    assert found is not None
    moment = found[0]
    assert isinstance(moment, datetime)
    return moment
