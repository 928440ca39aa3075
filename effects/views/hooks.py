"""The address at which receivers tell what became of their commands. No session and no form: the signature lets in."""

from __future__ import annotations

import logging

from django.http import HttpRequest, JsonResponse
from django.http.request import UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from console.kernel.errors import BadRequest, Refusal
from effects import hooks

logger = logging.getLogger(__name__)


class MethodRefused(Refusal):
    code = "method_not_allowed"
    status = 405


class TooLarge(Refusal):
    code = "too_large"
    status = 413


@csrf_exempt
def hook(request: HttpRequest, hook_id: str) -> JsonResponse:
    """Take one webhook. Every refusal says why in JSON, and leaves one line in the log, without the body."""
    try:
        if request.method != "POST":
            raise MethodRefused("Webhooks come by POST.")
        taken = hooks.take(hook_id, request.headers, _body(request))
    except Refusal as refusal:
        why = getattr(refusal, "reason", refusal.code)
        logger.warning("a webhook to %.60r was refused: %s %s", hook_id, refusal.status, why)
        response = JsonResponse({**refusal.as_dict(), "reason": why}, status=refusal.status)
        if refusal.status == 405:
            response["Allow"] = "POST"
        return response
    return JsonResponse({"status": taken.value})


def _body(request: HttpRequest) -> bytes:
    """The body as it came, byte for byte: that is what is signed. More than may be is not read."""
    limit = hooks.LARGEST_MESSAGE
    try:
        said = int(request.headers.get("Content-Length") or 0)
        body = request.read(limit + 1) if said <= limit else b""
    except (ValueError, UnreadablePostError):
        raise BadRequest("The body could not be read.") from None
    if said > limit or len(body) > limit:
        raise TooLarge(f"The message is larger than {limit // 1024} KiB.")
    return body
