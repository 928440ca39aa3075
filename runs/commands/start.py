"""Start: a new original run from an input that fits its workflow's schema."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from jsonschema import Draft202012Validator, FormatChecker

from console import audit
from console.access import Actor
from console.kernel.canonical import canonicalise, request_hash, to_plain
from console.kernel.crypto import seal_json
from console.kernel.errors import Invalid, KeyReused
from console.models import Capability
from runs import waiting
from runs.models import Conversation, Run, WorkflowVersion


def start(
    actor: Actor,
    *,
    workflow: WorkflowVersion,
    conversation: Conversation | None,
    given: dict[str, Any],
    token: str,
    on_behalf_of: str = "",
) -> tuple[Run, bool]:
    """Start a run. Returns it, and whether this call made it: the same token and input return the first one's.

    Raises Forbidden, Invalid (422 with the fields; no row is left), KeyReused (the token came with other input).
    """
    actor.require(Capability.RUN)
    if workflow.name not in actor.workspace.workflows:
        raise Invalid(f"This workspace has not enabled {workflow.name}.", field="workflow")
    if workflow.needs_conversation and conversation is None:
        raise Invalid("Choose the conversation that this workflow answers in.", field="conversation")
    plain = to_plain(given)
    _check(workflow, plain)
    hashed = request_hash(canonicalise([workflow.name, conversation.id if conversation else None, plain]))
    token = f"start:{actor.user.id}:{token}"
    try:
        with transaction.atomic():
            return _insert(actor, workflow, conversation, plain, hashed, token, on_behalf_of), True
    except IntegrityError:
        first = Run.objects.filter(workspace=actor.workspace, command_token=token).first()
        if first is None:
            raise
        if first.input_hash != hashed:
            raise KeyReused(
                "This key was used for a run with another input.", field="idempotency_key"
            ) from None
        return first, False


def _check(workflow: WorkflowVersion, given: Any) -> None:
    errors = [
        (
            ".".join(str(part) for part in error.absolute_path) or _missing(error),
            error.message,
        )
        for error in Draft202012Validator(workflow.input_schema, format_checker=FormatChecker()).iter_errors(
            given
        )
    ]
    if errors:
        field, message = errors[0]
        raise Invalid(f"{field}: {message}" if field else message, field=field or "input", errors=errors)


def _missing(error: Any) -> str:
    """A missing property is reported on its object: name the property itself."""
    if error.validator == "required":
        for name in error.validator_value:
            if name not in error.instance:
                return str(name)
    return ""


def _insert(
    actor: Actor,
    workflow: WorkflowVersion,
    conversation: Conversation | None,
    given: Any,
    hashed: str,
    token: str,
    on_behalf_of: str,
) -> Run:
    run = Run(
        workspace=actor.workspace,
        conversation=conversation,
        customer_ref=conversation.customer_ref if conversation else "",
        title=conversation.subject if conversation else workflow.title,
        workflow=workflow,
        fingerprint=workflow.fingerprint,
        starter=actor.user,
        input_hash=hashed,
        command_token=token,
    )
    run.root_run = run
    run.input = seal_json(given, workspace=actor.workspace.id, owner=run.id)
    run.save(force_insert=True)
    audit.record(
        workspace_id=actor.workspace.id,
        actor=actor.user,
        on_behalf_of=on_behalf_of,
        verb="run.started",
        subject=run.id,
        run_id=run.id,
        sentence=f"Started by {actor.user.name}: {run.title}",
        workflow=str(workflow),
        input_hash=hashed,
    )
    waiting.ring(run)
    waiting.tell(run)
    return run
