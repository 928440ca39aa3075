"""The effect log: what the system did outside, and what became of it. Values are masked for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.paging import keyset
from console.pages import in_workspace
from effects.forms import EffectFilter, first_problem
from effects.models import Effect, Order, Review
from effects.selectors import effects_seen_by, receiver_names
from effects.states import OPEN_ORDERS
from effects.views.addresses import is_fragment, paged
from effects.views.section import section_of
from effects.views.telling import titles

#: How many effects a page of the log shows.
PAGE = 50
#: The list's own short cuts: a word, and the filters that it stands for.
SHORTCUTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Uncertain", {"sub_state": "uncertain"}),
    ("In review", {"review": "open"}),
    ("Held", {"sub_state": "held"}),
    ("Ordered", {"order": "open"}),
    ("Completed", {"status": "completed"}),
    ("Failed", {"status": "failed"}),
)


#: The filters that a short cut sets; the others go with its click.
_OF_SHORTCUTS = ("status", "sub_state", "review", "order")


@dataclass(frozen=True)
class Row:
    """One effect and the title of its type."""

    effect: Effect
    title: str


@require_safe
@in_workspace()
def effects(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What the system did outside, newest first. A filter that can't be read is 400 and says which."""
    form = EffectFilter(request.GET, receivers=receiver_names(actor))
    valid = form.is_valid()
    page = keyset(_filtered(actor, form), cursor=request.GET.get("cursor"), size=PAGE) if valid else None
    names = titles()
    context = {
        **section_of(actor, "effects"),
        "form": form,
        "problem": first_problem(form),
        "rows": [Row(effect, names.get(effect.effect_type, effect.effect_type)) for effect in page.rows]
        if page
        else [],
        "selects": [form[name] for name in ("sub_state", "type", "receiver")],
        "kept": [form[name] for name in ("status", "run", "review", "order") if form.data.get(name)],
        "filtered": any(form.data.get(name) for name in form.fields),
        "shortcuts": _shortcuts(request),
        "recover": _recover_address(request, actor) if valid else "",
        **paged(request, page),
    }
    template = "effects/_list.html" if is_fragment(request) and valid else "effects/list.html"
    return render(request, template, context, status=200 if valid else 400)


def _recover_address(request: HttpRequest, actor: Actor) -> str:
    """Bulk recover with the same filter: what can be recovered of what is shown. It takes no single ones."""
    query = request.GET.copy()
    query.pop("cursor", None)
    if any(query.pop(name, [""])[-1] for name in ("q", "review", "order")):
        return ""
    return f"{reverse('recover', args=[actor.workspace.id])}?{query.urlencode()}"


def _filtered(actor: Actor, form: EffectFilter) -> QuerySet[Effect]:
    reviews = Review.objects.filter(workspace=actor.workspace, closed_at__isnull=True)
    orders = Order.objects.filter(workspace=actor.workspace, status__in=OPEN_ORDERS)
    found = effects_seen_by(actor).filter(**form.conditions()).select_related("receiver")
    if text := form.cleaned_data["q"]:
        found = found.filter(Q(id=text) | Q(provider_reference=text) | Q(run_id=text) | Q(command_id=text))
    # Few are open at a time: they are looked up by their ids, however long the log is.
    if form.cleaned_data["review"]:
        found = found.filter(id__in=reviews.values("effect_id"))
    if form.cleaned_data["order"]:
        found = found.filter(id__in=orders.values("effect_id"))
    return found.annotate(
        reviewed=Exists(reviews.filter(effect_id=OuterRef("id"))),
        ordered=Exists(orders.filter(effect_id=OuterRef("id"))),
    )


def _shortcuts(request: HttpRequest) -> list[dict[str, object]]:
    """The short cuts as addresses, the one that is on marked. Other filters go with a short cut's click."""
    now = {name: request.GET.get(name, "") for name in _OF_SHORTCUTS}
    made = []
    for word, wants in SHORTCUTS:
        query = request.GET.copy()
        for name in (*_OF_SHORTCUTS, "cursor"):
            query.pop(name, None)
        query.update(wants)
        on = all(now[name] == wants.get(name, "") for name in now)
        made.append({"word": word, "href": f"?{query.urlencode()}", "on": on})
    return made
