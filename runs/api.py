"""Runs over HTTP: start one, read one, give it a command. The rules are the commands'; here they are only read and said as JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Field, Router, Schema, Status
from pydantic import ConfigDict, ValidationError

from console import audit
from console.access import Actor
from console.kernel.canonical import parse_json
from console.kernel.crypto import digest
from console.kernel.errors import BadRequest, Invalid, KeyReused, Refusal
from console.kernel.words import failure_sentence
from console.tokens import Bearer, Scope
from runs.availability import availability
from runs.commands.ask_again import ask_again
from runs.commands.branch import branch
from runs.commands.continue_run import continue_run
from runs.commands.replay import replay
from runs.commands.start import start
from runs.commands.stop import cancel, pause
from runs.models import Conversation, Run, WorkflowVersion
from runs.selectors import conversations_seen_by, run_seen_by, workflows_of
from runs.states import RunMode

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


class FieldEdit(Schema):
    """What is done to one field of the state: replaced, or changed as its reducer allows."""

    model_config = ConfigDict(extra="forbid", strict=True)

    replace: Any = Field(None, description="The new value of the whole field, past its reducer.")
    append: list[Any] | Any = Field(
        None, description="What joins what is there, as a node's output would. Of messages: role and content."
    )
    edit: dict[str, Any] | None = Field(None, description="Of messages: the new content by message id.")
    remove: list[str] | None = Field(None, description="Of messages: the ids of those that are taken out.")


class BranchStart(Schema):
    """From where to branch, and with what edit of the state."""

    model_config = ConfigDict(extra="forbid", strict=True)

    checkpoint: str = Field(max_length=40, description="A checkpoint of this run, after its first step: cp_…")
    edit: dict[str, FieldEdit] = Field(description="Field of the state → what is done to it.")
    reason: str = Field(max_length=300, description="Why. A branch is made for a reason.")
    mode: Literal["simulation", "live"] = Field(
        "simulation", description="simulation: doubles answer. live: real, with fresh approvals."
    )
    as_node: str = Field(
        "",
        max_length=200,
        description="Whose output the edit counts as; needed where several nodes ran side by side.",
    )
    models: Literal["recorded", "asked"] = Field(
        "recorded", description="Of a simulation: whether its models are asked live."
    )


class ReplayStart(Schema):
    """From where to replay a run, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    checkpoint: str = Field(max_length=40, description="A checkpoint of this run: cp_…")
    mode: Literal["evidence", "simulation", "live"] = Field(
        "evidence",
        description="evidence: all from the recording. simulation: doubles answer. live: real, with fresh approvals.",
    )
    models: Literal["recorded", "asked"] = Field(
        "recorded", description="Of a simulation: whether its models are asked live."
    )
    reason: str = Field("", max_length=300, description="Why; a live replay needs one.")


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
    commands: dict[str, str | None] = Field(
        description="Each operator command: null where it is offered to this token's maker, else why not, in words."
    )
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
_Body = TypeVar("_Body", bound=Schema)


def _described(body: type[Schema]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}


@router.post(
    "/runs",
    summary="Start a run",
    response={201: RunOut, 200: RunOut, **REFUSALS, 413: RefusalOut, 415: RefusalOut, 422: RefusalOut},
    openapi_extra={"parameters": [_KEY_PARAMETER], "requestBody": _described(RunStart)},
)
def start_run(request: HttpRequest, response: HttpResponse) -> Status[dict[str, Any]]:
    """Answers 201 when this call made the run, 200 with the same run when the key was used with the same input."""
    actor = _bearer(request).require(Scope.START)
    key = _key(request)
    asked = _body(request, RunStart)
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


#: What a launch from a checkpoint answers.
_LAUNCHED = {
    201: RunOut,
    200: RunOut,
    **REFUSALS,
    **dict.fromkeys((404, 409, 413, 415, 422), RefusalOut),
}


