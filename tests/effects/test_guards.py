"""What the database itself refuses, to the application's role and to the owner: the ledger does not rest on good code."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import IntegrityError, ProgrammingError, connection, transaction
from psycopg import conninfo, sql

from console.models import AuditEvent
from effects import moves
from effects.models import Effect
from effects.states import (
    MOVES,
    ONLY_UNDER_REVIEW,
    EffectStatus,
    Outcome,
    Pair,
    ReviewReason,
    SubState,
)
from tests.effects.book import Book, Witness
from tests.effects.conftest import _open
from tests.people import make_world


@pytest.fixture(scope="module")
def written(django_db_setup: None, django_db_blocker: Any, outside: Witness) -> str:
    """The id of a completed effect with a row in every table of evidence, committed for all connections to see."""
    with django_db_blocker.unblock():
        book = _open(make_world("guards"), outside)
        effect = book.approved()
        effect, attempt = book.claim(effect.id)
        book.settle(
            effect.id, attempt, Outcome.COMPLETED, status="201", reference="off_1", body={"id": "off_1"}
        )
        moves.observe(effect, "look_up", "found", "The receiver has it.")
        assert book.standing(effect.id) == ("completed", "")
        assert AuditEvent.objects.filter(workspace=book.world.workspace).exists()
        connection.close()
    return effect.id


def application() -> psycopg.Connection[Any]:
    """A connection of its own under the application's role."""
    return psycopg.connect(settings.DATABASE_URL)


def owner() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["OWNER_DATABASE_URL"])


#: Table of evidence → how its rows of one effect are found, and a column to change.
EVIDENCE = {
    "console_auditevent": (
        "workspace_id = (SELECT workspace_id FROM effects_effect WHERE id = %(id)s)",
        "sentence = 'nothing happened'",
    ),
    "effects_effectrevision": ("effect_id = %(id)s", "request_hash = 'sha256:other'"),
    "effects_observation": ("effect_id = %(id)s", "found = 'absent'"),
    "effects_approvaldecision": (
        "approval_id IN (SELECT id FROM effects_approval WHERE effect_id = %(id)s)",
        "decision = 'reject', reason = 'changed'",
    ),
    "effects_effectattempt": ("effect_id = %(id)s", "outcome = 'not_sent'"),
}


def statements(table: str) -> dict[str, str]:
    where, change = EVIDENCE[table]
    return {
        "UPDATE": f"UPDATE {table} SET {change} WHERE {where}",
        "DELETE": f"DELETE FROM {table} WHERE {where}",
        "TRUNCATE": f"TRUNCATE {table} CASCADE",
    }


@pytest.mark.parametrize("table", EVIDENCE)
def test_the_rows_are_there(written: str, table: str) -> None:
    """Otherwise the refusals below would be of nothing."""
    with owner() as connection:
        found = connection.execute(
            f"SELECT count(*) FROM {table} WHERE {EVIDENCE[table][0]}", {"id": written}
        )
        assert found.fetchone() != (0,)


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE", "TRUNCATE"])
@pytest.mark.parametrize("table", EVIDENCE)
def test_evidence_is_immutable_for_the_application(written: str, table: str, verb: str) -> None:
    # An attempt may be ended once, so its role has UPDATE there; the trigger guards the ended ones.
    expected = (
        psycopg.errors.RaiseException
        if (table, verb) == ("effects_effectattempt", "UPDATE")
        else psycopg.errors.InsufficientPrivilege
    )
    with application() as connection, pytest.raises(expected):
        connection.execute(statements(table)[verb], {"id": written})


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE", "TRUNCATE"])
@pytest.mark.parametrize("table", EVIDENCE)
def test_evidence_is_immutable_for_the_owner(written: str, table: str, verb: str) -> None:
    with owner() as connection, pytest.raises(psycopg.errors.RaiseException):
        connection.execute(statements(table)[verb], {"id": written})


COMPLETED = {
    "its status": "status = 'failed', sub_state = 'refused'",
    "its reference": "provider_reference = 'off_2'",
    "its hash": "request_hash = 'sha256:other'",
    "nothing at all": "status = status",
}


@pytest.mark.parametrize("change", COMPLETED)
@pytest.mark.parametrize("connect", [application, owner])
def test_a_completed_effect_never_changes(written: str, connect: Any, change: str) -> None:
    with connect() as connection, pytest.raises(psycopg.errors.RaiseException, match="can never change"):
        connection.execute(f"UPDATE effects_effect SET {COMPLETED[change]} WHERE id = %s", [written])


@pytest.mark.parametrize("connect", [application, owner])
def test_an_effect_with_evidence_can_not_be_deleted(written: str, connect: Any) -> None:
    """The application may delete none at all; its owner is stopped by what refers to it."""
    refused = (psycopg.errors.ForeignKeyViolation, psycopg.errors.InsufficientPrivilege)
    delete = sql.SQL("DELETE FROM effects_effect WHERE id = {}; SET CONSTRAINTS ALL IMMEDIATE")
    with connect() as connection, pytest.raises(refused):
        connection.execute(delete.format(sql.Literal(written)))


