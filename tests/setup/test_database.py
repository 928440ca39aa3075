"""The two roles kept apart, and a wrong address told in one line, against a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from console import database
from console.embedded import APPLICATION_ROLE, Urls, servers
from console.env import BadEnvironment

FREE_TABLE = ("public", "runs_run")


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Urls]:
    with servers(tmp_path_factory.mktemp("database"), durable=False) as urls:
        yield urls


@pytest.fixture(scope="module")
def granted(urls: Urls) -> Urls:
    """Tables of the names that matter, made by the owner, and the rights given twice: as at each start."""
    with psycopg.connect(urls.owner_database, autocommit=True) as owner:
        owner.execute("CREATE SCHEMA engine")
        owner.execute("CREATE TABLE engine.checkpoints (id serial, n int)")
        for schema, table in (*database.EXCEPTIONS, FREE_TABLE):
            owner.execute(sql.SQL("CREATE TABLE {} (id serial, n int)").format(sql.Identifier(schema, table)))
        for _ in range(2):
            database.grant(owner, APPLICATION_ROLE)
        # The evidence there is: rows that the application may or may not touch.
        for schema, table in (*database.EXCEPTIONS, FREE_TABLE):
            owner.execute(sql.SQL("INSERT INTO {} (n) VALUES (1)").format(sql.Identifier(schema, table)))
    return urls


STATEMENTS = {
    "SELECT": "SELECT n FROM {}",
    "INSERT": "INSERT INTO {} (n) VALUES (2)",
    "UPDATE": "UPDATE {} SET n = 3",
    "DELETE": "DELETE FROM {}",
    "TRUNCATE": "TRUNCATE {}",
}


def allowed(url: str, schema: str, table: str) -> set[str]:
    """What the role of *url* can really do with the table; all of it is undone."""
    done = set()
    for right, statement in STATEMENTS.items():
        with psycopg.connect(url) as connection:
            try:
                connection.execute(sql.SQL(statement).format(sql.Identifier(schema, table)))
                done.add(right)
            except psycopg.errors.InsufficientPrivilege:
                pass
            connection.rollback()
    return done


@pytest.mark.parametrize(("table", "rights"), list(database.EXCEPTIONS.items()))
def test_evidence_may_be_added_to_but_not_changed(
    granted: Urls, table: tuple[str, str], rights: tuple[str, ...]
) -> None:
    assert allowed(granted.database, *table) == set(rights)


@pytest.mark.parametrize("table", [FREE_TABLE, ("engine", "checkpoints")])
def test_every_other_table_is_read_and_written_but_never_truncated(
    granted: Urls, table: tuple[str, str]
) -> None:
    assert allowed(granted.database, *table) == {"SELECT", "INSERT", "UPDATE", "DELETE"}


def test_the_exceptions_are_those_of_the_audit(granted: Urls) -> None:
    changeable = {
        table for (_, table), rights in database.EXCEPTIONS.items() if {"UPDATE", "DELETE"} & set(rights)
    }
    # Each but the ledger's mark, which is one row, has triggers that guard what has ended.
    assert changeable == {
        "effects_effectattempt",
        "effects_effect",
        "effects_review",
        "effects_order",
        "effects_stop",
        "effects_orphanscan",
        "effects_ledgermark",
    }
    assert all("DELETE" not in rights for rights in database.EXCEPTIONS.values())


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE public.mine (n int)",
        "CREATE TABLE engine.mine (n int)",
        "CREATE SCHEMA mine",
        "ALTER TABLE runs_run ADD COLUMN mine int",
        "DROP TABLE console_auditevent",
        "ALTER TABLE console_auditevent DISABLE TRIGGER ALL",
        "ALTER TABLE console_auditevent OWNER TO CURRENT_USER",
        "CREATE ROLE another",
    ],
)
def test_the_application_changes_no_table(granted: Urls, statement: str) -> None:
    with (
        psycopg.connect(granted.database, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_a_right_given_by_hand_is_taken_back(granted: Urls) -> None:
    with psycopg.connect(granted.owner_database, autocommit=True) as owner:
        owner.execute(f"GRANT ALL ON console_auditevent TO {APPLICATION_ROLE}")
        owner.execute(f"GRANT CREATE ON SCHEMA engine TO {APPLICATION_ROLE}")
        assert "UPDATE" in allowed(granted.database, "public", "console_auditevent")
        database.grant(owner, APPLICATION_ROLE)
    assert allowed(granted.database, "public", "console_auditevent") == {"SELECT", "INSERT"}
    with psycopg.connect(granted.database) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE TABLE engine.mine (n int)")


def test_a_renamed_table_of_evidence_stops_the_setup(granted: Urls) -> None:
    with psycopg.connect(granted.owner_database, autocommit=True) as owner:
        owner.execute("ALTER TABLE effects_observation RENAME TO elsewhere")
        try:
            with pytest.raises(database.TableMissing, match=r"public\.effects_observation"):
                database.grant(owner, APPLICATION_ROLE)
        finally:
            owner.execute("ALTER TABLE elsewhere RENAME TO effects_observation")


def refusal(monkeypatch: pytest.MonkeyPatch, url: str) -> str:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(BadEnvironment) as refused:
        database.require()
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith("signalbox: DATABASE_URL ")
    return text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": "nobody_known"}, "nobody_known may not log in"),
        ({"password": "canary-password"}, "Check the user and the password"),
        ({"dbname": "elsewhere"}, "names the database elsewhere"),
        ({"host": "127.0.0.1", "port": "1"}, "no Postgres answers"),
        ({"host": "/no/such/folder"}, "no Postgres answers"),
        ({"host": "no-such-host.invalid"}, "no Postgres answers"),
    ],
)
def test_a_wrong_address_is_one_line_without_the_password(
    urls: Urls, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(urls.database) | change
    text = refusal(monkeypatch, psycopg.conninfo.make_conninfo(**parts))
    assert words in text
    assert str(parts["password"]) not in text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is not set"),
        ("mysql://someone@somewhere/something", "no Postgres address"),
        ("nonsense", "no Postgres address"),
        ("postgresql://host:port/name", "no Postgres address|names no user"),
        ("postgresql://127.0.0.1/signalbox", "names no user or no database"),
    ],
)
def test_what_is_no_address_is_told(monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.delenv("DATABASE_URL_FILE", raising=False)
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(BadEnvironment, match=words) as refused:
        database.require()
    assert "\n" not in str(refused.value)


def test_a_right_address_is_returned(urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", urls.database)
    assert database.require() == urls.database
