"""Repeat external effect, R1 to R4 of approvals-audit-security.md, on the ledger with the real receiver as the witness."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound
from console.models import AuditEvent, Group, Membership
from effects import approvals, ledger, moves, orders, reconcile
from effects.commands import repeat, stop_sending
from effects.contracts import contract
from effects.ledger import Wait
from effects.models import Approval, Effect, EffectAttempt, Order
from effects.offers import offers
from effects.origin import Result
from effects.selectors import inbox, request_of, revision_of, worth_a_visit
from effects.states import (
    ApprovalStatus,
    Decision,
    OrderKind,
    OrderStatus,
    ReviewReason,
    StopScope,
)
from tests.effects.book import Book, at_once, rows_of_all_tables, somebody_waits
from tests.effects.ordering import (
    agree,
    asked,
    carry_out,
    decide,
    deliver_again,
    refreshed,
    send_as_new,
    successors,
)
from tests.effects.ordering import request_of as second_request_of
from tests.people import World, make_world


def refused(book: Book, kind: OrderKind, effect_id: str, words: str) -> None:
    """The offer and the command both refuse, in these words, and nothing of it is there but the audit event."""
    offer = offers(book.effect(effect_id), book.world.actor(book.world.releaser))[kind]
    assert words in offer.reason
    before = rows_of_all_tables()
    order = {OrderKind.DELIVER_AGAIN: deliver_again, OrderKind.SEND_AS_NEW: send_as_new}[kind]
    with pytest.raises(AlreadyDone, match=words):
        order(book, effect_id)
    after = rows_of_all_tables()
    assert {table for table in after if after[table] != before[table]} == {"console_auditevent"}
    event = AuditEvent.objects.filter(subject=effect_id, verb="order.not_taken").latest("at", "id")
    assert event.actor == book.world.releaser
    assert words in event.sentence


def held(book: Book, effect_type: str = "ledger.two_tries", *, receiver: str = "crm", **changes: Any) -> str:
    """Never sent: its receiver refused the connection until the tries, or the time, were over."""
    proposal = book.propose(effect_type, **changes)
    book.point("http://127.0.0.1:9", receiver=receiver)
    book.perform(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(give_up_at=Now())
    book.refusal_after_wait(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "held")
    book.point(book.witness.receiver, receiver=receiver)
    return proposal.effect_id


def uncertain(book: Book, effect_type: str, *, made: bool = True, **changes: Any) -> str:
    """Its answer was lost, after the receiver had made it or before."""
    proposal = book.propose(effect_type, **changes)
    if "mail" in effect_type:
        to = f"{book.world.workspace.id}@harborpine.example"
        book.witness.order_mail("drop_after_data", to)
    else:
        book.witness.order("drop_after_commit" if made else "drop_before")
    book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    return proposal.effect_id


def looked(book: Book, effect_id: str) -> str:
    book.make_due(effect_id)
    return reconcile.look(effect_id)


# --- R1: deliver again -----------------------------------------------------------------------------------------------


def test_R1_what_was_never_sent_is_delivered_again_at_once(book: Book) -> None:
    effect_id = held(book)
    order = deliver_again(book, effect_id)
    assert (order.status, order.needs_second) == (OrderStatus.DUE, False)
    assert "has it as" in carry_out(order)
    assert book.standing(effect_id) == ("completed", "")
    assert book.witness.rx == (1, 1)
    assert book.outcomes(effect_id)[-1] == "completed"
    assert EffectAttempt.objects.filter(effect=effect_id).latest("n").origin == order.id
    assert refreshed(order).status == OrderStatus.DONE


def test_R1_what_the_receiver_refused_is_delivered_again_with_the_same_id_and_bytes(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("401")
    assert book.refusal(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")
    bytes_before = request_of(book.effect(proposal.effect_id), revision_of(book.effect(proposal.effect_id)))
    carry_out(deliver_again(book, proposal.effect_id))
    effect = book.effect(proposal.effect_id)
    assert (effect.status, effect.revision) == ("completed", 1)
    assert request_of(effect, revision_of(effect)) == bytes_before
    first, second = book.witness.requests()
    assert (first["key"], first["body_sha256"]) == (second["key"], second["body_sha256"])
    assert book.witness.rx == (1, 2)


def test_R1_an_uncertain_one_goes_again_by_its_key_while_the_window_is_open(book: Book) -> None:
    effect_id = uncertain(book, "ledger.offer")
    order = deliver_again(book, effect_id)
    assert (order.status, order.overrides) == (OrderStatus.DUE, False)
    book.make_due(effect_id)
    assert "has it as" in carry_out(order)
    assert book.witness.rx == (1, 2)


def test_R1_a_completed_effect_is_never_delivered_again(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    refused(book, OrderKind.DELIVER_AGAIN, proposal.effect_id, "send it as a new effect")
    assert book.witness.rx == (1, 1)


def test_R1_in_flight_it_is_refused(book: Book) -> None:
    proposal = book.propose()
    book.claim(proposal.effect_id)
    for kind in (OrderKind.DELIVER_AGAIN, OrderKind.SEND_AS_NEW):
        refused(book, kind, proposal.effect_id, "in flight")


def test_R1_without_an_approval_nothing_is_repeated(book: Book) -> None:
    proposal = book.propose("ledger.asked_offer")
    refused(book, OrderKind.DELIVER_AGAIN, proposal.effect_id, "not been approved")
    book.ask(proposal.effect_id)
    refused(book, OrderKind.DELIVER_AGAIN, proposal.effect_id, "not been approved")


def test_R1_where_the_receiver_can_be_asked_it_is_asked_first(book: Book) -> None:
    effect_id = uncertain(book, "ledger.queried_ticket", made=False)
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "Ask desk first")
    assert looked(book, effect_id) == "absent"
    offer = offers(book.effect(effect_id))[OrderKind.DELIVER_AGAIN]
    assert (offer.offered, offer.needs_second, offer.overrides) == (True, True, True)
    assert any("no object with exactly this id" in warning for warning in offer.warnings)


def test_R1_a_look_before_the_last_sending_is_no_look(book: Book) -> None:
    effect_id = uncertain(book, "ledger.queried_ticket", made=False)
    looked(book, effect_id)
    Effect.objects.filter(id=effect_id).update(last_sent_at=Now())
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "Ask desk first")


def test_R1_under_a_review_of_what_the_receiver_has_it_is_settled_first(book: Book) -> None:
    effect_id = held(book)
    moves.open_review(book.effect(effect_id), ReviewReason.MISMATCH, "It holds another amount.")
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "settle it first")


def test_R1_another_version_of_the_contract_is_not_sent(book: Book) -> None:
    there = book.standing_as(book.effect(held(book)), contract_version=99)
    refused(book, OrderKind.DELIVER_AGAIN, there.id, "not sent under another one")


def test_R1_another_account_at_the_receiver_is_not_sent_to(book: Book) -> None:
    effect_id = held(book)
    book.point(book.witness.receiver, account="another")
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "account at crm has changed")


def test_R1_rejected_and_cancelled_ones_only_go_as_new_effects(book: Book) -> None:
    effect = book.approved()
    for sub_state, words in (("rejected_by_person", "A person rejected it"), ("cancelled", "was cancelled")):
        there = book.standing_as(effect, status="failed", sub_state=sub_state, settled_at=Now())
        refused(book, OrderKind.DELIVER_AGAIN, there.id, words)
        assert offers(there)[OrderKind.SEND_AS_NEW].offered


# --- R1: send as a new effect ----------------------------------------------------------------------------------------


def test_R1_a_completed_effect_is_sent_as_a_linked_successor(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    (new,) = successors(proposal.effect_id)
    assert order.sends_id == new.id != proposal.effect_id
    assert new.key == new.id
    assert (new.status, new.sub_state) == ("pending", "awaiting_approval")
    assert book.witness.rx == (1, 1), "nothing before a second person agrees"
    assert carry_out(order) == "not due"
    agree(book, order)
    assert "has it as" in carry_out(order)
    assert book.standing(new.id) == ("completed", "")
    assert book.witness.rx == (2, 2)
    assert len({one["key"] for one in book.witness.requests()}) == 2
    assert book.effect(proposal.effect_id).provider_reference != book.effect(new.id).provider_reference


def test_R1_its_original_must_be_completed_or_proven_absent(book: Book) -> None:
    effect_id = held(book)
    refused(book, OrderKind.SEND_AS_NEW, effect_id, "never sent")
    ready = book.propose(key="two")
    refused(book, OrderKind.SEND_AS_NEW, ready.effect_id, "never sent")


def test_R1_or_two_people_accept_the_risk_in_words(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    with pytest.raises(Invalid, match="Type the effect's id"):
        send_as_new(book, effect_id, typed_id=effect_id[:-1])
    with pytest.raises(Invalid, match="own words"):
        send_as_new(book, effect_id, accepts="ok")
    order = send_as_new(book, effect_id)
    assert order.overrides
    with pytest.raises(Invalid, match="own words"):
        agree(book, order, reason=" ")
    agree(book, order)
    carry_out(order)
    (new,) = successors(effect_id)
    assert book.standing(new.id) == ("completed", "")
    assert len(book.witness.mails(effect_id)) == 1
    assert len(book.witness.mails(new.id)) == 1
    assert book.standing(effect_id) == ("pending", "uncertain"), "of the first one still nobody knows"


def test_R1_a_proven_absent_original_is_closed_and_its_perform_follows_the_link(book: Book) -> None:
    effect_id = uncertain(book, "ledger.offer", made=False)
    Effect.objects.filter(id=effect_id).update(absent_at=Now(), key_until=Now() - timedelta(seconds=1))
    moves.open_review(book.effect(effect_id), ReviewReason.CACHED_ERROR, "The old error again.")
    looked(book, effect_id)
    Effect.objects.filter(id=effect_id).update(absent_at=Now())
    order = send_as_new(book, effect_id)
    assert not order.overrides
    agree(book, order)
    carry_out(order)
    assert book.standing(effect_id) == ("failed", "cancelled")
    assert book.reviews(effect_id) == []
    (new,) = successors(effect_id)
    result = book.perform(effect_id)
    assert isinstance(result, Result)
    assert (result.effect_id, result.reference) == (new.id, book.effect(new.id).provider_reference)
    assert book.witness.rx == (1, 2)


def test_R1_the_perform_of_a_completed_original_does_not_follow_the_link(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    agree(book, order)
    carry_out(order)
    result = book.perform(proposal.effect_id)
    assert isinstance(result, Result)
    assert result.effect_id == proposal.effect_id


def test_R1_one_successor_at_a_time_and_each_with_an_id_of_its_own(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    first = send_as_new(book, proposal.effect_id)
    refused(book, OrderKind.SEND_AS_NEW, proposal.effect_id, "is under way")
    decide(book, first, Decision.REJECT, reason="Once is enough.")
    assert refreshed(first).status == OrderStatus.REFUSED
    assert book.standing(first.sends_id) == ("failed", "rejected_by_person")
    second = send_as_new(book, proposal.effect_id)
    assert second.sends_id != first.sends_id
    assert book.witness.rx == (1, 1)


# --- R3: no protection ----------------------------------------------------------------------------------------------


def test_R3_after_the_window_a_second_person_the_typed_id_and_a_warning(book: Book) -> None:
    effect_id = uncertain(book, "ledger.offer")
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1))
    # The answer of the look-up is lost, too: otherwise it would settle it.
    book.witness.order("500_before", match={"method": "GET"})
    assert looked(book, effect_id) == "unclear"
    offer = offers(book.effect(effect_id))[OrderKind.DELIVER_AGAIN]
    assert (offer.needs_second, offer.overrides) == (True, True)
    assert any("twice" in warning for warning in offer.warnings)
    with pytest.raises(Invalid) as wrong:
        deliver_again(book, effect_id, typed_id="")
    assert wrong.value.field == "typed_id"
    with pytest.raises(Invalid) as wordless:
        deliver_again(book, effect_id, accepts="")
    assert wordless.value.field == "accepts"
    order = deliver_again(book, effect_id)
    assert (order.status, order.second_by) == (OrderStatus.AWAITING_SECOND, None)
    assert carry_out(order) == "not due"
    agree(book, order)
    assert refreshed(order).second_by == book.world.approver
    assert "has it as" in carry_out(order)
    assert book.witness.rx == (1, 2), "the receiver still knew the key"


def test_R3_without_any_dedup_one_repeat_and_not_another(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    assert book.reviews(effect_id) == ["unqueryable"]
    order = deliver_again(book, effect_id)
    agree(book, order)
    book.witness.order_mail("drop_after_data", f"{book.world.workspace.id}@harborpine.example")
    assert "not known" in carry_out(order)
    assert len(book.witness.mails(effect_id)) == 2
    assert book.outcomes(effect_id) == ["unknown", "unknown"]
    assert book.reviews(effect_id) == ["unqueryable"], "it stands with a person again"
    assert carry_out(order) == "not due", "what it overrides it overrides once"
    assert len(book.witness.mails(effect_id)) == 2


def test_R3_two_workers_of_one_order_repeat_it_once(book: Book) -> None:
    """The second one has read the order before the first one sent: what it overrides is spent all the same."""
    effect_id = uncertain(book, "ledger.mail")
    order = deliver_again(book, effect_id)
    agree(book, order)
    first, second = refreshed(order), refreshed(order)
    to = f"{book.world.workspace.id}@harborpine.example"
    book.witness.order_mail("drop_after_data", to)
    assert ledger.deliver_by_order(orders.OrderOrigin(first), first).sub_state == "uncertain"
    ledger.deliver_by_order(orders.OrderOrigin(second), second)
    assert book.outcomes(effect_id) == ["unknown", "unknown"]
    assert len(book.witness.mails(effect_id)) == 2


def test_R3_the_second_person_is_another_one(book: Book) -> None:
    both = book.world.person("both", *_roles("releaser", "approver"))
    effect_id = uncertain(book, "ledger.mail")
    order = repeat.deliver_again(book.world.actor(both), effect_id, **asked(effect_id, {}))
    with pytest.raises(Forbidden, match="you gave this order"):
        agree(book, order, by=both)
    with pytest.raises(Forbidden, match="second person"):
        agree(book, order, by=book.world.operator)
    assert order.id not in inbox(book.world.actor(both)).values_list("order", flat=True)
    assert order.id in inbox(book.world.actor(book.world.releaser)).values_list("order", flat=True)
    agree(book, order, by=book.world.releaser)
    assert refreshed(order).second_by == book.world.releaser


def test_R3_a_request_that_nobody_answers_ends_the_order(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    order = deliver_again(book, effect_id)
    request = second_request_of(order)
    Approval.objects.filter(id=request.id).update(expires_at=Now())
    assert approvals.expire(request.id)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert book.outcomes(effect_id) == ["unknown"]


def test_the_end_of_an_order_by_expiry_is_told_to_open_pages(
    book: Book, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    request = second_request_of(order)
    Approval.objects.filter(id=request.id).update(expires_at=Now())
    told: set[str] = set()
    monkeypatch.setattr("console.kernel.live.publish", lambda workspace, topics: told.update(topics))
    with django_capture_on_commit_callbacks(execute=True):
        assert approvals.expire(request.id)
    assert {f"effect:{order.effect_id}", f"effect:{order.sends_id}", "effects", "approvals"} <= told
    assert book.standing(order.sends_id) == ("failed", "cancelled")


def test_orders_that_can_not_go_keep_no_other_from_its_turn(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    monkeypatch.setattr(orders, "A_TURN", 1)
    monkeypatch.setattr(orders, "RING_AGAIN", timedelta(0))

    def ring(task: str, args: list[str], *, queue: str) -> bool:
        rung.extend(args)
        return True

    monkeypatch.setattr("console.doorbell.ring", ring)
    due = [deliver_again(book, held(book, key=key)).id for key in ("one", "two", "three")]
    for _ in due:
        assert orders.ring_again() == 1
    assert rung == due


# --- R4: once, and asked again --------------------------------------------------------------------------------------


def test_R4_the_same_form_twice_is_one_order_and_one_attempt(book: Book) -> None:
    effect_id = held(book)
    token = uuid.uuid4().hex
    first = deliver_again(book, effect_id, token=token)
    assert deliver_again(book, effect_id, token=token).id == first.id
    carry_out(first)
    assert carry_out(first) == "not due"
    assert deliver_again(book, effect_id, token=token).id == first.id, "Back, and sent again"
    assert book.witness.rx == (1, 1)
    with pytest.raises(KeyReused):
        send_as_new(book, effect_id, token=token)


def test_R4_two_tabs_at_once_make_one_order(kept: Book) -> None:
    effect_id = held(kept)
    actor = kept.world.actor(kept.world.releaser)
    answers = at_once(8, lambda n: repeat.deliver_again(actor, effect_id, **asked(effect_id, {})))
    made = [one for one in answers if isinstance(one, Order)]
    assert len(made) == 1
    assert all(isinstance(one, AlreadyDone) for one in answers if not isinstance(one, Order))
    delivered = at_once(6, lambda n: carry_out(made[0]))
    assert kept.witness.rx == (1, 1)
    assert sum("has it as" in str(one) for one in delivered) >= 1
    assert kept.outcomes(effect_id).count("completed") == 1


def test_R4_the_right_to_repeat_is_asked_again_at_execution(book: Book) -> None:
    effect_id = held(book)
    order = deliver_again(book, effect_id)
    Membership.objects.filter(user=book.world.releaser).update(roles=["viewer"])
    assert "may no longer do this" in carry_out(order)
    ended = refreshed(order)
    assert ended.status == OrderStatus.REFUSED
    assert "may no longer do this" in ended.outcome
    assert book.witness.rx == (0, 0)
    assert AuditEvent.objects.filter(subject=order.id, verb="order.refused").count() == 1


def test_R4_the_second_persons_right_too(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    order = deliver_again(book, effect_id)
    agree(book, order)
    Membership.objects.filter(user=book.world.approver).delete()
    assert "may no longer do this" in carry_out(order)
    assert len(book.witness.mails(effect_id)) == 1


def test_R4_the_contract_is_looked_at_again_at_execution(book: Book, monkeypatch: Any) -> None:
    effect_id = held(book)
    order = deliver_again(book, effect_id)
    book.point(book.witness.receiver, account="another")
    assert "has changed" in carry_out(order)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert book.witness.rx == (0, 0)


def test_R4_an_order_that_needs_more_by_now_is_refused(book: Book) -> None:
    effect_id = uncertain(book, "ledger.offer")
    order = deliver_again(book, effect_id)
    Effect.objects.filter(id=effect_id).update(key_until=Now() - timedelta(seconds=1))
    looked(book, effect_id)
    said = carry_out(order)
    assert "refused" in said
    assert book.witness.rx == (1, 1)


def test_R4_found_at_the_receiver_meanwhile_nothing_is_sent(book: Book) -> None:
    effect_id = uncertain(book, "ledger.mail")
    order = deliver_again(book, effect_id)
    agree(book, order)
    moves.complete_by_evidence(effect_id, reference="<it@arrived>", answer=b"")
    assert "refused" in carry_out(order)
    assert len(book.witness.mails(effect_id)) == 1


def test_R4_a_kill_switch_refuses_the_order(book: Book) -> None:
    effect_id = held(book)
    order = deliver_again(book, effect_id)
    stop_sending.stop_sending(
        book.world.actor(book.world.releaser),
        scope=StopScope.RECEIVER,
        target="crm",
        reason="The CRM doubles things.",
        token=uuid.uuid4().hex,
    )
    assert "Sending is stopped" in carry_out(order)
    assert book.witness.rx == (0, 0)
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "Sending is stopped")


# --- who may, and whose ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "auditor", "developer", "administrator"])
def test_only_a_releaser_may_order(book: Book, role: str) -> None:
    effect_id = held(book)
    person = getattr(book.world, role)
    for command in (repeat.deliver_again, repeat.send_as_new):
        with pytest.raises(Forbidden):
            command(book.world.actor(person), effect_id, **asked(effect_id, {}))
    assert Order.objects.count() == 0
    assert AuditEvent.objects.filter(actor=person, verb="order.not_taken").count() == 2
    assert deliver_again(book, effect_id)


def test_an_effect_of_another_workspace_is_not_there(book: Book) -> None:
    effect_id = held(book)
    other: World = make_world("other")
    before = rows_of_all_tables()
    with pytest.raises(NotFound):
        repeat.deliver_again(other.actor(other.releaser), effect_id, **asked(effect_id, {}))
    after = rows_of_all_tables()
    changed = {table: after[table] - before[table] for table in after if after[table] != before[table]}
    changed.pop("console_user", None)
    changed.pop("console_membership", None)
    assert changed == {"console_auditevent": 1}
    assert AuditEvent.objects.get(verb="order.not_taken").workspace == other.workspace


def test_a_reason_is_needed(book: Book) -> None:
    effect_id = held(book)
    with pytest.raises(Invalid) as refusal:
        deliver_again(book, effect_id, reason="  ")
    assert refusal.value.field == "reason"
    assert Order.objects.count() == 0


def test_an_order_is_withdrawn_with_what_it_made(book: Book) -> None:
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    releaser = book.world.actor(book.world.releaser)
    repeat.withdraw(releaser, order.id, reason="No need.", token="one")
    assert refreshed(order).status == OrderStatus.WITHDRAWN
    assert book.standing(order.sends_id) == ("failed", "cancelled")
    assert not Approval.objects.filter(order=order, status=ApprovalStatus.PENDING).exists()
    with pytest.raises(AlreadyDone):
        repeat.withdraw(releaser, order.id, reason="Again.", token="two")


def test_the_end_of_its_run_leaves_an_order_alone(book: Book) -> None:
    """Whatever the run's status: it is the person's order, not the run's."""
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    approvals.close_for_run(book.run.run_id, why="The run was cancelled")
    moves.cancel_unsent(book.run.run_id)
    agree(book, order)
    moves.cancel_unsent(book.run.run_id)
    assert "has it as" in carry_out(order)
    assert book.witness.rx == (2, 2)