@pytest.mark.parametrize("connect", [application, owner])
def test_no_session_can_switch_a_guard_off(written: str, connect: Any) -> None:
    """pgtrigger's own switch is a setting that any session may set."""
    guards = "{" + ",".join(_triggers("effects_effect")) + "}"
    change = sql.SQL("UPDATE effects_effect SET problem = '' WHERE id = {}").format(sql.Literal(written))
    with connect() as connection:
        connection.execute(sql.SQL("SET pgtrigger.ignore = {}").format(sql.Literal(guards)))
        with pytest.raises(psycopg.errors.RaiseException, match="can never change"):
            connection.execute(change)


def _triggers(table: str) -> list[str]:
    with owner() as connection:
        rows = connection.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", [table]
        ).fetchall()
    assert rows
    return [row[0] for row in rows]


@pytest.mark.parametrize("connect", [application, owner])
def test_the_ledger_can_not_be_emptied(written: str, connect: Any) -> None:
    refused = (psycopg.errors.RaiseException, psycopg.errors.InsufficientPrivilege)
    with connect() as connection, pytest.raises(refused):
        connection.execute("TRUNCATE effects_effect CASCADE")


@pytest.mark.parametrize(
    "statement",
    [
        "SET session_replication_role = replica",
        "ALTER TABLE effects_effect DISABLE TRIGGER ALL",
        "ALTER TABLE effects_effect DROP CONSTRAINT effect_sent_only_with_grant",
        "CREATE TABLE public.mine (id int)",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('effects', 'x', now())",
    ],
)
def test_the_application_can_not_take_the_guards_away(written: str, statement: str) -> None:
    with application() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


def test_the_two_roles_are_two() -> None:
    names = [
        conninfo.conninfo_to_dict(url)["user"]
        for url in (settings.DATABASE_URL, os.environ["OWNER_DATABASE_URL"])
    ]
    assert names[0] != names[1]
    with application() as connection:
        row = connection.execute(
            sql.SQL("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        ).fetchone()
    assert row == (False,)


#: What no row of an effect may say, each with the constraint that refuses it.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "in flight without a grant": (
        {
            "needs_approval": True,
            "sub_state": "in_flight",
            "lease_until": "2100-01-01T00:00Z",
            "grant_hash": "",
        },
        "effect_sent_only_with_grant",
    ),
    "ready by a grant for another revision": (
        {"needs_approval": True, "sub_state": "ready", "revision": 2},
        "effect_sent_only_with_grant",
    ),
    "ready by a grant for other bytes": (
        {"needs_approval": True, "sub_state": "ready", "request_hash": "sha256:other"},
        "effect_sent_only_with_grant",
    ),
    "ready without any grant": (
        {"needs_approval": True, "sub_state": "ready", "grant_revision": None, "grant_hash": ""},
        "effect_sent_only_with_grant",
    ),
    "in flight without a lease": (
        {"sub_state": "in_flight", "lease_until": None},
        "effect_in_flight_has_lease",
    ),
    "uncertain and resolved": (
        {"sub_state": "uncertain", "unresolved": False},
        "effect_uncertain_is_unresolved",
    ),
    "backoff and unresolved": ({"sub_state": "backoff", "unresolved": True}, "effect_unresolved_not_closed"),
    "held and unresolved": ({"sub_state": "held", "unresolved": True}, "effect_unresolved_not_closed"),
    "ready and unresolved": ({"sub_state": "ready", "unresolved": True}, "effect_unresolved_not_closed"),
    "refused and unresolved": (
        {"status": "failed", "sub_state": "refused", "unresolved": True, "settled_at": "2026-01-01T00:00Z"},
        "effect_unresolved_not_closed",
    ),
    "completed and refused": (
        {"status": "completed", "sub_state": "refused", "settled_at": "2026-01-01T00:00Z"},
        "effect_status_pairs",
    ),
    "failed and ready": (
        {"status": "failed", "sub_state": "ready", "settled_at": "2026-01-01T00:00Z"},
        "effect_status_pairs",
    ),
    "pending and nothing": ({"status": "pending", "sub_state": ""}, "effect_status_pairs"),
    "an unknown sub-state": ({"sub_state": "lost"}, "effect_status_pairs"),
    "completed without a time": ({"status": "completed", "sub_state": ""}, "effect_settled_has_time"),
    "pending with a time of its end": ({"settled_at": "2026-01-01T00:00Z"}, "effect_settled_has_time"),
}


