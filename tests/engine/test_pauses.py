"""Pauses that people answer: questions, agents' actions, effects; asked once, answered once, delivered once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
from django.db.models.functions import Now
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, Stale
from effects.approvals import Expired
from effects.models import Approval, Effect
from effects.rounds import body_of
from effects.selectors import payload_of, revision_of
from effects.states import ApprovalStatus, Asked, Decision
from runs import recovery
from runs.authoring import LedgerMiddleware, ask_approval, perform, propose
from runs.engine import saver
from runs.models import Run
from runs.states import Failure, PauseKind, RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import (
    Scripted,
    State,
    beside,
    calls,
    line,
    offer,
    ticket,
    workflow_of,
)

NUMBER = {
    "type": "object",
    "properties": {"seats": {"type": "integer", "minimum": 1}},
    "required": ["seats"],
    "additionalProperties": False,
}


# --- questions -------------------------------------------------------------------------------------------------------


def test_an_answer_that_does_not_fit_is_refused_and_a_right_one_works_afterwards(engine: Engine) -> None:
    """langgraph.md, Continue: a node that raises on its answer keeps it for ever. So it is checked before."""
    answered: list[Any] = []

    def asks(state: State) -> State:
        answered.append(interrupt({"question": "How many?"}, response_schema=NUMBER))
        return {"log": [answered[-1]]}

    run = engine.run(line(asks), {"log": []})
    (approval,) = engine.asked(run)
    assert (approval.asks, approval.title, approval.allows) == (Asked.QUESTION, "How many?", ["respond"])
    for wrong in ({"seats": 0}, {"seats": "four"}, {}, "four", {"seats": 1, "more": 1}):
        with pytest.raises(Invalid) as refused:
            engine.decide(approval, Decision.RESPOND, answer=wrong)
        assert (refused.value.status, refused.value.field) == (422, "answer")
    approval.refresh_from_db()
    assert (approval.status, approval.version) == (ApprovalStatus.PENDING, 1)
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_APPROVAL

    run = engine.answer(run, {"seats": 4})
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert answered == [{"seats": 4}]


def test_a_question_whose_schema_is_a_type_takes_the_validated_answer(engine: Engine) -> None:
    """LangGraph turns the type into JSON Schema for people, and validates against the type itself."""

    class Seats(TypedDict):
        seats: int

    def asks(state: State) -> State:
        return {"log": [interrupt("How many?", response_schema=Seats)]}

    run = engine.run(line(asks), {"log": []})
    (approval,) = engine.asked(run)
    with pytest.raises(Invalid):
        engine.decide(approval, Decision.RESPOND, answer={"seats": "four"})
    run = engine.answer(run, {"seats": 4})

    assert engine.state_of(run)["log"] == [{"seats": 4}]


def test_a_question_may_not_be_approved_or_left_empty(engine: Engine) -> None:
    run = engine.run(line(_asks_once), {"log": []})
    (approval,) = engine.asked(run)

    with pytest.raises(Invalid):
        engine.decide(approval, Decision.APPROVE)
    with pytest.raises(Invalid):
        engine.decide(approval, Decision.RESPOND, answer="")


def _asks_once(state: State) -> State:
    return {"log": [interrupt("colour?")]}


@pytest.mark.parametrize("answer", [0, False, [], {"a": None}])
def test_an_answer_may_be_any_json_value(engine: Engine, answer: Any) -> None:
    run = engine.answer(engine.run(line(_asks_once), {"log": []}), answer)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == [answer]


def test_two_questions_at_once_are_answered_each_by_its_own(engine: Engine) -> None:
    """A partial answer is delivered at once; the other question stays the same request, open."""

    def colour(state: State) -> State:
        return {"log": [f"colour:{interrupt('colour?')}"]}

    def size(state: State) -> State:
        return {"log": [f"size:{interrupt('size?')}"]}

    run = engine.run(beside(colour, size), {"log": []})
    by_title = {approval.title: approval for approval in engine.asked(run)}
    engine.decide(by_title["size?"], Decision.RESPOND, answer="L")
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    assert [approval.id for approval in engine.asked(run)] == [by_title["colour?"].id]
    run = engine.answer(run, "red")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert sorted(engine.state_of(run)["log"]) == ["colour:red", "size:L"]
    assert Approval.objects.filter(run_id=run.id).count() == 2


def test_an_answer_that_comes_while_another_is_executing_is_delivered_next(engine: Engine) -> None:
    """effects.md, battery 34c: settle reads the rows as they are then, so nothing is missed."""

    def slow(state: State) -> State:
        answer = interrupt("first?")
        (second,) = [one for one in engine.asked(run) if one.title == "second?"]
        engine.decide(second, Decision.RESPOND, answer="two")
        return {"log": [answer]}

    def other(state: State) -> State:
        return {"log": [interrupt("second?")]}

    run = engine.run(beside(slow, other), {"log": []})
    first = next(one for one in engine.asked(run) if one.title == "first?")
    engine.decide(first, Decision.RESPOND, answer="one")
    run = engine.go(run)
    assert run.status == RunStatus.QUEUED
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert sorted(engine.state_of(run)["log"]) == ["one", "two"]


def test_a_second_question_of_one_node_is_asked_and_answered(engine: Engine) -> None:
    """langgraph.md, Continue: at most one answered pause a task. A second one must not hang unseen: either it is
    asked and its answer delivered, or the run fails and says why."""

    def asks_twice(state: State) -> State:
        return {"log": [interrupt("colour?"), interrupt("size?")]}

    run = engine.run(line(asks_twice), {"log": []})
    run = engine.answer(run, "red")
    assert run.status in (RunStatus.WAITING_APPROVAL, RunStatus.FAILED), (
        f"{run.status}, and nobody is asked: {engine.asked(run)}"
    )
    if run.status == RunStatus.WAITING_APPROVAL:
        run = engine.answer(run, "L")
        assert engine.state_of(run)["log"] == ["red", "L"]
    else:
        assert run.failure_of == "asks_twice"


def test_a_node_that_raises_on_its_answer_is_not_given_it_again(engine: Engine) -> None:
    """The checkpoint says that it is delivered: Continue goes on with None, and nobody is asked a second time."""
    taken: list[Any] = []

    def asks(state: State) -> State:
        taken.append(interrupt("number?"))
        if len(taken) < 3:
            raise ValueError("boom")
        return {"log": [taken[-1]]}

    run = engine.run(line(asks), {"log": []})
    run = engine.answer(run, "seven")
    assert run.status == RunStatus.FAILED
    assert run.pauses.get(fence=run.fence).answered
    assert engine.asked(run) == []
    run = engine.continue_(run)
    assert run.status == RunStatus.FAILED
    run = engine.continue_(run)

    assert run.status == RunStatus.COMPLETED
    assert taken == ["seven"] * 3
    assert Approval.objects.filter(run_id=run.id).count() == 1


def test_an_answer_to_another_question_of_the_same_place_is_not_delivered(engine: Engine) -> None:
    """langgraph.md, Code drift: the answer to "approve payment?" went to "delete all?". The value's hash holds it."""
    question = ["pay?"]
    answers: list[Any] = []

    def asks(state: State) -> State:
        answers.append(interrupt(question[0]))
        return {"log": answers[-1:]}

    run = engine.run(line(asks), {"log": []})
    (pay,) = engine.asked(run)
    question[0] = "delete all?"
    Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)
    run = engine.go(run)  # woken in between: it asks something else now
    (delete,) = engine.asked(run)
    pay.refresh_from_db()
    assert (pay.status, delete.title, delete.round) == (ApprovalStatus.SUPERSEDED, "delete all?", 2)
    with pytest.raises(AlreadyDone):
        engine.decide(pay, Decision.RESPOND, answer="yes")
    run = engine.answer(run, "no")

    assert answers == ["no"]


