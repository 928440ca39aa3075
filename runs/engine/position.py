"""Where in a graph a task stands: the same when it runs again, different for another pass, sibling or subgraph."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.runnables import RunnableConfig

from console.kernel.ids import position_hash


def _superstep(checkpoint_id: str) -> int:
    """A checkpoint id is a UUIDv6 whose clock sequence is the superstep; all ones is -1, the input."""
    sequence = int(checkpoint_id[19:23], 16) & 0x3FFF
    return -1 if sequence == 0x3FFF else sequence


def place_of(config: RunnableConfig) -> dict[str, Any]:
    """The place, readable. No random id is in it: namespaces are stripped of theirs and carry their parent's step."""
    metadata = config["metadata"]
    checkpoints = config["configurable"].get("checkpoint_map") or {}
    segments: list[list[Any]] = []
    above = ""
    for segment in str(metadata["langgraph_checkpoint_ns"]).split("|"):
        segments.append(
            [segment.split(":")[0], _superstep(checkpoints[above]) if above in checkpoints else None]
        )
        above = f"{above}|{segment}" if above else segment
    return {
        "namespaces": segments,
        "step": metadata["langgraph_step"],
        "node": metadata["langgraph_node"],
        "path": json.dumps(metadata["langgraph_path"], default=str),
    }


def position_of(place: dict[str, Any]) -> str:
    """The hash by which commands and recordings are found again."""
    return position_hash(json.dumps(place, sort_keys=True, separators=(",", ":")))