@pytest.mark.parametrize("sub_state", ["refused", "rejected_by_person", "cancelled"])
def test_a_failed_effect_is_not_edited_where_it_stands(book: Book, sub_state: str) -> None:
    effect = book.standing_as(
        book.approved(), status="failed", sub_state=sub_state, settled_at="2026-01-01T00:00Z"
    )
    with pytest.raises(ProgrammingError, match="has failed and can not be edited"), transaction.atomic():
        Effect.objects.filter(id=effect.id).update(problem="another reason")


def test_the_database_refuses_every_move_that_states_does_not_name(book: Book) -> None:
    """Whoever writes the UPDATE. The pairs are those of states.MOVES, tried one by one."""
    effect = book.approved()
    pairs = list(MOVES)
    for was in pairs:
        there = book.standing_as(effect, **_at(was))
        for to in pairs:
            if to != was and was[0] != EffectStatus.COMPLETED and (was, to) not in ONLY_UNDER_REVIEW:
                assert _refused(there, to) is (to not in MOVES[was]), (was, to)


def _at(pair: Pair) -> dict[str, Any]:
    status, sub = pair
    return {
        "status": status,
        "sub_state": sub,
        "tries": 1,
        "unresolved": sub == SubState.UNCERTAIN,
        "lease_until": "2100-01-01T00:00Z" if sub == SubState.IN_FLIGHT else None,
        "settled_at": "2026-01-01T00:00Z"
        if status in (EffectStatus.COMPLETED, EffectStatus.FAILED)
        else None,
    }


def _refused(effect: Effect, to: Pair) -> bool:
    try:
        with transaction.atomic():
            Effect.objects.filter(id=effect.id).update(**_at(to))
            transaction.set_rollback(True)
    except ProgrammingError as error:
        return "can not move" in str(error)
    return False


@pytest.mark.parametrize(("was", "to"), ONLY_UNDER_REVIEW)
def test_what_needs_a_review_is_refused_without_one(book: Book, was: Pair, to: Pair) -> None:
    there = book.standing_as(book.approved(), **_at(was))
    with pytest.raises(ProgrammingError, match="only under review"), transaction.atomic():
        Effect.objects.filter(id=there.id).update(**_at(to))
    moves.open_review(there, ReviewReason.CONTRADICTION, "The receiver has it.")
    assert Effect.objects.filter(id=there.id).update(**_at(to)) == 1


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_is_impossible(book: Book, name: str) -> None:
    fields, constraint = WRONG[name]
    effect = book.approved()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        book.standing_as(effect, **fields)


@pytest.mark.parametrize("column", ["id", "workspace_id", "run_id", "effect_type", "key"])
def test_what_an_effect_is_never_changes(book: Book, column: str) -> None:
    proposal = book.propose()
    with (
        pytest.raises(Exception, match="can never change"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE effects_effect SET {column} = 'other' WHERE id = %s", [proposal.effect_id])


#: What no row beside an effect may say.
WRONG_BESIDE = {
    "two attempts under way": (
        "INSERT INTO effects_effectattempt (effect_id, n, fence, revision, request_hash, outcome, worker_id, origin, "
        "answer_status, provider_reference, problem) VALUES (%(id)s, 9, 9, 1, 'h', 'sending', '', 'x', '', '', '')",
        "attempt_one_sending",
    ),
    "an ended attempt without a time": (
        "UPDATE effects_effectattempt SET outcome = 'unknown' WHERE effect_id = %(id)s",
        "attempt_ended_has_time",
    ),
    "a review of nothing": (
        "INSERT INTO effects_review (id, workspace_id, reason, sentence, provider_object, closed_why, proposed_as, "
        "proposed_why, evidence, settled_as) "
        "SELECT 'rev_x', workspace_id, 'orphan', '?', '', '', '', '', '', '' FROM effects_effect WHERE id = %(id)s",
        "review_names_something",
    ),
    "a rejection without a reason": (
        "INSERT INTO effects_approvaldecision (approval_id, decision, reason, payload_hash, token) "
        "SELECT id, 'reject', '', 'h', 't' FROM effects_approval WHERE effect_id = %(id)s",
        "decision_reject_has_reason",
    ),
    "an approval decided without a time": (
        "UPDATE effects_approval SET status = 'decided', ended_at = NULL WHERE effect_id = %(id)s",
        "approval_ended_has_time",
    ),
    "a question about an effect": (
        "UPDATE effects_approval SET asks = 'question' WHERE effect_id = %(id)s",
        "approval_names_what_it_asks",
    ),
    "an approval of no revision": (
        "UPDATE effects_approval SET revision = NULL WHERE effect_id = %(id)s",
        "approval_names_revision",
    ),
}


@pytest.mark.parametrize("name", WRONG_BESIDE)
def test_a_wrong_row_beside_it_is_impossible(book: Book, name: str) -> None:
    statement, constraint = WRONG_BESIDE[name]
    effect = book.approved()
    book.claim(effect.id)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, {"id": effect.id})
