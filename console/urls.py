"""The addresses: the list of what can be seen and what can be done."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from console.views import audit, health, home, live, search, styleguide
from effects.views import hooks

handler400 = "console.views.faults.bad_request"
handler403 = "console.views.faults.forbidden"
handler404 = "console.views.faults.not_found"
handler500 = "console.views.faults.fault"

#: Everything of one workspace stands under its slug.
workspace: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("live", live.live, name="live"),
    path("search", search.search, name="search"),
    path("audit/", audit.audit, name="audit"),
    path("", include("runs.urls")),
    path("", include("runs.approval_urls")),
    path("", include("effects.urls")),
]

urlpatterns = [
    path("", home.root, name="root"),
    path("w/<slug:workspace>/", include(workspace)),
    path("api/v1/", include("console.api_urls")),
    path("hooks/<str:hook_id>", hooks.hook, name="hook"),
    path("accounts/", include("allauth.urls")),
    path("health/", health.health, name="health"),
    path("styleguide", styleguide.styleguide, name="styleguide"),
    path("styleguide/<slug:page>/", styleguide.styleguide_page, name="styleguide_page"),
]
