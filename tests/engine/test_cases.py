"""What people reported of other systems' continue, cancel and queue, on the real engine; the report stands with each.

C01 and C03 are rows of the failure battery (tests/battery/test_public_reports.py). C37, a form posted twice: Start
in tests/views/test_start.py, Continue in tests/views/test_continue.py, Ask again and a dropped effect in
tests/views/test_mending.py, Approve in tests/process/test_approvals.py, Repeat in tests/views/test_repeat.py.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from celery import Celery
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.test import Client
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import interrupt
from typing_extensions import TypedDict

from console import doorbell
from console.kernel.errors import AlreadyDone
from console.models import AuditEvent, User, Worker
from effects.models import Approval
from effects.states import ApprovalStatus, Decision
from runs import execution, recovery
from runs.commands.continue_run import continue_run
from runs.commands.stop import cancel
from runs.models import Checkpoint, Execution, Run
from runs.selectors import held
from runs.states import Failure, RunStatus
from tests.engine.conftest import NOBODY, Engine
from tests.engine.recovering import lease_over
from tests.engine.workflows import State, beside, line

OPERATORS = 10


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def address(run: Run, verb: str = "") -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/{verb and f'{verb}/'}"


def press(client: Client, run: Run, verb: str) -> int:
    """As in a browser: open the form, then send it."""
    form = client.get(address(run, verb)).context["form_token"]
    return client.post(address(run, verb), {"form_token": form}).status_code


def all_at_once(*acts: Any) -> list[Any]:
    """What each returned, each in a thread and with a connection of its own."""
    start, said = threading.Barrier(len(acts)), []

    def act(one: Any) -> None:
        start.wait()
        try:
            said.append(one())
        finally:
            connection.close()

    threads = [threading.Thread(target=act, args=[one]) for one in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def failing_once(*, then: str = "done") -> Any:
    """A node that raises the first time that it runs."""
    raises = [True]

    def work(state: State) -> State:
        if raises:
            raises.pop()
            raise ValueError("once")
        return {"log": [then]}

    return work


def test_C02_of_two_pauses_each_answer_reaches_its_own_node(engine: Engine) -> None:
    """langgraph#6626, PR#6108."""
    reached: list[tuple[str, str]] = []

    def tool_a(state: State) -> State:
        reached.append(("a", interrupt("May tool a run?")))
        return {"log": ["a"]}

    def tool_b(state: State) -> State:
        reached.append(("b", interrupt("May tool b run?")))
        return {"log": ["b"]}

    run = engine.run(beside(tool_a, tool_b), {"log": []})
    first, second = sorted(engine.asked(run), key=lambda one: one.title)
    assert first.interrupt_id != second.interrupt_id
    engine.decide(second, Decision.RESPOND, answer="yes, b")
    run = engine.go(run)
    assert reached == [("b", "yes, b")]
    assert [one.id for one in engine.asked(run)] == [first.id], "the answered one is not asked again"
    engine.decide(first, Decision.RESPOND, answer="yes, a")
    run = engine.go(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert reached == [("b", "yes, b"), ("a", "yes, a")]
    assert Approval.objects.filter(run_id=run.id).count() == 2


def test_C04_a_state_that_breaks_its_schema_leaves_the_run_readable(engine: Engine) -> None:
    """langgraph#6491."""

    def sound(state: State) -> State:
        return {"log": ["sound"]}

    def breaks(state: State) -> State:
        return {"value": object()}

    run = engine.run(line(sound, breaks), {"log": []})
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.STATE_INVALID)
    client = logged_in(engine.world.operator)
    page = client.get(address(run))
    assert page.status_code == 200
    assert "the state&#x27;s value" in page.content.decode()
    valid = Checkpoint.objects.filter(run=run, namespace="").latest("number")
    assert valid.nodes == ["sound"]
    assert client.get(address(run, f"checkpoints/{valid.id}")).status_code == 200
    assert engine.state_of(run)["log"] == ["sound"]


class Talk(TypedDict, total=False):
    messages: list[Any]


def test_C05_a_cancel_in_the_middle_of_a_tool_call_can_not_be_continued(engine: Engine) -> None:
    """langgraph#6726, #4289: every saved call has its result, or nothing goes on from there."""
    runs: list[Run] = []

    def model(state: Talk) -> Talk:
        call = {"name": "look_up", "args": {}, "id": "call_1", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def tools(state: Talk) -> Talk:
        cancel(engine.world.actor(engine.world.operator), runs[0].id, token=str(uuid.uuid4()))
        return {"messages": [*state["messages"], ToolMessage("found", tool_call_id="call_1")]}

    def after(state: Talk) -> Talk:
        raise AssertionError("nothing runs after a cancel")

    runs.append(engine.begin(line(model, tools, after, schema=Talk)))
    run = engine.go(runs[0])
    assert run.status == RunStatus.CANCELLED, run.failure_text
    messages = engine.state_of(run)["messages"]
    called = {call["id"] for message in messages for call in getattr(message, "tool_calls", ())}
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    with pytest.raises(AlreadyDone, match="it is cancelled"):
        continue_run(engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4()))
    assert press(logged_in(engine.world.operator), run, "continue") == 409
    assert called == {"call_1"}
    assert answered <= called


def test_C06_lost_connections_hurt_neither_this_run_nor_the_next(engine: Engine) -> None:
    """langgraph#5675, #4837: the server ends every connection of this worker in the middle of a node."""

    def cut(state: State) -> State:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [own] = cursor.fetchone()
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND usename = current_user AND pid <> %s",
                [own],
            )
            cursor.execute("SELECT 1")
        return {"log": ["cut"]}

    def after(state: State) -> State:
        return {"log": ["after"]}

    run = engine.begin(line(cut, after), {"log": []})
    with suppress(DatabaseError, InterfaceError):
        execution.execute(run.id)
    # As Celery's task does before each message: the process itself goes on.
    close_old_connections()
    run.refresh_from_db()
    if run.status == RunStatus.RUNNING:
        lease_over(run)
        run.refresh_from_db()
    if run.status != RunStatus.COMPLETED:
        run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["cut", "after"]
    again = engine.run(line(after), {"log": []})
    assert again.status == RunStatus.COMPLETED, again.failure_text


