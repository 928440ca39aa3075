"""Runs over HTTP: start one, read one. The rules are the commands'; here they are only read and said as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Field, Router, Schema, Status
from pydantic import ConfigDict, ValidationError

from console.access import Actor
from console.kernel.canonical import parse_json
from console.kernel.crypto import digest
from console.kernel.errors import BadRequest, Invalid, Refusal
from console.kernel.words import failure_sentence
from console.tokens import Bearer, Scope
from runs.commands.start import start
from runs.models import Conversation, Run, WorkflowVersion
from runs.selectors import conversations_seen_by, run_seen_by, workflows_of

router = Router(tags=["Runs"])

#: The largest body that is read.
LARGEST_BODY = 256 * 1024
LONGEST_KEY = 255
KEY_HEADER = "Idempotency-Key"


class TooLarge(Refusal):
    code = "too_large"
    status = 413


class NotJson(Refusal):
    code = "unsupported_media_type"
    status = 415


class RunStart(Schema):
    """What to start."""

    model_config = ConfigDict(extra="forbid", strict=True)

    workflow: str = Field(
        max_length=80, description="The workflow's name; its newest version that the workspace has."
    )
    conversation: str | None = Field(
        None, max_length=40, description="A conversation of the workspace: conv_…"
    )
    input: dict[str, Any] = Field(
        description="The workflow's input. It has to fit the workflow's input schema."
    )


class FailureOut(Schema):
    """Why a run failed."""

    code: str
    message: str
    of: str = Field(description="The node or receiver that it names.")


class RunOut(Schema):
    """A run as it stands now."""

    id: str
    status: str = Field(
        description="queued, running, waiting_approval, waiting_effect, paused, failed, completed …"
    )
    workflow: str = Field(description="name@version")
    title: str
    conversation: str | None
    kind: Literal["original", "replay", "branch"]
    mode: Literal["live", "simulation", "evidence"]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    failure: FailureOut | None
    url: str = Field(description="Its page, for people.")


class Problem(Schema):
    path: str
    message: str


class RefusalOut(Schema):
    """Every answer that is not a success: a stable code for programs and a sentence for people."""

    code: str
    message: str
    field: str | None = None
    errors: list[Problem] = []


REFUSALS = {400: RefusalOut, 401: RefusalOut, 403: RefusalOut}
_KEY_PARAMETER = {
    "in": "header",
    "name": KEY_HEADER,
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": r"^[!-~]+$"},
    "description": "The same key with the same input gives the same run; with another input it is refused (422).",
}
_BODY = {"required": True, "content": {"application/json": {"schema": RunStart.model_json_schema()}}}


@router.post(
    "/runs",
    summary="Start a run",
    response={201: RunOut, 200: RunOut, **REFUSALS, 413: RefusalOut, 415: RefusalOut, 422: RefusalOut},
    openapi_extra={"parameters": [_KEY_PARAMETER], "requestBody": _BODY},
)
def start_run(request: HttpRequest, response: HttpResponse) -> Status[dict[str, Any]]:
    """Answers 201 when this call made the run, 200 with the same run when the key was used with the same input."""
    actor = _bearer(request).require(Scope.START)
    key = _key(request)
    asked = _body(request)
    run, made = start(
        actor,
        workflow=_workflow(actor, asked.workflow),
        conversation=_conversation(actor, asked.conversation),
        given=asked.input,
        token=f"api:{digest(key)[:32]}",
        on_behalf_of=f"token {_bearer(request).token.name}",
    )
    response["Location"] = request.build_absolute_uri(reverse("api:run", args=[run.id]))
    return Status(201 if made else 200, shown(request, run_seen_by(actor, run.id)))


@router.get(
    "/runs/{run_id}",
    summary="Read a run",
    response={200: RunOut, **REFUSALS, 404: RefusalOut},
    url_name="run",
)
def read_run(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """How a run stands now. One that is not there and one of another workspace are the same 404."""
    actor = _bearer(request).require(Scope.READ)
    if "\0" in run_id:
        raise BadRequest("A run's id has no NUL in it.", field="run_id")
    return shown(request, run_seen_by(actor, run_id))


def shown(request: HttpRequest, run: Run) -> dict[str, Any]:
    """The run in the API's words."""
    failed = (
        {"code": run.failure, "message": failure_sentence(run.failure, run.failure_of), "of": run.failure_of}
        if run.failure
        else None
    )
    return {
        "id": run.id,
        "status": run.status,
        "workflow": str(run.workflow),
        "title": run.title,
        "conversation": run.conversation_id,
        "kind": run.kind,
        "mode": run.mode,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "failure": failed,
        "url": request.build_absolute_uri(reverse("run", args=[run.workspace_id, run.id])),
    }


def _bearer(request: HttpRequest) -> Bearer:
    bearer = getattr(request, "auth", None)
    assert isinstance(bearer, Bearer), "the API lets nobody in without a token"
    return bearer


def _key(request: HttpRequest) -> str:
    key = request.headers.get(KEY_HEADER, "")
    if not key:
        raise BadRequest(f"Send the header {KEY_HEADER}, a text of your own for each run.", field=KEY_HEADER)
    if len(key) > LONGEST_KEY or not (key.isascii() and key.isprintable() and " " not in key):
        raise BadRequest(f"{KEY_HEADER} is at most {LONGEST_KEY} visible ASCII characters.", field=KEY_HEADER)
    return key


def _body(request: HttpRequest) -> RunStart:
    """The body, strictly read. Too large 413, another type 415, no JSON 400, not as described 422 with the fields."""
    if int(request.headers.get("Content-Length") or 0) > LARGEST_BODY:
        raise TooLarge(f"The body is larger than {LARGEST_BODY // 1024} KiB.")
    if len(request.body) > LARGEST_BODY:
        raise TooLarge(f"The body is larger than {LARGEST_BODY // 1024} KiB.")
    if request.body and request.content_type != "application/json":
        raise NotJson("Send the body as application/json.")
    try:
        return RunStart.model_validate(parse_json(request.body))
    except ValidationError as error:
        problems = [(".".join(map(str, one["loc"])) or "body", one["msg"]) for one in error.errors()]
        path, message = problems[0]
        raise Invalid(f"{path}: {message}", field=path, errors=problems) from None


def _workflow(actor: Actor, name: str) -> WorkflowVersion:
    for workflow in workflows_of(actor):
        if workflow.name == name:
            return workflow
    raise Invalid("This workspace has no workflow of that name.", field="workflow")


def _conversation(actor: Actor, conversation_id: str | None) -> Conversation | None:
    if conversation_id is None:
        return None
    found = (
        None if "\0" in conversation_id else conversations_seen_by(actor).filter(id=conversation_id).first()
    )
    if found is None:
        raise Invalid("There is no such conversation here.", field="conversation")
    return found
