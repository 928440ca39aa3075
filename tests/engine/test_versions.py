"""The version check: nothing goes on under other code than it was made with, unless a person has said how."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from django.test import Client
from django.urls import reverse
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from console.kernel.errors import AlreadyDone, Forbidden, NotFound, Stale
from console.models import Worker
from runs import versions
from runs.authoring import Migration, Workflow, ask_approval
from runs.commands import continue_run, replay, stop
from runs.commands import migrate as migrate_command
from runs.models import Checkpoint, Run, StateMigration, WorkflowVersion
from runs.states import RunMode, RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line, offer, workflow_of
from tests.people import make_world


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Workers that are made for a test leave with it."""
    made: list[Worker] = []
    yield made
    Worker.objects.filter(id__in=[worker.id for worker in made]).delete()


def first(state: State) -> State:
    return {}


def second(state: State) -> State:
    raise ValueError("It stops here.")


def third(state: State) -> State:
    return {}


def failed(engine: Engine, version: str) -> Run:
    run = engine.run(workflow_of(line(first, second), name="versioned_test", version=version), {})
    assert run.status == RunStatus.FAILED
    return run


def holding(workers: list[Worker], *held: WorkflowVersion, replayer: bool = False) -> None:
    names = [f"{one}#{one.fingerprint}" for one in held]
    workers.append(Worker.objects.create(host="test", pid=1, versions=names, replayer=replayer))


def test_a_run_whose_version_no_worker_holds_is_not_continued(engine: Engine, workers: list[Worker]) -> None:
    old = f"7.{uuid.uuid4().hex[:6]}"
    run = failed(engine, old)
    newer = engine.hold(workflow_of(line(first, third), name="versioned_test", version=f"8{old}"))
    actor = engine.world.actor(engine.world.operator)
    engine.let_go(str(run.workflow))
    with pytest.raises(AlreadyDone, match=f"made with versioned_test@{old}, and workers have only"):
        continue_run.continue_run(actor, run.id, token=str(uuid.uuid4()))
    run.refresh_from_db()
    assert (run.status, run.fence) == (RunStatus.FAILED, 1)
    holding(workers, newer, run.workflow)
    continued = continue_run.continue_run(actor, run.id, token=str(uuid.uuid4()))
    assert continued.status == RunStatus.QUEUED, "for the worker that holds it"


def test_without_any_worker_it_merely_waits(engine: Engine) -> None:
    run = failed(engine, f"1.{uuid.uuid4().hex[:6]}")
    assert versions.in_the_way(run, (), apart=False) == ""
    continued = continue_run.continue_run(
        engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4())
    )
    assert continued.status == RunStatus.QUEUED


def test_code_that_changed_under_one_version_is_another(engine: Engine, workers: list[Worker]) -> None:
    run = failed(engine, f"1.{uuid.uuid4().hex[:6]}")
    engine.let_go(str(run.workflow))
    workers.append(Worker.objects.create(host="test", pid=1, versions=[f"{run.workflow}#fp1:another"]))
    assert "the code of" in versions.in_the_way(run, versions.alive(), apart=False)


def test_a_replay_needs_a_replayer_of_the_version(engine: Engine, workers: list[Worker]) -> None:
    run = failed(engine, f"1.{uuid.uuid4().hex[:6]}")
    newer = engine.hold(workflow_of(line(first, third), name="versioned_test"))
    holding(workers, newer, replayer=True)
    runs = Run.objects.count()
    checkpoint = Checkpoint.objects.filter(run=run).latest("engine_id")
    with pytest.raises(AlreadyDone, match="workers have only"):
        replay.replay(
            engine.world.actor(engine.world.developer),
            run.id,
            checkpoint.id,
            mode=RunMode.EVIDENCE,
            token=str(uuid.uuid4()),
        )
    assert Run.objects.count() == runs


def test_what_does_not_fit_is_named(engine: Engine) -> None:
    run = failed(engine, f"1.{uuid.uuid4().hex[:6]}")

    class Other(State, total=False):
        more: int

    def first(state: State) -> State:  # another node of the same name
        return {"log": []}

    newer = engine.hold(
        workflow_of(line(first, third, schema=Other), name="versioned_test", version=uuid.uuid4().hex[:8])
    )
    found = versions.misfits(run, newer, next_nodes=["second"])
    assert any("The next step is second" in one for one in found)
    assert "The node second is gone." in found
    assert any("third is new" in one for one in found)
    assert "The code of the node first is another." in found
    assert versions.misfits(run, run.workflow, next_nodes=["second"]) == []