def test_the_form_of_a_decision_counts_once(engine: Engine) -> None:
    run = engine.run(line(_asks_once), {"log": []})
    (approval,) = engine.asked(run)
    with pytest.raises(Stale):
        engine.decide(_with(approval, payload_hash="sha256:other"), Decision.RESPOND, answer="red")
    engine.decide(approval, Decision.RESPOND, answer="red")
    with pytest.raises(AlreadyDone, match="Approver"):
        engine.decide(approval, Decision.RESPOND, answer="blue")
    run = engine.go(run)

    assert engine.state_of(run)["log"] == ["red"]


def _with(approval: Approval, **fields: Any) -> Approval:
    copy = Approval.objects.get(id=approval.id)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def test_no_new_input_ever_reaches_a_paused_run(engine: Engine) -> None:
    """Woken any number of times, it goes on from its pause: finished nodes do not run again, the state stands."""
    ran: list[str] = []

    def first(state: State) -> State:
        ran.append("first")
        return {"log": ["first"]}

    run = engine.run(line(first, _asks_once), {"log": ["given"]})
    for _ in range(3):
        Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)
        run = engine.go(run)
        assert run.status == RunStatus.WAITING_APPROVAL
    run = engine.answer(run, "red")

    assert ran == ["first"]
    assert engine.state_of(run)["log"] == ["given", "first", "red"]
    assert Approval.objects.filter(run_id=run.id).count() == 1


