"""The lineage of a run: its root with every replay and branch that was made of it, as one tree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from runs.models import Run

#: A page holds so many runs of a lineage: the oldest, and always this one with those it was made from.
MOST = 300
#: Beside the journal stand the trees that fit there.
SHORT = 8


@dataclass(frozen=True)
class Family:
    """The runs of one root, oldest first. *more*: some are not shown."""

    runs: list[Run]
    more: bool

    @property
    def is_short(self) -> bool:
        return len(self.runs) <= SHORT


def family_of(run: Run) -> Family:
    """In one query, however many there are."""
    kin = (
        Run.objects.filter(root_run=run.root_run_id, workspace_id=run.workspace_id)
        .select_related("starter", "parent_checkpoint")
        .defer("input")
        .order_by("created_at", "id")
    )
    found = list(kin[: MOST + 1])
    more = len(found) > MOST
    runs = found[:MOST]
    known = {one.id for one in runs}
    at: Run | None = run if more else None
    while at is not None and at.id not in known:
        runs.append(at)
        known.add(at.id)
        at = at.parent_run
    return Family(runs, more)


def tree_of(run: Run, family: Family) -> dict[str, Any]:
    """As templates/components/lineage.html shows it, with *run* marked."""
    children: dict[str | None, list[Run]] = defaultdict(list)
    for one in family.runs:
        children[one.parent_run_id].append(one)
    nodes = {one.id: _node(one, run) for one in family.runs}
    for one in family.runs:
        nodes[one.id]["children"] = [nodes[child.id] for child in children[one.id]]
    return nodes.get(str(run.root_run_id)) or _node(run, run)


def _node(one: Run, this: Run) -> dict[str, Any]:
    launched = one.parent_checkpoint is not None
    return {
        "id": one.id,
        "href": reverse("run", args=[one.workspace_id, one.id]),
        "state": one.status,
        "kind": one.kind,
        "mode": one.mode,
        "why": one.launch_reason,
        "who": one.starter.name,
        "at": one.created_at,
        "kept": _kept(one),
        "this": one.id == this.id,
        "of": one.parent_run_id if launched else "",
        "children": [],
    }


def _kept(run: Run) -> str:
    """Up to where it holds what its parent did."""
    checkpoint = run.parent_checkpoint
    if checkpoint is None:
        return ""
    if checkpoint.number < 0:
        return "the input"
    nodes = ", ".join(str(node) for node in checkpoint.nodes)
    return f"all up to step {checkpoint.number}" + (f" ({nodes})" if nodes else "")
