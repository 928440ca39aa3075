"""Bulk recover, R5 of approvals-audit-security.md: dry run, rate, stop, once for each effect."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, Stale
from console.models import AuditEvent, BulkStatus, ItemState, Membership
from effects import orders
from effects.commands import bulk_recover, repeat
from effects.models import Effect, LookRequest, Order, Recovery, RecoveryItem
from effects.states import Verdict
from tests.effects.book import Book, rows_of_all_tables
from tests.effects.test_repeat import held, uncertain


def plan(book: Book, **filters: str) -> bulk_recover.DryRun:
    return bulk_recover.dry_run(book.world.actor(book.world.releaser), filters)


def begin(book: Book, filters: dict[str, str] | None = None, **given: Any) -> Recovery:
    usual = {
        "digest": plan(book, **(filters or {})).digest,
        "reason": "The CRM was down.",
        "per_minute": 600,
        "token": uuid.uuid4().hex,
    }
    return bulk_recover.start(book.world.actor(book.world.releaser), filters or {}, **{**usual, **given})


def turn(recovery: Recovery) -> None:
    """One turn of the sweep, with the recovery due; then the workers hear the bells."""
    Recovery.objects.filter(id=recovery.id).update(next_at=Now())
    bulk_recover.work()
    for order_id in Order.objects.filter(status="due").values_list("id", flat=True):
        orders.execute(order_id)


def whole(recovery: Recovery) -> Recovery:
    for _ in range(RecoveryItem.objects.filter(recovery=recovery).count() + 1):
        turn(recovery)
    return Recovery.objects.get(id=recovery.id)


def many_held(book: Book, count: int) -> list[str]:
    """So many effects that were never sent, of different commands."""
    ids = [book.propose("ledger.two_tries", key=f"one of many {n}").effect_id for n in range(count)]
    book.point("http://127.0.0.1:9")
    for effect_id in ids:
        book.perform(effect_id)
        assert book.refusal_after_wait(effect_id)
    book.point(book.witness.receiver)
    return ids


def test_R5_the_dry_run_says_for_each_effect_what_would_be_done(book: Book) -> None:
    never_sent = held(book)
    by_key = uncertain(book, "ledger.offer", key="two")
    by_look = uncertain(book, "ledger.queried_ticket", key="three")
    nobody_knows = uncertain(book, "ledger.mail", key="four")
    completed = book.propose(key="five")
    book.perform(completed.effect_id)
    plan(book)
    before = rows_of_all_tables()
    verdicts = {item.effect.id: (item.verdict, item.why) for item in plan(book).items}
    assert rows_of_all_tables() == before
    assert verdicts[never_sent][0] == Verdict.DELIVER
    assert verdicts[by_key][0] == Verdict.DELIVER
    assert verdicts[by_look][0] == Verdict.LOOK
    assert verdicts[nobody_knows] == (
        Verdict.SKIP,
        "It needs a second person: order it on its own page.",
    )
    assert completed.effect_id not in verdicts


def test_R5_it_delivers_looks_up_and_leaves_alone_as_it_said(book: Book) -> None:
    never_sent = held(book)
    by_look = uncertain(book, "ledger.queried_ticket", key="two")
    nobody_knows = uncertain(book, "ledger.mail", key="three")
    recovery = whole(begin(book))
    assert recovery.status == BulkStatus.DONE
    assert book.standing(never_sent) == ("completed", "")
    assert LookRequest.objects.filter(effect=by_look).count() == 1
    assert book.standing(nobody_knows) == ("pending", "uncertain")
    states = dict(RecoveryItem.objects.filter(recovery=recovery).values_list("effect_id", "state"))
    assert states == {
        never_sent: ItemState.DONE,
        by_look: ItemState.DONE,
        nobody_knows: ItemState.SKIPPED,
    }


def test_R5_each_effect_is_recovered_once_however_often_it_is_tried(book: Book) -> None:
    ids = many_held(book, 12)
    recovery = begin(book)
    whole(recovery)
    # As after a sweep that was killed before it could note what it had done.
    Recovery.objects.filter(id=recovery.id).update(status=BulkStatus.RUNNING, ended_at=None)
    RecoveryItem.objects.filter(recovery=recovery).update(state=ItemState.WAITING)
    whole(recovery)
    assert {book.standing(effect_id) for effect_id in ids} == {("completed", "")}
    assert book.witness.rx == (12, 12)
    assert Order.objects.count() == 12


def test_R5_it_keeps_to_its_rate(book: Book) -> None:
    many_held(book, 5)
    recovery = begin(book, per_minute=6)
    bulk_recover.work()
    assert Order.objects.count() == 1
    assert bulk_recover.work() == 0, "the next one is due ten seconds later"
    left = Recovery.objects.annotate(now=Now()).get(id=recovery.id)
    assert 8 < (left.next_at - left.now).total_seconds() <= 10


def test_R5_a_late_sweep_does_not_catch_up_in_a_rush(book: Book) -> None:
    many_held(book, 60)
    recovery = begin(book)
    Recovery.objects.filter(id=recovery.id).update(next_at="2026-01-01T00:00Z")
    began = timezone.now()
    assert bulk_recover.work() == bulk_recover.A_TURN
    assert Recovery.objects.get(id=recovery.id).next_at >= began, "the hours before are not made up for"


def test_R5_it_can_be_stopped(book: Book) -> None:
    ids = many_held(book, 4)
    recovery = begin(book, per_minute=6)
    turn(recovery)
    releaser = book.world.actor(book.world.releaser)
    assert bulk_recover.stop(releaser, recovery.id).status == BulkStatus.STOPPED
    turn(recovery)
    standing = [book.standing(effect_id) for effect_id in ids]
    assert standing.count(("completed", "")) == 1
    assert standing.count(("pending", "held")) == 3
    assert RecoveryItem.objects.filter(recovery=recovery, state=ItemState.STOPPED).count() == 3
    with pytest.raises(AlreadyDone, match="stopped already"):
        bulk_recover.stop(releaser, recovery.id)


def test_R5_a_stop_holds_from_the_next_effect_on(book: Book, monkeypatch: Any) -> None:
    """Also in the middle of a turn of the sweep, which takes several at once."""
    many_held(book, 3)
    recovery = begin(book)
    real = repeat.deliver_again

    def then_stopped(*args: Any, **given: Any) -> Order:
        made = real(*args, **given)
        bulk_recover.stop(book.world.actor(book.world.releaser), recovery.id)
        return made

    monkeypatch.setattr("effects.commands.bulk_recover.deliver_again", then_stopped)
    Recovery.objects.filter(id=recovery.id).update(next_at=Now() - timedelta(seconds=1))
    bulk_recover.work()
    states = RecoveryItem.objects.filter(recovery=recovery).values_list("state", flat=True)
    assert sorted(states) == [ItemState.DONE, ItemState.STOPPED, ItemState.STOPPED]
    assert Order.objects.count() == 1


def test_R5_the_same_form_is_the_same_recovery(book: Book) -> None:
    many_held(book, 2)
    token = uuid.uuid4().hex
    first = begin(book, token=token)
    assert begin(book, token=token).id == first.id
    assert Recovery.objects.count() == 1


def test_R5_what_was_shown_is_what_is_done(book: Book) -> None:
    ids = many_held(book, 3)
    shown = plan(book).digest
    Effect.objects.filter(id=ids[0]).update(sub_state="ready")
    Effect.objects.filter(id=ids[0]).update(sub_state="cancelled", status="failed", settled_at=Now())
    with pytest.raises(Stale, match="have moved"):
        begin(book, digest=shown)
    assert Recovery.objects.count() == 0


def test_R5_the_right_is_asked_again_for_each_effect(book: Book) -> None:
    many_held(book, 3)
    recovery = begin(book, per_minute=6)
    Membership.objects.filter(user=book.world.releaser).update(roles=["viewer"])
    turn(recovery)
    assert Recovery.objects.get(id=recovery.id).status == BulkStatus.STOPPED
    assert Order.objects.count() == 0
    assert book.witness.rx == (0, 0)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "auditor", "developer", "administrator"])
def test_only_a_releaser_may_start_one(book: Book, role: str) -> None:
    many_held(book, 1)
    shown = plan(book).digest
    with pytest.raises(Forbidden):
        bulk_recover.start(
            book.world.actor(getattr(book.world, role)),
            {},
            digest=shown,
            reason="?",
            per_minute=60,
            token="t",
        )
    assert Recovery.objects.count() == 0
    assert AuditEvent.objects.filter(verb="recovery.not_started").count() == 1


def test_a_form_that_another_began_with_at_the_same_moment_is_not_theirs(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is looked for before anything is written; whoever wrote meanwhile is asked about again."""
    many_held(book, 1)
    token, found = uuid.uuid4().hex, bulk_recover.dry_run

    def meanwhile(actor: Any, filters: Any) -> Any:
        plan = found(actor, filters)
        monkeypatch.setattr(bulk_recover, "dry_run", found)
        Recovery.objects.create(
            workspace=book.world.workspace,
            by=book.world.approver,
            filters={},
            reason="Mine.",
            per_minute=60,
            token=token,
        )
        return plan

    digest = plan(book).digest
    monkeypatch.setattr(bulk_recover, "dry_run", meanwhile)
    with pytest.raises(KeyReused):
        bulk_recover.start(
            book.world.actor(book.world.releaser), {}, digest=digest, reason="?", per_minute=60, token=token
        )


@pytest.mark.parametrize(
    ("given", "field"),
    [({"reason": " "}, "reason"), ({"per_minute": 0}, "per_minute"), ({"per_minute": 601}, "per_minute")],
)
def test_bad_input_starts_nothing(book: Book, given: dict[str, Any], field: str) -> None:
    many_held(book, 1)
    with pytest.raises(Invalid) as refusal:
        begin(book, **given)
    assert refusal.value.field == field
    assert Recovery.objects.count() == 0


def test_a_filter_that_there_is_not_is_refused(book: Book) -> None:
    with pytest.raises(Invalid, match="no filter"):
        plan(book, answer="x")


def test_with_nothing_to_do_none_is_started(book: Book) -> None:
    uncertain(book, "ledger.mail")
    with pytest.raises(AlreadyDone, match="nothing here"):
        begin(book)


def test_a_dry_run_of_many_asks_few_questions(book: Book, django_assert_max_num_queries: Any) -> None:
    many_held(book, 40)
    releaser = book.world.actor(book.world.releaser)
    with django_assert_max_num_queries(6):
        assert bulk_recover.dry_run(releaser, {}).count(Verdict.DELIVER) == 40
