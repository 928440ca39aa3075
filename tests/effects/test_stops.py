"""The kill switch: what it stops, what it lets finish, and what waits for it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, NotFound
from console.models import AuditEvent
from effects.commands.stop_sending import lift_stop, stop_sending
from effects.ledger import Wait
from effects.models import Stop
from effects.origin import Result
from effects.selectors import worth_a_visit
from effects.states import Outcome, StopScope
from tests.effects.book import Book
from tests.people import make_world

SCOPES = [(StopScope.WORKSPACE, ""), (StopScope.RECEIVER, "crm"), (StopScope.TYPE, "ledger.offer")]


def stop(book: Book, scope: StopScope, target: str = "", by: Any = None, **given: Any) -> Stop:
    usual = {"reason": "The CRM doubles everything.", "token": uuid.uuid4().hex}
    return stop_sending(
        book.world.actor(by or book.world.releaser), scope=scope, target=target, **{**usual, **given}
    )


def lift(book: Book, standing: Stop, **given: Any) -> Stop:
    usual = {"reason": "It was mended.", "token": uuid.uuid4().hex}
    return lift_stop(book.world.actor(book.world.releaser), standing.id, **{**usual, **given})


@pytest.mark.parametrize(("scope", "target"), SCOPES)
def test_nothing_further_is_sent_until_it_is_lifted(book: Book, scope: StopScope, target: str) -> None:
    proposal = book.propose()
    standing = stop(book, scope, target)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "ready")
    assert not worth_a_visit([proposal.effect_id]).exists(), "its run is not woken for nothing"
    lift(book, standing)
    assert worth_a_visit([proposal.effect_id]).exists()
    assert isinstance(book.perform(proposal.effect_id), Result)
    assert book.witness.rx == (1, 1)


@pytest.mark.parametrize(
    ("scope", "target"), [(StopScope.RECEIVER, "desk"), (StopScope.TYPE, "ledger.ticket")]
)
def test_it_stops_its_scope_alone(book: Book, scope: StopScope, target: str) -> None:
    stop(book, scope, target)
    assert isinstance(book.perform(book.propose().effect_id), Result)
    ticket = book.propose("ledger.ticket")
    assert isinstance(book.perform(ticket.effect_id), Wait)
    assert book.witness.rx == (1, 1)


def test_another_workspaces_switch_is_none_of_ours(book: Book) -> None:
    other = make_world("other")
    stop_sending(other.actor(other.releaser), scope=StopScope.WORKSPACE, reason="?", token="t")
    assert isinstance(book.perform(book.propose().effect_id), Result)


def test_in_backoff_it_is_not_tried_again(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("429")
    book.perform(proposal.effect_id)
    standing = stop(book, StopScope.RECEIVER, "crm")
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")
    assert book.witness.rx == (0, 1)
    lift(book, standing)
    assert isinstance(book.perform_now(proposal.effect_id), Result)


def test_uncertain_its_key_is_not_sent_again(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    stop(book, StopScope.TYPE, "ledger.offer")
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert book.witness.rx == (1, 1)


def test_what_is_in_flight_finishes_and_is_recorded(book: Book) -> None:
    proposal = book.propose()
    _, attempt = book.claim(proposal.effect_id)
    stop(book, StopScope.WORKSPACE)
    book.settle(proposal.effect_id, attempt, Outcome.COMPLETED, reference="off_1", body={"id": "off_1"})
    assert book.standing(proposal.effect_id) == ("completed", "")


def test_an_intent_is_saved_all_the_same(book: Book) -> None:
    stop(book, StopScope.WORKSPACE)
    assert book.standing(book.propose().effect_id) == ("pending", "ready")


def test_setting_it_twice_is_told_and_the_same_form_is_the_same(book: Book) -> None:
    first = stop(book, StopScope.RECEIVER, "crm", token="form")
    assert stop(book, StopScope.RECEIVER, "crm", token="form").id == first.id
    with pytest.raises(AlreadyDone, match="stopped there already"):
        stop(book, StopScope.RECEIVER, "crm")
    lift(book, first, token="off")
    assert lift(book, first, token="off").lifted_at is not None
    with pytest.raises(AlreadyDone, match="lifted already"):
        lift(book, first)
    assert stop(book, StopScope.RECEIVER, "crm").id != first.id


@pytest.mark.parametrize(
    ("scope", "target", "given", "field"),
    [
        (StopScope.RECEIVER, "nobody", {}, "target"),
        (StopScope.TYPE, "no.such", {}, "target"),
        (StopScope.WORKSPACE, "crm", {}, "target"),
        (StopScope.WORKSPACE, "", {"reason": " "}, "reason"),
    ],
)
def test_bad_input_stops_nothing(
    book: Book, scope: StopScope, target: str, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        stop(book, scope, target, **given)
    assert refusal.value.field == field
    assert Stop.objects.count() == 0


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "auditor", "developer", "administrator"])
def test_only_a_releaser_sets_and_lifts_it(book: Book, role: str) -> None:
    person = getattr(book.world, role)
    with pytest.raises(Forbidden):
        stop(book, StopScope.WORKSPACE, by=person)
    standing = stop(book, StopScope.WORKSPACE)
    with pytest.raises(Forbidden):
        lift_stop(book.world.actor(person), standing.id, reason="?", token="t")
    refusals = AuditEvent.objects.filter(actor=person, verb__in=["stop.not_set", "stop.not_lifted"])
    assert refusals.count() == 2
    assert Stop.objects.get().lifted_at is None


def test_a_switch_of_another_workspace_is_not_there(book: Book) -> None:
    standing = stop(book, StopScope.WORKSPACE)
    other = make_world("other")
    with pytest.raises(NotFound):
        lift_stop(other.actor(other.releaser), standing.id, reason="?", token="t")
