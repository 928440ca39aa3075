"""Kills the worker process that imports it, with SIGKILL, at a named point of a run that asks for it. Once a run.

It wraps the product's own functions, so that the product knows nothing of it. Only workers started with
SIGNALBOX_TEST_CRASHES (a folder for the marks of what was killed) do it. A run that asks for ``stop_`` and a point has
its worker stopped there (SIGSTOP) instead.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

POINTS = (
    "before_intent_commits",
    "after_intent_commits",
    "after_attempt_commits",
    "in_mid_body",
    "after_receiver_commits",
    "after_result_is_saved",
    "after_checkpoint",
    "after_look_up",
    "before_ack",
)
#: The run that this thread speaks to a receiver for.
_speaking = threading.local()


def install() -> None:
    if not os.environ.get("SIGNALBOX_TEST_CRASHES"):
        return
    from effects import intents, outcomes, receivers
    from effects.receivers import wire
    from runs import execution
    from runs.engine.saver import FencedSaver

    _wrap(
        intents,
        "save_revision",
        after="before_intent_commits",
        run=lambda effect, *_a, **_k: effect.run_id,
        knows=lambda effect, *_a, **_k: effect.id,
    )
    _wrap(intents, "propose", after="after_intent_commits", run=lambda origin, *_a, **_k: origin.run_id)
    _wrap(
        receivers,
        "deliver",
        before="after_attempt_commits",
        after="after_receiver_commits",
        run=lambda _contract, effect, *_a, **_k: effect.run_id,
    )
    _wrap(receivers, "look_up", after="after_look_up", run=lambda _contract, effect, *_a: effect.run_id)
    _tear_bodies(receivers, wire.DeadlineStream)
    _wrap(outcomes, "settle", after="after_result_is_saved", run=lambda effect, *_a, **_k: effect.run_id)
    _wrap(
        FencedSaver,
        "put",
        after="after_checkpoint",
        run=lambda saver, _config, checkpoint, *_a, **_k: (
            saver.run_id if "references" in checkpoint["channel_values"] else ""
        ),
    )
    _wrap(execution, "execute", after="before_ack", run=lambda run_id: run_id)


def _wrap(
    owner: Any,
    name: str,
    *,
    run: Callable[..., str],
    before: str = "",
    after: str = "",
    knows: Callable[..., str] = lambda *_a, **_k: "",
) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run_id = run(*args, **kwargs)
        if before:
            _kill_at(before, run_id)
        result = original(*args, **kwargs)
        if after:
            _kill_at(after, run_id, knows(*args, **kwargs))
        return result

    setattr(owner, name, wrapped)


def _tear_bodies(receivers: Any, stream: Any) -> None:
    """The head of a request leaves in one write and its body in the next, of which only the first half goes."""
    deliver, write = receivers.deliver, stream.write

    def delivered(contract: Any, effect: Any, *args: Any, **kwargs: Any) -> Any:
        _speaking.run_id, _speaking.writes = effect.run_id, 0
        try:
            return deliver(contract, effect, *args, **kwargs)
        finally:
            _speaking.run_id = ""

    def written(self: Any, buffer: bytes, timeout: float | None = None) -> None:
        if run_id := getattr(_speaking, "run_id", ""):
            _speaking.writes += 1
            if _speaking.writes == 2 and _asked(run_id) == "in_mid_body":
                half = len(buffer) // 2
                write(self, buffer[:half], timeout)
                _kill_at("in_mid_body", run_id)
                buffer = buffer[half:]
        write(self, buffer, timeout)

    receivers.deliver, stream.write = delivered, written


def _kill_at(point: str, run_id: str, knows: str = "") -> None:
    """Kill or stop this process, once a run; the mark holds what it *knows*, for those who come after it."""
    asked = _asked(run_id) if run_id else ""
    if asked not in (point, f"stop_{point}"):
        return
    mark = Path(os.environ["SIGNALBOX_TEST_CRASHES"]) / run_id
    try:
        with mark.open("x") as file:
            file.write(knows)
    except FileExistsError:
        return
    if asked.startswith("stop_"):
        # To this thread: sent to the process, another thread may take it, and this one would run on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def _asked(run_id: str) -> str:
    from runs.models import Run
    from runs.selectors import input_of

    run = Run.objects.filter(id=run_id).first()
    given = input_of(run) if run else None
    return str(given.get("kill", "")) if isinstance(given, dict) else ""
