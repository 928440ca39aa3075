"""Two runs side by side: where their paths part, and what differs at each place that both came by.

Rows of the two runs in, aligned rows out. Places are told by the number of the step, the node, and which of several:
a replay keeps the numbers of what it was made from, and its rows begin where it begins. What a branch (or a migration)
wrote as a checkpoint of its own is no step: the numbers after it are counted without it. Every value has come through
runs.inspection, which masks it.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable, unseal_json
from effects.models import Effect, EffectRevision, WouldHave
from effects.selectors import payload_of, revision_of
from runs.inspection import (
    Apart,
    Change,
    Difference,
    Print,
    Unreadable,
    Veil,
    answers_apart,
    payload_difference,
    prints_of,
    states_apart,
)
from runs.models import Checkpoint, Recording, Run, Step
from runs.states import FINAL, RunStatus, StepOutcome

#: So much of each run is aligned; what lies beyond is said.
MAX_STEPS = 400
MAX_CHECKPOINTS = 200
MAX_ANSWERS = 200
MAX_EFFECTS = 200
#: So many bytes of state are read to say in which fields it differs; whether it differs is known of all.
MAX_READ = 8_000_000
#: So many fields of one difference stand on the page.
MAX_FIELDS = 40
#: Texts are compared word by word up to so many words each.
MAX_WORDS = 1_500
#: Words that are the same are folded where more than these stand between two differences.
AROUND = 12

#: What may follow a checkpoint without a step: a state that was written by hand.
_WRITTEN = ("update", "fork")


class Where(StrEnum):
    """In which of the two runs something is."""

    BOTH = "both"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, order=True)
class Level:
    """One step of a place: in which superstep, which node, which of several of it."""

    number: int
    node: str
    nth: int = 0


#: The outermost graph's level first.
Place = tuple[Level, ...]
#: Where a checkpoint is: the task whose graph it belongs to, and its number there.
_Key = tuple[Place, int]


@dataclass(frozen=True)
class Task:
    """One task of a run through all its goes. *seconds*: at work, without the pauses between; None while it runs."""

    place: Place
    outcome: StepOutcome
    goes: int
    seconds: float | None
    step_id: str

    @property
    def node(self) -> str:
        return self.place[-1].node


T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """What stands at one place. *earlier*: the run that lacks it began after it, so that this is no difference."""

    first: T | None
    second: T | None
    earlier: bool = False

    @property
    def where(self) -> Where:
        if self.second is None:
            return Where.FIRST
        return Where.SECOND if self.first is None else Where.BOTH

    @property
    def either(self) -> T:
        found = self.first if self.first is not None else self.second
        assert found is not None
        return found


@dataclass(frozen=True)
class StepRow(Row[Task]):
    """A task of one run beside that of the other. *parts*: here the paths part."""

    place: Place = ()
    parts: bool = False

    @property
    def number(self) -> int:
        return self.place[-1].number

    @property
    def inside(self) -> str:
        """The nodes that it lies within, outermost first; empty in the outermost graph."""
        return " › ".join(level.node for level in self.place[:-1])


class Sameness(StrEnum):
    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Point(Row[Checkpoint]):
    """A checkpoint of one run beside that of the other at the same place."""

    number: int = 0
    inside: str = ""
    nodes: tuple[str, ...] = ()
    sameness: Sameness = Sameness.UNKNOWN
    changes: Sequence[Change] = ()
    more_changes: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Piece:
    """A stretch of a text: in both (same), in the first alone (gone), in the second alone (new), or left out."""

    kind: str
    text: str


@dataclass(frozen=True)
class Passage:
    """One field of two answers, word by word. *note* says what is not shown."""

    path: str
    pieces: Sequence[Piece]
    note: str = ""


@dataclass(frozen=True)
class Answer(Row[Recording]):
    """What one run was answered beside what the other was. *asked_alike*: by the bytes of the question."""

    node: str = ""
    number: int = 0
    sameness: Sameness = Sameness.UNKNOWN
    asked_alike: bool = True
    passages: Sequence[Passage] = ()
    problem: str = ""


@dataclass(frozen=True)
class Sent:
    """An effect, or what a replay would have sent. *shown*: its payload as people may see it."""

    row: Effect | WouldHave
    shown: JSONValue

    @property
    def is_real(self) -> bool:
        return isinstance(self.row, Effect)

    @property
    def id(self) -> str:
        return self.row.id


@dataclass(frozen=True)
class EffectRow(Row[Sent]):
    """*sameness* is that of the bytes to send, by their hash; *changes* is what may be seen of a difference."""

    node: str = ""
    number: int = 0
    sameness: Sameness = Sameness.UNKNOWN
    changes: Sequence[Change] = ()
    more_changes: bool = False


@dataclass(frozen=True)
class Ending:
    """Whether both ended with the same state. *fields*: the outermost ones that differ. *why*: why it can't be told."""

    sameness: Sameness
    fields: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """All of it. *parting* is the row at which the paths part; *shorter* the run that has gone less far on the same path."""

    first: Run
    second: Run
    steps: list[StepRow]
    points: list[Point]
    answers: list[Answer]
    effects: list[EffectRow]
    ending: Ending
    shorter: Where | None = None
    cut: list[str] = field(default_factory=list)

    @property
    def parting(self) -> StepRow | None:
        return next((row for row in self.steps if row.parts), None)


