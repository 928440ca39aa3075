"""API tokens: what one may do, and the actor that its bearer is. A token acts as its maker, with fewer rights."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, TextChoices
from django.db.models.functions import Now

from console.access import Actor, actor_in
from console.kernel.crypto import TOKEN_PREFIX, hash_token
from console.kernel.errors import Forbidden, NotFound, Refusal
from console.models import ApiToken, Capability

#: What no token ever may, whatever its maker may: deciding, repeating and revealing take a person.
NEVER = frozenset(
    {
        Capability.DECIDE,
        Capability.REPEAT,
        Capability.REVEAL,
        Capability.SECOND,
        Capability.PERMIT,
        Capability.ADMINISTER,
    }
)
#: How exactly it is kept when a token was last used. Not each call is worth a write.
_LAST_USED = timedelta(minutes=1)


class Scope(TextChoices):
    """What a token was made for. Its maker must hold the capability as well, at each call."""

    START = "runs:start", "start runs"
    READ = "runs:read", "read runs"
    COMMAND = "runs:command", "continue, pause or cancel runs, or ask again"
    BRANCH = "runs:branch", "create branches"
    REPLAY = "runs:replay", "replay runs from a checkpoint"

    @property
    def capability(self) -> Capability:
        return {
            Scope.START: Capability.RUN,
            Scope.READ: Capability.SEE,
            Scope.COMMAND: Capability.RUN,
            # The least of its modes; live asks for its own besides.
            Scope.BRANCH: Capability.SIMULATE,
            # The least of its modes; each asks for its own besides.
            Scope.REPLAY: Capability.EVIDENCE,
        }[self]


class Unauthenticated(Refusal):
    """No token, or one that is unknown, expired, revoked, or whose maker is gone: never told apart."""

    code = "unauthenticated"
    status = 401


@dataclass(frozen=True)
class Bearer:
    """Who calls: the token, and the actor that it acts as."""

    token: ApiToken
    actor: Actor

    def require(self, scope: Scope) -> Actor:
        """The actor, if the token has *scope*. Raises Forbidden, naming what is lacking."""
        if scope not in self.token.scopes:
            raise Forbidden(f"This token may not {scope.label}: it lacks the scope {scope.value}.")
        self.actor.require(scope.capability)
        return self.actor


def bearer_of(token: str) -> Bearer:
    """Whose token it is, as of now. Raises Unauthenticated."""
    found = None
    if token.startswith(TOKEN_PREFIX) and len(token) <= 100:
        found = (
            ApiToken.objects.select_related("maker")
            .filter(hash=hash_token(token), revoked_at=None, expires_at__gt=Now())
            .first()
        )
    if found is None:
        raise Unauthenticated("Send a valid token as “Authorization: Bearer sbx_…”.")
    try:
        actor = actor_in(found.maker, found.workspace_id, without=NEVER)
    except NotFound:
        raise Unauthenticated("The person who made this token is no longer in its workspace.") from None
    _mark_used(found)
    return Bearer(found, actor)


def _mark_used(token: ApiToken) -> None:
    ApiToken.objects.filter(
        Q(last_used_at=None) | Q(last_used_at__lt=Now() - _LAST_USED), id=token.id
    ).update(last_used_at=Now())
