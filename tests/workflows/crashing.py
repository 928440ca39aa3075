"""Kills the worker process that imports it, with SIGKILL, at a named point of a run that asks for it. Once a run.

It wraps the product's own functions, so that the product knows nothing of it. Only workers started with
SIGNALBOX_TEST_CRASHES (a folder for the marks of what was killed) do it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

POINTS = (
    "before_intent_commits",
    "after_intent_commits",
    "after_attempt_commits",
    "after_receiver_commits",
    "after_result_is_saved",
    "after_checkpoint",
    "before_ack",
)


def install() -> None:
    if not os.environ.get("SIGNALBOX_TEST_CRASHES"):
        return
    from effects import ledger, receivers
    from runs import execution
    from runs.engine.saver import FencedSaver

    _wrap(ledger, "save_revision", after="before_intent_commits", run=lambda effect, *_a, **_k: effect.run_id)
    _wrap(ledger, "propose", after="after_intent_commits", run=lambda origin, *_a, **_k: origin.run_id)
    _wrap(
        receivers,
        "deliver",
        before="after_attempt_commits",
        after="after_receiver_commits",
        run=lambda _contract, effect, *_a, **_k: effect.run_id,
    )
    _wrap(ledger, "settle", after="after_result_is_saved", run=lambda effect, *_a, **_k: effect.run_id)
    _wrap(
        FencedSaver,
        "put",
        after="after_checkpoint",
        run=lambda saver, _config, checkpoint, *_a, **_k: (
            saver.run_id if "references" in checkpoint["channel_values"] else ""
        ),
    )
    _wrap(execution, "execute", after="before_ack", run=lambda run_id: run_id)


def _wrap(owner: Any, name: str, *, run: Callable[..., str], before: str = "", after: str = "") -> None:
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run_id = run(*args, **kwargs)
        if before:
            _kill_at(before, run_id)
        result = original(*args, **kwargs)
        if after:
            _kill_at(after, run_id)
        return result

    setattr(owner, name, wrapped)


def _kill_at(point: str, run_id: str) -> None:
    if not run_id or point != _asked(run_id):
        return
    mark = Path(os.environ["SIGNALBOX_TEST_CRASHES"]) / run_id
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _asked(run_id: str) -> str:
    from runs.models import Run
    from runs.selectors import input_of

    given = input_of(Run.objects.get(id=run_id))
    return str(given.get("kill", "")) if isinstance(given, dict) else ""