def compare(first: Run, second: Run) -> Comparison:
    """Align two runs. Reads only; never raises for what their rows hold."""
    cut: list[str] = []
    one, other = _Trace(first, cut), _Trace(second, cut)
    steps, shorter = _paths(one, other)
    points, ending = _states(one, other, cut)
    return Comparison(
        first=first,
        second=second,
        steps=steps,
        points=points,
        answers=_answers(one, other),
        effects=_effects(one, other),
        ending=ending,
        shorter=shorter,
        cut=list(dict.fromkeys(cut)),
    )


# -- one run's rows, by place ------------------------------------------------------------------------------------

#: Where something was asked or intended: around it (node, superstep before it), its own step, node and path.
_Spot = tuple[tuple[tuple[str, int], ...], int, str, str]


class _Trace:
    """What a run's rows say about where it has been."""

    def __init__(self, run: Run, cut: list[str]) -> None:
        self.run = run
        self._cut = cut

    def taken(self, rows: Iterable[T], most: int, what: str) -> list[T]:
        """At most so many; that there are more is said."""
        found = list(islice(rows, most + 1))
        if len(found) > most:
            self._cut.append(f"Of {self.run.id} the first {most:,} {what} are compared; it has more.")
        return found[:most]

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        found = self.taken(
            self.run.checkpoints.order_by("engine_id", "id").iterator(), MAX_CHECKPOINTS, "checkpoints"
        )
        for checkpoint in found:
            checkpoint.run = self.run
        return found

    @cached_property
    def written(self) -> list[int]:
        """The numbers of the outermost checkpoints that were written by hand."""
        return [one.number for one in self.checkpoints if not one.namespace and one.source in _WRITTEN]

    def counted(self, number: int) -> int:
        """A number of the outermost graph, as if nothing had been written by hand before it."""
        return number - sum(written <= number for written in self.written)

    @cached_property
    def _steps(self) -> dict[tuple[str, str], list[Step]]:
        """The goes of each task, in the order of their first one."""
        tasks: dict[tuple[str, str], list[Step]] = {}
        steps = self.run.steps.order_by("started_at", "id").iterator()
        for step in self.taken(steps, MAX_STEPS, "steps"):
            tasks.setdefault((step.namespace, step.task_id), []).append(step)
        return tasks

    @cached_property
    def tasks(self) -> dict[Place, Task]:
        found = [_task(self._place_of[key], goes) for key, goes in self._steps.items()]
        return {task.place: replace(task, outcome=self._outcome(task)) for task in found}

    def _outcome(self, task: Task) -> StepOutcome:
        """Done where a checkpoint holds its work, also when its last go ended with its worker."""
        return StepOutcome.DONE if (task.place[:-1], task.place[-1].number) in self._saved else task.outcome

    @cached_property
    def _saved(self) -> set[_Key]:
        return {(self.place_around(one), self.number_of(one)) for one in self.checkpoints}

    @cached_property
    def _place_of(self) -> dict[tuple[str, str], Place]:
        """Each task's place. A subgraph's namespace ends with the id of the task that called it."""
        places: dict[tuple[str, str], Place] = {}
        counts: Counter[tuple[Place, int, str]] = Counter()
        for (namespace, task_id), goes in sorted(self._steps.items(), key=lambda item: item[0][0].count("|")):
            around = self._around(namespace, places)
            number = goes[0].number if namespace else self.counted(goes[0].number)
            several = (around, number, goes[0].node)
            places[namespace, task_id] = (*around, Level(number, goes[0].node, counts[several]))
            counts[several] += 1
        return places

    @staticmethod
    def _around(namespace: str, places: Mapping[tuple[str, str], Place]) -> Place:
        if not namespace:
            return ()
        outer, _, segment = namespace.rpartition("|")
        node, _, task_id = segment.partition(":")
        return places.get((outer, task_id)) or (Level(_UNKNOWN, node),)

    def place_around(self, checkpoint: Checkpoint) -> Place:
        """The task whose graph the checkpoint belongs to; empty for the outermost graph."""
        return self._around(checkpoint.namespace, self._place_of)

    def number_of(self, checkpoint: Checkpoint) -> int:
        return checkpoint.number if checkpoint.namespace else self.counted(checkpoint.number)

    @cached_property
    def copied(self) -> list[Checkpoint]:
        """What it was made from, outermost first: no execution of its own wrote these."""
        return sorted(
            (one for one in self.checkpoints if one.fence == 0 and one.source not in _WRITTEN),
            key=lambda one: len(one.namespace),
        )

    def began_after(self, place: Place) -> bool:
        """Whether the run was made from a state that already held the work of *place*."""
        begun = {self.place_around(one): self.number_of(one) for one in self.copied}
        return any(
            place[:depth] in begun and level.number <= begun[place[:depth]]
            for depth, level in enumerate(place)
        )

    def spot(self, place: Mapping[str, Any]) -> _Spot | None:
        """Where a recording or a command was made; None where its row does not say."""
        if not isinstance(place.get("step"), int):
            return None
        around = [
            (str(name), _UNKNOWN if before is None else int(before))
            for name, before in place.get("namespaces") or [(place.get("node", ""), None)]
        ]
        step = int(place["step"])
        if len(around) == 1:
            step = self.counted(step)
        around[0] = (around[0][0], self.counted(around[0][1]))
        return (tuple(around), step, str(place.get("node", "")), str(place.get("path", "")))

    def spot_is_earlier(self, spot: _Spot | None) -> bool:
        """As began_after."""
        if spot is None:
            return False
        begun: dict[tuple[tuple[str, int], ...], int] = {}
        chain: tuple[tuple[str, int], ...] = ()
        for one in self.copied:
            if one.namespace and begun:
                node = one.namespace.rpartition("|")[2].partition(":")[0]
                chain = (*chain, (node, begun[chain]))
            begun[chain] = self.number_of(one)
        around, step, _, _ = spot
        numbers = [*(before + 1 for _, before in around[:-1]), step]
        return any(
            around[:depth] in begun and number <= begun[around[:depth]]
            for depth, number in enumerate(numbers)
        )


