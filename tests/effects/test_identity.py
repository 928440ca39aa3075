"""An effect is what was asked for, where: the same after any rerun, another in any other place."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from console.kernel.ids import effect_id as identity
from effects import intents
from effects.models import Command, Effect, EffectRevision
from tests.effects.book import Book, Run, at, at_once, rows_of_all_tables
from tests.effects.conftest import _open
from tests.people import make_world


def test_the_same_command_is_the_same_effect(book: Book) -> None:
    first = book.propose()
    rows = rows_of_all_tables()

    again = book.propose()

    assert again == first
    assert rows_of_all_tables() == rows
    effect = book.effect(first.effect_id)
    assert effect.id == effect.key
    assert effect.id == identity(
        workspace=book.world.workspace.id,
        run_id=book.run.run_id,
        position="a place",
        effect_type="ledger.offer",
        command_key="one",
    )


@pytest.mark.parametrize(
    "other",
    [{"key": "two"}, {"position": "another place"}, {"effect_type": "ledger.quick_offer"}],
    ids=lambda other: next(iter(other)),
)
def test_another_command_is_another_effect(book: Book, other: dict[str, Any]) -> None:
    first, second = book.propose(), book.propose(**other)
    assert second.effect_id != first.effect_id
    assert Effect.objects.filter(workspace=book.world.workspace).count() == 2


def test_another_run_has_another_effect(book: Book) -> None:
    first, second = book.propose(), book.propose(run=Run(book.world.workspace.id))
    assert second.effect_id != first.effect_id


def test_two_workspaces_with_the_same_inputs_have_two_effects(book: Book) -> None:
    """Even one run id in both: the workspace is part of what an effect is."""
    other = _open(make_world("other"), book.witness)
    other.run.run_id = book.run.run_id

    mine, theirs = book.propose(), other.propose()

    assert mine.effect_id != theirs.effect_id
    assert mine.request_hash == theirs.request_hash


def test_the_id_is_carried_and_never_computed_again(book: Book) -> None:
    """A migration of the state shifts positions: the command's row keeps the id that it was given."""
    proposal = book.propose()
    Command.objects.filter(effect=proposal.effect_id).update(position="a place that was moved")

    again = book.propose(position="a place that was moved")

    assert again.effect_id == proposal.effect_id
    assert (
        identity(
            workspace=book.world.workspace.id,
            run_id=book.run.run_id,
            position="a place that was moved",
            effect_type="ledger.offer",
            command_key="one",
        )
        != again.effect_id
    )


def test_the_key_that_is_sent_is_derived_from_the_id_alone(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    [request] = book.witness.requests()
    assert request["key"] == proposal.effect_id


def test_a_fresh_tool_call_id_changes_nothing(book: Book) -> None:
    """Asked again, a model gives the same call a fresh random id; the tools node finds the effect by the newest."""
    usual = book.usual("ledger.offer")
    first = intents.propose(book.run, "ledger.offer", "tool:0", usual, at(tool_call_id="call_1"))
    again = intents.propose(book.run, "ledger.offer", "tool:0", usual, at(tool_call_id="call_2"))
    assert again == first
    assert Command.objects.get(effect=first.effect_id).tool_call_id == "call_2"


COPIES = {
    "command": 'INSERT INTO effects_command SELECT (jsonb_populate_record(c, \'{{"id": "cmd_copy"}}\')).* '
    "FROM effects_command c JOIN effects_effect e ON e.command_id = c.id WHERE e.id = '{id}'",
    "effect": "INSERT INTO effects_effect SELECT * FROM effects_effect WHERE id = '{id}'",
    "effect_of_the_command": "INSERT INTO effects_effect SELECT "
    '(jsonb_populate_record(e, \'{{"id": "eff_copy", "key": "eff_copy"}}\')).* FROM effects_effect e WHERE id = \'{id}\'',
    "revision": "INSERT INTO effects_effectrevision (effect_id, n, payload, request, shown, recipient, request_hash) "
    "SELECT effect_id, n, payload, request, shown, recipient, request_hash FROM effects_effectrevision "
    "WHERE effect_id = '{id}'",
    "attempt": "INSERT INTO effects_effectattempt (effect_id, n, fence, revision, request_hash, outcome, worker_id, "
    "origin, answer_status, provider_reference, problem, ended_at) SELECT effect_id, n, fence, revision, "
    "request_hash, outcome, worker_id, origin, answer_status, provider_reference, problem, ended_at "
    "FROM effects_effectattempt WHERE effect_id = '{id}'",
}


@pytest.mark.parametrize("what", COPIES)
def test_raw_sql_makes_no_second_row(book: Book, what: str) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    with pytest.raises(IntegrityError, match="unique"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(COPIES[what].format(id=proposal.effect_id))


def test_ten_workers_that_propose_at_once_make_one_row(kept: Book) -> None:
    answers = at_once(10, lambda _: kept.propose())

    assert len({str(answer) for answer in answers}) == 1, answers
    effect = Effect.objects.get(workspace=kept.world.workspace)
    assert Command.objects.filter(workspace=kept.world.workspace).count() == 1
    assert EffectRevision.objects.filter(effect=effect).count() == 1
    assert kept.standing(effect.id) == ("pending", "ready")
