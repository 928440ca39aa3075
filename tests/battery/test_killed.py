"""A worker that is killed with SIGKILL, really, at every point where the ledger and the receiver can part.

The worker is a process of its own that takes a real run of tests/workflows/offers.py along; afterwards the sweep of this
process finds what it left, and this process goes on as the next worker. Hours go by at once: the rows say when.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection
from django.test import override_settings
from psycopg import sql

from effects import ledger, receivers
from effects.ledger import Visit
from effects.models import Effect, EffectAttempt, Observation
from runs.commands.continue_run import continue_run
from runs.models import Execution, Run
from runs.states import ExecutionOutcome, RunStatus
from tests.battery.bench import Bench
from tests.battery.rows import row
from tests.battery.workers import Nursery
from tests.engine.conftest import Engine
from tests.process.journeys import begin, reaches
from tests.stack import Stack, wait_for


def killed(bench: Bench, nursery: Nursery, what: str, point: str) -> Run:
    """A run that makes *what*, whose worker was killed at *point*. Its rows are as the dead worker left them."""
    subject = f"{bench.world.workspace.id}-{what}"
    run = begin(bench.world, "test_offers", makes=[what], kill=point, subject=subject)
    assert nursery.run("execute", run.id) == -signal.SIGKILL
    bench.logs.append(nursery.log)
    run.refresh_from_db()
    assert run.status == RunStatus.RUNNING
    return run


def recovered(bench: Bench, engine: Engine, run: Run) -> Run:
    """Its lease ends, the sweep takes it back, another worker goes on, as far as it goes by itself."""
    run = bench.goes_on(run, engine.go)
    assert Execution.objects.filter(run=run, outcome=ExecutionOutcome.LOST).count() == 1
    return run


@row(
    "1",
    "Killed before the intent commits: no row; the rerun gives the same id",
    rx=((0, 0), (1, 1)),
    stands=("no row", "completed"),
    attempts="completed",
)
def test_1(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "before_intent_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED
    [effect] = bench.effects
    assert effect.id == nursery.mark(run.id)


@row(
    "2",
    "Killed after the intent: recovery sends it",
    case="recovery",
    rx=((0, 0), (1, 1)),
    stands=("pending/ready", "completed"),
    attempts="completed",
)
def test_2_recovery(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "after_intent_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED


@row(
    "2",
    "Killed after the intent, and given up: Continue sends it",
    case="Continue",
    rx=((0, 0), (1, 1)),
    stands=("pending/ready", "completed"),
    attempts="completed",
)
def test_2_continue(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "after_intent_commits")
    with override_settings(LOSSES_ALLOWED=1):
        run = recovered(bench, engine, run)
    assert (run.status, run.failure) == (RunStatus.FAILED, "worker_lost")
    bench.halfway()
    continue_run(bench.world.actor(bench.world.operator), run.id, token=str(uuid.uuid4()))
    assert engine.go(run).status == RunStatus.COMPLETED


@row(
    "3",
    "Killed after the attempt commits, before the socket, K: the same key again",
    rx=((0, 0), (1, 1)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown, completed",
    never_left=1,
)
def test_3(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "after_attempt_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED


@row(
    "3b",
    "The same, N with an authoritative look-up: proven absent, then sent",
    rx=((0, 0), (1, 1)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown, completed",
    never_left=1,
)
def test_3b(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "ticket", "after_attempt_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED
    [effect] = bench.effects
    assert [one.found for one in effect.observations.all()] == ["absent"]


@row(
    "4",
    "The same, X (mail): review, no automatic second attempt",
    rx=((0, 0), (0, 0)),
    stands=("pending/in_flight", "pending/uncertain, in review: unqueryable"),
    attempts="unknown",
    never_left=1,
)
def test_4(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "mail", "after_attempt_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.WAITING_EFFECT


@row(
    "5",
    "Killed in mid-body, K: the receiver has half a request, then a whole one",
    rx=((0, 1), (1, 2)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown, completed",
)
def test_5(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "in_mid_body")
    wait_for("half a request to have come", lambda: bench.witness.requests())
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED
    half, whole = bench.witness.requests()
    assert (half["status"], half["key"]) == ("incomplete", whole["key"])
    assert whole["body"].startswith(half["body"])
    assert 0 < len(half["body"]) < len(whole["body"])


@row(
    "6",
    "Killed after the receiver's commit, K: identical bytes and key again",
    rx=((1, 1), (1, 2)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown, completed",
)
def test_6(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "offer", "after_receiver_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED
    same_request(bench)


def same_request(bench: Bench) -> None:
    """Every request had the same key and the same bytes, and the ledger names what the receiver made."""
    requests = bench.witness.requests()
    assert len({(one["method"], one["path"], one["key"], one["body"]) for one in requests}) == 1
    [effect], [made] = bench.effects, bench.witness.effects()
    assert requests[0]["key"] == effect.key
    assert effect.provider_reference == made["object_id"]


@row(
    "7",
    "Killed after the receiver's commit, N: one look-up finds it",
    rx=((1, 1), (1, 1)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown",
)
def test_7(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "ticket", "after_receiver_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.COMPLETED
    assert len(bench.witness.requests("GET")) == 1


@row(
    "9",
    "Killed after the mail server took it, X: review, never mailed again",
    rx=((1, 1), (1, 1)),
    stands=("pending/in_flight", "pending/uncertain, in review: unqueryable"),
    attempts="unknown",
)
def test_9(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = killed(bench, nursery, "mail", "after_receiver_commits")
    bench.halfway()
    assert recovered(bench, engine, run).status == RunStatus.WAITING_EFFECT


@contextmanager
def commits_fail(effect_id: str) -> Iterator[None]:
    """The database refuses every COMMIT of a transaction that completes this effect."""
    name = sql.Identifier(f"no_commit_{effect_id}")
    with psycopg.connect(os.environ["OWNER_DATABASE_URL"], autocommit=True) as owner:
        owner.execute(
            sql.SQL(
                "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$"
            ).format(name)
        )
        owner.execute(
            sql.SQL(
                "CREATE CONSTRAINT TRIGGER {} AFTER UPDATE ON effects_effect DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW WHEN (NEW.id = {} AND NEW.status = 'completed') EXECUTE FUNCTION {}()"
            ).format(name, sql.Literal(effect_id), name)
        )
        try:
            yield
        finally:
            owner.execute(sql.SQL("DROP FUNCTION {} CASCADE").format(name))


@row(
    "10",
    "The answer is read, the result's commit fails, K: as row 6, never failed",
    case="K",
    rx=((1, 1), (1, 2)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown, completed",
)
def test_10_key(bench: Bench) -> None:
    proposal = bench.propose("battery.offer")
    with commits_fail(proposal.effect_id), pytest.raises(DatabaseError, match="disk is full"):
        bench.perform(proposal.effect_id)
    bench.halfway()
    bench.time_passes()
    bench.sweep()
    bench.perform(proposal.effect_id)
    same_request(bench)


@row(
    "10",
    "The answer is read, the database goes away before the commit, N: as row 7",
    case="N",
    rx=((1, 1), (1, 1)),
    stands=("pending/in_flight", "completed"),
    attempts="unknown",
)
def test_10_natural(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = receivers.deliver

    def then_gone(*args: Any, **kwargs: Any) -> Any:
        answer = deliver(*args, **kwargs)
        end_session()
        return answer

    proposal = bench.propose("battery.ticket")
    with monkeypatch.context() as patch:
        patch.setattr(receivers, "deliver", then_gone)
        with pytest.raises(OperationalError):
            ledger.perform(bench.run, proposal.effect_id, Visit())
    connection.close()
    bench.halfway()
    bench.time_passes()
    bench.sweep()
    assert len(bench.witness.requests("GET")) == 1


def end_session() -> None:
    """The server ends this thread's session, as a failover does."""
    pid = connection.connection.info.backend_pid
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as another:
        another.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.usefixtures("lengthy_begun")
