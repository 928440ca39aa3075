"""The Compare page: two runs side by side. Its address names both; it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import Actor
from console.pages import in_workspace
from runs import comparing
from runs.comparing import Answer, Comparison, EffectRow, Point, Sameness, StepRow, Where
from runs.forms import ComparedRuns
from runs.models import Run
from runs.selectors import run_seen_by, to_stand_beside
from runs.states import StepOutcome
from runs.views.journal import STEP_STATES
from runs.views.runs import took

#: The words of a step's outcome; one that stands at a pause waits, or waited when its run ended.
_STATES = {**STEP_STATES, StepOutcome.PAUSED: "waiting"}


@require_safe
@in_workspace()
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """``?a=&b=``. Without *b* it asks for a second run; the same run twice is refused (422), saying so."""
    asked = ComparedRuns.read(request.GET)
    first = run_seen_by(actor, asked.first_id)
    related, others = to_stand_beside(actor, first)
    context: dict[str, Any] = {
        "nav": "runs",
        "first": first,
        "related": related,
        "others": others,
        "chosen": asked.second_id or (related[0].id if related else ""),
    }
    if not asked.second_id:
        return render(request, "runs/compare.html", context)
    if asked.second_id == first.id:
        return render(request, "runs/compare.html", {**context, "same_twice": True}, status=422)
    second = run_seen_by(actor, asked.second_id)
    return render(request, "runs/compare.html", {**context, **_shown(comparing.compare(first, second))})


def _shown(found: Comparison) -> dict[str, Any]:
    differing = [answer for answer in found.answers if _is_difference(answer)]
    return {
        "found": found,
        "second": found.second,
        "sides": [_side("A", found.first), _side("B", found.second)],
        "verdict": verdict(found),
        "workflows": workflows_differ(found.first, found.second),
        "steps": [StepShown(row) for row in found.steps],
        "points": folded(found.points),
        "differing_points": sum(point.sameness == Sameness.DIFFERS for point in found.points),
        "answers": differing,
        "alike": [answer for answer in found.answers if answer not in differing],
        "effects": found.effects,
    }


def _side(letter: str, run: Run) -> dict[str, Any]:
    return {"letter": letter, "run": run, "took": took(run)}


# -- in words --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The whole of it in a sentence or two: *title* about the end, *text* about the way there."""

    title: str
    text: str
    tone: str
    icon: str


_LOOKS = {
    Sameness.SAME: ("done", "circle-check"),
    Sameness.DIFFERS: ("warn", "split"),
    Sameness.UNKNOWN: ("", "info"),
}


def verdict(found: Comparison) -> Verdict:
    tone, icon = _LOOKS[found.ending.sameness]
    return Verdict(_end_in_words(found), " ".join(_way_in_words(found)), tone, icon)


def _end_in_words(found: Comparison) -> str:
    ending = found.ending
    if ending.sameness == Sameness.SAME:
        return "The final state is identical."
    if ending.sameness == Sameness.DIFFERS:
        named = _listed(ending.fields)
        return f"The final states differ in {named}." if named else "The final states differ."
    return ending.why


def _way_in_words(found: Comparison) -> list[str]:
    return [
        _path_in_words(found),
        _counted(found.answers, "answer", "No recorded answer differs."),
        _counted(found.effects, "effect", "What was, or would have been, sent is the same."),
    ]


def _path_in_words(found: Comparison) -> str:
    if not found.first.steps.exists() or not found.second.steps.exists():
        return "One of them has taken no step."
    if row := found.parting:
        run, other = ("A", "B") if row.where == Where.FIRST else ("B", "A")
        return f"The paths part at step {row.number}: {run} goes to {row.either.node}, {other} does not."
    if found.shorter:
        run = "A" if found.shorter == Where.FIRST else "B"
        return f"The path is the same as far as {run} has gone."
    return "Both took the same path."


def _is_difference(row: Answer | EffectRow) -> bool:
    if row.where != Where.BOTH:
        return not row.earlier
    return row.sameness != Sameness.SAME


def _counted(rows: Sequence[Answer | EffectRow], what: str, none: str) -> str:
    number = sum(map(_is_difference, rows))
    if not rows:
        return f"Neither has {'an' if what[0] in 'ae' else 'a'} {what} to compare."
    if not number:
        return none
    return f"One {what} differs." if number == 1 else f"{number} {what}s differ."


def _listed(names: Sequence[str], most: int = 4) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more fields"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def workflows_differ(first: Run, second: Run) -> str:
    """Said above everything: what differs may come from the workflow itself. Empty where it is the same."""
    if first.workflow.name != second.workflow.name:
        return f"Different workflows: A ran {first.workflow}, B ran {second.workflow}."
    if first.workflow_id != second.workflow_id:
        return f"Different versions of {first.workflow.name}: A ran {first.workflow.version}, B ran {second.workflow.version}."
    if first.fingerprint != second.fingerprint:
        return f"{first.workflow} was made of other code when B began than when A did."
    return ""


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepShown:
    row: StepRow

    @property
    def cells(self) -> list[dict[str, Any]]:
        return [self._cell("A", self.row.first), self._cell("B", self.row.second)]

    def _cell(self, letter: str, task: comparing.Task | None) -> dict[str, Any]:
        return {"letter": letter, "task": task, "state": _STATES[task.outcome] if task else ""}


@dataclass(frozen=True)
class Points:
    """Points that stand together: one that differs, or several that are the same."""

    points: list[Point]
    same: bool
    is_open: bool

    @property
    def only(self) -> Point:
        return self.points[0]

    @property
    def last(self) -> Point:
        return self.points[-1]


def folded(points: Sequence[Point]) -> list[Points]:
    """Neighbours that are the same under one fold; the first that differs stands open."""
    shown: list[Points] = []
    is_open = True
    for same, group in groupby(points, key=lambda point: point.sameness == Sameness.SAME):
        if same:
            shown.append(Points(list(group), same=True, is_open=False))
            continue
        for point in group:
            shown.append(Points([point], same=False, is_open=is_open))
            is_open = False
    return shown
