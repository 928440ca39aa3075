"""The addresses that the styleguide's own pages lead to; the frame's others are absent on purpose."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from console.views.styleguide import styleguide, styleguide_page


def blank(request: HttpRequest, workspace: str) -> HttpResponse:
    return HttpResponse(workspace)


urlpatterns = [
    path("styleguide", styleguide, name="styleguide"),
    path("styleguide/<slug:page>", styleguide_page, name="styleguide_page"),
    *(
        path(f"w/<slug:workspace>/{name}/", blank, name=name)
        for name in ("home", "runs", "approvals", "effects", "search")
    ),
]
