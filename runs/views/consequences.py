"""What a lever will do, as templates/components/consequences.html says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from effects import rounds
from effects.models import Approval, Effect
from effects.states import UNSENT, ApprovalStatus, EffectStatus, SubState
from runs.commands.continue_run import Preview
from runs.models import Pause, Run
from runs.selectors import run_approvals
from runs.states import RunStatus
from runs.views.reading import MAX_ROWS, effects_of

Item = dict[str, str]


_BOUND = "with the model and tool answers that it has got"
_ANEW = "from its start; it asks models and tools anew"


def of_continue(preview: Preview) -> dict[str, Any]:
    """What is done and kept, what runs, each effect with what the ledger will do, and who holds the version."""
    workers = {0: "no worker that is alive holds it", 1: "held by 1 worker"}.get(
        preview.workers, f"held by {preview.workers} workers"
    )
    done = list(dict.fromkeys(preview.done))
    return {
        "keeps": [
            *([{"what": ", ".join(done), "how": "finished; never run again"}] if done else []),
            *(
                _effect(effect, f"made already{_reference(effect)}; never made again")
                for effect in preview.kept
            ),
        ],
        "runs": [{"what": node, "how": _BOUND if node in preview.bound else _ANEW} for node in preview.runs]
        or [{"what": "what comes next in the graph", "how": ""}],
        "effects": [_effect(plan.effect, plan.what) for plan in preview.effects]
        or [{"what": "No effect is open", "how": "later steps may make new ones, as the workflow says"}],
        "live": bool(preview.effects),
        "version": f"{preview.version}, {workers}.",
        "no_worker": preview.workers == 0,
    }


def of_ask_again(run: Run, questions: Sequence[Pause]) -> dict[str, Any]:
    """Whose answers are taken back, and what runs then. Nothing is sent for it."""
    asked = rounds.newest_rounds(run.id)
    of_pauses = {pause.interrupt_id for pause in questions}
    return {
        "runs": [
            {
                "what": node,
                "how": "from its start, with the model and tool answers that it has got; then it asks",
            }
            for node in dict.fromkeys(pause.node for pause in questions)
        ],
        "people": [
            {
                "what": approval.title,
                "how": f"is asked of {approval.asked_of or 'the approvers'} in round {approval.round + 1}",
                "state": approval.status,
                "table": "approval",
            }
            for approval in asked
            if approval.interrupt_id in of_pauses
        ],
        "stays": ["What was answered before, with who answered it: it is part of the run's history."],
        "failed": run.failure_text.strip().splitlines()[-1:] or [""],
    }


def of_pause(run: Run) -> dict[str, Any]:
    running = run.status == RunStatus.RUNNING
    return {
        "lead": "The step that is under way is finished; then the run stops."
        if running
        else "No worker is on it: the run stops at once.",
        "stays": [
            "Everything done so far, and every open approval: a decision is kept, and Continue delivers it."
        ],
    }


def of_cancel(run: Run) -> dict[str, Any]:
    """Exactly what is cancelled, what was sent and stays sent, and what nobody knows yet."""
    effects = list(effects_of(run)[:MAX_ROWS])
    asked = list(run_approvals(run).filter(status=ApprovalStatus.PENDING)[:MAX_ROWS])
    running = run.status == RunStatus.RUNNING
    return {
        "lead": "Its worker stops at the next safe point, and nothing is sent from now on. "
        if running
        else "The run ends now, for good. ",
        "effects": [
            _effect(effect, _on_cancel(effect)) for effect in effects if effect.status != EffectStatus.FAILED
        ],
        "people": [_approval(approval) for approval in asked],
        "stays": ["The journal, the checkpoints and the effect log of this run."],
    }


def _on_cancel(effect: Effect) -> str:
    if effect.status == EffectStatus.COMPLETED:
        return f"was sent{_reference(effect)} and stays sent"
    if effect.status == EffectStatus.ACCEPTED:
        return "was accepted by the receiver and may still come about"
    if effect.sub_state in UNSENT and not effect.unresolved:
        return "is cancelled: never sent"
    if effect.sub_state == SubState.IN_FLIGHT:
        return "is under way: it may still arrive, and its outcome is recorded"
    return "may have been sent: it stays open until the receiver has said so or a person has settled it"


def _effect(effect: Effect, how: str) -> Item:
    return {
        "what": f"{effect.effect_type} to {effect.recipient}" if effect.recipient else effect.effect_type,
        "how": how,
        "state": effect.sub_state or effect.status,
        "table": "effect",
    }


def _reference(effect: Effect) -> str:
    return f" ({effect.provider_reference})" if effect.provider_reference else ""


def _approval(approval: Approval) -> Item:
    return {
        "what": approval.title,
        "how": f"is closed and leaves the queue of {approval.asked_of or 'the approvers'}",
        "state": approval.status,
        "table": "approval",
    }