#: A number that the rows do not tell.
_UNKNOWN = -2


def _task(place: Place, goes: Sequence[Step]) -> Task:
    running = any(go.ended_at is None for go in goes)
    worked = sum((go.ended_at - go.started_at).total_seconds() for go in goes if go.ended_at is not None)
    return Task(place, StepOutcome(goes[-1].outcome), len(goes), None if running else worked, goes[-1].id)


# -- the path ------------------------------------------------------------------------------------------------------


def _paths(one: _Trace, other: _Trace) -> tuple[list[StepRow], Where | None]:
    """The tasks in order, and which run has gone less far on the same path, if they do not part."""
    rows: list[StepRow] = []
    parted = False
    shorter: Where | None = None
    for place in sorted({*one.tasks, *other.tasks}):
        first, second = one.tasks.get(place), other.tasks.get(place)
        lacks = one if first is None else other if second is None else None
        earlier = lacks is not None and lacks.began_after(place)
        parts = False
        if lacks is not None and not earlier and not parted:
            if _got_that_far(lacks, place):
                parts = parted = True
            else:
                shorter = shorter or (Where.FIRST if lacks is one else Where.SECOND)
        rows.append(StepRow(first, second, earlier, place, parts))
    return rows, None if parted else shorter


def _got_that_far(trace: _Trace, place: Place) -> bool:
    """Whether the run went on beyond the place without coming by, so that it took another way."""
    beside = [other for other in trace.tasks if other[:-1] == place[:-1]]
    if any(other[-1].number >= place[-1].number for other in beside):
        return True
    if len(place) == 1:
        return trace.run.status == RunStatus.COMPLETED
    around = trace.tasks.get(place[:-1])
    return around is not None and around.outcome == StepOutcome.DONE


# -- the state -----------------------------------------------------------------------------------------------------


