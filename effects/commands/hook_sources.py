"""Open and close the addresses at which receivers send webhooks. From a shell: no page does this."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.db.models.functions import Now

from console import audit
from console.kernel import webhooks
from console.kernel.errors import AlreadyDone, Invalid, NotFound
from effects.contracts import contracts
from effects.models import HookSource, Receiver, Standing
from effects.receivers.secrets import SecretMissing, is_name
from effects.receivers.secrets import secret as secret_named
from effects.wires import HttpWire


@transaction.atomic
def open_hook_source(workspace_id: str, receiver_name: str, secret_name: str) -> HookSource:
    """A new address for the live receiver of that name, beside those that it has.

    Raises NotFound without such a receiver; Invalid when no contract reads its webhooks, or when the secret of that
    name can't be used. A secret that is not set yet is no hindrance: until it is, every message is answered 503.
    """
    receiver = Receiver.objects.filter(
        workspace_id=workspace_id, name=receiver_name, standing=Standing.LIVE
    ).first()
    if receiver is None:
        raise NotFound(f"There is no live receiver {receiver_name!r} in a workspace {workspace_id!r}.")
    reads = (
        promise.receiver == receiver_name and isinstance(promise.wire, HttpWire) and promise.wire.hook
        for promise in contracts().values()
    )
    if not any(reads):
        raise Invalid(f"No contract says how the webhooks of {receiver_name} are read.", field="receiver")
    longest = HookSource._meta.get_field("secret_name").max_length or 0
    if not is_name(secret_name) or len(secret_name) > longest:
        raise Invalid(
            f"{secret_name!r} can't be a secret's name: lower-case letters, digits, - and _, at most {longest}.",
            field="secret",
        )
    problem = secret_problem(secret_name)
    if problem and is_set(secret_name):
        raise Invalid(f"{problem}.", field="secret")
    source = HookSource.objects.create(workspace_id=workspace_id, receiver=receiver, secret_name=secret_name)
    audit.record(
        workspace_id=workspace_id,
        actor="system:shell",
        verb="hook_source.opened",
        subject=source.id,
        sentence=f"Webhooks of {receiver.name} are taken at an address of their own",
        receiver=receiver.id,
    )
    return source


@transaction.atomic
def close_hook_source(source_id: str) -> HookSource:
    """Take no more webhooks at this address. What came stays. Raises NotFound, AlreadyDone."""
    source = HookSource.objects.select_for_update().select_related("receiver").filter(id=source_id).first()
    if source is None:
        raise NotFound(f"There is no webhook address {source_id}.")
    if source.closed_at is not None:
        raise AlreadyDone(f"{source_id} is closed already.")
    HookSource.objects.filter(id=source.id).update(closed_at=Now())
    audit.record(
        workspace_id=source.workspace_id,
        actor="system:shell",
        verb="hook_source.closed",
        subject=source.id,
        sentence=f"No more webhooks of {source.receiver.name} are taken at this address",
        receiver=source.receiver_id,
    )
    return source


def is_set(secret_name: str) -> bool:
    try:
        return bool(secret_named(secret_name))
    except SecretMissing:
        return False


def secret_problem(secret_name: str) -> str:
    """Why webhooks can't be checked with the secret of that name, in words; empty when they can."""
    try:
        secrets = webhooks.secrets_in(secret_named(secret_name))
        webhooks.signed_headers(secrets, "msg_check", datetime.now(UTC), b"")
    except (SecretMissing, webhooks.UnusableSecret) as problem:
        return str(problem)
    return ""
