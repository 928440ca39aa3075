"""Continue: the same run goes on to complete its obligation. Same run id, same effect ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from console import audit
from console.access import Actor
from console.kernel.errors import AlreadyDone, Stale
from console.models import Capability
from effects import moves as effect_moves
from effects.models import Effect, Review, Stop
from effects.selectors import sent_anew, standing_stops, stops_it
from effects.states import Dedup, EffectStatus, SubState
from runs import moves, selectors, waiting
from runs.availability import OperatorCommand, availability
from runs.models import Recording, Run, Step
from runs.states import Cause, ExecutionOutcome, RunStatus, StepOutcome


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
    recorded = Recording.objects.filter(run=run, dropped_at=None)
    return Preview(
        done=done,
        runs=[node for node, outcome in last.items() if outcome != StepOutcome.DONE],
        bound=frozenset(recorded.values_list("place__node", flat=True)),
        effects=plans_of([run])[run.id],
        kept=list(_effects_of([run.id]).filter(status=EffectStatus.COMPLETED)),
        version=str(run.workflow),
        workers=selectors.workers_holding(run).count(),
    )


def plans_of(runs: Sequence[Run]) -> dict[str, list[EffectPlan]]:
    """By each run's id its effects that are not completed. A few questions, however many runs of one workspace."""
    by_id = {run.id: run for run in runs}
    open_review = Review.objects.filter(effect=OuterRef("pk"), closed_at=None)
    found = _effects_of(list(by_id)).exclude(status=EffectStatus.COMPLETED).defer("answer")
    stops = list(standing_stops(runs[0].workspace_id)) if runs else []
    plans: dict[str, list[EffectPlan]] = {run_id: [] for run_id in by_id}
    for effect in found.annotate(in_review=Exists(open_review), anew=sent_anew()):
        its_stops = [stop for stop in stops if stops_it(stop, effect)]
        what = _what_becomes_of(
            effect, by_id[effect.run_id], its_stops, in_review=effect.in_review, anew=effect.anew
        )
        plans[effect.run_id].append(EffectPlan(effect, what))
    return plans


def _effects_of(run_ids: list[str]) -> QuerySet[Effect]:
    return Effect.objects.filter(run_id__in=run_ids).select_related("receiver").order_by("created_at")


def unfinished_of(runs: Iterable[Run]) -> dict[str, list[str]]:
    """By each run's id the nodes whose newest step did not finish: those run again. One question."""
    newest = (
        Step.objects.filter(run__in=[run.id for run in runs])
        .order_by("run_id", "node", "-started_at", "-id")
        .distinct("run_id", "node")
    )
    found: dict[str, list[str]] = {}
    for run_id, node, outcome in newest.values_list("run_id", "node", "outcome"):
        if outcome != StepOutcome.DONE:
            found.setdefault(run_id, []).append(node)
    return found


def _what_becomes_of(effect: Effect, run: Run, stops: list[Stop], *, in_review: bool, anew: bool) -> str:
    """In words, what the ledger will do with an effect that is not completed when *run* is continued."""
    if in_review:
        return "Stays in review: nothing is sent until a person has settled it."
    sub = SubState(effect.sub_state)
    if effect.status == EffectStatus.PENDING and stops:
        return f"Not sent: sending is stopped ({stops[0]}). {stops[0].reason}"
    if sub in (SubState.HELD, SubState.REFUSED) and effect.id != run.failure_effect:
        return "Stays as it is: the run did not fail for it."
    if anew:
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


def continue_run(actor: Actor, run_id: str, *, token: str, reason: str = "", shown: int | None = None) -> Run:
    """Queue the run for a worker. The same token again answers with what the first one did.

    *shown*: the run's version as the person saw it, where they saw it a while ago. Raises Forbidden, NotFound,
    AlreadyDone (409, with what happened) when it is not to be continued now, Stale when it has moved since.
    """
    actor.require(Capability.RUN)
    with transaction.atomic():
        run = _locked(actor, run_id)
        if audit.done_by_form(run.id, "run.continued", token):
            return run
        offer = availability(run, actor)[OperatorCommand.CONTINUE]
        if not offer.available:
            raise offer.refusal("This run can't be continued")
        if shown is not None and run.version != shown:
            raise Stale("This run has moved since it was shown: look at it again on its own page.")
        if not (moves.continue_(run.id) or _take_over(run) or run.status == RunStatus.QUEUED):
            raise AlreadyDone("Somebody else moved this run just now. Look at it again.")
        # Only the one that it failed for: what a node has caught and dealt with stays as the receiver left it.
        made_ready = bool(run.failure_effect) and effect_moves.make_ready_again(run.failure_effect)
        # What a node dropped it may ask for when it now runs again; if not, the question is opened anew.
        effect_moves.close_not_asked_again(
            run.id, why=f"Continued by {actor.user.name}: its node runs again."
        )
        audit.record(
            workspace_id=run.workspace_id,
            actor=actor.user,
            verb="run.continued",
            subject=run.id,
            run_id=run.id,
            reason=reason,
            sentence=f"Continued by {actor.user.name}: {run.title}",
            token=token,
            was=run.status,
            made_ready=run.failure_effect if made_ready else "",
        )
        waiting.ring(run)
        waiting.tell(run)
    run.refresh_from_db()
    return run


def _take_over(run: Run) -> bool:
    """running, its worker lost → queued: its execution is over, and what it may still write is fenced out by the next."""
    taken = moves.take_from_lost_worker(
        run, RunStatus.QUEUED, next_cause=Cause.CONTINUE, losses=0, loss_marker="", pause_requested=False
    )
    if taken:
        moves.close_execution(run.id, run.fence, ExecutionOutcome.LOST, "Lost; a person continued the run.")
    return taken


def _locked(actor: Actor, run_id: str) -> Run:
    selectors.run_seen_by(actor, run_id)
    return Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)