# --- a process that is another one -----------------------------------------------------------------------------------


def test_a_pause_outlives_the_process(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process comes: a graph compiled anew, connections of its own, nothing left in memory."""

    def graph() -> StateGraph[Any, Any, Any, Any]:
        return line(_asks_once, _sends)

    workflow = workflow_of(graph())
    run = engine.run(workflow, {"log": []})
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.RESPOND, answer="red")
    again = workflow_of(graph(), version=workflow.version)
    assert again.fingerprint == workflow.fingerprint
    monkeypatch.setitem(engine.process.held, workflow.id, again)
    saver.pool().close()
    saver.pool.cache_clear()
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"][0] == "red"
    assert len(engine.made(Effect.objects.get(run_id=run.id))) == 1


def _sends(state: State) -> State:
    return {"log": [perform(offer()).reference]}


def test_a_connection_that_was_killed_is_replaced(engine: Engine) -> None:
    """langgraph.md, Speed: a killed bare connection leaves the saver dead; the pool checks each before its use."""
    run = engine.run(line(_asks_once), {"log": []})
    with saver.pool().connection() as connection:
        pid = connection.info.backend_pid
    with saver.pool().connection() as connection:
        others = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND pid = %s",
            (pid,),
        )
        others.fetchall()
    run = engine.answer(run, "red")

    assert run.status == RunStatus.COMPLETED


# --- effects that wait for people ------------------------------------------------------------------------------------


def _asks_and_sends(state: State) -> State:
    proposal = offer(kind="test.asked_offer")
    decided = ask_approval(proposal)
    if not decided.approved:
        return {"log": ["rejected", decided.reason]}
    return {"log": ["edited" if decided.edited else "approved", perform(proposal).status]}


def test_an_approved_effect_is_made_once(engine: Engine) -> None:
    run = engine.run(line(_asks_and_sends), {"log": []})
    (approval,) = engine.asked(run)
    assert (approval.asks, approval.asked_of) == (Asked.EFFECT, "Sales approvers")
    assert run.pauses.get().kind == PauseKind.EFFECT_APPROVAL
    engine.decide(approval)
    run = engine.go(run)

    assert engine.state_of(run)["log"] == ["approved", "completed"]
    assert len(engine.made(Effect.objects.get(run_id=run.id))) == 1


def test_a_rejected_effect_is_an_outcome(engine: Engine) -> None:
    run = engine.run(line(_asks_and_sends), {"log": []})
    (approval,) = engine.asked(run)
    with pytest.raises(Invalid, match="why"):
        engine.decide(approval, Decision.REJECT, reason=" ")
    engine.decide(approval, Decision.REJECT, reason="Too dear")
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED
    assert engine.state_of(run)["log"] == ["rejected", "Rejected by Approver: Too dear"]
    assert engine.made(Effect.objects.get(run_id=run.id)) == []


def test_an_expired_approval_pauses_the_run_and_continue_asks_again(engine: Engine) -> None:
    """Nothing was decided, nothing is sent; Continue opens the next round, and that one counts."""
    run = engine.run(line(_asks_and_sends), {"log": []})
    (first,) = engine.asked(run)
    run = _expire(engine, run)

    assert run.status == RunStatus.PAUSED
    assert "expired" in run.failure_text
    with pytest.raises(Expired):
        engine.decide(first)
    run = engine.continue_(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    (second,) = engine.asked(run)
    assert (second.round, second.interrupt_id) == (2, first.interrupt_id)
    engine.decide(second)
    run = engine.go(run)
    assert engine.state_of(run)["log"] == ["approved", "completed"]


def test_an_expired_question_pauses_the_run_and_continue_asks_again(engine: Engine) -> None:
    run = _expire(engine, engine.run(line(_asks_once), {"log": []}))
    assert run.status == RunStatus.PAUSED
    run = engine.continue_(run)
    (second,) = engine.asked(run)
    assert second.round == 2
    run = engine.answer(run, "red")

    assert engine.state_of(run)["log"] == ["red"]


def _expire(engine: Engine, run: Run) -> Run:
    """The time of every open request of the run is over, and the sweep looks."""
    Approval.objects.filter(run_id=run.id, status=ApprovalStatus.PENDING).update(
        due_at=Now() - timedelta(hours=2), expires_at=Now() - timedelta(hours=1)
    )
    recovery.expire_approvals()
    run.refresh_from_db()
    return run


def test_a_wait_that_only_an_approval_can_end_pauses_when_that_expires(engine: Engine) -> None:
    """`perform` without `ask_approval` asks as well. Expired, the run is paused: it does not "go on by itself"."""

    def sends(state: State) -> State:
        return {"log": [perform(offer(kind="test.asked_offer")).status]}

    run = engine.run(line(sends), {"log": []})
    assert run.status == RunStatus.WAITING_APPROVAL
    run = _expire(engine, run)

    assert run.status == RunStatus.PAUSED
    run = engine.continue_(run)
    (second,) = engine.asked(run)
    engine.decide(second)
    assert engine.go(run).status == RunStatus.COMPLETED


def test_a_wait_for_an_effect_is_woken_when_it_is_due(engine: Engine) -> None:
    """Nobody listens at the mail server: proven unsent, tried again when due, never slept for."""

    def mails(state: State) -> State:
        mail = propose(
            "test.mail",
            command="mail",
            to="ada@harborpine.example",
            subject="Hello",
            body="Hello.",
            customer_id="cus_000001",
        )
        return {"log": [perform(mail).status]}

    run = engine.run(line(mails), {"log": []})
    assert run.status == RunStatus.WAITING_EFFECT
    assert run.pauses.get().kind == PauseKind.EFFECT_WAIT
    effect = Effect.objects.get(run_id=run.id)
    assert (effect.sub_state, effect.tries) == ("backoff", 1)
    Effect.objects.filter(id=effect.id).update(due_at=Now() - timedelta(seconds=1))
    recovery.wake()
    run.refresh_from_db()
    assert (run.status, run.next_cause) == (RunStatus.QUEUED, "wake")
    run = engine.go(run)

    assert run.status == RunStatus.WAITING_EFFECT
    effect.refresh_from_db()
    assert effect.tries == 2
    assert [one.outcome for one in effect.attempts.all()] == ["not_sent", "not_sent"]


def test_four_eyes_the_starter_may_not_approve(engine: Engine) -> None:
    run = engine.run(line(_asks_and_sends), {"log": []})
    (approval,) = engine.asked(run)

    with pytest.raises(Forbidden):
        engine.decide(approval, by=engine.world.operator)


# --- LangChain's agents ----------------------------------------------------------------------------------------------


@tool
def open_ticket(
    customer_id: str, subject: str, description: str, priority: Literal["low", "normal", "high"]
) -> str:
    """Open a ticket."""
    raise RuntimeError("bound to a contract: the ledger performs it")


noted: list[str] = []


@tool
def note(text: str) -> str:
    """Note something."""
    noted.append(text)
    return f"noted {text}"


BOUND = LedgerMiddleware(tools={"open_ticket": "test.ticket"})
ALL = ["approve", "edit", "reject", "respond"]


Mode = Literal["batched", "per_call"]


def agent(*script: AIMessage, mode: Mode = "batched", gated: Any = None, ledger: Any = BOUND) -> Any:
    """An agent that says what *script* says, then "done"; every call of a *gated* tool is asked about."""
    gates = gated or {"open_ticket": {"allowed_decisions": ALL}}
    return create_agent(
        Scripted(script=[*script, AIMessage("done"), AIMessage("done")]),
        tools=[open_ticket, note],
        middleware=[HumanInTheLoopMiddleware(interrupt_on=gates, interrupt_mode=mode), ledger],
    )


def first_message(given: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [("user", "Help me.")]}


def begin_agent(engine: Engine, graph: Any) -> Run:
    return engine.run(graph, {}, to_state=first_message, effect_types=("test.ticket",))


def replies(engine: Engine, run: Run) -> list[ToolMessage]:
    return [message for message in engine.state_of(run)["messages"] if isinstance(message, ToolMessage)]


def effects_of(run: Run) -> list[Effect]:
    return list(Effect.objects.filter(run_id=run.id).order_by("command__command_key"))


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_an_agents_action_is_asked_about_and_performed_once(engine: Engine, mode: Mode) -> None:
    """The pause proposes the effect and shows it; `respond` is never offered for what changes the outside."""
    run = begin_agent(engine, agent(calls(ticket()), mode=mode))
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    (approval,) = engine.asked(run)
    (effect,) = effects_of(run)
    assert (approval.asks, approval.effect_id) == (Asked.ACTION, effect.id)
    assert sorted(approval.allows) == ["approve", "edit", "reject"]
    assert effect.sub_state == "awaiting_approval"
    engine.decide(approval)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    (reply,) = replies(engine, run)
    effect.refresh_from_db()
    assert effect.provider_reference
    assert effect.provider_reference in str(reply.content)
    assert len(engine.made(effect)) == 1


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_a_rejected_action_is_not_performed(engine: Engine, mode: Mode) -> None:
    run = begin_agent(engine, agent(calls(ticket()), mode=mode))
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.REJECT, reason="Known already")
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    (reply,) = replies(engine, run)
    assert "Known already" in str(reply.content)
    (effect,) = effects_of(run)
    assert (effect.status, effect.tries, engine.made(effect)) == ("failed", 0, [])


def test_several_actions_are_a_request_each_and_are_delivered_together(engine: Engine) -> None:
    """A partial answer would break the run."""
    run = begin_agent(engine, agent(calls(ticket("One"), ticket("Two"))))
    first, second = engine.asked(run)
    assert first.interrupt_id == second.interrupt_id
    assert (first.action, second.action) == (0, 1)
    engine.decide(second, Decision.REJECT, reason="Not this one")
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING_APPROVAL
    engine.decide(first)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    by_subject = {payload_of(one, revision_of(one))["subject"]: one for one in effects_of(run)}  # type: ignore[index,call-overload]
    assert by_subject["One"].status == "completed"
    assert by_subject["Two"].sub_state == "rejected_by_person"
    assert [len(engine.made(by_subject[subject])) for subject in ("One", "Two")] == [1, 0]


def test_per_call_each_action_is_a_pause_of_its_own(engine: Engine) -> None:
    """langgraph.md, LangChain: the calls run side by side, so one may be answered before the other."""
    run = begin_agent(engine, agent(calls(ticket("One"), ticket("Two")), mode="per_call"))
    first, second = sorted(engine.asked(run), key=lambda one: str(body_of(one)))
    assert first.interrupt_id != second.interrupt_id
    engine.decide(first)
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    assert [one.id for one in engine.asked(run)] == [second.id]
    engine.decide(second)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert [len(engine.made(effect)) for effect in effects_of(run)] == [1, 1]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_an_edited_action_needs_a_second_approver_and_is_performed_as_edited(
    engine: Engine, mode: Mode
) -> None:
    """The editor is a co-author; the bytes that go out are the edited ones."""
    run = begin_agent(engine, agent(calls(ticket()), mode=mode))
    (approval,) = engine.asked(run)
    with pytest.raises(Invalid):
        engine.decide(approval, Decision.EDIT, answer={"subject": 7})
    with pytest.raises(Invalid):
        engine.decide(approval, Decision.EDIT, answer={"recipient": "me"})
    with pytest.raises(Invalid):
        engine.decide(approval, Decision.EDIT, answer={"priority": "yesterday"})
    engine.decide(approval, Decision.EDIT, answer={"subject": "Very broken"})
    run = engine.go(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    (second,) = engine.asked(run)
    assert second.round == 2
    with pytest.raises(Forbidden, match="Four eyes"):
        engine.decide(second)
    engine.decide(second, by=engine.world.second_approver)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    (effect,) = effects_of(run)
    assert effect.revision == 2
    (made,) = engine.made(effect)
    assert "Very broken" in str(made)


def test_an_unbound_tool_may_be_answered_for_and_runs_once(engine: Engine) -> None:
    noted.clear()
    gates = {"note": {"allowed_decisions": ALL}}
    run = begin_agent(engine, agent(calls({"text": "a"}, {"text": "b"}, tool="note"), gated=gates))
    first, second = engine.asked(run)
    assert first.allows == ALL
    engine.decide(first, Decision.RESPOND, answer="I know.")
    engine.decide(second)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert [reply.content for reply in replies(engine, run)] == ["I know.", "noted b"]
    assert noted == ["b"]


def test_an_edit_of_one_action_and_an_expiry_of_its_second_round_pause_the_run(engine: Engine) -> None:
    """The first round is decided, the second nobody answered: the run must not wait for nobody."""
    run = begin_agent(engine, agent(calls(ticket())))
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.EDIT, answer={"subject": "Very broken"})
    run = _expire(engine, run)

    assert run.status == RunStatus.PAUSED
    run = engine.continue_(run)
    assert [one.round for one in engine.asked(run)] == [3]


def test_a_third_round_shows_the_action_as_it_would_be_sent(engine: Engine) -> None:
    """Edited, then nobody approved it in time: what is asked about again is the edited action, not the model's."""
    run = begin_agent(engine, agent(calls(ticket())))
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.EDIT, answer={"subject": "Very broken"})
    run = _expire(engine, run)
    run = engine.continue_(run)

    (third,) = engine.asked(run)
    (effect,) = effects_of(run)
    assert (third.round, third.revision, third.payload_hash) == (3, 2, effect.request_hash)
    body = body_of(third)
    assert isinstance(body, dict)
    assert body["args"] == payload_of(effect, revision_of(effect))


