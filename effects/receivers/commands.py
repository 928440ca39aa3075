"""What a receiver says of one effect, as a finding: of its object, or of a command that is on its way to one.

Look-ups, polls and webhooks all end here, so that one sentence of a receiver means the same however it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from effects.contracts import EffectContract
from effects.receivers.answers import Finding
from effects.receivers.reading import differs, reference_of
from effects.wires import HttpWire, Progress, at


def failed(progress: Progress, command: Any) -> str:
    """In words, that the command has failed at the receiver, and its reason."""
    why = progress.why(command).strip().rstrip(".")
    return f"The receiver says that it has failed{f': {why}' if why else ', and not why'}."


def under_way(progress: Progress | None, command: Any) -> str:
    """In words, that the receiver has the command and has not said how it ends."""
    if progress is None:
        return "The receiver has taken it; how it ends comes later."
    return f"The receiver says {progress.field} is {at(command, progress.field)!r}, which is not final."


def command_number(wire: HttpWire, command: Any) -> str:
    """The receiver's own number of a command that it has accepted; empty where it gave none that can be kept."""
    name = wire.command or wire.reference
    return reference_of(wire, command, "", name) if name else ""


def of_command(
    contract: EffectContract,
    wire: HttpWire,
    progress: Progress,
    command: Mapping[str, Any],
    *,
    sent: Mapping[str, Any],
    key: str,
    object_at: str = "",
    named: str = "",
) -> Finding:
    """Of the command with exactly this *key*: failed, under way, or what its object says, at *object_at* in it.

    *named*: what the receiver's own id is called there, where that is otherwise than in the answer to the sending.
    """
    state = progress.of(command)
    if state == "failed":
        return Finding("failed", sentence=failed(progress, command))
    if state == "under_way":
        return Finding("under_way", command_number(wire, command), sentence=under_way(progress, command))
    one = at(command, object_at) if object_at else command
    if not isinstance(one, Mapping):
        return Finding("unclear", sentence="The receiver says that it is completed, but does not show it.")
    return _of_final_object(contract, wire, one, sent=sent, key=key, named=named)


def of_object(
    contract: EffectContract,
    wire: HttpWire,
    one: Mapping[str, Any],
    *,
    sent: Mapping[str, Any],
    key: str,
    named: str = "",
) -> Finding:
    """Of the object with exactly this *key*; where the wire names its progress, it may not be final yet."""
    if wire.progress is None:
        return _of_final_object(contract, wire, one, sent=sent, key=key, named=named)
    if differing := differs(contract, sent, one, shown_only=True):
        return Finding("mismatch", reference_of(wire, one, key, named), one, f"{differing}.")
    return of_command(contract, wire, wire.progress, one, sent=sent, key=key, named=named)


def _of_final_object(
    contract: EffectContract,
    wire: HttpWire,
    one: Mapping[str, Any],
    *,
    sent: Mapping[str, Any],
    key: str,
    named: str,
) -> Finding:
    reference = reference_of(wire, one, key, named)
    if differing := differs(contract, sent, one):
        return Finding("mismatch", reference, one, f"{differing}.")
    if not reference:
        return Finding("unclear", sentence=f"The receiver has it, but names no usable {wire.reference}.")
    return Finding("found", reference, one, f"The receiver has it as {reference}.")
