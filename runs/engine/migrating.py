"""The engine's part of Migrate the state: a declared migration from an earlier version, first computed, then written.

The same run goes on from a checkpoint of its own that the migration made. What the earlier version kept is read as plain
values: its code need not be here. The new version's edges and routers say what comes next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.types import Overwrite, StateUpdate

from console.kernel.errors import Invalid
from runs.engine.branching import Edited, at, fields_of, in_memory_of, reading, told_by
from runs.engine.copying import NothingToCopy
from runs.engine.registry import Migration, Workflow
from runs.engine.saver import StateRefused, refuse_unreadable
from runs.models import Checkpoint

_TRIGGER = "branch:to:"
_INTERNAL = ("__", _TRIGGER, "join:")


def migrated(
    source: Checkpoint, target: Workflow, migration: Migration, *, predecessors: Sequence[str]
) -> Edited:
    """Compute what *migration* makes of the checkpoint, as the output of the nodes that led to it. Nothing is written.

    Raises NothingToCopy; Invalid, naming it, for what the migration gives that does not fit *target*.
    """
    stored = reading(target).get_tuple(at(source))
    if stored is None:
        raise NothingToCopy("The engine has no state for this checkpoint any more.")
    values = {
        name: value
        for name, value in stored.checkpoint["channel_values"].items()
        if not name.startswith(_INTERNAL)
    }
    changed = _converted(target, migration, values)
    memory = in_memory_of(target, source, _renamed(stored.checkpoint, target, migration), stored.metadata)
    graph = target.compiled.copy({"checkpointer": memory})
    standing = graph.get_state(at(source))
    nodes = [migration.nodes.get(node, node) for node in predecessors]
    if gone := sorted(set(nodes) - set(target.compiled.nodes)):
        raise Invalid(
            f"The step before, {', '.join(gone)}, is not in {target.id}, and the migration renames it to none."
        )
    update = {name: _set(target, name, value) for name, value in changed.items()}
    try:
        written = graph.bulk_update_state(
            at(source), [[StateUpdate(update, nodes[0]), *(StateUpdate({}, one) for one in nodes[1:])]]
        )
    except Exception as error:
        # A router of the workflow may raise anything; its words may hold what is protected.
        raise Invalid(
            f"What comes next in {target.id} can't be computed from the migrated state: a choice of the workflow raised "
            f"{type(error).__name__}."
        ) from error
    saved, _, new_versions = memory.puts[-1]
    try:
        refuse_unreadable(reading(target), saved, new_versions)
    except StateRefused as refused:
        raise Invalid(f"The migration gives what can't be kept: {refused}.") from refused
    return told_by(memory, graph.get_state(written), standing, before=values, as_node=nodes[0])


def _converted(target: Workflow, migration: Migration, values: Mapping[str, Any]) -> dict[str, Any]:
    """The migration is the author's code: what it raises is told by its kind alone, since its words may hold values."""
    try:
        changed = migration.convert(deepcopy(dict(values)))
    except Exception as error:
        raise Invalid(f"The migration to {target.id} raised {type(error).__name__} on this state.") from error
    if not isinstance(changed, dict):
        raise Invalid(f"The migration to {target.id} gives no fields but a {type(changed).__name__}.")
    if unknown := sorted(set(changed) - set(fields_of(target))):
        raise Invalid(
            f"The migration gives {', '.join(unknown)}, which the state of {target.id} does not have."
        )
    return changed


def _renamed(checkpoint: Any, target: Workflow, migration: Migration) -> Any:
    """The checkpoint in the new version's names; what that version has no channel for stays behind."""
    known = target.compiled.channels

    def name_of(channel: str) -> str:
        if not channel.startswith(_TRIGGER):
            return channel
        node = channel.removeprefix(_TRIGGER)
        return f"{_TRIGGER}{migration.nodes.get(node, node)}"

    def kept(by_channel: Mapping[str, Any]) -> dict[str, Any]:
        return {name_of(name): one for name, one in by_channel.items() if name_of(name) in known}

    return {
        **checkpoint,
        "channel_values": kept(checkpoint["channel_values"]),
        "channel_versions": kept(checkpoint["channel_versions"]),
        "versions_seen": {
            migration.nodes.get(node, node): kept(seen) for node, seen in checkpoint["versions_seen"].items()
        },
        "updated_channels": None,
    }


def _set(target: Workflow, name: str, value: Any) -> Any:
    """A migration says what a field is, not what is added to it."""
    joins = isinstance(target.compiled.channels[name], BinaryOperatorAggregate)
    return Overwrite(value) if joins else value
