"""Continue: the same run goes on to complete its obligation. Same run id, same effect ids."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone
from console.models import Capability
from effects import moves as effect_moves
from effects.models import Effect
from effects.selectors import sent_anew, stops_on
from effects.states import Dedup, EffectStatus, SubState
from runs import moves, selectors, waiting
from runs.availability import OperatorCommand, availability, nobody_works_on
from runs.models import Recording, Run, Step
from runs.states import StepOutcome


@dataclass(frozen=True)
class EffectPlan:
    """An effect that is not final, and what the ledger will do with it."""

    effect: Effect
    what: str


@dataclass(frozen=True)
class Preview:
    """What Continue will do, before anything is done. *bound*: nodes that get their recorded answers back."""

    done: list[str]
    runs: list[str]
    bound: frozenset[str]
    effects: list[EffectPlan]
    kept: list[Effect]
    version: str
    workers: int


def preview(run: Run) -> Preview:
    """Read what a Continue would find. Changes nothing and calls nobody outside."""
    steps = Step.objects.filter(run=run).order_by("started_at")
    done = [step.node for step in steps if step.outcome == StepOutcome.DONE]
    last = {step.node: step.outcome for step in steps}
    effects = list(Effect.objects.filter(run_id=run.id).select_related("receiver").order_by("created_at"))
    final = (EffectStatus.COMPLETED,)
    recorded = Recording.objects.filter(run=run, dropped_at=None)
    return Preview(
        done=done,
        runs=[node for node, outcome in last.items() if outcome != StepOutcome.DONE],
        bound=frozenset(recorded.values_list("place__node", flat=True)),
        effects=[
            EffectPlan(effect, plan_for(effect, run)) for effect in effects if effect.status not in final
        ],
        kept=[effect for effect in effects if effect.status in final],
        version=str(run.workflow),
        workers=selectors.workers_holding(run).count(),
    )


def plan_for(effect: Effect, run: Run) -> str:
    """In words, what the ledger will do with an effect that is not completed when *run* is continued."""
    if effect.reviews.filter(closed_at=None).exists():
        return "Stays in review: nothing is sent until a person has settled it."
    sub = SubState(effect.sub_state)
    if effect.status == EffectStatus.PENDING and (stops := stops_on(effect)):
        return f"Not sent: sending is stopped ({stops[0]}). {stops[0].reason}"
    if sub in (SubState.HELD, SubState.REFUSED) and effect.id != run.failure_effect:
        return "Stays as it is: the run did not fail for it."
    if Effect.objects.filter(sent_anew(), id=effect.id).exists():
        return "Not sent: people have sent another one in its place, and that one counts."
    if effect.successor_of_id or effect.compensates_id:
        return "Left to the order that made it; no run sends it."
    if sub == SubState.UNCERTAIN:
        if effect.dedup == Dedup.KEY:
            return "Sent again with the same key and the same bytes; the receiver tells it from a new one."
        if effect.dedup == Dedup.NONE:
            return "Stays in review: nothing is sent until a person has settled it."
        return "Looked up at the receiver first; sent only when it is proven absent."
    return {
        SubState.RECORDED: "Goes on as usual.",
        SubState.AWAITING_APPROVAL: "Still needs its approval; nothing is sent before it.",
        SubState.READY: "Sent once.",
        SubState.BACKOFF: "Tried again when it is due.",
        SubState.HELD: "Made ready and sent: it is proven that nothing was sent before.",
        SubState.REFUSED: "Made ready and sent again: the receiver refused it, so nothing exists.",
        SubState.IN_FLIGHT: "Under way; its outcome is awaited first.",
        SubState.REJECTED: "Stays rejected.",
        SubState.CANCELLED: "Stays cancelled.",
        SubState.NONE: "Accepted by the receiver; its final result is awaited.",
    }[sub]


def continue_run(actor: Actor, run_id: str, *, token: str) -> Run:
    """Queue the run for a worker. The same token again answers with what the first one did.

    Raises Forbidden, NotFound, AlreadyDone (409, with what happened) when it is not to be continued now.
    """
    actor.require(Capability.RUN)
    with transaction.atomic():
        run = _locked(actor, run_id)
        if audit.done_by_form(run.id, "run.continued", token):
            return run
        offer = availability(run, actor)[OperatorCommand.CONTINUE]
        if not offer.available:
            raise AlreadyDone(f"This run can't be continued: {offer.reason}.")
        if not moves.continue_(run.id) and not nobody_works_on(run):
            raise AlreadyDone("Somebody else moved this run just now. Look at it again.")
        # Only the one that it failed for: what a node has caught and dealt with stays as the receiver left it.
        made_ready = bool(run.failure_effect) and effect_moves.make_ready_again(run.failure_effect)
        audit.record(
            workspace_id=run.workspace_id,
            actor=actor.user,
            verb="run.continued",
            subject=run.id,
            run_id=run.id,
            sentence=f"Continued by {actor.user.name}: {run.title}",
            token=token,
            was=run.status,
            made_ready=run.failure_effect if made_ready else "",
        )
        waiting.ring(run)
        waiting.tell(run)
    run.refresh_from_db()
    return run


def _locked(actor: Actor, run_id: str) -> Run:
    selectors.run_seen_by(actor, run_id)
    return Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)
