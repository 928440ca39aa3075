"""Ask again: the answer that made its node fail is taken back, and people are asked in another round."""

from __future__ import annotations

from django.db import transaction

from console import audit
from console.access import Actor
from effects import approvals
from runs import moves, selectors, waiting
from runs.availability import OperatorCommand, availability
from runs.models import Pause, Run
from runs.states import Cause

VERB = "run.asked_again"
REFUSED = "Nothing can be asked again"


def questions_of(run: Run) -> list[Pause]:
    """What would be asked again: each pause of a node that raised on its answer, in the order in which it asked."""
    asked: dict[str, Pause] = {}
    for pause in selectors.pauses_of_tasks(selectors.raised_on_answer(run)).order_by("id"):
        asked.setdefault(pause.interrupt_id, pause)
    return list(asked.values())


def ask_again(actor: Actor, run_id: str, *, token: str) -> Run:
    """Take the answers back and queue the run; its worker forgets them and the node asks anew.

    A node that asked several times asks each question again: which of the answers it can't live with, only people
    know. The same token again changes nothing. Raises NotFound, Forbidden, AlreadyDone with the reason where no
    answer made a node fail.
    """
    selectors.run_seen_by(actor, run_id)
    with transaction.atomic():
        run = (
            Run.objects.select_for_update(of=("self",)).select_related("workflow", "workspace").get(id=run_id)
        )
        offer = availability(run, actor)[OperatorCommand.ASK_AGAIN]
        if not offer.forbidden and audit.done_by_form(run.id, VERB, token):
            return run
        if not offer.available:
            raise offer.refusal(REFUSED)
        interrupts = [pause.interrupt_id for pause in questions_of(run)]
        approvals.take_back(run.id, interrupts, why=f"Asked again by {actor.user.name}")
        moves.continue_(run.id, cause=Cause.ASK_AGAIN)
        audit.record(
            workspace_id=run.workspace_id,
            actor=actor.user,
            verb=VERB,
            subject=run.id,
            run_id=run.id,
            sentence=f"Asked again by {actor.user.name}: {run.title}",
            token=token,
            node=run.failure_of,
            problem=run.failure_text[:1000],
            interrupts=interrupts,
        )
        waiting.ring(run)
        waiting.tell(run)
    run.refresh_from_db()
    return run
