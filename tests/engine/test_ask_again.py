"""Ask again, on the real engine: a node that raises on its answer keeps it until a person has it asked anew."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from console.kernel.errors import AlreadyDone, Forbidden, NotFound
from console.models import AuditEvent
from effects.models import Approval
from effects.states import ApprovalStatus, Decision
from runs.authoring import perform
from runs.availability import OperatorCommand, availability
from runs.commands.ask_again import ask_again, questions_of
from runs.engine.saver import pool
from runs.models import Execution, Run
from runs.states import Cause, Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.recovering import Killed, die, take_back
from tests.engine.workflows import State, beside, line, offer, workflow_of
from tests.people import make_world


def fails_on_wrong(state: State) -> State:
    """Takes numbers only; what it is told otherwise it raises on, whenever it runs."""
    return {"log": [int(interrupt("How many seats?"))]}


def again(engine: Engine, run: Run, *, token: str = "") -> Run:
    """An operator has it asked again, and the worker takes the run along."""
    ask_again(engine.world.actor(engine.world.operator), run.id, token=token or str(uuid.uuid4()))
    return engine.go(run)


def offered(engine: Engine, run: Run) -> str:
    """Why it is not offered, to the operator; empty: it is."""
    run.refresh_from_db()
    return availability(run, engine.world.actor(engine.world.operator))[OperatorCommand.ASK_AGAIN].reason


def stored_answers(run: Run) -> int:
    with pool().connection() as connection:
        rows = connection.execute(
            "SELECT 1 FROM checkpoint_writes WHERE thread_id = %s AND channel = '__resume__'", [run.id]
        )
        return len(rows.fetchall())


def rounds_of(run: Run) -> list[tuple[int, str]]:
    return list(Approval.objects.filter(run_id=run.id).order_by("id").values_list("round", "status"))


def test_a_wrong_answer_is_asked_anew_and_the_right_one_completes(engine: Engine) -> None:
    run = engine.run(line(fails_on_wrong), {"log": []})
    [first] = engine.asked(run)
    run = engine.answer(run, "many")
    assert (run.status, run.failure, run.failed_on_answer) == (RunStatus.FAILED, Failure.NODE_ERROR, True)
    assert "ValueError" in run.failure_text

    run = engine.continue_(run)
    assert (run.status, run.failure, run.failed_on_answer) == (RunStatus.FAILED, Failure.NODE_ERROR, True)
    assert stored_answers(run) == 1, "Continue alone fails with the same answer again"

    run = again(engine, run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    assert (run.failure, run.failed_on_answer) == ("", False)
    [second] = engine.asked(run)
    assert (second.interrupt_id, second.interrupt_hash) == (first.interrupt_id, first.interrupt_hash)
    assert rounds_of(run) == [(1, ApprovalStatus.SUPERSEDED), (2, ApprovalStatus.PENDING)]
    assert Execution.objects.get(run=run, fence=run.fence).cause == Cause.ASK_AGAIN
    assert stored_answers(run) == 0

    run = engine.answer(run, "12")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [12]
    [event] = AuditEvent.objects.filter(subject=run.id, verb="run.asked_again")
    assert event.actor == engine.world.operator
    first.refresh_from_db()
    assert first.ended_why == f"Asked again by {engine.world.operator.name}"
    assert first.decisions.count() == 1, "what was answered stays as evidence"


def test_a_second_wrong_answer_is_asked_a_third_time(engine: Engine) -> None:
    run = engine.run(line(fails_on_wrong), {"log": []})
    for wrong in ("many", "a few"):
        run = again(engine, engine.answer(run, wrong))
    run = engine.answer(run, "3")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [3]
    assert [number for number, _ in rounds_of(run)] == [1, 2, 3]


def test_of_a_node_with_two_pauses_both_are_asked_again(engine: Engine) -> None:
    """It raises on the two together: which of them is wrong, only people know."""

    def compares(state: State) -> State:
        least, most = int(interrupt("At least?")), int(interrupt("At most?"))
        if least > most:
            raise ValueError(f"{least} is more than {most}")
        return {"log": [least, most]}

    run = engine.answer(engine.run(line(compares), {"log": []}), "9")
    run = engine.answer(run, "4")
    assert (run.status, run.failed_on_answer) == (RunStatus.FAILED, True), run.failure_text
    assert len(questions_of(run)) == 2

    run = again(engine, run)
    assert [one.title for one in engine.asked(run)] == ["At least?"]
    run = engine.answer(run, "2")
    assert [one.title for one in engine.asked(run)] == ["At most?"]
    run = engine.answer(run, "4")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [2, 4]


def test_inside_a_subgraph(engine: Engine) -> None:
    inner: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    inner.add_node("asks", fails_on_wrong)
    inner.add_edge(START, "asks")
    inner.add_edge("asks", END)
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("within", inner.compile())
    graph.add_edge(START, "within")
    graph.add_edge("within", END)

    run = engine.answer(engine.run(graph, {"log": []}), "many")
    assert (run.status, run.failure, run.failed_on_answer) == (RunStatus.FAILED, Failure.NODE_ERROR, True)
    run = again(engine, run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "5")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [5]


def test_inside_a_graph_that_a_node_calls(engine: Engine) -> None:
    inner = line(fails_on_wrong).compile()

    def outer(state: State) -> State:
        return {"log": inner.invoke({"log": []})["log"]}

    run = engine.answer(engine.run(line(outer), {"log": []}), "many")
    assert (run.status, run.failure, run.failed_on_answer) == (RunStatus.FAILED, Failure.NODE_ERROR, True)
    run = again(engine, run)
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "5")
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [5]


def test_a_siblings_answer_is_left_alone(engine: Engine) -> None:
    """Only the node that raised forgets: the other has finished, and its person is not asked again."""
    ran: list[str] = []

    def fine(state: State) -> State:
        answer = interrupt("Which colour?")
        ran.append(answer)
        return {"log": [answer]}

    run = engine.run(beside(fine, fails_on_wrong), {"log": []})
    answers = {"Which colour?": "blue", "How many seats?": "many"}
    for approval in engine.asked(run):
        engine.decide(approval, Decision.RESPOND, answer=answers[approval.title])
    run = engine.go(run)
    assert (run.status, run.failed_on_answer) == (RunStatus.FAILED, True), run.failure_text

    run = again(engine, run)
    assert [one.title for one in engine.asked(run)] == ["How many seats?"]
    run = engine.answer(run, "7")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert sorted(engine.state_of(run)["log"], key=str) == [7, "blue"]
    assert ran == ["blue"] or set(ran) == {"blue"}


def test_the_same_form_twice_asks_once_and_another_one_is_told(engine: Engine) -> None:
    run = engine.answer(engine.run(line(fails_on_wrong), {"log": []}), "many")
    operator, token = engine.world.actor(engine.world.operator), str(uuid.uuid4())
    for _ in range(2):
        ask_again(operator, run.id, token=token)
    with pytest.raises(AlreadyDone, match="no answer made a node of it fail"):
        ask_again(operator, run.id, token=str(uuid.uuid4()))
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    ask_again(operator, run.id, token=token)
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_APPROVAL
    assert AuditEvent.objects.filter(subject=run.id, verb="run.asked_again").count() == 1
    assert rounds_of(run) == [(1, ApprovalStatus.SUPERSEDED), (2, ApprovalStatus.PENDING)]


def test_a_worker_lost_before_it_forgot_the_answer_forgets_it_in_the_next_go(engine: Engine) -> None:
    """The order stands in the rows, not in the cause of one execution."""
    dies = [True]

    def asks(state: State) -> State:
        if run_is_asked_again and dies:
            dies.pop()
            raise Killed
        return {"log": [int(interrupt("How many seats?"))]}

    run_is_asked_again: list[bool] = []
    run = engine.answer(engine.run(line(asks), {"log": []}), "many")
    run_is_asked_again.append(True)
    ask_again(engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4()))
    run = engine.go(take_back(die(engine, run)))
    assert Execution.objects.get(run=run, fence=run.fence).cause == Cause.RECOVERY
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    run = engine.answer(run, "8")
    assert run.status == RunStatus.COMPLETED, run.failure_text


def test_it_is_not_offered_where_no_answer_made_the_node_fail(engine: Engine) -> None:
    def raises(state: State) -> State:
        raise ValueError("by itself")

    def asks(state: State) -> State:
        return {"log": [interrupt("Well?")]}

    by_itself = engine.run(line(raises), {"log": []})
    waiting = engine.run(line(asks), {"log": []})
    after = engine.answer(engine.run(line(asks, raises), {"log": []}), "yes")
    beside_it = engine.run(beside(asks, raises), {"log": []})
    assert [run.status for run in (by_itself, after, beside_it)] == [RunStatus.FAILED] * 3
    for run in (by_itself, waiting, after, beside_it):
        assert offered(engine, run) == "no answer made a node of it fail"
        with pytest.raises(AlreadyDone, match="Nothing can be asked again: no answer made a node of it fail"):
            ask_again(engine.world.actor(engine.world.operator), run.id, token=str(uuid.uuid4()))


def test_a_decision_about_an_effect_stands(engine: Engine) -> None:
    """It granted the effect: the node that raises after it gets the same effect back, and asks nobody again."""
    raises = [True]

    def sends(state: State) -> State:
        from runs.authoring import ask_approval

        proposal = offer(kind="test.asked_offer")
        ask_approval(proposal)
        if raises:
            raises.pop()
            raise ValueError("after its approval")
        return {"log": [perform(proposal.effect_id).status]}

    run = engine.run(workflow_of(line(sends), effect_types=("test.asked_offer",)), {"log": []})
    [approval] = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NODE_ERROR)
    assert offered(engine, run) == "no answer made a node of it fail"
    run = engine.continue_(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text


def test_who_may_not(engine: Engine) -> None:
    run = engine.answer(engine.run(line(fails_on_wrong), {"log": []}), "many")
    world = engine.world
    for person in (world.viewer, world.approver, world.auditor, world.releaser, world.administrator):
        with pytest.raises(Forbidden):
            ask_again(world.actor(person), run.id, token=str(uuid.uuid4()))
    other = make_world(f"other-{uuid.uuid4().hex[:6]}")
    with pytest.raises(NotFound):
        ask_again(other.actor(other.operator), run.id, token=str(uuid.uuid4()))
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED
