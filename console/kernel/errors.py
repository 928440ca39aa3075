"""Refusals: what a page, the API and a worker say when something may not be done.

A refusal is an answer, not a fault: it carries a stable code for programs, a sentence for people and the HTTP
status that product-wide rules give it. Faults (a bug, a lost database) stay ordinary exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence


class Refusal(Exception):
    """Base of every refusal.

    ``code`` is stable and meant for programs; ``message`` is one or two plain sentences for people and never
    holds a protected value, since it is shown, logged and returned as it is. ``field`` names the form field or
    the path in the payload that the refusal is about, when there is one.

    A new kind of refusal subclasses the nearest one below and sets its own ``code``; the status comes with it.
    """

    code: str = "refused"
    status: int = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return self.message

    def as_dict(self) -> dict[str, object]:
        """The body of an API answer: ``code`` and ``message`` always, ``field`` when there is one."""
        body: dict[str, object] = {"code": self.code, "message": self.message}
        if self.field is not None:
            body["field"] = self.field
        return body


class BadRequest(Refusal):
    """The request cannot be read: malformed JSON, an unknown cursor, a parameter that does not parse."""

    code = "bad_request"
    status = 400


class Forbidden(Refusal):
    """The caller may see the thing but not do this to it."""

    code = "forbidden"
    status = 403


class NotFound(Refusal):
    """It does not exist, or it is not the caller's to see: the two are never told apart."""

    code = "not_found"
    status = 404


class AlreadyDone(Refusal):
    """Another request did this, or is doing it. The message says what happened."""

    code = "already_done"
    status = 409


class Stale(Refusal):
    """The caller decided on something that has changed since; the fresh one must be looked at first."""

    code = "stale"
    status = 409


class Invalid(Refusal):
    """Well-formed, but a value is not acceptable.

    ``errors`` lists every problem found as (path, message), for forms and the API to show beside their fields.
    """

    code = "invalid"
    status = 422

    def __init__(
        self, message: str, *, field: str | None = None, errors: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message, field=field)
        self.errors: list[tuple[str, str]] = list(errors)

    def as_dict(self) -> dict[str, object]:
        """As :meth:`Refusal.as_dict`, with ``errors`` as a list of ``{"path", "message"}`` when there are any."""
        body = super().as_dict()
        if self.errors:
            body["errors"] = [{"path": path, "message": message} for path, message in self.errors]
        return body


class KeyReused(Refusal):
    """A form token or idempotency key came back with other input than it was first used with."""

    code = "key_reused"
    status = 422