def _states(one: _Trace, other: _Trace, cut: list[str]) -> tuple[list[Point], Ending]:
    firsts, seconds = _by_place(one), _by_place(other)
    both = (key for key in firsts.keys() & seconds.keys() if _same_work(one, other, key))
    common = sorted(both, key=_in_time)
    try:
        prints = {
            **prints_of(one.run, one.checkpoints),
            **prints_of(other.run, other.checkpoints),
        }
    except Unreadable as why:
        points = [_point(one, key, firsts[key], seconds[key], problem=str(why)) for key in common]
        return points, Ending(Sameness.UNKNOWN, why=str(why))
    reading = _Reading(prints, cut)
    points = [reading.point(one, key, firsts[key], seconds[key]) for key in common]
    return points, _ending(one, other, reading)


def _in_time(key: _Key) -> tuple[float, ...]:
    """A subgraph's checkpoints before the one that is saved after it."""
    around, number = key
    return (*(level.number - 0.5 for level in around), number)


def _by_place(trace: _Trace) -> dict[_Key, Checkpoint]:
    """The newest checkpoint at each place: one that was written by hand stands for the one it was written on."""
    return {(trace.place_around(one), trace.number_of(one)): one for one in trace.checkpoints}


def _nodes_at(trace: _Trace, key: _Key) -> tuple[str, ...]:
    """Whose work the checkpoint was saved after: every task of its step, also one whose worker was lost with it saved."""
    around, number = key
    return tuple(
        sorted(place[-1].node for place in trace.tasks if place[:-1] == around and place[-1].number == number)
    )


def _same_work(one: _Trace, other: _Trace, key: _Key) -> bool:
    """Whether both checkpoints were saved after the same nodes; where a run begins only its copy knows."""
    first, second = _nodes_at(one, key), _nodes_at(other, key)
    return first == second or not first or not second


def _point(trace: _Trace, key: _Key, first: Checkpoint, second: Checkpoint, **found: Any) -> Point:
    around, number = key
    inside = " › ".join(level.node for level in around)
    counts = Counter(_nodes_at(trace, key))
    nodes = tuple(node if count == 1 else f"{node} ×{count}" for node, count in counts.items())
    return Point(first, second, number=number, inside=inside, nodes=nodes, **found)


class _Reading:
    """Compares states by their prints, and reads those that differ while the budget of bytes lasts."""

    def __init__(self, prints: Mapping[str, Print], cut: list[str]) -> None:
        self._prints = prints
        self._cut = cut
        self._left = MAX_READ
        self._known: dict[tuple[str, str], Difference | None] = {}

    def differs(self, first: Checkpoint, second: Checkpoint) -> Difference | None:
        """What differs; None where the budget is used up."""
        key = (first.id, second.id)
        if key not in self._known:
            self._known[key] = self._read(first, second)
        return self._known[key]

    def _read(self, first: Checkpoint, second: Checkpoint) -> Difference | None:
        one, other = self._prints.get(first.id), self._prints.get(second.id)
        if one is not None and other is not None:
            if one.fields == other.fields:
                return Difference([])
            self._left -= one.size + other.size
        if self._left < 0:
            self._cut.append(
                "The states are too large to say of each in which fields it differs; open the checkpoints."
            )
            return None
        return states_apart(first, second)

    def point(self, trace: _Trace, key: _Key, first: Checkpoint, second: Checkpoint) -> Point:
        found = self.differs(first, second)
        if found is None:
            return _point(trace, key, first, second, sameness=Sameness.DIFFERS)
        return _point(
            trace,
            key,
            first,
            second,
            sameness=_sameness(found),
            changes=found.changes[:MAX_FIELDS],
            more_changes=found.more_changes or len(found.changes) > MAX_FIELDS,
            problem=found.problem,
        )


def _sameness(found: Difference) -> Sameness:
    if found.changes:
        return Sameness.DIFFERS
    return Sameness.UNKNOWN if found.problem else Sameness.SAME


def _ending(one: _Trace, other: _Trace, reading: _Reading) -> Ending:
    """Of the newest checkpoints of both outermost graphs, where both runs have ended."""
    open_ = [trace.run for trace in (one, other) if trace.run.status not in FINAL]
    if open_:
        which = "Neither run has" if len(open_) == 2 else f"{_letter(one, open_[0])} has not"
        return Ending(Sameness.UNKNOWN, why=f"{which} ended, so there are no two final states to compare.")
    newest = [
        trace.run.checkpoints.filter(namespace="").order_by("-engine_id").first() for trace in (one, other)
    ]
    if newest[0] is None or newest[1] is None:
        return Ending(Sameness.UNKNOWN, why="A run that ended without a checkpoint has no final state.")
    first, second = newest[0], newest[1]
    first.run, second.run = one.run, other.run
    found = reading.differs(first, second)
    if found is None:
        return Ending(Sameness.DIFFERS)
    fields = dict.fromkeys(re.split(r"[.\[]", change.path, maxsplit=1)[0] for change in found.changes)
    return Ending(_sameness(found), tuple(fields), found.problem)


