"""Answers from outside, recorded once and given back when their task runs again."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.utils import timezone

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal_json, unseal_json
from runs.engine.going import Stopped, current_task
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
    stored = Recording.objects.filter(
        run_id=going.run_id,
        position=task.position,
        kind=kind,
        request_hash=hashed,
        nth=nth,
        dropped_at=None,
    ).first()
    if stored is None:
        began = timezone.now()
        answer = ask()
        with transaction.atomic():
            try:
                going.hold()
            except Exception as lost:
                task.stops.append(lost)
                raise Stopped(str(lost)) from lost
            stored = Recording.objects.create(
                run_id=going.run_id,
                position=task.position,
                place=task.place,
                kind=kind,
                name=name,
                input_class=input_class,
                request_hash=hashed,
                nth=nth,
                fence=going.fence,
                request=seal_json(request, workspace=going.workspace_id, owner=going.run_id),
                answer=seal_json(answer, workspace=going.workspace_id, owner=going.run_id),
                source_version=source_version,
                started_at=began,
            )
    if kind == Recorded.MODEL:
        task.last_recording = stored.id
    return unseal_json(stored.answer, workspace=going.workspace_id, owner=going.run_id)
