"""What the database must be like before any process of the product starts: reachable, and its two roles kept apart.

The owner makes and changes tables (`manage.py setup_database`); the application role reads and writes rows, and those
of evidence only as far as EXCEPTIONS says. No other process needs the owner's URL.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg import conninfo, sql

from console import env

Connection = psycopg.Connection[Any]

SCHEMAS: tuple[LiteralString, ...] = ("public", "engine")
ROWS: tuple[LiteralString, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")

# The one place that says which tables the application role may not change freely. Each must exist. TRUNCATE is nobody's.
EXCEPTIONS: dict[tuple[LiteralString, LiteralString], tuple[LiteralString, ...]] = {
    ("public", "console_auditevent"): ("SELECT", "INSERT"),
    ("public", "effects_observation"): ("SELECT", "INSERT"),
    ("public", "effects_effectrevision"): ("SELECT", "INSERT"),
    ("public", "effects_approvaldecision"): ("SELECT", "INSERT"),
    # Filled in when its answer comes; a trigger guards those that have ended.
    ("public", "effects_effectattempt"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_hookmessage"): ("SELECT", "INSERT"),
    ("public", "effects_probe"): ("SELECT", "INSERT"),
    ("public", "effects_wouldhave"): ("SELECT", "INSERT"),
    # What has ended is guarded by triggers; nothing of it is ever deleted.
    ("public", "effects_effect"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_review"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_order"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_stop"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_orphanscan"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "effects_ledgermark"): ("SELECT", "INSERT", "UPDATE"),
    ("public", "django_migrations"): ("SELECT",),
}

# What the application asks of the server itself: which database this is, and how far it has come (effects.restored).
# Postgres lets every role call them; some services take that away.
FUNCTIONS: tuple[LiteralString, ...] = (
    "pg_control_system()",
    "pg_current_wal_insert_lsn()",
    "pg_current_wal_flush_lsn()",
    "pg_walfile_name(pg_lsn)",
)

CONNECT_TIMEOUT_S = 5
EXAMPLE = "postgresql://user:password@host:5432/database"


def require(name: str = "DATABASE_URL") -> str:
    """The URL in the variable *name*, after one connection was made with it.

    Ends the process with one line that says what is wrong and what to do (BadEnvironment): for the start of a process,
    where a traceback per request or task would otherwise follow.
    """
    url = env.text(name, remedy=f"Set it to the database's address, such as {EXAMPLE}.")
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise env.BadEnvironment(
            name, f"is no Postgres address ({first_line(error)})", f"Write it like {EXAMPLE}."
        ) from None
    if not parts.get("user") or not parts.get("dbname"):
        raise env.BadEnvironment(name, "names no user or no database", f"Write it like {EXAMPLE}.")
    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.OperationalError as error:
        problem, remedy = _explain(str(error), parts)
        raise env.BadEnvironment(name, problem, remedy) from None
    return url


def _explain(error: str, parts: dict[str, Any]) -> tuple[str, str]:
    """A failed connection in words, and what to do. libpq gives only text; text it doesn't know is passed on."""
    user, dbname = parts.get("user"), parts.get("dbname")
    place = f"{parts.get('host') or parts.get('hostaddr') or 'the local socket'}:{parts.get('port') or 5432}"
    known = {
        r"password authentication failed|no password supplied|no pg_hba.conf entry": (
            f"is refused: {user} may not log in at {place} with this password",
            "Check the user and the password in it.",
        ),
        r"database .* does not exist": (
            f"names the database {dbname}, which is not at {place}",
            f"Create it (createdb {dbname}) or correct the name.",
        ),
        r"role .* does not exist": (
            f"names the user {user}, who is not at {place}",
            "Correct the name, or run `manage.py setup_database`, which creates the application's role.",
        ),
        r"refused|No such file|could not translate|resolve|timeout|timed out|unreachable|Is the server running": (
            f"leads to {place}, where no Postgres answers ({_last_line(error)})",
            "Start it, or correct the host and the port.",
        ),
        r"too many (clients|connections)|remaining connection slots": (
            f"leads to {place}, which has no connection left",
            "Raise max_connections there, or run fewer processes.",
        ),
    }
    for pattern, answer in known.items():
        if re.search(pattern, error):
            return answer
    return f"can't be used at {place} ({_last_line(error)})", "Correct it, or the server."


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _last_line(text: str) -> str:
    line = text.strip().rsplit("\n", 1)[-1].strip()
    return re.sub(r"^(connection (failed: )?|could not connect.*?: )", "", line)