# --- a declared migration -------------------------------------------------------------------------------------------


class Seven(TypedDict, total=False):
    request: str
    intent: str
    log: Annotated[list[str], operator.add]


class Eight(TypedDict, total=False):
    request: str
    reading: dict[str, str]
    log: Annotated[list[str], operator.add]


def reads(state: Seven) -> dict[str, Any]:
    return {"intent": "offer", "log": ["read by seven"]}


def understands(state: Eight) -> dict[str, Any]:
    return {"reading": {"intent": "offer"}, "log": ["read by eight"]}


def asks(state: Any) -> dict[str, Any]:
    return {"log": [f"answered {interrupt('May it go on?')}"]}


def answers(state: Eight) -> dict[str, Any]:
    return {"log": [f"eight: {state['reading']['intent']}"]}


def of_seven() -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Seven)
    graph.add_node("reads", reads)
    graph.add_node("asks", asks)
    graph.add_edge(START, "reads")
    graph.add_edge("reads", "asks")
    graph.add_edge("asks", END)
    return graph


def of_eight() -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Eight)
    graph.add_node("understands", understands)
    graph.add_node("asks", asks)
    graph.add_node("answers", answers)
    graph.add_edge(START, "understands")
    graph.add_edge("understands", "asks")
    graph.add_edge("asks", "answers")
    graph.add_edge("answers", END)
    return graph


@dataclass
class Versions:
    """A run of 7 that stands paused, and a worker that has only 8, to which a migration leads."""

    run: Run
    target: WorkflowVersion
    eight: Workflow


@pytest.fixture
def moved_on(engine: Engine, workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> Versions:
    name = f"moved_{uuid.uuid4().hex[:8]}"
    run = engine.run(workflow_of(of_seven(), name=name, version="7"), {"log": []})
    assert run.status == RunStatus.WAITING_APPROVAL
    stop.pause(engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4()))
    run.refresh_from_db()
    eight = workflow_of(
        of_eight(),
        name=name,
        version="8",
        migrations={
            "7": Migration(
                summary="The intent moves into one field with what else was read.",
                convert=lambda state: {"reading": {"intent": state["intent"]}},
                nodes={"reads": "understands"},
            )
        },
    )
    target = engine.hold(eight)
    engine.let_go(f"{name}@7")
    monkeypatch.setattr(migrate_command, "workflows", lambda: {eight.id: eight})
    holding(workers, target)
    return Versions(run, target, eight)


def test_a_declared_migration_is_shown_stored_as_a_checkpoint_and_goes_on(
    engine: Engine, moved_on: Versions
) -> None:
    run, actor = moved_on.run, engine.world.actor(engine.world.developer)
    with pytest.raises(AlreadyDone, match="and workers have only"):
        continue_run.continue_run(actor, run.id, token=str(uuid.uuid4()))
    assert migrate_command.targets_of(run) == [moved_on.target]
    before = Checkpoint.objects.filter(run=run).count()

    shown = migrate_command.preview(actor, run.id, "8")
    assert shown.why_not == ""
    assert {(one.path, one.kind) for one in shown.changes} == {("intent", "removed"), ("reading", "added")}
    assert shown.next_nodes == ("asks",)
    assert Checkpoint.objects.filter(run=run).count() == before, "shown, and nothing is made"

    token = str(uuid.uuid4())
    migrate_command.migrate(actor, run.id, "8", token=token, shown_next=list(shown.next_nodes))
    migrate_command.migrate(actor, run.id, "8", token=token)
    run.refresh_from_db()
    assert (run.status, str(run.workflow), run.fingerprint) == (
        RunStatus.PAUSED,
        str(moved_on.target),
        moved_on.target.fingerprint,
    )
    assert Checkpoint.objects.filter(run=run).count() == before + 1
    (migration,) = StateMigration.objects.filter(run=run)
    assert migration.checkpoint.source == "update"

    run = engine.continue_(run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "yes")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    state = engine.state_of(run)
    assert state["log"] == ["read by seven", "answered yes", "eight: offer"]
    assert state["reading"] == {"intent": "offer"}
    assert "intent" not in state