def test_C07_of_ten_simultaneous_continues_one_is_accepted(engine: Engine) -> None:
    """langgraphjs#554: each from a form of its own; then ten bells ring at once, and one chain of checkpoints grows."""

    def before(state: State) -> State:
        return {"log": ["before"]}

    def after(state: State) -> State:
        return {"log": ["after"]}

    run = engine.run(line(before, failing_once(), after), {"log": []})
    assert run.status == RunStatus.FAILED
    clients = [logged_in(engine.world.operator) for _ in range(OPERATORS)]
    forms = [client.get(address(run, "continue")).context["form_token"] for client in clients]
    assert len(set(forms)) == OPERATORS

    def post(client: Client, form: str) -> Any:
        return lambda: client.post(address(run, "continue"), {"form_token": form}).status_code

    said = all_at_once(*map(post, clients, forms))
    assert Counter(said) == {303: 1, 409: OPERATORS - 1}
    assert AuditEvent.objects.filter(subject=run.id, verb="run.continued").count() == 1

    all_at_once(*[lambda: execution.execute(run.id)] * OPERATORS)
    run.refresh_from_db()
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["before", "done", "after"]
    assert Execution.objects.filter(run=run).count() == 2
    assert_one_chain(run)


def assert_one_chain(run: Run) -> None:
    """Each checkpoint has one child at most, and all hang together."""
    rows = Checkpoint.objects.filter(run=run, namespace="").order_by("number")
    parents = [row.parent_engine_id for row in rows]
    assert parents == ["", *[row.engine_id for row in rows][:-1]]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT parent_checkpoint_id, count(*) FROM engine.checkpoints WHERE thread_id = %s"
            " GROUP BY 1 HAVING count(*) > 1",
            [run.id],
        )
        assert cursor.fetchall() == []


def test_C07_continue_leaves_a_pending_approval_pending(engine: Engine) -> None:
    def asks(state: State) -> State:
        return {"log": [interrupt("May it?")]}

    run = engine.run(beside(asks, failing_once()), {"log": []})
    assert run.status == RunStatus.FAILED
    [before] = engine.asked(run)
    assert press(logged_in(engine.world.operator), run, "continue") == 303
    run = engine.go(run)
    [after] = engine.asked(run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    assert (after.id, after.round, after.version, after.status) == (
        before.id,
        1,
        before.version,
        ApprovalStatus.PENDING,
    )
    assert not after.decisions.exists()


def test_C36_a_continue_while_the_broker_is_away_is_done_once_it_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openedx-events PR#292, langgraph#8764: the row is the queue, and no second click is needed."""
    run = engine.run(line(failing_once()), {"log": []})
    rung: list[str] = []
    client = logged_in(engine.world.operator)
    with _held(engine, run):
        with monkeypatch.context() as away:
            away.setattr(doorbell, "_bell", _bell_of_nobody())
            assert press(client, run, "continue") == 303
            run.refresh_from_db()
            assert run.status == RunStatus.QUEUED
            shown = client.get(address(run)).content.decode()
            assert "For the worker that holds" in shown
            assert "Queued" in shown
            Run.objects.filter(id=run.id).update(status_since="2001-01-01T00:00:00Z")
            assert recovery.ring_again() == 0, "nothing is taken for rung"
        with monkeypatch.context() as back:
            back.setattr(doorbell._bell, "send_task", lambda *_, args, **__: rung.extend(args))
            recovery.ring_again()
    assert rung.count(run.id) == 1
    for _ in range(2):
        engine.go(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert Execution.objects.filter(run=run).count() == 2
    assert AuditEvent.objects.filter(subject=run.id, verb="run.continued").count() == 1


@contextmanager
def _held(engine: Engine, run: Run) -> Iterator[None]:
    """The worker's row says, too, that it holds the run's version."""
    row = Worker.objects.filter(id=engine.process.row.id)
    before = row.get().versions
    row.update(versions=[*before, held(run.workflow, run.fingerprint)])
    yield
    row.update(versions=before)


def _bell_of_nobody() -> Celery:
    """The doorbell at a broker that is not there."""
    bell = Celery("doorbell", broker=f"redis://127.0.0.1:{NOBODY}/0", set_as_current=False)
    options = ("task_ignore_result", "broker_connection_timeout", "broker_transport_options")
    bell.conf.update({name: doorbell._bell.conf[name] for name in options})
    return bell


@pytest.mark.parametrize("value", ["a\x00b", {"deep": ["a\x00b"]}])
def test_C52_a_null_character_is_stored_or_refused_in_words_and_the_page_opens(
    engine: Engine, value: Any
) -> None:
    """langgraph#1878."""

    def says(state: State) -> State:
        return {"value": value}

    run = engine.run(line(says), {"log": []})
    if run.status == RunStatus.FAILED:
        assert run.failure == Failure.STATE_INVALID
        assert "the state's value holds the character U+0000" in run.failure_text
    else:
        assert run.status == RunStatus.COMPLETED, run.failure_text
        assert engine.state_of(run)["value"] == value
    client = logged_in(engine.world.operator)
    assert client.get(address(run)).status_code == 200
    newest = Checkpoint.objects.filter(run=run, namespace="").latest("number")
    assert client.get(address(run, f"checkpoints/{newest.id}")).status_code == 200
