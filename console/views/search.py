"""Find anything: an id or a receiver's reference goes to its page, other words look through conversations and runs."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.ids import kind_of, normal_id
from console.pages import in_workspace
from effects.contracts import contracts
from effects.models import EffectAttempt, Order, OrphanScan, Recovery
from effects.selectors import (
    approvals_seen_by,
    effects_seen_by,
    newest_probes,
    reviews_seen_by,
    stops_seen_by,
)
from runs.forms import Paging
from runs.models import BulkContinue, Checkpoint, Execution, Message, Recording, Step
from runs.selectors import conversations_seen_by, runs_seen_by
from runs.views.runs import rows_of

LIMIT = 20


@require_safe
@in_workspace()
def search(request: HttpRequest, actor: Actor) -> HttpResponse:
    """``?q=`` of an id that is in this workspace redirects to it; everything else is a page of what was found."""
    text = Paging.read(request.GET).cleaned_data["q"].strip()
    address = _page_of_id(actor, text) or _page_of_reference(actor, text)
    if address:
        return HttpResponseRedirect(address)
    return render(
        request, "search.html", {"q": text, "is_id": kind_of(text) is not None, **_words(actor, text)}
    )


def _words(actor: Actor, text: str) -> dict[str, object]:
    """Conversations by subject and customer; runs by title. The newest of each."""
    if not text:
        return {"conversations": [], "rows": []}
    conversations = conversations_seen_by(actor).filter(
        Q(subject__icontains=text) | Q(customer_ref=text) | Q(customer_name__icontains=text)
    )
    runs = runs_seen_by(actor).filter(Q(title__icontains=text) | Q(customer_ref=text))
    found = runs.select_related("workflow", "conversation").defer("input").order_by("-created_at", "-id")
    return {
        "conversations": conversations.order_by("-created_at", "-id")[:LIMIT],
        "rows": rows_of(list(found[:LIMIT])),
    }


def _page_of_id(actor: Actor, text: str) -> str:
    """The address of the thing with that id, if it is one of this workspace; empty otherwise."""
    found = normal_id(text)
    look = _PAGES.get(kind_of(text) or "")
    return look(actor, found) if found and look else ""


def _page_of_reference(actor: Actor, text: str) -> str:
    """The effect that a receiver gave this number, on completion or in an attempt."""
    if not text:
        return ""
    seen = effects_seen_by(actor)
    receivers = actor.workspace.receivers.values("id")
    ids = list(
        seen.filter(receiver_id__in=receivers, provider_reference=text).values_list("id", flat=True)[:2]
    ) or list(
        EffectAttempt.objects.filter(effect__workspace=actor.workspace, provider_reference=text)
        .values_list("effect_id", flat=True)
        .distinct()[:2]
    )
    return _address("effect", actor, ids[0]) if len(ids) == 1 else ""


def _address(name: str, actor: Actor, *ids: str, show: str = "") -> str:
    try:
        address = reverse(name, args=[actor.workspace.id, *ids])
    except NoReverseMatch:
        return ""
    return f"{address}?show={show}" if show else address


def _run(actor: Actor, found: str) -> str:
    return _address("run", actor, found) if runs_seen_by(actor).filter(id=found).exists() else ""


def _conversation(actor: Actor, found: str) -> str:
    there = conversations_seen_by(actor).filter(id=found).exists()
    return _address("conversation", actor, found) if there else ""


def _effect(actor: Actor, found: str) -> str:
    return _address("effect", actor, found) if effects_seen_by(actor).filter(id=found).exists() else ""


def _approval(actor: Actor, found: str) -> str:
    return _address("approval", actor, found) if approvals_seen_by(actor).filter(id=found).exists() else ""


def _order(actor: Actor, found: str) -> str:
    """The effect that it was ordered about."""
    rows = Order.objects.filter(id=found, workspace=actor.workspace)
    effect = rows.values_list("effect_id", flat=True).first()
    return f"{_address('effect', actor, effect)}#{found}" if effect else ""


def _review(actor: Actor, found: str) -> str:
    return _address("review", actor, found) if reviews_seen_by(actor).filter(id=found).exists() else ""


def _bulk(actor: Actor, found: str) -> str:
    exists = BulkContinue.objects.filter(id=found, workspace=actor.workspace).exists()
    return _address("bulk", actor, found) if exists else ""


def _recovery(actor: Actor, found: str) -> str:
    there = Recovery.objects.filter(id=found, workspace=actor.workspace).exists()
    return _address("recovery", actor, found) if there else ""


def _stop(actor: Actor, found: str) -> str:
    there = stops_seen_by(actor).filter(id=found).exists()
    return f"{_address('stops', actor)}#{found}" if there else ""


def _scan(actor: Actor, found: str) -> str:
    there = OrphanScan.objects.filter(id=found, workspace=actor.workspace).exists()
    return f"{_address('reviews', actor)}?scan={found}#{found}" if there else ""


def _probe(actor: Actor, found: str) -> str:
    """The contract that it tried, where it is the newest of it; else its effects: what stands in their run's place."""
    for probe in newest_probes(actor).values():
        if probe.id == found and probe.effect_type in contracts():
            return f"{_address('contract', actor, probe.effect_type)}#probe"
    there = effects_seen_by(actor).filter(run_id=found).exists()
    effects = _address("effects", actor)
    return f"{effects}?run={found}" if there and effects else ""


def _command(actor: Actor, found: str) -> str:
    effect = effects_seen_by(actor).filter(command_id=found).values_list("id", flat=True).first()
    return _address("effect", actor, effect) if effect else ""


def _checkpoint(actor: Actor, found: str) -> str:
    run = (
        Checkpoint.objects.filter(id=found, run__workspace=actor.workspace)
        .values_list("run_id", flat=True)
        .first()
    )
    return _address("checkpoint", actor, run, found) if run else ""


def _part_of_run(model: type[Step] | type[Recording]) -> Callable[[Actor, str], str]:
    def look(actor: Actor, found: str) -> str:
        row = (
            model.objects.filter(id=found, run__workspace=actor.workspace)
            .values_list("run_id", flat=True)
            .first()
        )
        return _address("run", actor, row, show=found) if row else ""

    return look


def _execution(actor: Actor, found: str) -> str:
    run = (
        Execution.objects.filter(id=found, run__workspace=actor.workspace)
        .values_list("run_id", flat=True)
        .first()
    )
    return _address("run", actor, run) if run else ""


def _message(actor: Actor, found: str) -> str:
    rows = Message.objects.filter(id=found, conversation__workspace=actor.workspace)
    conversation = rows.values_list("conversation_id", flat=True).first()
    return _address("conversation", actor, conversation) if conversation else ""


_PAGES: dict[str, Callable[[Actor, str], str]] = {
    "run": _run,
    "conv": _conversation,
    "eff": _effect,
    "apr": _approval,
    "cmd": _command,
    "prb": _probe,
    "ord": _order,
    "rev": _review,
    "rcy": _recovery,
    "blk": _bulk,
    "sto": _stop,
    "scan": _scan,
    "cp": _checkpoint,
    "stp": _part_of_run(Step),
    "rec": _part_of_run(Recording),
    "exe": _execution,
    "msg": _message,
}