def test_a_migration_needs_its_right_and_a_run_that_stands_still(engine: Engine, moved_on: Versions) -> None:
    operator_, developer = (
        engine.world.actor(person) for person in (engine.world.operator, engine.world.developer)
    )
    with pytest.raises(Forbidden):
        migrate_command.migrate(operator_, moved_on.run.id, "8", token="a")
    with pytest.raises(NotFound):
        migrate_command.migrate(developer, moved_on.run.id, "9", token="b")
    Run.objects.filter(id=moved_on.run.id).update(status=RunStatus.WAITING_APPROVAL)
    with pytest.raises(AlreadyDone, match="pause it first"):
        migrate_command.migrate(developer, moved_on.run.id, "8", token="c")
    Run.objects.filter(id=moved_on.run.id).update(status=RunStatus.PAUSED)
    with pytest.raises(Stale):
        migrate_command.migrate(developer, moved_on.run.id, "8", token="d", shown_next=["elsewhere"])
    assert not StateMigration.objects.filter(run=moved_on.run).exists()


@pytest.mark.parametrize(
    ("convert", "says"),
    [
        (lambda state: {"unknown": 1}, "unknown, which the state of"),
        (lambda state: state["not there"], "raised KeyError"),
        (lambda state: [], "no fields but a list"),
    ],
)
def test_what_a_migration_gives_has_to_fit(
    engine: Engine, moved_on: Versions, monkeypatch: pytest.MonkeyPatch, convert: Any, says: str
) -> None:
    broken = replace(
        moved_on.eight,
        migrations={"7": Migration(summary="-", convert=convert, nodes={"reads": "understands"})},
    )
    monkeypatch.setattr(migrate_command, "workflows", lambda: {broken.id: broken})
    shown = migrate_command.preview(
        engine.world.actor(engine.world.developer), moved_on.run.id, moved_on.target.version
    )
    assert says in shown.why_not
    assert not StateMigration.objects.filter(run=moved_on.run).exists()


def test_it_is_refused_while_an_effect_is_not_final(engine: Engine, workers: list[Worker]) -> None:
    name = f"moved_{uuid.uuid4().hex[:8]}"

    def proposes(state: State) -> State:
        proposal = offer(kind="test.asked_offer")
        ask_approval(proposal)
        return {}

    run = engine.run(workflow_of(line(first, proposes), name=name, version="7"), {})
    actor = engine.world.actor(engine.world.developer)
    stop.pause(actor, run.id, token=str(uuid.uuid4()))
    newer = engine.hold(
        workflow_of(
            line(first, third),
            name=name,
            version="8",
            migrations={"7": Migration(summary="-", convert=lambda state: {})},
        )
    )
    holding(workers, newer)
    with pytest.raises(AlreadyDone, match="is not final"):
        migrate_command.migrate(actor, run.id, "8", token=str(uuid.uuid4()))


def test_the_page_shows_the_difference_and_migrates_once(engine: Engine, moved_on: Versions) -> None:
    run, world = moved_on.run, engine.world
    address = reverse("run_migrate", args=[world.workspace.id, run.id, "8"])
    operator_, developer = Client(), Client()
    operator_.force_login(world.operator)
    assert operator_.get(address).status_code == 403
    assert operator_.post(address, {"form_token": "x" * 20}).status_code == 403
    developer.force_login(world.developer)
    page = developer.get(address)
    assert page.status_code == 200
    text = page.content.decode()
    assert "The intent moves into one field" in text
    assert "The node reads is gone." in text
    assert StateMigration.objects.filter(run=run).count() == 0
    head = developer.get(reverse("run", args=[world.workspace.id, run.id])).content.decode()
    assert f"Migrate to {run.workflow.name} 8" in head
    typed = {"form_token": str(uuid.uuid4()), "shown_next": ["asks"]}
    for _ in range(2):
        assert developer.post(address, typed).status_code in (302, 303)
    assert StateMigration.objects.filter(run=run).count() == 1
    again = developer.post(address, {**typed, "form_token": str(uuid.uuid4())})
    assert again.status_code == 404, "from 8 to 8 there is no migration"
    other = make_world("elsewhere")
    elsewhere = reverse("run_migrate", args=[other.workspace.id, run.id, "8"])
    stranger = Client()
    stranger.force_login(other.developer)
    assert stranger.get(elsewhere).status_code == 404