def test_an_order_whose_receiver_asks_to_wait_is_carried_out_later(book: Book) -> None:
    effect_id = held(book, "ledger.offer_again")
    order = deliver_again(book, effect_id)
    book.witness.order("429")
    assert carry_out(order).startswith("waits")
    assert refreshed(order).status == OrderStatus.DUE
    book.make_due(effect_id)
    assert "has it as" in carry_out(order)
    assert book.outcomes(effect_id)[-2:] == ["not_sent", "completed"]
    assert book.witness.rx == (1, 2)


def test_a_successor_that_could_not_be_sent_ends_with_its_order(book: Book) -> None:
    """Held, no run would send it, nobody would see it, and no other could be ordered."""
    proposal = book.propose("ledger.two_tries")
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    agree(book, order)
    book.point("http://127.0.0.1:9")
    assert carry_out(order).startswith("waits")
    book.make_due(order.sends_id)
    assert f"order it anew from {proposal.effect_id}" in carry_out(order)
    assert refreshed(order).status == OrderStatus.DONE
    assert book.standing(order.sends_id) == ("failed", "cancelled")
    assert "nothing was sent" in book.effect(order.sends_id).problem
    book.point(book.witness.receiver)
    again = send_as_new(book, proposal.effect_id)
    agree(book, again)
    assert "has it as" in carry_out(again)
    assert book.witness.rx == (2, 2)


