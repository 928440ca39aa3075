"""Answers from outside, recorded once and given back when their task runs again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal_json, unseal_json
from effects.origin import OriginLost
from effects.states import NEVER_SENDS, Stance
from runs.engine.going import Stopped, Task, Unrecorded, current_task
from runs.models import Asked, Recorded, Recording
from runs.states import InputClass


@dataclass(frozen=True)
class _Call:
    """What is asked, at its place: by this a recording is found again."""

    task: Task
    kind: Recorded
    name: str
    request: JSONValue
    request_hash: str
    nth: int

    @property
    def key(self) -> dict[str, Any]:
        return {
            "position": self.task.position,
            "kind": self.kind,
            "request_hash": self.request_hash,
            "nth": self.nth,
        }


def recorded(
    kind: Recorded,
    name: str,
    request: JSONValue,
    ask: Callable[[], JSONValue],
    *,
    double: Callable[[], JSONValue] | None = None,
    source_version: str = "",
) -> JSONValue:
    """The answer to *request* at this place: the recorded one, or *ask*'s, which is then recorded.

    Found by position, kind, the request's hash and how many times the task has made that request. Errors are never
    recorded. A replay in evidence or simulation gives back what the run that it was made from was answered; what that
    was never asked is asked nobody: Unrecorded stops the run. Raises Stopped when the run is no longer ours by the
    time the answer is there.
    """
    task = current_task()
    hashed = request_hash(canonicalise([kind.value, name, request]))
    call = _Call(task, kind, name, request, hashed, task.asked[hashed])
    task.asked[hashed] += 1
    going = task.going
    stored = Recording.objects.filter(**call.key, run_id=going.run_id, dropped_at=None).first()
    if stored is None:
        stored = _answered(call, ask, double, source_version)
    if kind == Recorded.MODEL:
        task.last_recording = stored.id
    return unseal_json(stored.answer, workspace=going.workspace_id, owner=going.run_id)


def _answered(
    call: _Call, ask: Callable[[], JSONValue], double: Callable[[], JSONValue] | None, source_version: str
) -> Recording:
    """The answer, from where this run's mode says it comes, recorded for this run."""
    going = call.task.going
    began = timezone.now()
    if going.stance in NEVER_SENDS and not (call.kind == Recorded.MODEL and going.models_asked):
        source = _recorded_before(call)
        if source is not None:
            answer = unseal_json(source.answer, workspace=going.workspace_id, owner=source.run_id)
            return _keep(call, answer, InputClass.RECORDED, source.source_version, began, source)
        if going.stance == Stance.EVIDENCE or (call.kind != Recorded.FACT and double is None):
            raise call.task.stop(_unrecorded(call))
        if double is not None:
            return _keep(call, double(), InputClass.REPEATABLE, "double", began)
    return _keep(call, ask(), InputClass.LIVE, source_version, began)


def _recorded_before(call: _Call) -> Recording | None:
    """What the run that this one was made from was answered.

    In evidence at exactly this place. A simulation may stand a step off, since an edit is a step of its own: there the
    same request of the same node is the same fact.
    """
    going = call.task.going
    recorded = Recording.objects.filter(run_id=going.lineage.source_id, dropped_at=None)
    exact = recorded.filter(**call.key).first()
    if exact is not None or going.stance == Stance.EVIDENCE:
        return exact
    same = recorded.filter(kind=call.kind, request_hash=call.request_hash, place__node=call.task.node)
    return same.order_by("started_at", "id").first()


def _keep(
    call: _Call,
    answer: JSONValue,
    input_class: InputClass,
    source_version: str,
    began: datetime,
    source: Recording | None = None,
) -> Recording:
    going = call.task.going
    sealed = {"workspace": going.workspace_id, "owner": going.run_id}
    with transaction.atomic():
        _hold(call.task)
        return Recording.objects.create(
            **call.key,
            run_id=going.run_id,
            place=call.task.place,
            name=call.name,
            input_class=input_class,
            fence=going.fence,
            request=seal_json(call.request, **sealed),
            answer=seal_json(answer, **sealed),
            source_version=source_version,
            source=source,
            started_at=began,
        )


def _unrecorded(call: _Call) -> Unrecorded:
    """In words, with what the recording holds at this place instead."""
    task = call.task
    at_this_place = Recording.objects.filter(
        run_id=task.going.lineage.source_id, position=task.position, kind=call.kind, dropped_at=None
    ).order_by("started_at", "id")
    # The same call of the node, as far as one can tell: the so-many-th of its kind.
    made = sum(count for hashed, count in task.asked.items() if hashed != call.request_hash) + call.nth
    nearest = at_this_place.filter(name=call.name)[made : made + 1].first() or at_this_place.first()
    word = Recorded(call.kind).label.lower()
    what = f"The {word} of {call.name}" if call.name else f"A {word}"
    return Unrecorded(
        f"{what} was asked something else than what was recorded here."
        if nearest
        else f"{what} was never recorded here.",
        node=task.node,
        place=task.place,
        kind=Asked(call.kind),
        name=call.name,
        asked=call.request,
        recorded_id=nearest.id if nearest else "",
    )


def _hold(task: Task) -> None:
    """Lock the run's row, or stop in a way that the guard sees even if the node catches it."""
    try:
        task.going.hold()
    except (OriginLost, OperationalError, InterfaceError) as lost:
        raise task.stop(Stopped(str(lost))) from lost
