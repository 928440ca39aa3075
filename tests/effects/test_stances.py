"""What a replay or a branch may do to the outside world, as far as the ledger itself decides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction

from console.kernel.ids import new_id
from effects import contracts as deployment
from effects.doubles import NoDouble, NotRecorded
from effects.intents import Conflict
from effects.ledger import Blocked, Wait
from effects.models import Command, Effect, EffectAttempt, WouldHave
from effects.origin import Result
from effects.selectors import request_of, revision_of
from effects.states import Stance
from tests.effects.book import Book, Run
from tests.effects.promises import offer


def origin(book: Book, stance: Stance, **fields: Any) -> Run:
    return Run(book.world.workspace.id, new_id("run"), stance=stance, **fields)


@pytest.mark.parametrize("stance", [Stance.EVIDENCE, Stance.SIMULATION])
def test_what_would_have_been_sent_is_a_row_of_its_own_kind(book: Book, stance: Stance) -> None:
    run = origin(book, stance)
    first = book.propose(run=run)
    assert book.propose(run=run).effect_id == first.effect_id
    row = WouldHave.objects.get()
    assert (row.id, row.run_id, row.effect_type) == (first.effect_id, run.run_id, "ledger.offer")
    assert row.request_hash == book.propose(key="the original").request_hash
    assert Effect.objects.filter(run_id=run.run_id).count() == 0
    assert Command.objects.filter(run_id=run.run_id).count() == 0


def test_evidence_returns_the_recording_and_asks_nobody(book: Book) -> None:
    original = book.propose()
    done = book.perform(original.effect_id)
    assert isinstance(done, Result)
    run = origin(book, Stance.EVIDENCE, lineage={original.effect_id: False})
    again = book.propose(run=run)
    assert again == original, "the state comes out as it was recorded"
    assert book.perform(again.effect_id, run=run) == done
    assert book.witness.rx == (1, 1)
    (would_be,) = WouldHave.objects.filter(run_id=run.run_id)
    assert (would_be.stands_for, would_be.request_hash) == (original.effect_id, original.request_hash)


def test_evidence_has_no_result_for_another_payload(book: Book) -> None:
    original = book.propose()
    book.perform(original.effect_id)
    run = origin(book, Stance.EVIDENCE, lineage={original.effect_id: False})
    other = book.propose(run=run, amount_minor=7)
    with pytest.raises(NotRecorded, match="no recorded result") as missing:
        book.perform(other.effect_id, run=run)
    assert missing.value.intended.stands_for == original.effect_id
    assert book.witness.rx == (1, 1)


@pytest.mark.parametrize("stance", [Stance.FRESH, Stance.SIMULATION])
def test_what_was_settled_before_the_checkpoint_is_history(book: Book, stance: Stance) -> None:
    original = book.propose()
    done = book.perform(original.effect_id)
    run = origin(book, stance, lineage={original.effect_id: True})
    assert book.perform(original.effect_id, run=run) == done
    assert book.witness.rx == (1, 1)
    assert not Effect.objects.filter(run_id=run.run_id).exists()
    assert not WouldHave.objects.filter(run_id=run.run_id).exists()


def test_what_came_after_the_checkpoint_is_this_runs_own_to_bring_about(book: Book) -> None:
    original = book.propose()
    book.perform(original.effect_id)
    run = origin(book, Stance.FRESH, lineage={original.effect_id: False})
    assert isinstance(book.perform(original.effect_id, run=run), Wait)
    own = Effect.objects.get(run_id=run.run_id)
    assert own.id != original.effect_id
    assert own.request_hash == original.request_hash
    assert book.witness.rx == (1, 1)
    book.decide(book.ask(own.id, run=run))
    result = book.perform(original.effect_id, run=run)
    assert isinstance(result, Result)
    assert result.effect_id == own.id
    assert book.witness.rx == (2, 2)


def test_a_run_that_is_of_no_lineage_acts_on_no_others_effect(book: Book) -> None:
    original = book.propose()
    for stance in (Stance.FRESH, Stance.SIMULATION, Stance.EVIDENCE):
        with pytest.raises(Conflict):
            book.perform(original.effect_id, run=origin(book, stance))
    assert book.witness.rx == (0, 0)


def test_a_simulation_is_answered_by_the_double(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    run = origin(book, Stance.SIMULATION)
    _deploy(monkeypatch, replace(offer, double=None))
    without = book.propose(run=run)
    with pytest.raises(NoDouble, match="declares no double"):
        book.perform(without.effect_id, run=run)
    doubled = replace(offer, double=lambda payload: {"id": "off_double", "amount": payload["amount_minor"]})
    _deploy(monkeypatch, doubled)
    result = book.perform(without.effect_id, run=run)
    assert isinstance(result, Result)
    assert (result.reference, result.answer) == ("off_double", {"id": "off_double", "amount": 1000})
    assert book.witness.rx == (0, 0)
    assert EffectAttempt.objects.filter(effect__workspace=book.world.workspace).count() == 0


def test_a_would_be_effect_is_never_sent_by_another_origin(book: Book) -> None:
    intended = book.propose(run=origin(book, Stance.SIMULATION))
    with pytest.raises(Conflict):
        book.perform(intended.effect_id)
    assert book.witness.rx == (0, 0)


def test_a_live_replay_asks_for_every_write_whatever_the_policy(book: Book) -> None:
    run = origin(book, Stance.FRESH)
    proposal = book.propose(run=run)
    assert book.standing(proposal.effect_id) == ("pending", "recorded")
    assert isinstance(book.perform(proposal.effect_id, run=run), Wait)
    assert book.witness.rx == (0, 0)
    book.decide(book.ask(proposal.effect_id, run=run))
    assert isinstance(book.perform(proposal.effect_id, run=run), Result)
    assert book.witness.rx == (1, 1)


def test_an_irreversible_type_is_blocked_until_a_releaser_permits_it(book: Book) -> None:
    run = origin(book, Stance.FRESH)
    proposal = book.propose("ledger.mail", run=run)
    with pytest.raises(Blocked, match="cannot be undone"):
        book.perform(proposal.effect_id, run=run)
    assert book.witness.mails(proposal.effect_id) == []
    run.permitted_types = frozenset({"ledger.mail"})
    book.decide(book.ask(proposal.effect_id, run=run))
    assert isinstance(book.perform(proposal.effect_id, run=run), Result)
    assert len(book.witness.mails(proposal.effect_id)) == 1


def test_the_originals_approval_does_not_count_for_a_branch(book: Book) -> None:
    approved = book.approved()
    run = origin(book, Stance.FRESH)
    again = book.propose("ledger.asked_offer", run=run)
    assert again.effect_id != approved.id
    assert again.request_hash == approved.request_hash
    assert isinstance(book.perform(again.effect_id, run=run), Wait)
    assert book.witness.rx == (0, 0)


# --- another version of the contract --------------------------------------------------------------------------------


def _deploy(monkeypatch: pytest.MonkeyPatch, promise: Any) -> None:
    """The deployment has this contract now."""
    known = dict(deployment.contracts())
    monkeypatch.setattr(deployment, "contracts", lambda: {**known, promise.type: promise})


@pytest.mark.parametrize("effect_type", ["ledger.offer", "ledger.asked_offer"])
def test_another_version_asks_again_naming_what_changed(
    book: Book, monkeypatch: pytest.MonkeyPatch, effect_type: str
) -> None:
    effect = book.approved() if effect_type == "ledger.asked_offer" else book.effect(book.propose().effect_id)
    known = deployment.contracts()[effect_type]
    moved = replace(known, version=2, wire=replace(known.wire, path="/v1/offers?by=2"))  # type: ignore[arg-type]
    _deploy(monkeypatch, moved)
    assert isinstance(book.perform(effect.id), Wait)
    asked = book.effect(effect.id)
    assert (asked.sub_state, asked.revision, asked.contract_version) == ("awaiting_approval", 2, 2)
    assert asked.grant_approval_id == ""
    assert "from version 1 to 2" in asked.problem
    assert "changes path of the request" in asked.problem
    with transaction.atomic():
        request = book.ask(effect.id, interrupt=f"for {effect.id}")
    assert "from version 1 to 2" in request.why
    assert request.revision == 2
    book.decide(request)
    assert isinstance(book.perform(effect.id), Result)
    assert b"by=2" in request_of(asked, revision_of(asked, 2))
    assert [one["path"] for one in book.witness.requests()] == ["/v1/offers"]
    assert book.witness.rx == (1, 1)


def test_what_may_be_there_already_is_not_sent_under_another_version(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    _deploy(monkeypatch, replace(offer, version=2))
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.reviews(proposal.effect_id) == ["mismatch"]
    assert book.witness.rx == (1, 1)


def test_a_payload_that_the_new_version_refuses_goes_to_review(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = book.propose()
    schema = {**offer.schema, "required": [*offer.schema["required"], "valid_until"]}
    _deploy(monkeypatch, replace(offer, version=2, schema=schema))
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.reviews(proposal.effect_id) == ["mismatch"]
    assert book.effect(proposal.effect_id).contract_version == 1
    assert book.witness.rx == (0, 0)