def test_a_runs_own_effect_that_could_not_be_sent_stays_held_for_its_run(book: Book) -> None:
    effect_id = held(book)
    order = deliver_again(book, effect_id)
    book.point("http://127.0.0.1:9")
    assert carry_out(order).startswith("waits")
    book.make_due(effect_id)
    assert carry_out(order) == "crm could not be reached; nothing was sent."
    assert book.standing(effect_id) == ("pending", "held")
    assert moves.make_ready_again(effect_id)


def test_an_order_whose_approval_is_over_ends_and_says_so(book: Book) -> None:
    """While the receiver asked to wait its grant ran out. Nobody is asked about an order twice, so it is not left open."""
    effect = book.approved()
    book.point("http://127.0.0.1:9")
    book.perform(effect.id)
    order = deliver_again(book, effect.id)
    book.make_due(effect.id)
    assert carry_out(order).startswith("waits")
    assert refreshed(order).attempts == 1
    Effect.objects.filter(id=effect.id).update(grant_until=Now(), due_at=Now())
    assert "approval that it had is over" in carry_out(order)
    assert refreshed(order).status == OrderStatus.REFUSED
    assert book.standing(effect.id) == ("pending", "awaiting_approval")
    book.point(book.witness.receiver)


def test_uncertain_and_its_approver_gone_it_goes_to_a_person(book: Book) -> None:
    """Not sent again by itself, it would be worth a visit of its run again and again."""
    effect = book.approved()
    book.witness.order("drop_before")
    book.perform(effect.id)
    Membership.objects.filter(user=book.world.approver).update(roles=["viewer"])
    assert isinstance(book.perform_now(effect.id), Wait)
    assert book.reviews(effect.id) == ["unqueryable"]
    assert not worth_a_visit([effect.id]).exists()
    assert book.outcomes(effect.id) == ["unknown"]


