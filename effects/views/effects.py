"""The effect log, and one effect: why it was meant, what was tried, what is known. Values are masked for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.paging import keyset
from console.pages import in_workspace
from effects.forms import EffectFilter, first_problem
from effects.models import Effect, Receiver, Review
from effects.selectors import effect_seen_by, effects_seen_by
from effects.views.addresses import is_fragment, paged
from effects.views.record import record_of
from effects.views.telling import titles

#: How many effects a page of the log shows.
PAGE = 50
#: The list's own short cuts: a word, and the filters that it stands for.
SHORTCUTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Pending", {"status": "pending"}),
    ("Uncertain", {"sub_state": "uncertain"}),
    ("Completed", {"status": "completed"}),
    ("Failed", {"status": "failed"}),
)


@dataclass(frozen=True)
class Row:
    """One effect and the title of its type."""

    effect: Effect
    title: str


@require_safe
@in_workspace()
def effects(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What the system did outside, newest first. A filter that can't be read is 400 and says which."""
    form = EffectFilter(request.GET, receivers=_receivers(actor))
    valid = form.is_valid()
    page = keyset(_filtered(actor, form), cursor=request.GET.get("cursor"), size=PAGE) if valid else None
    names = titles()
    context = {
        "nav": "effects",
        "form": form,
        "problem": first_problem(form),
        "rows": [Row(effect, names.get(effect.effect_type, effect.effect_type)) for effect in page.rows]
        if page
        else [],
        "selects": [form[name] for name in ("sub_state", "type", "receiver")],
        "kept": [form[name] for name in ("status", "run") if form.data.get(name)],
        "filtered": any(form.data.get(name) for name in form.fields),
        "shortcuts": _shortcuts(request),
        **paged(request, page),
    }
    template = "effects/_list.html" if is_fragment(request) and valid else "effects/list.html"
    return render(request, template, context, status=200 if valid else 400)


@require_safe
@in_workspace()
def effect(request: HttpRequest, actor: Actor, effect_id: str) -> HttpResponse:
    """One effect with everything that is known of it."""
    found = effect_seen_by(actor, effect_id)
    template = "effects/_effect.html" if is_fragment(request) else "effects/effect.html"
    return render(request, template, {"nav": "effects", **record_of(found)})


def _receivers(actor: Actor) -> list[str]:
    names = Receiver.objects.filter(workspace=actor.workspace).values_list("name", flat=True)
    return sorted(set(names))


def _filtered(actor: Actor, form: EffectFilter) -> QuerySet[Effect]:
    reviews = Review.objects.filter(effect_id=OuterRef("id"), closed_at__isnull=True)
    found = effects_seen_by(actor).filter(**form.conditions()).select_related("receiver")
    if text := form.cleaned_data["q"]:
        found = found.filter(Q(id=text) | Q(provider_reference=text) | Q(run_id=text) | Q(command_id=text))
    return found.annotate(reviewed=Exists(reviews))


def _shortcuts(request: HttpRequest) -> list[dict[str, object]]:
    """The short cuts as addresses, the one that is on marked. Other filters go with a short cut's click."""
    now = {name: request.GET.get(name, "") for name in ("status", "sub_state")}
    made = []
    for word, wants in SHORTCUTS:
        query = request.GET.copy()
        for name in ("status", "sub_state", "cursor"):
            query.pop(name, None)
        query.update(wants)
        on = all(now[name] == wants.get(name, "") for name in now)
        made.append({"word": word, "href": f"?{query.urlencode()}", "on": on})
    return made
