"""Create branch: a new run from a checkpoint with edited state. The original's rows are only read.

What the edit leads to is computed first, in memory and outside of any transaction; what was computed is what is
written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from django.db import IntegrityError, transaction

from console.access import Actor
from console.kernel.canonical import JSONValue, request_hash
from console.kernel.crypto import seal_json
from console.kernel.errors import AlreadyDone, Invalid, Stale
from runs import selectors
from runs.availability import OperatorCommand, availability
from runs.commands.replay import (
    LONGEST_REASON,
    Launch,
    against_simulation,
    insert,
    record,
    same_launch,
)
from runs.engine.branching import (
    FIRST_NODE,
    Edit,
    Edited,
    StateField,
    edited,
    fields_of,
    workflow_of,
    write_edited,
)
from runs.engine.copying import NothingToCopy, copy_checkpoint
from runs.inspection import Change, difference_of_kept
from runs.models import BranchEdit, Checkpoint, Run
from runs.states import RunKind, RunMode

COMMANDS = {
    RunMode.SIMULATION: OperatorCommand.BRANCH_SIMULATION,
    RunMode.LIVE: OperatorCommand.BRANCH_LIVE,
}

__all__ = ["COMMANDS", "FIRST_NODE", "Edit", "Preview", "StateField", "branch", "editable", "preview"]


@dataclass(frozen=True)
class Preview:
    """What a branch would begin with: nothing of it is made yet.

    *nodes* are those that the edit may count as the output of; *held* came next because the node itself chose it.
    """

    as_node: str
    nodes: list[str]
    changes: list[Change]
    more_changes: bool
    next_nodes: list[str]
    next_before: list[str]
    held: list[str]


@dataclass(frozen=True)
class Editable:
    """What of a checkpoint's state may be edited, and which nodes an edit may count as the output of."""

    fields: dict[str, StateField]
    nodes: list[str]


def editable(actor: Actor, run_id: str, checkpoint_id: str) -> Editable:
    """Raises NotFound, Forbidden, AlreadyDone with the reason, Invalid where this checkpoint can't be edited."""
    source, checkpoint = _seen(actor, run_id, checkpoint_id)
    _offered(actor, source, RunMode.SIMULATION)
    nodes = _nodes(checkpoint)
    return Editable(fields_of(workflow_of(source)), nodes)


def preview(actor: Actor, run_id: str, checkpoint_id: str, *, edit: Edit, as_node: str = "") -> Preview:
    """What the edit changes and what then comes next. Makes nothing. Raises what :func:`branch` raises of the edit."""
    source, checkpoint = _seen(actor, run_id, checkpoint_id)
    _offered(actor, source, RunMode.SIMULATION)
    nodes = _nodes(checkpoint)
    found = _edited(source, checkpoint, edit, as_node)
    changes, more = difference_of_kept(found.before, found.after, source.workflow.masks)
    return Preview(found.as_node, nodes, changes, more, found.next_nodes, found.next_before, found.held)


def branch(
    actor: Actor,
    run_id: str,
    checkpoint_id: str,
    *,
    edit: Edit,
    reason: str,
    token: str,
    mode: RunMode = RunMode.SIMULATION,
    as_node: str = "",
    models_asked: bool = False,
    shown_next: Sequence[str] | None = None,
    on_behalf_of: str = "",
) -> tuple[Run, bool]:
    """Make a run that goes on from a copy of the checkpoint with *edit* done to it. Returns it, and whether this call made it.

    *as_node*: the node whose output the edit counts as; needed where several ran side by side. *models_asked*: of a
    simulation; recorded answers fit only requests that the edit leaves the same. *shown_next*: what the person was shown to
    come next. The same token and input return the first one's run. Raises NotFound, Forbidden, AlreadyDone with the
    reason, Invalid, KeyReused, and Stale where something else would come next than was shown; then there is no run and
    no checkpoint.
    """
    source, checkpoint = _seen(actor, run_id, checkpoint_id)
    if mode not in COMMANDS:
        raise Invalid("A branch goes in simulation or live.", field="mode")
    launch = Launch(RunKind.BRANCH, mode, _reason(reason), token, models_asked and mode == RunMode.SIMULATION)
    asked = _digest(edit, as_node)
    if made := same_launch(actor, launch, checkpoint, asked):
        return made, False
    _offered(actor, source, mode)
    if mode == RunMode.SIMULATION and (refusals := against_simulation(source)):
        raise refusals[0]
    found = _edited(source, checkpoint, edit, as_node)
    if shown_next is not None and list(shown_next) != found.next_nodes:
        raise Stale("Something else would come next than was shown. Look at it again.")
    try:
        with transaction.atomic():
            run = insert(actor, source, checkpoint, launch, asked)
            copy_checkpoint(checkpoint, run)
            write_edited(found, checkpoint, run)
            _keep(run, found, edit)
            record(actor, run, source, checkpoint, launch, on_behalf_of=on_behalf_of)
    except NothingToCopy as gone:
        raise AlreadyDone(str(gone)) from gone
    except IntegrityError:
        made = same_launch(actor, launch, checkpoint, asked)
        if made is None:
            raise
        return made, False
    return run, True