def test_an_order_stays_while_looks_go_on_and_sends_what_they_prove_absent(book: Book) -> None:
    """Nobody else would: a run that has ended sends nothing, and what an order made no run sends."""
    effect_id = held(book, "ledger.ticket", receiver="desk")
    order = deliver_again(book, effect_id)
    book.witness.order("drop_before")
    assert carry_out(order) == "waits: uncertain"
    assert refreshed(order).status == OrderStatus.DUE
    for _ in range(contract("ledger.ticket").looks):
        book.pass_settle_time(effect_id)
        reconcile.look(effect_id)
    assert book.standing(effect_id) == ("pending", "ready")
    assert "has it as" in carry_out(order)
    assert book.outcomes(effect_id)[-2:] == ["unknown", "completed"]


def test_under_any_review_what_was_not_sent_is_settled_first(book: Book) -> None:
    """The claim does not pass a review; an order that could never be carried out is not taken."""
    effect_id = held(book)
    moves.open_review(book.effect(effect_id), ReviewReason.NOT_ASKED_AGAIN, "The workflow did not ask again.")
    refused(book, OrderKind.DELIVER_AGAIN, effect_id, "settle it first")


def test_R3_who_edited_the_payload_is_no_second_person(book: Book) -> None:
    """A co-author approves nothing of it, a copy of the bytes neither."""
    editor = book.world.second_approver
    proposal = book.propose("ledger.asked_offer")
    asked_of_two = book.ask(proposal.effect_id, allows=(Decision.APPROVE, Decision.EDIT))
    book.decide(asked_of_two, Decision.EDIT, by=editor, answer={"subject": "50 seats"})
    book.decide(Approval.objects.get(effect=proposal.effect_id, status=ApprovalStatus.PENDING))
    assert isinstance(book.perform(proposal.effect_id), Result)
    order = send_as_new(book, proposal.effect_id)
    with pytest.raises(Forbidden, match="Four eyes"):
        agree(book, order, by=editor)
    agree(book, order)


