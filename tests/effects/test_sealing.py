"""Payloads are sealed: nothing readable in a column, nothing that opens elsewhere, nothing protected in what is shown."""

from __future__ import annotations

import pytest
from django.db import connection

from console.kernel.crypto import Undecryptable
from console.kernel.masking import is_masked
from effects import intents, rounds
from effects.models import Approval, Effect, EffectRevision
from effects.selectors import answer_of, payload_of, request_of, revision_of
from effects.states import Decision
from tests.effects.book import Book, at, tables_that_hold
from tests.effects.conftest import _open
from tests.people import make_world

TEXT = "Canary-Offer-7713"


def test_a_payload_stands_in_no_column_as_it_is(book: Book) -> None:
    """Neither before it is sent nor after: intent, arguments, bytes to send, answer."""

    payload = {**book.usual("ledger.masked_offer"), "subject": TEXT}
    proposal = intents.propose(book.run, "ledger.masked_offer", "one", payload, at(arguments=payload))
    assert tables_that_hold(TEXT) == []

    book.perform(proposal.effect_id)

    assert TEXT in book.witness.requests()[0]["body"]
    assert tables_that_hold(TEXT) == []
    effect = book.effect(proposal.effect_id)
    answer = answer_of(effect)
    assert isinstance(answer, dict)
    assert answer["subject"] == TEXT
    opened = payload_of(effect, revision_of(effect))
    assert isinstance(opened, dict)
    assert opened["subject"] == TEXT


def test_a_mail_stands_in_no_column_as_it_is(book: Book) -> None:
    proposal = book.propose("ledger.mail", body=TEXT)
    book.perform(proposal.effect_id)
    assert TEXT in book.witness.mails(proposal.effect_id)[0]["text"]
    address = book.usual("ledger.mail")["to"]
    assert tables_that_hold(TEXT) == []
    assert tables_that_hold(address) == []


def test_questions_and_answers_of_people_are_sealed(book: Book) -> None:
    approval = book.ask(body={"question": TEXT})
    decision = book.decide(approval, Decision.RESPOND, answer=TEXT)
    assert tables_that_hold(TEXT) == []
    assert rounds.body_of(approval) == {"question": TEXT}
    assert rounds.answer_of(decision, approval) == TEXT


def test_an_edit_is_sealed(book: Book) -> None:
    allows = (Decision.APPROVE, Decision.EDIT)
    approval = book.ask(book.propose("ledger.customer_note").effect_id, allows=allows)
    action = book.ask(
        interrupt="int_2",
        asks="action",
        body={"name": "say", "args": {"text": ""}},
        allows=allows,
        title="Say",
    )
    book.decide(action, Decision.EDIT, answer={"text": TEXT})
    assert tables_that_hold(TEXT) == []
    assert approval.status == "pending"


def test_a_sealed_payload_does_not_open_in_another_workspace_or_row(book: Book) -> None:
    mine = book.propose()
    other_book = _open(make_world("other"), book.witness)
    theirs = other_book.propose()
    sibling = book.propose(key="two")
    source = EffectRevision.objects.get(effect_id=mine.effect_id)
    for target in (theirs, sibling):
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO effects_effectrevision (effect_id, n, payload, request, shown, recipient, request_hash) "
                "SELECT %s, 9, payload, request, shown, recipient, request_hash FROM effects_effectrevision WHERE id = %s",
                [target.effect_id, source.id],
            )
        effect = book.effect(target.effect_id)
        copied = EffectRevision.objects.get(effect=effect, n=9)
        for opening in (payload_of, request_of):
            with pytest.raises(Undecryptable):
                opening(effect, copied)
    assert payload_of(book.effect(mine.effect_id), source)


def test_the_same_payload_twice_is_sealed_differently(book: Book) -> None:
    """Otherwise equal payloads could be told by their bytes."""
    for key in ("one", "two"):
        book.propose(key=key)
    sealed = EffectRevision.objects.filter(effect__workspace=book.world.workspace).values_list(
        "payload", flat=True
    )
    assert len({bytes(one) for one in sealed}) == 2


def test_what_is_shown_holds_no_protected_value(book: Book) -> None:
    proposal = book.propose("ledger.mail", body=TEXT)
    shown = EffectRevision.objects.get(effect_id=proposal.effect_id).shown
    assert is_masked(shown["to"])
    assert is_masked(shown["body"])
    assert shown["subject"] == "Your offer"
    assert TEXT not in str(shown)
    effect = book.effect(proposal.effect_id)
    assert effect.recipient.endswith("@harborpine.example")
    assert book.world.workspace.id not in effect.recipient
    assert Effect.objects.filter(recipient__contains=book.world.workspace.id).count() == 0


def test_what_is_asked_shows_no_protected_value(book: Book) -> None:
    """Titles, reasons and bodies in the inbox are read by everybody who may see the run."""
    approval = book.ask(book.propose("ledger.mail", body=TEXT).effect_id)
    row = Approval.objects.filter(id=approval.id).values().get()
    assert TEXT not in str({**row, "body": bytes(row["body"])})
    assert book.usual("ledger.mail")["to"] not in str({**row, "body": bytes(row["body"])})
