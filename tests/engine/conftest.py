"""The real engine in this process: a worker with its pulse, a committed workspace, a receiver that keeps records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import httpx
import pytest
from django.db import connection
from django.db.models.functions import Now

from console.models import Worker, Workspace
from demo.receiver.app import Receiver
from demo.receiver.loopback import listen
from demo.receiver.store import SCHEMA, open_store
from effects.models import Approval, ApprovalDecision, Effect
from effects.states import ApprovalStatus, Decision
from runs import execution, moves
from runs.commands import continue_run, decide, start
from runs.engine.registry import Workflow
from runs.engine.saver import FencedSaver
from runs.execution import WorkerProcess
from runs.models import Execution, Run, WorkflowVersion
from runs.states import FINAL, RunStatus
from tests.engine.workflows import line, nothing, workflow_of
from tests.people import World, make_world
from tests.plugin import ROOT

#: Nothing listens there: what is sent to it is proven unsent.
NOBODY = 9


@pytest.fixture(scope="package")
def process(django_db_setup: None, django_db_blocker: Any) -> Iterator[WorkerProcess]:
    """This process as a worker, with its pulse, for all tests of the package. What they write is committed."""
    pulse = execution._pulse

    def until_told(worker: WorkerProcess) -> None:
        with suppress(SystemExit):
            pulse(worker)

    with django_db_blocker.unblock():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execution, "_pulse", until_told)
            running = execution.begin_process()
        yield running
        _end_pulse()
        execution.end_process()
        execution._process = None


def _end_pulse() -> None:
    """A worker's pulse ends with its process; here others' tests follow."""

    def end() -> None:
        connection.close()
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "close_old_connections", end)
        for thread in threading.enumerate():
            if thread.name == "pulse":
                thread.join(5)


@pytest.fixture(scope="package")
def committed(
    process: WorkerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, str]]:
    """A committed workspace, and the address of the receiver that its effects go to."""
    stopping = threading.Event()
    store = open_store(tmp_path_factory.mktemp("receiver"), "receiver.sqlite3", SCHEMA)
    server = listen(Receiver(store, stopping), 0, stopping)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    world = make_world("engine")
    world.receivers(server.address, NOBODY)
    yield world, server.address
    # Nobody will take these again: the sweep of a stack that other tests start need not ring for them.
    left = Run.objects.filter(workspace=world.workspace).exclude(status__in=FINAL)
    left.update(status=RunStatus.CANCELLED, ended_at=Now(), lease_until=None, step_deadline=None)
    stopping.set()
    server.shutdown()
    server.server_close()
    store.close()


_ANOTHER_PROCESS = """
import json
import django
django.setup()
import runs.tasks  # what a worker imports first
from langgraph.checkpoint.serde import _msgpack
from runs.engine.registry import workflows
found = {name: workflow.fingerprint for name, workflow in workflows().items()}
print(json.dumps({"strict": _msgpack.STRICT_MSGPACK_ENABLED, "fingerprints": found}))
"""


@pytest.fixture(scope="package")
def another_process(django_db_setup: None) -> dict[str, Any]:
    """What another process of the deployment says of itself; it hashes strings with another seed."""
    environment = {name: value for name, value in os.environ.items() if name != "LANGGRAPH_STRICT_MSGPACK"}
    said = subprocess.run(
        [sys.executable, "-c", _ANOTHER_PROCESS],
        env={**environment, "DJANGO_SETTINGS_MODULE": "console.settings", "PYTHONHASHSEED": "4711"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(said.stdout))


@dataclass
class Engine:
    """Starts runs of small graphs as the product does, and takes them along as a worker does."""

    process: WorkerProcess
    world: World
    receiver: str
    held: list[str] = field(default_factory=list)

    def hold(self, workflow: Workflow) -> WorkflowVersion:
        """This process holds *workflow*, as if the settings named it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execution, "workflows", lambda: {workflow.id: workflow})
            self.process.held.update(execution.register_workflows())
        self.held.append(workflow.id)
        self.tell()
        return WorkflowVersion.objects.get(name=workflow.name, version=workflow.version)

    def let_go(self, *held: str) -> None:
        """This process holds these versions no more, as after a deployment without them."""
        for one in held:
            self.process.held.pop(one, None)
        self.tell()

    def tell(self) -> None:
        """What this process holds, in its row: commands ask there."""
        Worker.objects.filter(id=self.process.row.id).update(versions=self.process.versions)

    def begin(self, graph: Any, given: dict[str, Any] | None = None, **fields: Any) -> Run:
        """Start a run of *graph* (or of a Workflow): a queued row, which no worker has taken yet."""
        workflow = graph if isinstance(graph, Workflow) else workflow_of(graph, **fields)
        version = self.hold(workflow)
        workspace = self.world.workspace
        if version.name not in workspace.workflows:
            workspace.workflows = [*workspace.workflows, version.name]
            Workspace.objects.filter(id=workspace.id).update(workflows=workspace.workflows)
        run, _ = start.start(
            self.world.actor(self.world.operator),
            workflow=version,
            conversation=self.world.conversation,
            given={} if given is None else given,
            token=str(uuid.uuid4()),
        )
        return run

    def go(self, run: Run) -> Run:
        """One visit of the worker."""
        execution.execute(run.id)
        run.refresh_from_db()
        return run

    def run(self, graph: Any, given: dict[str, Any] | None = None, **fields: Any) -> Run:
        """Start a run and take it as far as it goes."""
        return self.go(self.begin(graph, given, **fields))

    def continue_(self, run: Run) -> Run:
        """An operator continues the run, and the worker takes it as far as it goes."""
        continue_run.continue_run(self.world.actor(self.world.operator), run.id, token=str(uuid.uuid4()))
        return self.go(run)

    def claim(self, run: Run) -> tuple[Run, Execution]:
        """A worker takes the run and, as far as the rows tell, works on it for an hour."""
        claimed = moves.claim(
            run.id,
            holds=self.process.versions,
            worker_id=self.process.row.id,
            lease=timedelta(hours=1),
        )
        assert claimed is not None
        return claimed, Execution.objects.create(
            run=claimed, fence=claimed.fence, cause=run.next_cause, worker_id=self.process.row.id
        )

    def saver(self) -> FencedSaver:
        """The saver of a run that nobody else works on, to drive any graph with directly."""
        run, _ = self.claim(self.begin(line(nothing)))
        return FencedSaver(run.id, run.fence)

    def asked(self, run: Run) -> list[Approval]:
        """The open approvals of the run, in the order of their actions."""
        return list(
            Approval.objects.filter(run_id=run.id, status=ApprovalStatus.PENDING).order_by(
                "created_at", "action"
            )
        )

    def decide(
        self, approval: Approval, decision: Decision = Decision.APPROVE, *, by: Any = None, **fields: Any
    ) -> ApprovalDecision:
        return decide.decide(
            self.world.actor(by or self.world.approver),
            approval.id,
            decision=decision,
            payload_hash=approval.payload_hash,
            version=approval.version,
            token=str(uuid.uuid4()),
            **fields,
        )

    def answer(self, run: Run, answer: Any) -> Run:
        """Answer the one open question, and take the run along."""
        (approval,) = self.asked(run)
        self.decide(approval, Decision.RESPOND, answer=answer)
        return self.go(run)

    def made(self, effect: Effect) -> list[dict[str, Any]]:
        """What the receiver's own records hold of this effect."""
        found = httpx.get(f"{self.receiver}/_records/effects", params={"account": self.world.account})
        return [one for one in found.raise_for_status().json()["effects"] if one["external_id"] == effect.id]

    @cached_property
    def state_of(self) -> Callable[[Run], dict[str, Any]]:
        """Read the newest state of a run."""

        def read(run: Run) -> dict[str, Any]:
            graph = self.process.held[str(run.workflow)].compiled.copy(
                {"checkpointer": FencedSaver(run.id, run.fence)}
            )
            return dict(graph.get_state({"configurable": {"thread_id": run.id}}).values)

        return read


@pytest.fixture
def engine(process: WorkerProcess, committed: tuple[World, str]) -> Iterator[Engine]:
    world, receiver = committed
    engine = Engine(process, world, receiver)
    yield engine
    engine.let_go(*engine.held)
