"""The audit trail: who did what, why, when. For those who hold the capability; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.paging import keyset
from console.models import AuditEvent, Capability
from console.pages import in_workspace
from effects.forms import first_problem
from effects.views.addresses import is_fragment, paged


class AuditFilter(forms.Form):
    """Exact filters; the address is the view."""

    actor = forms.CharField(required=False, max_length=160, label="Who")
    verb = forms.RegexField(
        r"^[a-z_]+(\.[a-z_]*)?$",
        required=False,
        max_length=60,
        label="What was done",
        error_messages={"invalid": "Write it like approval.approve, or approval for all of them."},
    )
    subject = forms.CharField(required=False, max_length=60, label="Id")

    def narrowed(self, events: QuerySet[AuditEvent]) -> QuerySet[AuditEvent]:
        """*events* by every filter that is set. A verb without a dot stands for all of its kind."""
        wanted = self.cleaned_data
        if wanted["actor"]:
            events = events.filter(actor_name__iexact=wanted["actor"])
        if verb := wanted["verb"]:
            events = (
                events.filter(verb=verb) if "." in verb.rstrip(".") else events.filter(verb__startswith=verb)
            )
        if wanted["subject"]:
            events = events.filter(subject=wanted["subject"]) | events.filter(run_id=wanted["subject"])
        return events


@dataclass(frozen=True)
class Row:
    """One event, and the page of what it was done to; empty where that has none."""

    event: AuditEvent
    href: str


#: Which page shows the thing of an id, by the id's prefix.
PAGES = {"run": "run", "apr": "approval", "eff": "effect", "conv": "conversation"}


def place_of(actor: Actor, subject: str) -> str:
    """The address of the page of *subject*, by its id's prefix."""
    page = PAGES.get(subject.partition("_")[0])
    try:
        return reverse(page, args=[actor.workspace.id, subject]) if page else ""
    except NoReverseMatch:
        return ""


@require_safe
@in_workspace(Capability.AUDIT)
def audit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Newest first. A filter that can't be read is 400 and says which."""
    form = AuditFilter(request.GET)
    valid = form.is_valid()
    events = AuditEvent.objects.filter(workspace=actor.workspace)
    cursor = request.GET.get("cursor")
    page = keyset(form.narrowed(events), fields=("at", "id"), cursor=cursor) if valid else None
    context = {
        "nav": "audit",
        "form": form,
        "problem": first_problem(form),
        "rows": [Row(event, place_of(actor, event.subject)) for event in page.rows] if page else [],
        "filtered": any(form.data.get(name) for name in form.fields),
        **paged(request, page),
    }
    template = "audit/_list.html" if is_fragment(request) and valid else "audit/list.html"
    return render(request, template, context, status=200 if valid else 400)