def _letter(one: _Trace, run: Run) -> str:
    return "A" if run is one.run else "B"


# -- what was answered ---------------------------------------------------------------------------------------------


def _answers(one: _Trace, other: _Trace) -> list[Answer]:
    """By place, kind, name and the so-many-th of these: a question that changed stands beside what it was."""
    firsts, seconds = _recordings(one), _recordings(other)
    veils = (Veil(one.run), Veil(other.run))
    rows = []
    for key in _in_order(firsts, seconds):
        first, second = firsts.get(key), seconds.get(key)
        lacks = one if first is None else other if second is None else None
        rows.append(_answer(key, first, second, lacks is not None and lacks.spot_is_earlier(key[0]), veils))
    return rows


_Asked = tuple[_Spot | None, str, str, int]


def _recordings(trace: _Trace) -> dict[_Asked, Recording]:
    rows = (
        trace.run.recordings.filter(dropped_at=None)
        .select_related("run")
        .order_by("started_at", "id")
        .iterator()
    )
    found: dict[_Asked, Recording] = {}
    counts: Counter[tuple[_Spot | None, str, str]] = Counter()
    for row in trace.taken(rows, MAX_ANSWERS, "recorded answers"):
        several = (trace.spot(row.place), str(row.kind), row.name)
        found[*several, counts[several]] = row
        counts[several] += 1
    return found


K = TypeVar("K", bound=tuple[Any, ...])


def _in_order(firsts: Mapping[K, Any], seconds: Mapping[K, Any]) -> list[K]:
    """The places of both, in the order of the graph; those without a place last."""

    def order(key: K) -> tuple[Any, ...]:
        spot = key[0]
        if spot is None:
            return (1, [], *key[1:])
        around, step, node, path = spot
        return (0, [*((before + 1, name) for name, before in around[:-1]), (step, node)], path, *key[1:])

    return sorted({*firsts, *seconds}, key=order)


def _answer(
    key: _Asked, first: Recording | None, second: Recording | None, earlier: bool, veils: Sequence[Veil]
) -> Answer:
    spot = key[0]
    node, number = (spot[2], spot[1]) if spot else ("", 0)
    if first is None or second is None:
        return Answer(first, second, earlier, node, number)
    found = answers_apart(first, second, veils)
    passages = [_passage(apart) for apart in found.fields[:MAX_FIELDS]]
    same = Sameness.UNKNOWN if found.problem else Sameness.DIFFERS if passages else Sameness.SAME
    alike = first.request_hash == second.request_hash
    return Answer(first, second, False, node, number, same, alike, passages, found.problem)


_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def _passage(apart: Apart) -> Passage:
    if apart.protected:
        return Passage(apart.path, [Piece("same", apart.one or "")], "protected, differs")
    if apart.one is None or apart.other is None:
        gone = apart.one is not None
        text = (apart.one if gone else apart.other) or ""
        return Passage(apart.path, [Piece("gone" if gone else "new", _shortened(text))])
    return words_apart(apart.path, apart.one, apart.other)


def _shortened(text: str) -> str:
    most = MAX_WORDS * 6
    return text if len(text) <= most else f"{text[:most]}…"


def words_apart(path: str, one: str, other: str) -> Passage:
    """Two texts word by word; long stretches that are the same are left out between the differences."""
    first, second = _WORD.findall(one), _WORD.findall(other)
    note = ""
    if max(len(first), len(second)) > MAX_WORDS:
        note = f"The first {MAX_WORDS:,} words are compared."
        first, second = first[:MAX_WORDS], second[:MAX_WORDS]
    pieces: list[Piece] = []
    blocks = _blocks(first, second)
    for n, (same, before, after) in enumerate(blocks):
        if same:
            pieces += _same_words(before, begins=n == 0, ends=n == len(blocks) - 1)
            continue
        pieces += [Piece("gone", "".join(before))] if before else []
        pieces += [Piece("new", "".join(after))] if after else []
    if not any(piece.kind in ("gone", "new") for piece in pieces):
        note = f"They differ after the first {MAX_WORDS:,} words."
    return Passage(path, pieces, note)


