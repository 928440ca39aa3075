"""The addresses of the HTTP API's first version, its description, and the page that explains it."""

from __future__ import annotations

from django.urls import path

from console.api import api
from console.views import api_docs

urlpatterns = [
    path("docs", api_docs.docs, name="api_docs"),
    path("", api.urls),
]