def ensure_role(connection: Connection, role: str, password: str, *, createdb: bool = False) -> None:
    """A login role of that name with that password and no right beyond *createdb*, made or corrected."""
    known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    # Scrambled here, so that the server's log never shows the password.
    scrambled = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()
    statement = sql.SQL(
        "{verb} ROLE {role} LOGIN NOSUPERUSER NOCREATEROLE {createdb} PASSWORD {password}"
    ).format(
        verb=sql.SQL("ALTER" if known else "CREATE"),
        role=sql.Identifier(role),
        createdb=sql.SQL("CREATEDB" if createdb else "NOCREATEDB"),
        password=sql.Literal(scrambled),
    )
    connection.execute(statement)


def ensure_database(connection: Connection, name: str, owner: str) -> None:
    """A database of that name that belongs to *owner*. The connection must be in autocommit."""
    if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(owner))
        )


def role_is_missing(connection: Connection, role: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None


class TableMissing(Exception):
    """EXCEPTIONS names a table that does not exist: left alone, a renamed table would lose its protection silently."""


def grant(connection: Connection, role: str) -> None:
    """Give the application role its rights on every table there is, exactly, in one transaction.

    Idempotent; for after each migration. Raises TableMissing, having changed nothing.
    """
    with connection.transaction():
        for schema, table in EXCEPTIONS:
            if connection.execute("SELECT to_regclass(%s)", (f"{schema}.{table}",)).fetchone() == (None,):
                raise TableMissing(f"{schema}.{table} is in console/database.py but not in the database")
        for schema in SCHEMAS:
            _grant_schema(connection, sql.Identifier(schema), sql.Identifier(role))
        for (schema, table), rights in EXCEPTIONS.items():
            names = {"table": sql.Identifier(schema, table), "role": sql.Identifier(role)}
            connection.execute(sql.SQL("REVOKE ALL ON {table} FROM {role}").format(**names))
            connection.execute(
                sql.SQL("GRANT {rights} ON {table} TO {role}").format(rights=_list(rights), **names)
            )


class FunctionDenied(Exception):
    """The application may not call a function of FUNCTIONS, and the owner may not let it. The message says who may."""


def grant_functions(connection: Connection, role: str) -> None:
    """Let the application role tell which database it is in. Raises FunctionDenied, naming what an administrator runs."""
    for function in FUNCTIONS:
        grant_it = sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(
            sql.SQL(function), sql.Identifier(role)
        )
        may = sql.SQL("SELECT has_function_privilege({}, {}, 'EXECUTE')").format(
            sql.Literal(role), sql.Literal(function)
        )
        if connection.execute(may).fetchone() == (True,):
            continue
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(grant_it)
        if connection.execute(may).fetchone() != (True,):
            raise FunctionDenied(
                f"{role} may not call {function}, so nobody would notice a restored database. "
                f"Let an administrator run: {grant_it.as_string(connection)}"
            )


def guards_always_hold(connection: Connection) -> None:
    """Take away pgtrigger's switch: a session could turn any guard off with `SET pgtrigger.ignore`.

    The library installs its function anew with each trigger, so this runs after each migration.
    """
    connection.execute(
        "CREATE OR REPLACE FUNCTION public._pgtrigger_should_ignore(trigger_name NAME) RETURNS BOOLEAN AS "
        "'SELECT FALSE' LANGUAGE sql IMMUTABLE"
    )


def _grant_schema(connection: Connection, schema: sql.Identifier, role: sql.Identifier) -> None:
    names = {"schema": schema, "role": role, "rows": _list(ROWS)}
    for statement in (
        "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
        "REVOKE ALL ON SCHEMA {schema} FROM {role}",
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}",
        "GRANT {rows} ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    ):
        connection.execute(sql.SQL(statement).format(**names))


def _list(rights: tuple[LiteralString, ...]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(right) for right in rights)