def test_a_withdrawal_and_a_decision_never_wait_for_each_other(kept: Book) -> None:
    """Both lock the request before the order: while another holds the request, the order is free."""
    proposal = kept.propose()
    kept.perform(proposal.effect_id)
    order = send_as_new(kept, proposal.effect_id)
    releaser = kept.world.actor(kept.world.releaser)

    def withdraw() -> Order:
        try:
            return repeat.withdraw(releaser, order.id, reason="No need.", token="one")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Approval.objects.select_for_update().get(order=order)
            withdrawing = pool.submit(withdraw)
            somebody_waits()
            Order.objects.select_for_update(nowait=True).get(id=order.id)
        assert withdrawing.result(30).status == OrderStatus.WITHDRAWN


def test_a_successor_belongs_to_no_node(book: Book) -> None:
    """It is no obligation of the run's: a node that runs again is not asked for it."""
    proposal = book.propose()
    book.perform(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    assert order.sends.command.position != book.effect(proposal.effect_id).command.position
    assert isinstance(book.perform(proposal.effect_id), Result)


def test_a_waiting_perform_follows_a_successor_that_is_under_way(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("401")
    book.refusal(proposal.effect_id)
    order = send_as_new(book, proposal.effect_id)
    waits = book.perform(proposal.effect_id)
    assert isinstance(waits, Wait)
    assert waits.effect_id == order.sends_id


def _roles(*names: str) -> Any:
    from console.models import Role

    return [Role(name) for name in names]


def test_groups_of_runs_do_not_bind_the_second_person(book: Book) -> None:
    """Who is asked about an order is any second person; the contract's group is asked by runs."""
    Group.objects.get_or_create(workspace=book.world.workspace, name="Sales approvers")
    proposal = book.approved()
    book.perform(proposal.id)
    order = send_as_new(book, proposal.id)
    lone = book.world.person("lone", *_roles("approver"))
    agree(book, order, by=lone)
    assert refreshed(order).status == OrderStatus.DUE
