"""Runs after an outage, as bulk Continue shows them: those that failed by it, those that wait, those that somebody moved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models.functions import Now

from console.bulk import Form
from console.models import Worker
from effects.models import Effect
from runs.commands import bulk_continue
from runs.commands.continue_run import continue_run
from runs.models import BulkContinue, Execution, Run, Step
from runs.selectors import held
from runs.states import Cause, ExecutionOutcome, Failure, RunStatus, StepOutcome
from tests.shots.scenes import Scenes

_numbers = itertools.count(1)


@dataclass
class OutageScenes:
    scenes: Scenes

    @property
    def here(self) -> str:
        return f"/w/{self.scenes.company.workspace.id}/runs/"

    def every(self, names: list[str]) -> Iterator[tuple[str, str]]:
        """Each page's name, and its address; made when it is asked for. To be seen with an operator's eyes."""
        if not names or "continues" in names:
            yield "continues-empty", f"{self.here}continue/?kind=branch"
            yield "continues-none", f"{self.here}continues/"
            yield from self.outage()

    def outage(self) -> Iterator[tuple[str, str]]:
        failed = [self.failed_by(self.scenes.held()) for _ in range(4)]
        failed += [self.failed_by(self.scenes.refused(), Failure.EFFECT_REFUSED) for _ in range(2)]
        failed.append(self.failed_by(self.scenes.no_dedup()))
        self.scenes.held()
        self.scenes.completed()
        yield "continues-no-worker", f"{self.here}continue/?status=failed"
        version = failed[0]
        Worker.objects.create(
            host="worker-1", pid=1, versions=[held(version.workflow, version.fingerprint)], last_seen=Now()
        )
        yield "continues-dry-run", f"{self.here}continue/"
        yield "continues-runs", f"{self.here}?status=failed"
        found = self.begin({})
        at = f"{self.here}continues/{found.id}/"
        self.turn(found)
        self.turn(found)
        continue_run(self.scenes.company.actor("operator"), failed[2].id, token="outage-by-hand")
        self.turn(found)
        yield "continues-running", at
        bulk_continue.KIND.stop(self.scenes.company.actor("operator"), found.id)
        yield "continues-stopped", at
        again = self.begin({"status": "failed"})
        while BulkContinue.objects.filter(id=again.id, status="running").exists():
            self.turn(again)
        yield "continues-done", f"{self.here}continues/{again.id}/"
        yield "continues-list", f"{self.here}continues/"
        yield "continues-all-left-alone", f"{self.here}continue/?status=waiting_effect"

    def failed_by(self, effect: Effect, failure: Failure = Failure.RECEIVER_UNREACHABLE) -> Run:
        """The effect's run, as the engine leaves one that failed for it."""
        run = Run.objects.select_related("workflow").get(id=effect.run_id)
        claim = Execution.objects.create(
            run=run, fence=1, cause=Cause.START, worker_id="", ended_at=Now(), outcome=ExecutionOutcome.FAILED
        )
        Step.objects.create(
            run=run,
            execution=claim,
            task_id=effect.id,
            node=effect.command.node,
            number=4,
            ended_at=Now(),
            outcome=StepOutcome.FAILED,
        )
        Run.objects.filter(id=run.id).update(
            status=RunStatus.FAILED,
            failure=failure,
            failure_of=effect.receiver.name,
            failure_effect=effect.id,
            failure_text=f"{effect.receiver.name} could not be reached.",
        )
        return run

    def begin(self, filters: dict[str, str]) -> BulkContinue:
        actor = self.scenes.company.actor("operator")
        plan = bulk_continue.dry_run(actor, filters)
        reason = "crm and desk were away from 09:10 to 10:05."
        return bulk_continue.start(
            actor, filters, Form(plan.digest, reason, 60, f"outage-shots-{next(_numbers)}")
        )

    def turn(self, found: BulkContinue) -> None:
        BulkContinue.objects.filter(id=found.id).update(next_at=Now())
        bulk_continue.work()