@router.post(
    "/runs/{run_id}/branches",
    summary="Create a branch of a run",
    response=_LAUNCHED,
    openapi_extra={"parameters": [_KEY_PARAMETER], "requestBody": _described(BranchStart)},
)
def branch_run(request: HttpRequest, response: HttpResponse, run_id: str) -> Status[dict[str, Any]]:
    """A new run from a checkpoint with edited state. 200 with the same run when the key was used with the same input."""
    actor = _bearer(request).require(Scope.BRANCH)
    key = _key(request)
    asked = _body(request, BranchStart)
    if "\0" in run_id or "\0" in asked.checkpoint:
        raise BadRequest("An id has no NUL in it.", field="run_id" if "\0" in run_id else "checkpoint")
    run, made = branch(
        actor,
        run_id,
        asked.checkpoint,
        # What was left out is not done: a field may be replaced by null, so that null says nothing.
        edit={name: one.model_dump(exclude_unset=True) for name, one in asked.edit.items()},
        reason=asked.reason,
        token=f"api:{digest(key)[:32]}",
        mode=RunMode(asked.mode),
        as_node=asked.as_node,
        models_asked=asked.models == "asked",
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


@router.post(
    "/runs/{run_id}/replays",
    summary="Replay a run from a checkpoint",
    response=_LAUNCHED,
    openapi_extra={"parameters": [_KEY_PARAMETER], "requestBody": _described(ReplayStart)},
)
def replay_run(request: HttpRequest, response: HttpResponse, run_id: str) -> Status[dict[str, Any]]:
    """Always a new run; the one that it follows stays. 200 with the same run when the key was used with the same input."""
    actor = _bearer(request).require(Scope.REPLAY)
    key = _key(request)
    asked = _body(request, ReplayStart)
    if "\0" in run_id or "\0" in asked.checkpoint:
        raise BadRequest("An id has no NUL in it.", field="run_id" if "\0" in run_id else "checkpoint")
    run, made = replay(
        actor,
        run_id,
        asked.checkpoint,
        mode=RunMode(asked.mode),
        token=f"api:{digest(key)[:32]}",
        reason=asked.reason,
        models_asked=asked.models == "asked",
        on_behalf_of=f"token {_bearer(request).token.name}",
    )
    response["Location"] = request.build_absolute_uri(reverse("api:run", args=[run.id]))
    return Status(201 if made else 200, shown(request, run_seen_by(actor, run.id)))


#: What each command that a token may give leaves in the audit trail.
_VERBS = ("run.continued", "run.asked_again", "run.paused", "run.cancelled")
_COMMANDED = {200: RunOut, **REFUSALS, 404: RefusalOut, 409: RefusalOut, 422: RefusalOut}
_ONCE = {
    **_KEY_PARAMETER,
    "description": "The same key again changes nothing and answers as the run stands now; for another act it is refused (422).",
}


_Route = Callable[[HttpRequest, str], dict[str, Any]]


def _gives(path: str, summary: str) -> Callable[[_Route], _Route]:
    """A route of a command: no body, a key, and the run as it stands afterwards."""
    made: Callable[[_Route], _Route] = router.post(
        f"/runs/{{run_id}}/{path}",
        summary=summary,
        response=_COMMANDED,
        openapi_extra={"parameters": [_ONCE]},
    )
    return made


@_gives("continue", "Continue a run")
def continue_(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """The same run goes on from its last checkpoint. 409 with the reason where that is not offered."""
    return _give(request, run_id, continue_run, "run.continued")


@_gives("ask-again", "Ask again")
def ask_again_(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """Takes back the answer that made its node fail; people are asked in another round."""
    return _give(request, run_id, ask_again, "run.asked_again")


@_gives("pause", "Pause a run")
def pause_(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """Stops at the next safe point, to be continued later."""
    return _give(request, run_id, pause, "run.paused")


@_gives("cancel", "Cancel a run")
def cancel_(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """Ends it for good at the next safe point. What was sent stays sent; unsent effects are cancelled."""
    return _give(request, run_id, cancel, "run.cancelled")


def _give(request: HttpRequest, run_id: str, command: Callable[..., Run], verb: str) -> dict[str, Any]:
    actor = _bearer(request).require(Scope.COMMAND)
    token = f"api:{digest(_key(request))[:32]}"
    if "\0" in run_id:
        raise BadRequest("A run's id has no NUL in it.", field="run_id")
    for one in _VERBS:
        if audit.subject_of_form(actor.workspace.id, one, token) not in ("", run_id if one == verb else ""):
            raise KeyReused("This key was used for another act.", field=KEY_HEADER)
    command(actor, run_id, token=token)
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
        "commands": {
            name: offer.reason or None for name, offer in availability(run, _bearer(request).actor).items()
        },
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


def _body(request: HttpRequest, shape: type[_Body]) -> _Body:
    """The body, strictly read. Too large 413, another type 415, no JSON 400, not as described 422 with the fields."""
    if int(request.headers.get("Content-Length") or 0) > LARGEST_BODY:
        raise TooLarge(f"The body is larger than {LARGEST_BODY // 1024} KiB.")
    if len(request.body) > LARGEST_BODY:
        raise TooLarge(f"The body is larger than {LARGEST_BODY // 1024} KiB.")
    if request.body and request.content_type != "application/json":
        raise NotJson("Send the body as application/json.")
    try:
        return shape.model_validate(parse_json(request.body))
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
