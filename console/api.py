"""The HTTP API: its versions, its way in, and the one shape of everything that it refuses."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Router
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.security import HttpBearer

from console.kernel.errors import Invalid, NotFound, Refusal
from console.tokens import Bearer, Unauthenticated, bearer_of
from runs.api import router as runs

logger = logging.getLogger(__name__)


class TokenAuth(HttpBearer):
    """``Authorization: Bearer sbx_…``. The token names its workspace: no address of the API does."""

    openapi_description = "A token of one workspace, made with `manage.py make_token`."

    def authenticate(self, request: HttpRequest, token: str) -> Bearer:  # noqa: ARG002
        return bearer_of(token)


api = NinjaAPI(
    title="Signalbox",
    version="1",
    description="Start runs of a workspace's workflows and read how they stand. Deciding, repeating and revealing take a person.",
    auth=TokenAuth(),
    docs_url=None,
    openapi_url="/openapi.json",
    urls_namespace="api",
)
api.add_router("", runs)


def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """A refusal as JSON, in the one shape of the API."""
    response = api.create_response(request, refusal.as_dict(), status=refusal.status)
    if refusal.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="signalbox"'
    return response


@api.exception_handler(Refusal)
def _on_refusal(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    return refused(request, refusal)


@api.exception_handler(AuthenticationError)
def _on_no_token(request: HttpRequest, _error: AuthenticationError) -> HttpResponse:
    return refused(request, Unauthenticated("Send a token as “Authorization: Bearer sbx_…”."))


@api.exception_handler(ValidationError)
def _on_misfit(request: HttpRequest, error: ValidationError) -> HttpResponse:
    problems = [(".".join(map(str, one["loc"])), str(one["msg"])) for one in error.errors]
    path, message = problems[0]
    return refused(request, Invalid(f"{path}: {message}", field=path, errors=problems))


@api.exception_handler(HttpError)
def _on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return api.create_response(request, {"code": "refused", "message": str(error)}, status=error.status_code)


@api.exception_handler(Exception)
def _on_fault(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("a fault in %s %s", request.method, request.path, exc_info=error)
    body = {
        "code": "fault",
        "message": "Something went wrong on our side. What you asked for may or may not be done.",
    }
    return api.create_response(request, body, status=500)


# Added last: what no other address took.
_elsewhere = Router()


@_elsewhere.api_operation(["GET", "POST", "PUT", "PATCH", "DELETE"], "/{path:rest}", include_in_schema=False)
def nothing_here(request: HttpRequest, rest: str) -> None:  # noqa: ARG001
    raise NotFound("There is nothing at this address. The addresses stand in /api/v1/openapi.json.")


api.add_router("", _elsewhere)