def test_an_expiry_of_one_of_several_actions_pauses_the_run(engine: Engine) -> None:
    """One is decided, the other has expired: nothing of the pause can be delivered, and nobody is asked any more."""
    run = begin_agent(engine, agent(calls(ticket("One"), ticket("Two"))))
    first, second = engine.asked(run)
    engine.decide(first)
    run = _expire(engine, run)

    assert run.status == RunStatus.PAUSED
    run = engine.continue_(run)
    assert run.status == RunStatus.WAITING_APPROVAL
    (again,) = engine.asked(run)
    assert (again.action, again.round) == (second.action, 2)
    engine.decide(again)
    run = engine.go(run)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert [len(engine.made(effect)) for effect in effects_of(run)] == [1, 1]


def test_a_models_answer_and_a_tools_result_of_an_agent_are_recorded(engine: Engine) -> None:
    """The agent's model node runs once and its answer is kept; a tool beside a bound one is not called again."""
    noted.clear()
    both = AIMessage(
        "",
        tool_calls=[*calls({"text": "a"}, tool="note", prefix="n").tool_calls, *calls(ticket()).tool_calls],
    )
    graph = agent(both)
    run = begin_agent(engine, graph)
    (approval,) = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert noted == ["a"]
    assert run.recordings.filter(kind="model").count() == 2
    assert run.recordings.filter(kind="tool").count() == 1


