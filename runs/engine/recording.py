"""Answers from outside, recorded once and given back when their task runs again."""

from __future__ import annotations

from collections.abc import Callable

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal_json, unseal_json
from effects.origin import OriginLost
from runs.engine.going import Stopped, Task, current_task
from runs.models import Recorded, Recording
from runs.states import InputClass


def recorded(
    kind: Recorded,
    name: str,
    request: JSONValue,
    ask: Callable[[], JSONValue],
    *,
    input_class: InputClass = InputClass.RECORDED,
    source_version: str = "",
) -> JSONValue:
    """The answer to *request* at this place: the recorded one, or *ask*'s, which is then recorded.

    Found by position, kind, the request's hash and how many times the task has made that request. Errors are never
    recorded. Raises Stopped when the run is no longer ours by the time the answer is there.
    """
    task = current_task()
    hashed = request_hash(canonicalise([kind.value, name, request]))
    nth = task.asked[hashed]
    task.asked[hashed] += 1
    going = task.going
    key = {
        "run_id": going.run_id,
        "position": task.position,
        "kind": kind,
        "request_hash": hashed,
        "nth": nth,
    }
    stored = Recording.objects.filter(**key, dropped_at=None).first()
    if stored is None:
        began = timezone.now()
        answer = ask()
        with transaction.atomic():
            _hold(task)
            stored = Recording.objects.create(
                **key,
                place=task.place,
                name=name,
                input_class=input_class,
                fence=going.fence,
                request=seal_json(request, workspace=going.workspace_id, owner=going.run_id),
                answer=seal_json(answer, workspace=going.workspace_id, owner=going.run_id),
                source_version=source_version,
                started_at=began,
            )
    if kind == Recorded.MODEL:
        task.last_recording = stored.id
    return unseal_json(stored.answer, workspace=going.workspace_id, owner=going.run_id)


def _hold(task: Task) -> None:
    """Lock the run's row, or stop in a way that the guard sees even if the node catches it."""
    try:
        task.going.hold()
    except (OriginLost, OperationalError, InterfaceError) as lost:
        task.stops.append(lost)
        raise Stopped(str(lost)) from lost