def _seen(actor: Actor, run_id: str, checkpoint_id: str) -> tuple[Run, Checkpoint]:
    source = selectors.run_seen_by(actor, run_id)
    return source, selectors.checkpoint_seen_by(actor, run_id, checkpoint_id)


def _reason(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise Invalid("Say why: a branch is made for a reason.", field="reason")
    if len(reason) > LONGEST_REASON:
        raise Invalid(f"The reason is longer than {LONGEST_REASON} characters.", field="reason")
    if "\x00" in reason:
        raise Invalid("The reason holds the character U+0000, which can't be stored.", field="reason")
    return reason


def _digest(edit: Edit, as_node: str) -> str:
    """Of the edit as it was given. Not canonicalised: a whole number of any size is itself here."""
    return request_hash(json.dumps([edit, as_node], sort_keys=True).encode())


def _offered(actor: Actor, source: Run, mode: RunMode) -> None:
    offer = availability(source, actor)[COMMANDS[mode]]
    if not offer.available:
        raise offer.refusal(f"{COMMANDS[mode].label} is not possible")


def _nodes(checkpoint: Checkpoint) -> list[str]:
    """The nodes that an edit of this checkpoint may count as the output of. Raises Invalid where it can't be edited."""
    if checkpoint.namespace:
        raise Invalid(
            "This is a checkpoint of a graph inside a step. Edit the graph around it: branch from the checkpoint before "
            "that step.",
            field="checkpoint",
        )
    if checkpoint.number < 0:
        raise Invalid(
            "This is the input, before anything ran. Start a run with new input instead.", field="checkpoint"
        )
    nodes = selectors.nodes_that_led_to(checkpoint)
    if not nodes and checkpoint.number > 0:
        raise Invalid(
            "No step is known that led to this checkpoint, so an edit of it can't count as anything.",
            field="checkpoint",
        )
    return nodes or [FIRST_NODE]


def _edited(source: Run, checkpoint: Checkpoint, edit: Edit, as_node: str) -> Edited:
    nodes = _nodes(checkpoint)
    if not as_node and len(nodes) > 1:
        raise Invalid(
            f"{len(nodes)} nodes ran side by side before this checkpoint. Say whose output the edit counts as: "
            f"{', '.join(nodes)}.",
            field="as_node",
        )
    if as_node and as_node not in nodes:
        raise Invalid(
            f"The edit can't count as the output of that node. Valid here: {', '.join(nodes)}.",
            field="as_node",
        )
    workflow = workflow_of(source)
    try:
        return edited(workflow, checkpoint, edit, as_node=as_node or nodes[0], predecessors=nodes)
    except NothingToCopy as gone:
        raise AlreadyDone(str(gone)) from gone


def _keep(run: Run, found: Edited, edit: Edit) -> None:
    given = cast("JSONValue", {name: dict(ways) for name, ways in edit.items()})
    BranchEdit.objects.create(
        run=run,
        as_node=found.as_node,
        edit=seal_json(given, workspace=run.workspace_id, owner=run.id),
        next_nodes=found.next_nodes,
    )
