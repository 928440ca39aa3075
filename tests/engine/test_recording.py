"""What came from outside is asked once: given back when its node runs again, asked anew only where nothing bound it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from effects.models import Effect
from runs.authoring import ask_approval, ask_model, perform, post_message, recorded_fact, recorded_tool
from runs.commands import stop
from runs.models import Message, Recorded, Recording
from runs.states import Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.recovering import Killed, die_and_take_back
from tests.engine.workflows import Scripted, State, line, offer, said

# --- bound by a pause, a command, a kill ------------------------------------------------------------------------------


def test_a_model_is_not_asked_again_when_its_node_wakes_from_a_pause(engine: Engine) -> None:
    """The person answered what the model had said, so it must still have said it."""
    model = Scripted()

    def drafts(state: State) -> State:
        draft = ask_model(model, said("Draft it.")).text
        return {"log": [draft, interrupt(f"Send {draft!r}?")]}

    run = engine.run(line(drafts), {"log": []})
    run = engine.answer(run, "yes")

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["answer 1", "yes"]
    assert model.times == 1


def test_a_model_is_asked_anew_after_an_error_that_bound_nothing(engine: Engine) -> None:
    """A bad answer may be why the node raised: with neither a command nor a pause the same would fail for ever."""
    model = Scripted()

    def parses(state: State) -> State:
        answer = ask_model(model, said("As JSON.")).text
        if answer == "answer 1":
            raise ValueError(f"not JSON: {answer}")
        return {"log": [answer]}

    run = engine.run(line(parses), {"log": []})
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NODE_ERROR)
    run = engine.continue_(run)

    assert engine.state_of(run)["log"] == ["answer 2"]
    assert model.times == 2
    first, second = Recording.objects.filter(run=run).order_by("ended_at")
    assert first.dropped_at is not None, "the old answer stays, as evidence that binds nobody"
    assert second.dropped_at is None
    assert (first.position, first.request_hash, first.nth) == (
        second.position,
        second.request_hash,
        second.nth,
    )


def test_a_model_is_not_asked_again_after_an_error_of_a_node_that_made_an_effect(engine: Engine) -> None:
    """The effect was made because of that answer: another one would leave it without its why."""
    model = Scripted()
    broken = [True]

    def makes(state: State) -> State:
        answer = ask_model(model, said("How many?")).text
        proposal = offer()
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": [answer, perform(proposal).status]}

    run = engine.run(line(makes), {"log": []})
    assert run.failure == Failure.NODE_ERROR
    run = engine.continue_(run)

    assert engine.state_of(run)["log"] == ["answer 1", "completed"]
    assert model.times == 1
    effect = Effect.objects.get(run_id=run.id)
    assert len(engine.made(effect)) == 1
    recording = Recording.objects.get(run=run, kind=Recorded.MODEL)
    assert effect.command.recording_id == recording.id


def test_a_model_is_not_asked_again_when_the_node_raises_after_its_pause_was_answered(engine: Engine) -> None:
    """The stored answer is delivered once more at Continue: it must meet the question that the person saw."""
    model = Scripted()
    broken = [True]

    def drafts(state: State) -> State:
        draft = ask_model(model, said("Draft it.")).text
        answer = interrupt(f"Send {draft!r}?")
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": [draft, answer]}

    run = engine.run(line(drafts), {"log": []})
    run = engine.answer(run, "yes")
    assert run.failure == Failure.NODE_ERROR
    run = engine.continue_(run)

    assert engine.state_of(run)["log"] == ["answer 1", "yes"]
    assert model.times == 1


def test_a_model_is_not_asked_again_after_its_worker_was_killed(engine: Engine) -> None:
    model = Scripted()
    killing = [True]

    def thinks(state: State) -> State:
        answer = ask_model(model, said("Well?")).text
        if killing:
            killing.pop()
            raise Killed
        return {"log": [answer]}

    run = die_and_take_back(engine, engine.begin(line(thinks), {"log": []}))
    run = engine.go(run)

    assert engine.state_of(run)["log"] == ["answer 1"]
    assert model.times == 1


def test_an_error_of_the_model_is_never_recorded(engine: Engine) -> None:
    broken = [True]

    def reads(state: State) -> State:
        def read() -> str:
            if broken:
                broken.pop()
                raise ConnectionError("no answer")
            return "found"

        return {"log": [recorded_tool("crm.find", {"id": 7}, read)]}

    run = engine.run(line(reads), {"log": []})
    assert run.failure_text == "ConnectionError: no answer"
    assert not Recording.objects.filter(run=run).exists()
    run = engine.continue_(run)

    assert engine.state_of(run)["log"] == ["found"]


def test_an_answer_that_came_after_the_run_was_cancelled_is_not_recorded(engine: Engine) -> None:
    def reads(state: State) -> State:
        def read() -> str:
            stop.cancel(engine.world.actor(engine.world.operator), run.id, token="form")
            return "late"

        try:
            return {"log": [recorded_tool("crm.find", None, read)]}
        except Exception:
            return {"log": ["caught"]}

    run = engine.begin(line(reads), {"log": []})
    run = engine.go(run)

    assert run.status == RunStatus.CANCELLED
    assert not Recording.objects.filter(run=run).exists()


# --- found again by what was asked, and how many times ----------------------------------------------------------------


def test_equal_questions_of_a_task_are_told_apart_by_their_number(engine: Engine) -> None:
    """langgraph.md, Recording: the n-th occurrence of a request within the task; it counts anew when the task does."""
    model = Scripted()

    def thinks(state: State) -> State:
        first = ask_model(model, said("Again?")).text
        other = ask_model(model, said("Something else?")).text
        second = ask_model(model, said("Again?")).text
        return {"log": [first, other, second, interrupt("ok?")]}

    run = engine.run(line(thinks), {"log": []})
    run = engine.answer(run, "yes")

    assert engine.state_of(run)["log"] == ["answer 1", "answer 2", "answer 3", "yes"]
    assert model.times == 3
    assert sorted(Recording.objects.filter(run=run).values_list("nth", flat=True)) == [0, 0, 1]


def test_another_question_at_the_same_place_is_another_answer(engine: Engine) -> None:
    """Going on with an answer to what was not asked would be worse than asking."""
    model = Scripted()
    text = ["One?"]

    def thinks(state: State) -> State:
        return {"log": [ask_model(model, said(text[0])).text, interrupt("ok?")]}

    run = engine.run(line(thinks), {"log": []})
    text[0] = "Two?"
    run = engine.answer(run, "yes")

    assert engine.state_of(run)["log"] == ["answer 2", "yes"]


def test_options_of_a_model_call_belong_to_the_question(engine: Engine) -> None:
    model = Scripted()

    def thinks(state: State) -> State:
        ask_model(model, said("Well?"), temperature=0)
        ask_model(model, said("Well?"), temperature=1)
        return {}

    run = engine.run(line(thinks))

    assert len(set(Recording.objects.filter(run=run).values_list("request_hash", flat=True))) == 2


class Turn(TypedDict, total=False):
    turns: int
    log: Annotated[list[str], operator.add]


def test_each_pass_of_a_loop_and_each_sibling_asks_for_itself(engine: Engine) -> None:
    model = Scripted()

    def turn(state: Turn) -> Turn:
        return {"turns": state.get("turns", 0) + 1, "log": [ask_model(model, said("Next?")).text]}

    def item(state: Turn) -> Turn:
        return {"log": [ask_model(model, said("Next?")).text]}

    def route(state: Turn) -> Any:
        return "turn" if state["turns"] < 2 else [Send("item", {}), Send("item", {})]

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Turn)
    graph.add_node("turn", turn)
    graph.add_node("item", item)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", route, ["turn", "item"])
    run = engine.run(graph, {"log": []})

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert model.times == 4
    assert len(set(Recording.objects.filter(run=run).values_list("position", flat=True))) == 4


def test_a_graph_called_within_a_node_gets_its_answers_back_after_a_pause(engine: Engine) -> None:
    """Each inner node records at its own place, whichever of them the going again begins with."""
    model = Scripted()

    def reads(state: State) -> State:
        return {"log": [ask_model(model, said("Read it.")).text]}

    def drafts(state: State) -> State:
        return {"log": [ask_model(model, said("Draft it.")).text, interrupt("ok?")]}

    inner = line(reads, drafts).compile()

    def outer(state: State) -> State:
        return {"log": inner.invoke({"log": []})["log"]}

    run = engine.run(line(outer), {"log": []})
    run = engine.answer(run, "yes")

    assert engine.state_of(run)["log"] == ["answer 1", "answer 2", "yes"]
    assert model.times == 2


def test_a_pause_within_a_called_graph_binds_what_its_caller_was_told(engine: Engine) -> None:
    """The person answered the inner question; the outer node raises afterwards, and must meet the same answers."""
    model = Scripted()
    broken = [True]

    def asks(state: State) -> State:
        return {"log": [interrupt("ok?")]}

    inner = line(asks).compile()

    def outer(state: State) -> State:
        draft = ask_model(model, said("Draft it.")).text
        answer = inner.invoke({"log": []})["log"][-1]
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {"log": [draft, answer]}

    run = engine.run(line(outer), {"log": []})
    run = engine.answer(run, "yes")
    assert run.failure == Failure.NODE_ERROR
    run = engine.continue_(run)

    assert engine.state_of(run)["log"] == ["answer 1", "yes"]
    assert model.times == 1


def test_an_effect_within_a_called_graph_binds_what_its_caller_was_told(engine: Engine) -> None:
    """The inner node that made it has finished and is not visited again; its effect stands all the same."""
    model = Scripted()
    broken = [True, True]

    def makes(state: State) -> State:
        return {"effect": offer().effect_id}

    def fails(state: State) -> State:
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {}

    inner = line(makes, fails).compile()

    def outer(state: State) -> State:
        answer = ask_model(model, said("How many?")).text
        return {"log": [answer], "effect": inner.invoke({"log": []})["effect"]}

    run = engine.run(line(outer), {"log": []})
    for _ in range(2):
        assert run.failure == Failure.NODE_ERROR, run.failure_text
        run = engine.continue_(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    assert engine.state_of(run)["log"] == ["answer 1"]
    assert model.times == 1


# --- facts, tools, messages ------------------------------------------------------------------------------------------


def test_facts_and_tool_results_are_given_back_after_a_pause(engine: Engine) -> None:
    times = {"fact": 0, "tool": 0}

    def count(what: str) -> Callable[[], dict[str, Any]]:
        def read() -> dict[str, Any]:
            times[what] += 1
            return {what: times[what], "list": [1, None, "x"]}

        return read

    def reads(state: State) -> State:
        fact = recorded_fact("now", count("fact"))
        tool = recorded_tool("crm.find", {"id": 7}, count("tool"))
        return {"log": [fact, tool, interrupt("ok?")]}

    run = engine.run(line(reads), {"log": []})
    run = engine.answer(run, "yes")

    assert engine.state_of(run)["log"][:2] == [
        {"fact": 1, "list": [1, None, "x"]},
        {"tool": 1, "list": [1, None, "x"]},
    ]
    assert times == {"fact": 1, "tool": 1}
    assert sorted(Recording.objects.filter(run=run).values_list("kind", "name")) == [
        ("fact", "now"),
        ("tool", "crm.find"),
    ]


def test_what_was_said_and_answered_is_sealed_in_the_database(engine: Engine) -> None:
    def reads(state: State) -> State:
        recorded_tool("crm.find", {"email": "ada@harborpine.example"}, lambda: {"phone": "+44 20 7946 0000"})
        return {}

    run = engine.run(line(reads))
    recording = Recording.objects.get(run=run)

    assert b"harborpine" not in bytes(recording.request)
    assert b"7946" not in bytes(recording.answer)


def test_a_message_is_posted_once_however_often_its_node_runs(engine: Engine) -> None:
    broken = [True]
    ids: list[str] = []

    def replies(state: State) -> State:
        ids.append(post_message("Thank you.", author="Agent"))
        post_message("One more thing.", key="second")
        interrupt("ok?")
        if broken:
            broken.pop()
            raise ValueError("boom")
        return {}

    run = engine.run(line(replies), {"log": []})
    run = engine.answer(run, "yes")
    run = engine.continue_(run)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    posted = Message.objects.filter(run_id=run.id).order_by("at")
    assert [message.text for message in posted] == ["Thank you.", "One more thing."]
    assert len(ids) == 3
    assert len(set(ids)) == 1


def test_each_pass_of_a_loop_posts_its_own_message(engine: Engine) -> None:
    def turn(state: Turn) -> Turn:
        post_message(f"Turn {state.get('turns', 0)}")
        return {"turns": state.get("turns", 0) + 1}

    graph = line(turn, schema=Turn)
    graph.add_conditional_edges(
        "turn", lambda state: "turn" if state["turns"] < 3 else "__end__", ["turn", "__end__"]
    )
    run = engine.run(graph)

    assert run.status == RunStatus.COMPLETED, run.failure_text
    texts = Message.objects.filter(run_id=run.id).values_list("text", flat=True)
    assert sorted(texts) == ["Turn 0", "Turn 1", "Turn 2"]


def test_an_approval_binds_what_the_model_had_said(engine: Engine) -> None:
    """The node asks for an approval of what a model drafted: woken, it proposes the same, and the grant stands."""
    model = Scripted()

    def drafts(state: State) -> State:
        amount = 100 * (1 + model_number(ask_model(model, said("How much?")).text))
        decided = ask_approval(offer(kind="test.asked_offer", amount=amount))
        return {"log": [amount, decided.approved]}

    run = engine.run(line(drafts), {"log": []})
    (approval,) = engine.asked(run)
    engine.decide(approval)
    run = engine.go(run)

    assert engine.state_of(run)["log"] == [200, True]
    assert Effect.objects.get(run_id=run.id).revision == 1


def model_number(answer: str) -> int:
    return int(answer.split()[-1])
