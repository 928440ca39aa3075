"""What a live replay or branch may not send: irreversible types, until a releaser has permitted them on its page.

The ledger knows nothing of runs, and a person's order goes out without one. So whoever keeps the runs says here which
of them are fresh, and what each is permitted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from effects.states import Reversibility

#: Which of these runs are live replays or branches, each with the irreversible types that it is permitted.
Reader = Callable[[Collection[str]], Mapping[str, frozenset[str]]]

_readers: list[Reader] = []


def told_by(reader: Reader) -> None:
    """Said once, at start, by the package that keeps the runs."""
    _readers[:] = [reader]


def fresh_runs(run_ids: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Those of *run_ids* that are fresh, each with what it is permitted. RuntimeError before anybody has said who knows."""
    if not _readers:
        raise RuntimeError("nobody has said which runs are live replays or branches: effects.fresh.told_by")
    return _readers[0](run_ids)


def why_blocked(effect_type: str, reversibility: str, permitted: frozenset[str] | None) -> str:
    """Why an effect of this type may not be sent, in words; empty where it may.

    *permitted*: the types that its run is permitted; None where the run is no live replay or branch.
    """
    if permitted is None or reversibility != Reversibility.IRREVERSIBLE or effect_type in permitted:
        return ""
    return (
        f"{effect_type} cannot be undone, and its run is a live replay or branch: "
        "a releaser has to permit this type on this run first."
    )
