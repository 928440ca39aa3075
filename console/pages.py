"""What every page shares: the workspace in its address, the actor in it, refusals as pages, and a form's token.

It stands below the apps, so that their views can use it as those of the console do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec
from urllib.parse import urlencode
from uuid import uuid4

from django import forms
from django.contrib.auth.views import redirect_to_login
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
    QueryDict,
)
from django.shortcuts import render
from django.urls import reverse

from console.access import Actor, actor_in
from console.kernel.errors import BadRequest, Refusal
from console.models import Capability, User

P = ParamSpec("P")

#: As the URL resolver calls it: with keywords, from the address.
View = Callable[..., HttpResponseBase]


class SeeOther(HttpResponseRedirect):
    """After a command: what it did stands at another address, to be fetched with GET."""

    status_code = 303


def new_token() -> str:
    """One for each form that is shown: posting it twice does its act once."""
    return uuid4().hex


class LeverForm(forms.Form):
    """What every command's form carries."""

    form_token = forms.RegexField(regex=r"\A[0-9A-Za-z-]{8,60}\Z", widget=forms.HiddenInput)

    @classmethod
    def token_of(cls, given: QueryDict) -> str:
        """The token that was posted. Raises BadRequest without one: such a form was not made here."""
        form = LeverForm(given)
        if not form.is_valid():
            raise BadRequest("This form has no token. Open it again.", field="form_token")
        return str(form.cleaned_data["form_token"])


class PageMiddleware:
    """Private pages are never stored; a refusal that a view raises becomes the page that says it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not request.path.startswith("/static/"):
            response.setdefault("Cache-Control", "no-store")
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return refused(request, error) if isinstance(error, Refusal) else None


def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """The page of a refusal, with its status and its words. The API answers for itself."""
    if request.path.startswith("/api/"):
        return JsonResponse(refusal.as_dict(), status=refusal.status)
    template = (
        f"errors/{refusal.status}.html" if refusal.status in (400, 403, 404, 409) else "errors/409.html"
    )
    return render(request, template, {"message": refusal.message, "refusal": refusal}, status=refusal.status)


def in_workspace(
    capability: Capability = Capability.SEE,
) -> Callable[[Callable[Concatenate[HttpRequest, Actor, P], HttpResponseBase]], View]:
    """A view of a workspace: its actor instead of the slug. Not logged in: to login. Not theirs: 404. Not allowed: 403."""

    def decorate(view: Callable[Concatenate[HttpRequest, Actor, P], HttpResponseBase]) -> View:
        @wraps(view)
        def wrapped(
            request: HttpRequest, workspace: str, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            if not isinstance(request.user, User):
                return to_login(request)
            actor = actor_in(request.user, workspace)
            actor.require(capability)
            request.actor = actor  # type: ignore[attr-defined]  # for the frame's context
            return view(request, actor, *args, **kwargs)

        return wrapped

    return decorate


def to_login(request: HttpRequest) -> HttpResponse:
    """To the login page and back. A fragment's request takes the whole page there, never the form into a table."""
    if request.headers.get("HX-Request"):
        back = request.headers.get("HX-Current-URL-Path") or "/"
        response = HttpResponse(status=204)
        response["HX-Redirect"] = f"{reverse('account_login')}?{urlencode({'next': back})}"
        return response
    return redirect_to_login(request.get_full_path())
