"""The styleguide: every component in every state, and whole pages made of them, for authors of pages to copy.

Public and without data: what it shows is made up in styleguide_samples.
"""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.views.styleguide_samples import PATTERNS, SampleForm, components, frame

NAV = {"home": "home", "approval": "approvals"}


@require_GET
def styleguide(request: HttpRequest) -> HttpResponse:
    """All components; ``?theme=light`` or ``dark`` shows them in one theme whatever the system's is."""
    context = {
        **frame(request),
        **components(),
        "form": SampleForm(),
        "failed_form": _failed(),
        "patterns": PATTERNS,
    }
    return render(request, "styleguide.html", context)


@require_GET
def styleguide_page(request: HttpRequest, page: str) -> HttpResponse:
    """One pattern: run, runs, approval, home, dialog. Another name is 404."""
    if page not in PATTERNS:
        raise Http404
    context = {**frame(request), **PATTERNS[page](), "nav": NAV.get(page, "runs")}
    return render(request, f"styleguide/{page}.html", context)


def _failed() -> SampleForm:
    form = SampleForm({"reason": "", "amount": "12.400,00", "mode": "simulation"})
    form.is_valid()
    return form
