"""Orders about effects of a live replay or branch: what its run may not send by itself, no order sends for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db.models.functions import Now

from console.kernel.errors import AlreadyDone
from console.kernel.ids import new_id
from effects import fresh
from effects.commands.compensate import compensate
from effects.models import Effect
from effects.offers import offers
from effects.states import OrderKind, OrderStatus, Reversibility, Stance
from runs.models import Checkpoint, TypePermit, WorkflowVersion
from runs.models import Run as RunRow
from runs.selectors import fresh_runs
from runs.states import RunKind, RunMode
from tests.effects.book import Book, Run
from tests.effects.ordering import agree, asked, carry_out, deliver_again, refreshed, send_as_new, successors

MAIL = "ledger.mail"
BLOCKED = "a releaser has to permit this type on this run first"

Permit = Callable[..., None]


@pytest.fixture
def branch(book: Book, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Permit]:
    """A live branch, and what its releaser has permitted it so far: at first the mail, so that one can be under way."""
    run = Run(book.world.workspace.id, new_id("run"), stance=Stance.FRESH, permitted_types=frozenset({MAIL}))

    def permit(*types: str) -> None:
        monkeypatch.setattr(fresh, "_readers", [lambda ids: {run.run_id: frozenset(types)}])

    permit(MAIL)
    return run, permit


def held_mail(book: Book, run: Run) -> str:
    proposal = book.propose(MAIL, run=run)
    book.decide(book.ask(proposal.effect_id, run=run))
    book.point("smtp://127.0.0.1:9", receiver="mail")
    book.perform(proposal.effect_id, run=run)
    Effect.objects.filter(id=proposal.effect_id).update(give_up_at=Now(), due_at=Now())
    with pytest.raises(Exception, match="could not be reached"):
        book.perform(proposal.effect_id, run=run)
    assert book.standing(proposal.effect_id) == ("pending", "held")
    book.point(f"smtp://127.0.0.1:{book.witness.smtp_port}", receiver="mail")
    return proposal.effect_id


def test_an_irreversible_type_is_not_delivered_again_while_it_is_not_permitted(
    book: Book, branch: tuple[Run, Permit]
) -> None:
    run, permit = branch
    effect_id = held_mail(book, run)
    permit()
    assert BLOCKED in offers(book.effect(effect_id))[OrderKind.DELIVER_AGAIN].reason
    with pytest.raises(AlreadyDone, match=BLOCKED):
        deliver_again(book, effect_id)
    permit(MAIL)
    assert "has it as" in carry_out(deliver_again(book, effect_id))
    assert len(book.witness.mails(effect_id)) == 1


def test_it_is_asked_again_when_the_order_is_carried_out(book: Book, branch: tuple[Run, Permit]) -> None:
    run, permit = branch
    effect_id = held_mail(book, run)
    order = deliver_again(book, effect_id)
    permit()
    assert BLOCKED in carry_out(order)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert BLOCKED in refreshed(order).outcome
    assert book.witness.mails(effect_id) == []


def test_the_claim_itself_asks(
    book: Book, branch: tuple[Run, Permit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permission that is lost after the worker looked, and before it claims, is lost."""
    run, permit = branch
    effect_id = held_mail(book, run)
    order = deliver_again(book, effect_id)
    permit()
    monkeypatch.setattr("effects.orders._refusal", lambda order: "")
    assert BLOCKED in carry_out(order)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert book.witness.mails(effect_id) == []
    assert book.outcomes(effect_id)[-1] == "not_sent"


def test_no_successor_goes_around_it(book: Book, branch: tuple[Run, Permit]) -> None:
    run, permit = branch
    proposal = book.propose(MAIL, run=run)
    book.decide(book.ask(proposal.effect_id, run=run))
    book.perform(proposal.effect_id, run=run)
    assert book.standing(proposal.effect_id) == ("completed", "")
    permit()
    with pytest.raises(AlreadyDone, match=BLOCKED):
        send_as_new(book, proposal.effect_id)
    assert successors(proposal.effect_id) == []
    permit(MAIL)
    order = send_as_new(book, proposal.effect_id)
    agree(book, order)
    permit()
    assert BLOCKED in carry_out(order)
    assert len(book.witness.mails(proposal.effect_id)) == 1
    assert book.witness.mails(order.sends_id) == []


def test_no_compensation_goes_around_it(book: Book, branch: tuple[Run, Permit]) -> None:
    run, permit = branch
    proposal = book.propose("ledger.asked_offer", run=run)
    book.decide(book.ask(proposal.effect_id, run=run))
    book.perform(proposal.effect_id, run=run)
    permit()
    credit = {"customer_id": "cus_000001", "amount_minor": 100, "currency": "USD"}
    given = {name: asked("", {})[name] for name in ("reason", "token")}

    def take_back() -> object:
        releaser = book.world.actor(book.world.releaser)
        return compensate(
            releaser, proposal.effect_id, effect_type="ledger.final_credit", payload=credit, **given
        )

    with pytest.raises(AlreadyDone, match=BLOCKED):
        take_back()
    permit("ledger.final_credit")
    assert take_back()


def test_an_original_run_and_what_can_be_undone_are_not_blocked() -> None:
    assert fresh.why_blocked(MAIL, Reversibility.IRREVERSIBLE, None) == ""
    assert fresh.why_blocked(MAIL, Reversibility.REVERSIBLE, frozenset()) == ""
    assert fresh.why_blocked(MAIL, Reversibility.IRREVERSIBLE, frozenset({MAIL})) == ""


def test_the_runs_say_which_are_live_replays_or_branches(book: Book) -> None:
    version = WorkflowVersion.objects.create(
        name="fresh",
        version="1",
        schema_version=1,
        fingerprint="fp",
        title="Fresh",
        topology={},
        input_schema={},
        state_schema={},
        step_seconds=10,
    )
    kinds = [
        (RunKind.ORIGINAL, RunMode.LIVE),
        (RunKind.BRANCH, RunMode.LIVE),
        (RunKind.REPLAY, RunMode.LIVE),
        (RunKind.BRANCH, RunMode.SIMULATION),
    ]
    made: list[str] = []
    for number, (kind, mode) in enumerate(kinds):
        row = RunRow.objects.create(
            workspace=book.world.workspace,
            title="A run",
            workflow=version,
            fingerprint="fp",
            kind=kind,
            mode=mode,
            launch_reason="to see",
            starter=book.world.operator,
            input=b"",
            input_hash="",
            command_token=f"token {number}",
            parent_run_id=made[0] if made else None,
            parent_checkpoint=Checkpoint.objects.first() if made else None,
        )
        made.append(row.id)
        Checkpoint.objects.create(run=row, engine_id="cp", fence=1, number=0, source="loop", size=0)
    assert set(fresh_runs([*made, "run_of_nobody"])) == {made[1], made[2]}
    assert fresh.fresh_runs(made[1:2]) == {made[1]: frozenset()}
    for effect_type in (MAIL, "ledger.offer"):
        TypePermit.objects.create(
            run_id=made[1], effect_type=effect_type, by=book.world.releaser, reason="It is what it is for."
        )
    assert fresh.fresh_runs(made) == {made[1]: frozenset({MAIL, "ledger.offer"}), made[2]: frozenset()}
