"""The pages of what Django itself answers: an address that is none, a request it can't read, a fault of ours."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return render(request, "errors/404.html", status=404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return render(request, "errors/400.html", status=400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return render(request, "errors/403.html", status=403)


def fault(request: HttpRequest) -> HttpResponse:
    return render(request, "errors/500.html", status=500)
