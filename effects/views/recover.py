"""Bulk recover: the dry run, its start, its progress, its stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.bulk import REASONS, SHOWN, Counts, counts_of
from console.kernel.errors import Forbidden, NotFound, Refusal
from console.kernel.paging import keyset
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from effects.commands import bulk_recover as commands
from effects.forms import BulkForm, EffectFilter, first_problem
from effects.models import Recovery, RecoveryItem
from effects.selectors import receiver_names
from effects.states import EffectStatus, SubState, Verdict
from effects.views.addresses import is_fragment, paged
from effects.views.section import section_of
from effects.views.telling import titles

#: Filters of the log that name single ones; a recovery is for many.
_OF_ONE = ("q", "review", "order")


@require_safe
@in_workspace()
def recover(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What would be done with each effect that the filter chooses. Nothing is done, and nobody is asked."""
    return _planned(request, actor)


@require_POST
@in_workspace()
def recover_start(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Begin what the dry run showed."""
    form = BulkForm(request.POST, many="Effects")
    asked = form.asked(LeverForm.token_of(request.POST))
    filters = EffectFilter(request.GET, receivers=receiver_names(actor))
    if not _is_readable(filters):
        return _planned(request, actor, typed=form)
    try:
        started = commands.start(
            actor,
            filters.conditions(),
            digest=asked.digest,
            reason=asked.reason,
            per_minute=asked.per_minute,
            token=asked.token,
        )
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _planned(request, actor, typed=form, refusal=refusal)
    return SeeOther(reverse("recovery", args=[actor.workspace.id, started.id]))


def _is_readable(filters: EffectFilter) -> bool:
    """It can be read, and chooses by what effects have in common: not by one's id."""
    return filters.is_valid() and not any(filters.cleaned_data[name] for name in _OF_ONE)


def _planned(
    request: HttpRequest, actor: Actor, *, typed: BulkForm | None = None, refusal: Refusal | None = None
) -> HttpResponse:
    filters = EffectFilter(request.GET, receivers=receiver_names(actor))
    valid = _is_readable(filters)
    plan = commands.dry_run(actor, filters.conditions()) if valid else None
    if typed is not None and refusal is not None:
        typed.refuse(refusal)
    names = titles()
    skipped = Counter(item.why for item in plan.items if item.verdict == Verdict.SKIP) if plan else Counter()
    context: dict[str, Any] = {
        **section_of(actor, "recoveries"),
        "filters": filters,
        "selects": [filters[name] for name in ("status", "sub_state", "type", "receiver")],
        "filtered": any(filters.data.get(name) for name in filters.fields),
        "problem": first_problem(filters)
        or (
            "" if valid else "Bulk recover takes no single id, review or order: do that one on its own page."
        ),
        "chosen": chosen_in_words(filters.conditions(), names) if valid else [],
        "plan": plan,
        "items": [
            (item, names.get(item.effect.effect_type, item.effect.effect_type)) for item in plan.items[:SHOWN]
        ]
        if plan
        else [],
        "deliver": plan.count(Verdict.DELIVER) if plan else 0,
        "look": plan.count(Verdict.LOOK) if plan else 0,
        "skip": plan.count(Verdict.SKIP) if plan else 0,
        "why_skipped": skipped.most_common(REASONS),
        "more_reasons": max(len(skipped) - REASONS, 0),
        "form": typed or BulkForm(many="Effects"),
        "may_recover": actor.may(Capability.REPEAT),
        "query": request.GET.urlencode(),
        "token": new_token(),
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200 if valid else 400
    template = "recover/_plan.html" if is_fragment(request) and valid else "recover/plan.html"
    return render(request, template, context, status=status)


@require_safe
@in_workspace()
def recoveries(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Those that run and those that were, the newest first."""
    found = commands.recoveries_seen_by(actor)
    page = keyset(found, fields=("at", "id"), cursor=request.GET.get("cursor"))
    context = {
        **section_of(actor, "recoveries"),
        "rows": _rows(page.rows),
        **paged(request, page),
    }
    template = "recover/_list.html" if is_fragment(request) else "recover/list.html"
    return render(request, template, context)


@require_safe
@in_workspace()
def recovery(request: HttpRequest, actor: Actor, recovery_id: str) -> HttpResponse:
    """How far it is, and what came of each effect."""
    return _shown(request, actor, recovery_id)


@require_POST
@in_workspace()
def recovery_stop(request: HttpRequest, actor: Actor, recovery_id: str) -> HttpResponse:
    """Take no further effect of it."""
    LeverForm.token_of(request.POST)
    try:
        commands.stop(actor, recovery_id)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _shown(request, actor, recovery_id, refusal=refusal)
    messages.success(request, "Stopped: no further effect is taken. What was ordered already goes on.")
    return SeeOther(reverse("recovery", args=[actor.workspace.id, recovery_id]))


@dataclass(frozen=True)
class Row:
    """One recovery in the list."""

    recovery: Recovery
    counts: Counts
    chosen: list[tuple[str, str]]


def _rows(found: list[Recovery]) -> list[Row]:
    counts, names = counts_of(found), titles()
    return [Row(one, counts[one.id], chosen_in_words(one.filters, names)) for one in found]


def chosen_in_words(filters: Mapping[str, str], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """A filter of the effect log as its labels and words, by the ledger's columns."""
    said: dict[str, tuple[str, Mapping[str, str]]] = {
        "status": ("Status", dict(EffectStatus.choices)),
        "sub_state": ("Where it stands", dict(SubState.choices)),
        "effect_type": ("Type", names),
        "receiver__name": ("Receiver", {}),
        "customer_ref": ("Customer", {}),
        "run_id": ("Run", {}),
    }
    return [
        (said[column][0], said[column][1].get(value, value))
        for column, value in filters.items()
        if column in said
    ]


def _shown(
    request: HttpRequest, actor: Actor, recovery_id: str, *, refusal: Refusal | None = None
) -> HttpResponse:
    found = commands.recovery_seen_by(actor, recovery_id)
    counts = counts_of([found])[found.id]
    items = (
        RecoveryItem.objects.filter(recovery=found)
        .select_related("effect__receiver", "order")
        .defer("effect__answer")
        .order_by("id")
    )
    names = titles()
    context: dict[str, Any] = {
        **section_of(actor, "recoveries"),
        "recovery": found,
        "counts": counts,
        "chosen": chosen_in_words(found.filters, names),
        "items": [
            (item, names.get(item.effect.effect_type, item.effect.effect_type)) for item in items[:SHOWN]
        ],
        "may_stop": actor.may(Capability.REPEAT),
        "receivers": _receivers_of(found),
        "token": new_token(),
        "refusal": refusal,
    }
    template = "recover/_recovery.html" if is_fragment(request) else "recover/recovery.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _receivers_of(found: Recovery) -> list[str]:
    """Where it had something to do: runs that failed by these receivers can be continued once they have it."""
    taken = RecoveryItem.objects.filter(recovery=found).exclude(verdict=Verdict.SKIP).order_by()
    return sorted(set(taken.values_list("effect__receiver__name", flat=True).distinct()))
