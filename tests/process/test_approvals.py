"""Decisions while workers work: twice at once, in the middle of another answer, and across a kill."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.db import connection

from console.kernel.errors import AlreadyDone, Invalid, Refusal
from effects.models import Approval, ApprovalDecision, Effect
from effects.states import Decision
from runs.models import Execution, Run
from runs.states import ExecutionOutcome
from tests.people import World
from tests.process.journeys import Receiver, approve, asked, begin, reaches
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.process

CITRICOS = "marta.ibanez@citricosturia.example"


def _answer(world: World, approval: Approval, text: Any) -> None:
    approve(world, approval, decision=Decision.RESPOND, answer={"text": text})


def _question(run: Run, word: str) -> Approval:
    found = wait_for(
        f"the question about the {word}",
        lambda: Approval.objects.filter(run_id=run.id, title__contains=word, status="pending").first(),
    )
    assert isinstance(found, Approval)
    return found


def test_answered_twice_at_once_is_one_decision_and_one_offer(stack: Stack, live: World) -> None:
    run = begin(
        live, "sales_offer_agent", email=CITRICOS, request="Necesitamos una oferta para 12 licencias."
    )
    reaches(run, "waiting_approval")
    approval = asked(run)
    people = [live.approver, live.second_approver] * 10
    start = threading.Barrier(len(people))
    results: list[str] = []

    def decide(person: Any) -> None:
        start.wait()
        try:
            approve(live, approval, person)
            results.append("decided")
        except Refusal as refusal:
            results.append(f"{refusal.status}")
        finally:
            connection.close()

    threads = [threading.Thread(target=decide, args=[person]) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reaches(run, "completed")

    assert sorted(results) == ["409"] * 19 + ["decided"]
    assert ApprovalDecision.objects.filter(approval=approval).count() == 1
    assert len(Receiver(stack, live.account).effects()) == 1
    assert Execution.objects.filter(run=run).count() == 2


def test_two_pauses_the_second_answered_while_the_first_answer_is_executing(
    stack: Stack, live: World
) -> None:
    run = begin(live, "test_questions", slow=2)
    reaches(run, "waiting_approval")
    colour, size = _question(run, "colour"), _question(run, "size")
    assert colour.interrupt_id != size.interrupt_id

    _answer(live, colour, "blue")
    reaches(run, "running")
    wait_for("the first answer to be executing", lambda: Execution.objects.filter(run=run).count() == 2)
    _answer(live, size, "large")

    reaches(run, "completed")
    assert _answers(run) == ["first:blue", "second:large"]
    assert Approval.objects.filter(run_id=run.id).count() == 2


def _answers(run: Run) -> list[str]:
    from runs.engine.registry import workflows
    from runs.engine.saver import Saver

    graph = workflows()[str(run.workflow)].compiled.copy({"checkpointer": Saver()})
    return sorted(graph.get_state({"configurable": {"thread_id": run.id}}).values["answers"])


def test_a_worker_killed_between_the_decision_and_the_nodes_end(stack: Stack, live: World) -> None:
    """The decision still counts, and once: it is delivered again, since the checkpoint says that it was not."""
    run = begin(live, "test_questions", slow=2)
    reaches(run, "waiting_approval")
    _answer(live, _question(run, "colour"), "green")
    wait_for(
        "the answered node to run",
        lambda: run.steps.filter(node="first", execution__fence=2, ended_at=None).exists(),
    )
    import os
    import signal

    os.kill(stack.processes["crashing"].pid, signal.SIGKILL)
    wait_for("the loss", lambda: Execution.objects.filter(run=run, outcome=ExecutionOutcome.LOST).exists())
    _answer(live, _question(run, "size"), "small")

    reaches(run, "completed")

    assert _answers(run) == ["first:green", "second:small"]
    assert ApprovalDecision.objects.filter(approval__run_id=run.id).count() == 2


def test_an_invalid_answer_is_refused_and_a_right_one_works_afterwards(stack: Stack, live: World) -> None:
    run = begin(live, "test_questions", slow=0)
    reaches(run, "waiting_approval")
    colour = _question(run, "colour")
    with pytest.raises(Invalid) as refused:
        _answer(live, colour, 7)
    assert (refused.value.status, refused.value.field) == (422, "answer")
    colour.refresh_from_db()
    assert colour.status == "pending"

    _answer(live, colour, "red")
    _answer(live, _question(run, "size"), "medium")
    reaches(run, "completed")
    assert _answers(run) == ["first:red", "second:medium"]


def test_approved_by_one_and_rejected_by_another_at_once(stack: Stack, live: World) -> None:
    run = begin(live, "sales_offer_agent", email=CITRICOS, request="Una oferta para 3 licencias, por favor.")
    reaches(run, "waiting_approval")
    approval = asked(run)
    approve(live, approval, live.approver, decision=Decision.REJECT, reason="The discount is missing")
    with pytest.raises(AlreadyDone, match="Rejected by Approver"):
        approve(live, approval, live.second_approver)

    reaches(run, "completed")
    assert Receiver(stack, live.account).requests() == []
    effect = Effect.objects.get(run_id=run.id)
    assert (effect.status, effect.sub_state) == ("failed", "rejected_by_person")
    assert live.conversation.messages.filter(run_id=run.id).count() == 1


def test_the_same_form_twice_is_one_decision(stack: Stack, live: World) -> None:
    run = begin(live, "sales_offer_agent", email=CITRICOS, request="Una oferta para 4 licencias, por favor.")
    reaches(run, "waiting_approval")
    approval, token = asked(run), str(uuid.uuid4())
    first = approve(live, approval, token=token)
    second = approve(live, approval, token=token)
    assert first == second
    reaches(run, "completed")