@row(
    "11",
    "Killed after the result's commit, before the broker's ack: the redelivery does nothing",
    rx=(1, 1),
    stands="completed",
    attempts="completed",
)
def test_11(bench: Bench, stack: Stack) -> None:
    run = begin(bench.world, "test_offers", makes=["offer"], kill="before_ack", subject="before ack")
    reaches(run, "completed")
    crashing = stack.processes["crashing"]
    bench.logs.append(crashing.log)
    wait_for("the worker to be killed", lambda: (stack.folder / "crashes" / run.id).exists())
    before = everything(run)
    wait_for("the redelivery", lambda: crashing.says(f"run {run.id}: not due"))
    assert everything(run) == before


def everything(run: Run) -> list[Any]:
    """Every row that a visit to the run could write."""
    of_run = {"effect__run_id": run.id}
    return [
        Run.objects.filter(id=run.id).values().get(),
        list(run.checkpoints.order_by("id").values()),
        list(run.steps.order_by("id").values()),
        list(run.executions.order_by("id").values()),
        list(Effect.objects.filter(run_id=run.id).order_by("id").values()),
        list(EffectAttempt.objects.filter(**of_run).order_by("id").values()),
        list(Observation.objects.filter(**of_run).order_by("id").values()),
    ]


@row(
    "12",
    "The sweep is killed during its look-up: the next look settles it",
    rx=((1, 1), (1, 1)),
    stands=("pending/uncertain", "completed"),
    attempts="unknown",
)
def test_12(bench: Bench, engine: Engine, nursery: Nursery) -> None:
    run = begin(bench.world, "test_offers", makes=["ticket"], kill="after_look_up", subject="looked up")
    bench.witness.order("drop_after_commit")
    assert engine.go(run).status == RunStatus.WAITING_EFFECT
    [effect] = bench.effects
    bench.time_passes()
    assert nursery.run("look", effect.id) == -signal.SIGKILL
    bench.halfway()
    assert bench.goes_on(run, engine.go).status == RunStatus.COMPLETED
    assert len(bench.witness.requests("GET")) == 2
    assert [one.found for one in effect.observations.all()] == ["found"]
