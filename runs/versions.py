"""The version check: whether what a run was made with is still there, and if not, what is and what does not fit.

It never guesses. Same version and code: go. Otherwise there are three ways out: a worker that holds the old version, a
declared migration of the state, or a person's review of what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now

from console.models import Worker
from runs.models import Run, WorkflowVersion
from runs.selectors import ALIVE, held

#: The workers that are alive: whether each is a replayer, and the versions that it holds.
Alive = tuple[tuple[bool, frozenset[str]], ...]


def alive() -> Alive:
    """One question to the rows of the workers."""
    rows = Worker.objects.filter(stopped_at=None, last_seen__gt=Now() - ALIVE)
    return tuple(
        (replayer, frozenset(versions)) for replayer, versions in rows.values_list("replayer", "versions")
    )


@dataclass(frozen=True)
class Holders:
    """Who is there for a run: workers that hold exactly its version, and the versions of its workflow that others hold."""

    workers: int
    others: tuple[str, ...]

    @property
    def drifted(self) -> bool:
        """Workers hold this workflow, and none of them as this run was made. Without any worker it merely waits."""
        return not self.workers and bool(self.others)


def holders_of(run: Run, there: Alive, *, apart: bool) -> Holders:
    """*apart*: among replayers, or among live workers."""
    wanted = held(run.workflow, run.fingerprint)
    held_by = [versions for replayer, versions in there if replayer == apart]
    same_workflow = {
        one for versions in held_by for one in versions if one.startswith(f"{run.workflow.name}@")
    }
    return Holders(
        workers=sum(wanted in versions for versions in held_by),
        others=tuple(sorted(same_workflow - {wanted})),
    )


def in_the_way(run: Run, there: Alive, *, apart: bool) -> str:
    """Why a run that drifted does not go on: which version it needs, and which there are. Empty: it may."""
    # Nobody is there: then it is not even asked which version it is.
    holders = holders_of(run, there, apart=apart) if there else Holders(0, ())
    if not holders.drifted:
        return ""
    names = [one.partition("#")[0] for one in holders.others]
    same = str(run.workflow)
    if same in names:
        return f"the code of {same} has changed since it was made, and workers have only the changed one"
    return f"it was made with {same}, and workers have only {', '.join(dict.fromkeys(names))}"


def misfits(run: Run, target: WorkflowVersion, *, next_nodes: Iterable[str]) -> list[str]:
    """In words, what of a run would not fit *target*: nodes gone or changed, state fields gone or retyped.

    Empty does not mean that it fits: what a changed node means is for the author of a migration to say.
    """
    found = [f"The next step is {node}, which {target} does not have." for node in _gone(target, next_nodes)]
    old, new = run.workflow.node_hashes, target.node_hashes
    found += [f"The node {node} is gone." for node in sorted(set(old) - set(new))]
    found += [
        f"The node {node} is new: a run past its place has never been there."
        for node in sorted(set(new) - set(old))
    ]
    found += [
        f"The code of the node {node} is another."
        for node in sorted(old)
        if node in new and old[node] != new[node]
    ]
    before, after = _fields(run.workflow), _fields(target)
    found += [
        f"The state's {name} is gone: what it holds would be dropped."
        for name in sorted(set(before) - set(after))
    ]
    found += [
        f"The state's {name} is {_type(after[name])} now, and was {_type(before[name])}."
        for name in sorted(before)
        if name in after and _type(before[name]) != _type(after[name])
    ]
    return found


def _gone(target: WorkflowVersion, next_nodes: Iterable[str]) -> list[str]:
    return sorted(set(next_nodes) - set(target.node_hashes))


def _fields(version: WorkflowVersion) -> Mapping[str, Any]:
    properties = version.state_schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type")
    if kind == "array":
        return f"a list of {_type(schema.get('items'))}"
    return str(kind) if kind else "anything"


def other_versions(run: Run, there: Alive) -> list[WorkflowVersion]:
    """The other versions of its workflow that living workers hold, as they were first seen."""
    names = {one.partition("#")[0].partition("@")[2] for one in holders_of(run, there, apart=False).others}
    return list(
        WorkflowVersion.objects.filter(version__in=names, name=run.workflow.name).order_by("first_seen", "id")
    )
