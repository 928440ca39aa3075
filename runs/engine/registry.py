"""The workflows of the deployment: named, versioned graphs, from the dotted names in the settings.

What would fail silently later is refused here, at start, naming the workflow.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel
from pydantic import PydanticUserError

from effects.contracts import contract
from runs.engine.guard import Graph, guard_nodes


class WorkflowRefused(Exception):
    """A workflow can't be registered. The message names it and says why."""


@dataclass(frozen=True)
class Migration:
    """How the state of an earlier version becomes this one's, as its author declares it.

    *convert*: from the earlier version's state (plain values, by field) to the fields that change; None drops nothing.
    *nodes*: earlier node → this version's, for those that are called otherwise. *summary*: what it does, in words, for
    who decides about it.
    """

    summary: str
    convert: Callable[[dict[str, Any]], dict[str, Any]]
    nodes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Workflow:
    """A workflow as its author declares it.

    *graph*: an uncompiled StateGraph, or what create_agent returns. *effect_types*: the contracts it may use.
    *masks*: protected paths of its state. *step_seconds*: how long one node may run, the deployment's own limit
    without it; *node_seconds* for single nodes. *needs_conversation*: it posts to one. *to_state*: makes the graph's first state of the input.
    """

    name: str
    version: str
    schema_version: int
    graph: StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]
    title: str
    input_schema: Mapping[str, Any]
    summary: str = ""
    effect_types: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    needs_conversation: bool = False
    step_seconds: float | None = None
    node_seconds: Mapping[str, float] = field(default_factory=dict)
    to_state: Callable[[dict[str, Any]], dict[str, Any]] = field(default=dict)
    #: From which earlier versions a run may be migrated to this one.
    migrations: Mapping[str, Migration] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    def seconds_of(self, node: str) -> float:
        """How long *node* may run before its run fails with step_deadline."""
        return self.node_seconds.get(node, self.step_seconds or settings.STEP_SECONDS)

    @cached_property
    def compiled(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The graph, every node guarded, without a checkpointer: each execution brings its own."""
        graph = self.graph if isinstance(self.graph, Pregel) else self.graph.compile(name=self.name)
        _refuse_what_drifts(self, graph)
        guard_nodes(graph)
        return graph

    @cached_property
    def topology(self) -> dict[str, Any]:
        drawn = self.compiled.get_graph(xray=True).to_json()
        return {"nodes": drawn["nodes"], "edges": drawn["edges"]}

    @cached_property
    def state_schema(self) -> dict[str, Any]:
        try:
            return self.compiled.get_output_jsonschema()
        except PydanticUserError:
            # Before Python 3.12 pydantic reads no typing.TypedDict, which LangGraph itself takes: the names are known.
            names = sorted(str(name) for name in self.compiled.output_channels)
            return {"type": "object", "title": self.name, "properties": {name: {} for name in names}}

    @cached_property
    def fingerprint(self) -> str:
        """Of topology, schemas and the nodes' source: another one is another version."""
        parts = {
            "topology": self._shape,
            "input": dict(self.input_schema),
            "state": self.state_schema,
            "channels": {name: _channel(channel) for name, channel in sorted(self.compiled.channels.items())},
            "source": self._source,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return "fp1:" + hashlib.sha256(text.encode()).hexdigest()[:40]

    @cached_property
    def _shape(self) -> dict[str, Any]:
        return {
            "nodes": sorted(node["id"] for node in self.topology["nodes"]),
            "edges": sorted(f"{edge['source']}→{edge['target']}" for edge in self.topology["edges"]),
        }

    @cached_property
    def node_hashes(self) -> dict[str, str]:
        """Of each node's source, subgraphs' nodes under their own names within them."""
        return {
            name: hashlib.sha256(json.dumps(source, sort_keys=True, default=str).encode()).hexdigest()[:24]
            for name, source in self._source["nodes"].items()
        }

    @property
    def _source(self) -> dict[str, Any]:
        return _sources_of(self.graph.builder if isinstance(self.graph, CompiledStateGraph) else self.graph)


def _sources_of(graph: StateGraph[Any, Any, Any, Any]) -> dict[str, Any]:
    """The source of every node, of subgraphs' nodes, and of the functions that choose the way."""
    return {
        "nodes": {name: _source_of(spec.runnable) for name, spec in graph.nodes.items()},
        "routers": {
            f"{source}:{name}": _source_of(branch.path)
            for source, branches in graph.branches.items()
            for name, branch in branches.items()
        },
    }


def _channel(channel: Any) -> str:
    """The channel's kind, reducer and type. Reprs carry addresses, which differ in each process: they are left out."""
    reducer = getattr(channel, "operator", None)
    name = getattr(reducer, "__qualname__", "") if reducer else ""
    return _ADDRESS.sub("", f"{type(channel).__name__}:{name}:{getattr(channel, 'UpdateType', '')}")


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _source_of(runnable: Any) -> Any:
    if isinstance(runnable, CompiledStateGraph):
        return _sources_of(runnable.builder)
    function = getattr(runnable, "func", None) or getattr(runnable, "afunc", None) or runnable
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function)
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return f"{function.__module__}.{function.__qualname__}"


def _refuse_what_drifts(workflow: Workflow, graph: Graph) -> None:
    if graph.checkpointer is not None and graph.checkpointer is not False:
        raise WorkflowRefused(
            f"{workflow.id} brings a checkpointer of its own; its checkpoints would not be fenced"
        )
    for channel_name, channel in graph.channels.items():
        if type(channel).__name__ == "DeltaChannel":
            raise WorkflowRefused(
                f"{workflow.id} uses a DeltaChannel for {channel_name}; it copies to an empty value"
            )
    for name, subgraph in graph.get_subgraphs():
        if not isinstance(subgraph, Pregel):
            raise WorkflowRefused(
                f"{workflow.id}: the subgraph {name} runs elsewhere; its nodes can't be guarded"
            )
        if subgraph.checkpointer is True:
            raise WorkflowRefused(
                f"{workflow.id}: the subgraph {name} has checkpointer=True; it returns stale state after a crash"
            )
        _refuse_what_drifts(workflow, subgraph)
    for effect_type in workflow.effect_types:
        contract(effect_type)
    _refuse_middleware_not_last(workflow, graph)


def _refuse_middleware_not_last(workflow: Workflow, graph: Graph) -> None:
    """The middleware that proposes must come last: a later one would change what it proposed."""
    order = [name.split(".")[0] for name in graph.nodes if name.endswith(".after_model")]
    if "LedgerMiddleware" in order and order[-1] != "LedgerMiddleware":
        raise WorkflowRefused(f"{workflow.id}: LedgerMiddleware must be the last in the list of middleware")


@cache
def workflows() -> Mapping[str, Workflow]:
    """Every workflow of the deployment by ``name@version``. Raises WorkflowRefused, naming the one at fault."""
    found: dict[str, Workflow] = {}
    for dotted in settings.WORKFLOWS:
        try:
            workflow = import_string(dotted.replace(":", "."))
        except Exception as error:
            raise WorkflowRefused(f"workflow {dotted} can't be imported: {error}") from error
        if not isinstance(workflow, Workflow):
            raise WorkflowRefused(f"{dotted} is not a workflow but a {type(workflow).__name__}")
        if workflow.id in found:
            raise WorkflowRefused(f"{workflow.id} stands twice; the second is {dotted}")
        try:
            _ = workflow.fingerprint
        except WorkflowRefused:
            raise
        except Exception as error:
            raise WorkflowRefused(f"workflow {dotted} can't be compiled: {error}") from error
        found[workflow.id] = workflow
    return found