def test_the_same_call_id_in_a_later_turn_is_another_effect(engine: Engine) -> None:
    """Some models number their calls anew in each message: the later call must not be told the earlier's result."""
    run = begin_agent(engine, agent(calls(ticket("One")), calls(ticket("Two"))))
    for _ in range(2):
        (approval,) = engine.asked(run)
        engine.decide(approval)
        run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert [len(engine.made(effect)) for effect in effects_of(run)] == [1, 1]


# --- the agent-inbox schema -------------------------------------------------------------------------------------------


def _inbox(answers: list[Any], *, one: bool = False) -> Any:
    request = {
        "action_request": {"action": "refund", "args": {"amount": 7, "to": "Ada"}},
        "config": {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": True},
        "description": "The customer asks for it.",
    }

    def asks(state: State) -> State:
        answers.append(interrupt(request if one else [request]))
        return {}

    return line(asks)


@pytest.mark.parametrize(
    ("decision", "fields", "said"),
    [
        (Decision.APPROVE, {}, {"type": "accept", "args": None}),
        (Decision.REJECT, {"reason": "No"}, {"type": "ignore", "args": None}),
        (Decision.RESPOND, {"answer": "Ask them first."}, {"type": "response", "args": "Ask them first."}),
    ],
)
def test_agent_inbox_is_answered_in_its_own_words(
    engine: Engine, decision: Decision, fields: dict[str, Any], said: dict[str, Any]
) -> None:
    """accept / edit / response / ignore, one answer for each request of the list."""
    answers: list[Any] = []
    run = engine.run(_inbox(answers))
    (approval,) = engine.asked(run)
    assert (approval.asks, approval.title, approval.why) == (
        Asked.ACTION,
        "refund",
        "The customer asks for it.",
    )
    assert sorted(approval.allows) == sorted(ALL)
    engine.decide(approval, decision, **fields)
    run = engine.go(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert answers == [[said]]


def test_agent_inbox_an_edit_carries_the_whole_action_request(engine: Engine) -> None:
    """Its schema: the args of an edit are an ActionRequest, with action and args."""
    answers: list[Any] = []
    run = engine.run(_inbox(answers))
    (approval,) = engine.asked(run)
    engine.decide(approval, Decision.EDIT, answer={"amount": 5})
    run.refresh_from_db()
    (second,) = engine.asked(run)
    engine.decide(second, by=engine.world.second_approver)
    run = engine.go(run)

    assert answers == [[{"type": "edit", "args": {"action": "refund", "args": {"amount": 5, "to": "Ada"}}}]]


# --- code that is not what it was -------------------------------------------------------------------------------------


def test_a_next_node_that_the_graph_no_longer_has_fails_the_run_by_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """langgraph.md, Code drift: the engine itself finishes silently, without an exception."""

    def pay(state: State) -> State:
        return {"log": [interrupt("pay?")]}

    def renamed(state: State) -> State:
        return {"log": [interrupt("pay?")]}

    workflow = workflow_of(line(_nothing, pay))
    run = engine.run(workflow, {"log": []})
    drifted = workflow_of(line(_nothing, renamed), version=workflow.version)
    monkeypatch.setitem(drifted.__dict__, "fingerprint", workflow.fingerprint)
    monkeypatch.setitem(engine.process.held, workflow.id, drifted)
    Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)
    run = engine.go(run)

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.VERSION_MISMATCH), run.status
    assert "pay" in run.failure_text


def test_a_send_to_a_node_that_the_graph_no_longer_has_fails_the_run_by_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:

    def item(state: State) -> State:
        return {"log": [interrupt("item?")]}

    def other(state: State) -> State:
        return {}

    def graph(node: Any) -> StateGraph[Any, Any, Any, Any]:
        built: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        built.add_node("plan", _nothing)
        built.add_node(node.__name__, node)
        built.add_edge(START, "plan")
        built.add_conditional_edges("plan", lambda state: [Send(node.__name__, {})], [node.__name__])
        return built

    workflow = workflow_of(graph(item))
    run = engine.run(workflow, {"log": []})
    assert run.status == RunStatus.WAITING_APPROVAL, run.failure_text
    drifted = workflow_of(graph(other), version=workflow.version)
    monkeypatch.setitem(drifted.__dict__, "fingerprint", workflow.fingerprint)
    monkeypatch.setitem(engine.process.held, workflow.id, drifted)
    Run.objects.filter(id=run.id).update(status=RunStatus.QUEUED)
    run = engine.go(run)

    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.VERSION_MISMATCH), run.status
    assert "item" in run.failure_text


def _nothing(state: State) -> State:
    return {}
