"""`manage.py make_token`: an API token for one workspace, acting as the person who is named."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from console import audit
from console.access import Actor, actor_in
from console.kernel.crypto import hash_token, new_token
from console.kernel.errors import NotFound
from console.models import ApiToken, User
from console.tokens import NEVER, Scope

LONGEST_DAYS = 366


class Command(BaseCommand):
    help = (
        "Make an API token that acts as a member of a workspace, with fewer rights: it never decides, repeats or "
        "reveals. The token is printed once and stored as a hash."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workspace", help="the workspace's slug")
        parser.add_argument("email", help="the member that the token acts as")
        parser.add_argument("--name", required=True, help="what it is for, as the lists of tokens show it")
        parser.add_argument(
            "--scope",
            action="append",
            required=True,
            choices=Scope.values,
            help="give it again for more than one",
        )
        parser.add_argument(
            "--days", type=int, default=90, help=f"how long it is valid (90; at most {LONGEST_DAYS})"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if not 1 <= options["days"] <= LONGEST_DAYS:
            raise CommandError(f"--days must be from 1 to {LONGEST_DAYS}.")
        name = options["name"].strip()
        if not 1 <= len(name) <= 80:
            raise CommandError("--name must have from 1 to 80 characters.")
        actor = _maker(options["workspace"], options["email"])
        scopes = _scopes(actor, options["scope"])
        self.stdout.write(_make(actor, name, scopes, days=options["days"]))
        self.stderr.write(f"Valid for {options['days']} days. It is not shown again.")


def _maker(workspace: str, email: str) -> Actor:
    user = User.objects.filter(email__iexact=email).first()
    if user is None:
        raise CommandError(f"There is no person with the address {email}.")
    try:
        return actor_in(user, workspace, without=NEVER)
    except NotFound:
        raise CommandError(
            f"{email} is not a member of a workspace {workspace!r}, or is not active."
        ) from None


def _scopes(actor: Actor, asked: list[str]) -> list[Scope]:
    scopes = [Scope(value) for value in dict.fromkeys(asked)]
    for scope in scopes:
        if not actor.may(scope.capability):
            raise CommandError(
                f"{actor.user.name} may not {scope.label}, so no token of theirs may: {scope.value}."
            )
    return scopes


@transaction.atomic
def _make(actor: Actor, name: str, scopes: list[Scope], *, days: int) -> str:
    token = new_token()
    made = ApiToken.objects.create(
        workspace=actor.workspace,
        maker=actor.user,
        name=name,
        hash=hash_token(token),
        scopes=[scope.value for scope in scopes],
        expires_at=Now() + timedelta(days=days),
    )
    audit.record(
        workspace_id=actor.workspace.id,
        actor="system:shell",
        on_behalf_of=actor.user.name,
        verb="token.made",
        subject=made.id,
        sentence=f"API token made for {actor.user.name}: {name}",
        scopes=made.scopes,
        until=(timezone.now() + timedelta(days=days)).date().isoformat(),
    )
    return token
