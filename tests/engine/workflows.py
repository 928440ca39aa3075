"""Small graphs for the engine's tests, and a chat model that counts how often it is asked."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from pydantic import PrivateAttr
from typing_extensions import TypedDict

from effects.intents import Proposal
from runs.authoring import Workflow, propose
from runs.engine.position import place_of, position_of

_versions = itertools.count(1)

Node = Callable[..., Any]


class State(TypedDict, total=False):
    """What most of the tests' graphs carry."""

    log: Annotated[list[Any], operator.add]
    effect: str
    value: Any


Graph = StateGraph[State, None, State, State]


def line(*nodes: Node, schema: type[Any] = State, **options: Any) -> StateGraph[Any, Any, Any, Any]:
    """A graph of *nodes* one after the other, each named as its function; *options* go to every add_node."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(schema)
    before = START
    for node in nodes:
        graph.add_node(node.__name__, node, **options)
        graph.add_edge(before, node.__name__)
        before = node.__name__
    graph.add_edge(before, END)
    return graph


def beside(*nodes: Node, then: Node | None = None) -> StateGraph[Any, Any, Any, Any]:
    """A graph whose *nodes* run in one superstep; *then* runs after all of them."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    if then is not None:
        graph.add_node(then.__name__, then)
        graph.add_edge([node.__name__ for node in nodes], then.__name__)
    return graph


def workflow_of(graph: Any, *, name: str = "engine_test", version: str = "", **fields: Any) -> Workflow:
    """A workflow around *graph*. All tests share one name; each has a version of its own."""
    return Workflow(
        name=name,
        version=version or f"{os.getpid()}.{next(_versions)}",
        schema_version=1,
        graph=graph,
        title="Engine test",
        input_schema={"type": "object"},
        **fields,
    )


def nothing(state: State) -> State:
    return {}


def here(config: RunnableConfig) -> str:
    """The position of the node that is running."""
    return position_of(place_of(config))


def offer(command: str = "offer", *, kind: str = "test.offer_by_key", amount: int = 700) -> Proposal:
    """Propose an offer; *kind* ``test.asked_offer`` needs an approval."""
    return propose(
        kind,
        command=command,
        customer_id="cus_000001",
        subject="Seats",
        lines=[{"sku": "SEAT", "description": "Seat", "quantity": 1, "unit_minor": amount}],
        amount_minor=amount,
        currency="EUR",
    )


class Scripted(BaseChatModel):
    """Answers "answer 1", "answer 2" …, or what its script says; keeps what it was asked."""

    script: list[AIMessage] = []
    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def times(self) -> int:
        """How often it was really asked."""
        return len(self._asked)

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        self._asked.append(messages)
        message = self.script[self.times - 1] if self.script else AIMessage(f"answer {self.times}")
        return ChatResult(generations=[ChatGeneration(message=message)])


def said(text: str) -> list[BaseMessage]:
    return [HumanMessage(text)]


def calls(*arguments: dict[str, Any], tool: str = "open_ticket", prefix: str = "call") -> AIMessage:
    """A model's message that calls *tool* once for each of *arguments*."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": tool, "args": one, "id": f"{prefix}_{index}", "type": "tool_call"}
            for index, one in enumerate(arguments)
        ],
    )


def ticket(subject: str = "Broken") -> dict[str, Any]:
    return {"customer_id": "cus_000001", "subject": subject, "description": "It fails.", "priority": "normal"}