def _blocks(first: Sequence[str], second: Sequence[str]) -> list[tuple[bool, list[str], list[str]]]:
    """Stretches of words that are the same, or not. A blank between two differences belongs to them."""
    blocks: list[tuple[bool, list[str], list[str]]] = []
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    opcodes = matcher.get_opcodes()
    for n, (tag, a, b, c, d) in enumerate(opcodes):
        between = 0 < n < len(opcodes) - 1
        same = tag == "equal" and not (between and "".join(first[a:b]).isspace())
        if blocks and not same and not blocks[-1][0]:
            blocks[-1][1].extend(first[a:b])
            blocks[-1][2].extend(second[c:d])
        else:
            blocks.append((same, list(first[a:b]), list(second[c:d])))
    return blocks


def _same_words(words: Sequence[str], *, begins: bool, ends: bool) -> list[Piece]:
    before = 0 if begins else AROUND
    after = 0 if ends else AROUND
    if len(words) <= before + after + AROUND:
        return [Piece("same", "".join(words))]
    head, tail = words[:before], words[len(words) - after :]
    between = sum(bool(word.strip()) for word in words[before : len(words) - after])
    left_out = Piece("left_out", f"{between:,} words the same")
    return [*([Piece("same", "".join(head))] if head else []), left_out] + (
        [Piece("same", "".join(tail))] if after else []
    )


# -- effects, and what would have been sent --------------------------------------------------------------------------

_Intended = tuple[_Spot | None, str, str, str]


def _effects(one: _Trace, other: _Trace) -> list[EffectRow]:
    firsts, seconds = _sent(one), _sent(other)
    rows = []
    for key in _in_order(firsts, seconds):
        first, second = firsts.get(key), seconds.get(key)
        lacks = one if first is None else other if second is None else None
        rows.append(_effect(key, first, second, lacks is not None and lacks.spot_is_earlier(key[0])))
    return rows


def _sent(trace: _Trace) -> dict[_Intended, Sent]:
    """By place, effect type and command key. Of what would have been sent several times the newest counts."""
    real = (
        Effect.objects.filter(run_id=trace.run.id, workspace_id=trace.run.workspace_id)
        .select_related("command", "receiver", "workspace")
        .order_by("created_at", "id")
        .iterator()
    )
    would = (
        WouldHave.objects.filter(run_id=trace.run.id, workspace_id=trace.run.workspace_id)
        .order_by("created_at", "id")
        .iterator()
    )
    effects = trace.taken(real, MAX_EFFECTS, "effects")
    revisions = EffectRevision.objects.filter(effect__in=effects).only("effect_id", "n", "shown")
    shown = {(one.effect_id, one.n): one.shown for one in revisions}
    found: dict[_Intended, Sent] = {}
    for effect in effects:
        spot = trace.spot({**effect.command.place, "node": effect.command.node})
        key = (spot, effect.effect_type, effect.command.command_key, "" if spot else effect.id)
        found[key] = Sent(effect, shown.get((effect.id, effect.revision)))
    for row in trace.taken(would, MAX_EFFECTS, "would-be effects"):
        spot = trace.spot({**row.place, "node": row.node})
        found[spot, row.effect_type, row.command_key, "" if spot else row.id] = Sent(row, row.shown)
    return found


def _effect(key: _Intended, first: Sent | None, second: Sent | None, earlier: bool) -> EffectRow:
    node, number = (key[0][2], key[0][1]) if key[0] else ("", 0)
    if first is None or second is None:
        return EffectRow(first, second, earlier, node, number)
    if first.row.request_hash == second.row.request_hash:
        return EffectRow(first, second, False, node, number, Sameness.SAME)
    found = payload_difference((_whole(first), first.shown), (_whole(second), second.shown))
    return EffectRow(
        first,
        second,
        False,
        node,
        number,
        Sameness.DIFFERS,
        found.changes[:MAX_FIELDS],
        found.more_changes or len(found.changes) > MAX_FIELDS,
    )


def _whole(sent: Sent) -> JSONValue:
    """The payload with protected fields, to be compared and never shown; what is shown where it can't be opened."""
    row = sent.row
    open_: Callable[[], JSONValue] = (
        (lambda: payload_of(row, revision_of(row)))
        if isinstance(row, Effect)
        else (lambda: unseal_json(row.payload, workspace=row.workspace_id, owner=row.run_id))
    )
    try:
        return open_()
    except (Undecryptable, ValueError, TypeError):
        return sent.shown
