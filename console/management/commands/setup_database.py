"""`manage.py setup_database`: everything the database needs before the product starts, as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from psycopg import conninfo

from console import database, env


class Command(BaseCommand):
    help = (
        "Migrate as the owner (OWNER_DATABASE_URL), make the engine's schema, and give the application's role "
        "(the user of DATABASE_URL) its rights. Safe to run again; run it after each new release."
    )
    requires_system_checks: list[str] = []  # `migrate` makes those that matter here

    def handle(self, *_args: Any, **options: Any) -> None:
        owner_url = database.require("OWNER_DATABASE_URL")
        role, password = application_role()
        if role == conninfo.conninfo_to_dict(owner_url).get("user"):
            raise env.BadEnvironment(
                "DATABASE_URL",
                f"names the owner, {role}",
                "Give the application a role of its own: it may not own its tables.",
            )
        with as_owner(owner_url):
            call_command("migrate", interactive=False, verbosity=options["verbosity"])
        from runs.engine.saver import create_schema

        create_schema(owner_url)
        with psycopg.connect(owner_url, autocommit=True) as owner:
            provide_role(owner, role, password)
            database.guards_always_hold(owner)
            try:
                database.grant(owner, role)
                database.grant_functions(owner, role)
            except (database.TableMissing, database.FunctionDenied) as refused:
                raise CommandError(str(refused)) from None
        database.require("DATABASE_URL")
        from effects import restored

        restored.check()  # what was restored sends nothing, from before the first process starts
        if options["verbosity"]:
            self.stdout.write(f"The database is set up; {role} may use it.")


def application_role() -> tuple[str, str]:
    """The user and the password of DATABASE_URL."""
    try:
        parts = conninfo.conninfo_to_dict(
            env.text("DATABASE_URL", remedy=f"Write it like {database.EXAMPLE}.")
        )
    except psycopg.ProgrammingError as error:
        raise env.BadEnvironment(
            "DATABASE_URL",
            f"is no Postgres address ({database.first_line(error)})",
            f"Write it like {database.EXAMPLE}.",
        ) from None
    if not parts.get("user"):
        raise env.BadEnvironment("DATABASE_URL", "names no user", f"Write it like {database.EXAMPLE}.")
    return str(parts["user"]), str(parts.get("password") or "")


def provide_role(owner: psycopg.Connection[Any], role: str, password: str) -> None:
    """Create the application's role on a server that lacks it. One that exists keeps its password: it may be shared."""
    if not database.role_is_missing(owner, role):
        return
    try:
        database.ensure_role(owner, role, password)
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            f"the role {role} of DATABASE_URL does not exist and the owner may not create it. "
            f"Let an administrator run: CREATE ROLE {role} LOGIN PASSWORD '…'"
        ) from None


@contextmanager
def as_owner(owner_url: str) -> Iterator[None]:
    """Django's own connection under the owner's name, for `migrate`, which knows no other."""
    parts = conninfo.conninfo_to_dict(owner_url)
    before = dict(connection.settings_dict)
    connection.close()
    named = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    connection.settings_dict.update({key: str(parts.pop(part, "") or "") for key, part in named.items()})
    # No pool: it would be kept under the application's name.
    connection.settings_dict["OPTIONS"] = parts
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)
