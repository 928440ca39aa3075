"""Who a token lets in, what it never may, and how one is made."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from console.kernel.crypto import hash_token
from console.models import ApiToken, AuditEvent, Capability, Role
from console.tokens import Scope, bearer_of
from tests.api.conftest import Call, start_of, token_for
from tests.people import World

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("token", ["", "sbx_", "sbx_wrong", "wrong", "sbx_" + "x" * 5000, "sbx_ü"])
def test_without_a_valid_token_nothing_is_answered(acme: World, call: Call, token: str) -> None:
    for answer in (
        call("get", "runs/run_x", token=token),
        call("post", "runs", token=token, body=start_of(acme)),
    ):
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"
        assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "changes",
    [{"expires_at": timezone.now() - timedelta(seconds=1)}, {"revoked_at": timezone.now()}],
    ids=["expired", "revoked"],
)
def test_an_expired_or_revoked_token_is_no_token(acme: World, call: Call, changes: dict[str, Any]) -> None:
    token = token_for(acme, acme.operator)
    assert call("get", "runs/run_none", token=token).status_code == 404
    ApiToken.objects.update(**changes)
    assert call("get", "runs/run_none", token=token).status_code == 401


def test_a_token_ends_with_its_maker_s_membership_and_account(acme: World, call: Call, token: str) -> None:
    assert call("get", "runs/run_none", token=token).status_code == 404
    acme.operator.is_active = False
    acme.operator.save(update_fields=["is_active"])
    assert call("get", "runs/run_none", token=token).status_code == 401
    acme.operator.is_active = True
    acme.operator.save(update_fields=["is_active"])
    acme.operator.memberships.all().delete()
    assert call("get", "runs/run_none", token=token).status_code == 401


def test_a_session_s_cookie_is_no_token(acme: World, client_of: Any) -> None:
    assert client_of(acme.operator).get("/api/v1/runs/run_none").status_code == 401


def test_no_token_ever_decides_repeats_reveals_or_administers(acme: World) -> None:
    everything = acme.person("everything", *Role)
    assert all(acme.actor(everything).may(capability) for capability in Capability)
    actor = bearer_of(token_for(acme, everything)).actor
    lost = {capability for capability in Capability if not actor.may(capability)}
    assert lost == {
        Capability.DECIDE, Capability.REPEAT, Capability.SECOND, Capability.REVEAL, Capability.PERMIT, Capability.ADMINISTER,
    }  # fmt: skip


def test_the_last_use_is_kept_to_the_minute(acme: World, call: Call, token: str) -> None:
    call("get", "runs/run_none", token=token)
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    call("get", "runs/run_none", token=token)
    assert ApiToken.objects.get().last_used_at == first


def made(*arguments: str) -> str:
    out = StringIO()
    call_command("make_token", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_the_command_prints_the_token_once_and_keeps_its_hash(acme: World, call: Call) -> None:
    token = made(
        acme.workspace.id,
        acme.operator.email,
        "--name",
        "Orders",
        "--scope",
        "runs:start",
        "--scope",
        "runs:read",
    )
    row = ApiToken.objects.get()
    assert (row.hash, row.maker, row.scopes) == (
        hash_token(token),
        acme.operator,
        ["runs:start", "runs:read"],
    )
    assert token not in str(vars(row))
    assert call("post", "runs", token=token, body=start_of(acme)).status_code == 201
    event = AuditEvent.objects.get(verb="token.made")
    assert (event.subject, event.on_behalf_of) == (row.id, "Operator")
    assert token not in str(vars(event))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "{operator}"], "not a member"),
        (["{acme}", "nobody@acme.example"], "no person"),
        (["{acme}", "{outsider}"], "not a member"),
        (["{acme}", "{viewer}"], "may not start runs"),
        (["{acme}", "{operator}", "--days", "0"], "--days"),
        (["{acme}", "{operator}", "--days", "400"], "--days"),
    ],
)
def test_the_command_refuses_in_one_line_and_leaves_no_row(
    acme: World, arguments: list[str], said: str
) -> None:
    people = {name: getattr(acme, name).email for name in ("operator", "viewer", "outsider")}
    filled = [argument.format(acme=acme.workspace.id, **people) for argument in arguments]
    with pytest.raises(CommandError, match=said):
        made(*filled, "--name", "Orders", "--scope", Scope.START)
    assert not ApiToken.objects.exists()
