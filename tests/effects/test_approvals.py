"""One door to a grant: what a decision writes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from console.kernel.errors import AlreadyDone, Forbidden, Invalid, KeyReused, NotFound, Refusal, Stale
from console.models import AuditEvent, Group, Membership, Role
from effects import approvals, rounds
from effects.approvals import Expired
from effects.ledger import Wait
from effects.models import Approval, ApprovalDecision, EffectRevision
from effects.origin import Result
from effects.rounds import answer_of
from effects.selectors import payload_of, revision_of
from effects.states import ApprovalStatus, Asked, Decision
from tests.effects.book import Book, Run, rows_of_all_tables

EDITABLE = (Decision.APPROVE, Decision.EDIT, Decision.REJECT)
ACTION: dict[str, Any] = {
    "asks": Asked.ACTION,
    "title": "Use the tool discount",
    "body": {
        "name": "discount",
        "args": {"percent": 10, "note": "spring", "final": False, "lines": [1], "until": None},
    },
    "allows": EDITABLE,
}


def asked_offer(book: Book, **request: Any) -> Approval:
    return book.ask(book.propose("ledger.asked_offer").effect_id, **request)


def snapshot(book: Book) -> list[Any]:
    """Every row that a decision could write."""
    return [rows_of_all_tables(), list(Approval.objects.order_by("id").values()), book_effects(book)]


def book_effects(book: Book) -> list[Any]:
    return list(book.world.workspace.effects.order_by("id").values())


def refused(book: Book, kind: type[Refusal], approval: Approval, *args: Any, **kwargs: Any) -> Refusal:
    """The decision is refused with that status, and nothing at all was written."""
    by = kwargs.setdefault("by", book.world.approver)
    assert by
    before = snapshot(book)
    with pytest.raises(kind) as caught:
        book.decide(approval, *args, **kwargs)
    assert snapshot(book) == before
    return caught.value


# What an approval holds


def test_it_is_bound_to_one_revision_of_one_effect(book: Book) -> None:
    approval = asked_offer(book)
    effect = approval.effect
    assert effect is not None
    assert (approval.revision, approval.payload_hash) == (1, effect.request_hash)
    assert (approval.status, approval.round, approval.asked_of) == ("pending", 1, "Sales approvers")
    assert approval.expires_at - approval.created_at == timedelta(days=3)
    assert approval.due_at - approval.created_at == timedelta(hours=4)
    assert book.standing(effect.id) == ("pending", "awaiting_approval")


def test_an_effect_that_asks_nobody_is_asked_about_when_an_action_pauses_for_it(book: Book) -> None:
    proposal = book.propose("ledger.ticket")
    assert book.standing(proposal.effect_id) == ("pending", "ready")
    approval = book.ask(proposal.effect_id, **{**ACTION, "body": {"name": "open_ticket", "args": {}}})
    assert book.standing(proposal.effect_id) == ("pending", "awaiting_approval")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    book.decide(approval)
    assert isinstance(book.perform(proposal.effect_id), Result)


# Approve


def test_approve_grants_exactly_these_bytes_until_then(book: Book) -> None:
    approval = asked_offer(book)

    decision = book.decide(approval)

    assert approval.effect_id is not None
    effect = book.effect(approval.effect_id)
    assert book.standing(effect.id) == ("pending", "ready")
    assert (effect.grant_approval_id, effect.grant_revision, effect.grant_hash) == (
        approval.id,
        1,
        effect.request_hash,
    )
    assert effect.grant_until is not None
    assert abs(effect.grant_until - decision.at - timedelta(hours=24)) < timedelta(seconds=5)
    approval.refresh_from_db()
    assert (approval.status, approval.version) == ("decided", 2)
    assert approval.ended_why == f"Approved by {book.world.approver.name}"
    event = AuditEvent.objects.get(subject=approval.id)
    assert (event.verb, event.actor, event.run_id) == (
        "approval.approve",
        book.world.approver,
        book.run.run_id,
    )
    assert event.detail["payload_hash"] == effect.request_hash
    book.perform(effect.id)
    assert book.witness.rx == (1, 1)


def test_identical_effects_never_share_a_grant(book: Book) -> None:
    """The same arguments in a later command are another effect and need their own approval."""
    book.approved(key="one")
    second = book.propose("ledger.asked_offer", key="two")
    assert isinstance(book.perform(second.effect_id), Wait)
    assert book.standing(second.effect_id) == ("pending", "recorded")


def test_the_same_form_again_gives_back_what_it_decided(book: Book) -> None:
    approval = asked_offer(book)
    first = book.decide(approval, token="form-1")
    before = snapshot(book)
    assert book.decide(approval, token="form-1") == first
    assert snapshot(book) == before


def test_the_same_form_with_another_decision_is_refused(book: Book) -> None:
    """A token says "this request again"; with other contents it is another request."""
    approval = asked_offer(book)
    book.decide(approval, token="form-1")
    refused(book, KeyReused, approval, Decision.REJECT, token="form-1", reason="no")


def test_a_forms_token_does_not_speak_for_another_person(book: Book) -> None:
    approval = asked_offer(book)
    book.decide(approval, token="form-1")
    refused(book, Refusal, approval, token="form-1", by=book.world.second_approver)


def test_a_token_that_decided_another_approval_is_refused_and_no_error(book: Book) -> None:
    first, second = asked_offer(book), book.ask(interrupt="int_2")
    book.decide(first, token="form-1")
    refused(book, Refusal, second, Decision.RESPOND, token="form-1", answer="German")


def test_another_request_on_a_decided_one_is_told_who_decided(book: Book) -> None:
    approval = asked_offer(book)
    book.decide(approval)
    error = refused(book, AlreadyDone, approval, by=book.world.second_approver)
    assert error.status == 409
    assert f"Approved by {book.world.approver.name}" in str(error)


# Refusals, each beside the same set-up that is allowed


def test_with_another_hash_nothing_is_decided(book: Book) -> None:
    approval = asked_offer(book)
    assert refused(book, Stale, approval, payload_hash="sha256:other").status == 409
    assert book.decide(approval)


def test_with_an_older_version_of_the_row_nothing_is_decided(book: Book) -> None:
    approval = asked_offer(book)
    refused(book, Stale, approval, version=approval.version - 1)
    assert book.decide(approval)


def test_after_the_machine_changed_the_payload_nothing_is_decided(book: Book) -> None:
    """The form shows revision 1 and revision 2 is there: what was read is not what would be sent."""
    approval = asked_offer(book)
    book.propose("ledger.asked_offer", amount_minor=900)
    refused(book, Stale, approval)


def test_a_second_late_is_expired(book: Book) -> None:
    approval = asked_offer(book)
    Approval.objects.filter(id=approval.id).update(expires_at=Now())
    error = refused(book, Expired, approval)
    assert (error.status, error.code) == (409, "expired")
    assert approval.effect_id is not None
    assert book.standing(approval.effect_id) == ("pending", "awaiting_approval")


def test_after_the_sweep_expired_it_the_answer_is_the_same(book: Book) -> None:
    approval = asked_offer(book)
    Approval.objects.filter(id=approval.id).update(expires_at=Now())
    assert approvals.expire(approval.id)
    assert not approvals.expire(approval.id)
    approval.refresh_from_db()
    assert (approval.status, approval.version) == ("expired", 2)
    assert AuditEvent.objects.filter(subject=approval.id, verb="approval.expired").count() == 1
    refused(book, Expired, approval)


def test_one_that_is_decided_or_not_due_does_not_expire(book: Book) -> None:
    approval = asked_offer(book)
    assert not approvals.expire(approval.id)
    book.decide(approval)
    Approval.objects.filter(id=approval.id).update(expires_at=Now())
    assert not approvals.expire(approval.id)


@pytest.mark.parametrize("status", [ApprovalStatus.CLOSED, ApprovalStatus.SUPERSEDED])
def test_one_that_ended_another_way_says_so(book: Book, status: str) -> None:
    approval = asked_offer(book)
    Approval.objects.filter(id=approval.id).update(
        status=status, ended_at=Now(), ended_why="The run was cancelled"
    )
    assert "The run was cancelled" in str(refused(book, AlreadyDone, approval))


@pytest.mark.parametrize("reason", ["", "   ", "\n"])
def test_reject_needs_a_reason(book: Book, reason: str) -> None:
    approval = asked_offer(book)
    error = refused(book, Invalid, approval, Decision.REJECT, reason=reason)
    assert error.field == "reason"


def test_reject_ends_the_effect_and_sends_nothing(book: Book) -> None:
    approval = asked_offer(book)
    book.decide(approval, Decision.REJECT, reason="Too cheap")
    assert approval.effect_id is not None
    assert book.standing(approval.effect_id) == ("failed", "rejected_by_person")
    result = book.perform(approval.effect_id)
    assert isinstance(result, Result)
    assert result.rejected
    assert result.reason == f"Rejected by {book.world.approver.name}: Too cheap"
    assert book.witness.rx == (0, 0)
    [decision] = ApprovalDecision.objects.filter(approval=approval)
    assert (decision.decision, decision.by, decision.reason) == ("reject", book.world.approver, "Too cheap")


def test_what_the_request_does_not_allow_is_refused(book: Book) -> None:
    approval = asked_offer(book)
    assert refused(book, Invalid, approval, Decision.EDIT, answer={"amount_minor": 1}).field == "decision"
    assert refused(book, Invalid, approval, Decision.RESPOND, answer="yes").field == "decision"
    question = book.ask(interrupt="int_2")
    assert refused(book, Invalid, question, Decision.APPROVE).field == "decision"


# Who may


def test_the_starter_can_not_approve(book: Book) -> None:
    approval = asked_offer(book)
    error = refused(book, Forbidden, approval, involved=frozenset({book.world.approver.id}))
    assert error.status == 403
    assert book.decide(approval, by=book.world.second_approver, involved=frozenset({book.world.approver.id}))


@pytest.mark.parametrize("role", [role for role in Role if role != Role.APPROVER])
def test_only_approvers_decide(book: Book, role: Role) -> None:
    """Also not through the group."""
    approval = asked_offer(book)
    somebody = book.world.person(f"a_{role.value}", role)
    Group.objects.get_or_create(workspace=book.world.workspace, name="Sales approvers")[0].members.add(
        somebody
    )
    refused(book, Forbidden, approval, by=somebody)


def test_only_the_group_that_is_asked_decides(book: Book) -> None:
    approval = asked_offer(book)
    somebody = book.world.person("finance", Role.APPROVER)
    assert "Sales approvers" in str(refused(book, Forbidden, approval, by=somebody))
    Group.objects.get(workspace=book.world.workspace, name="Sales approvers").members.add(somebody)
    assert book.decide(approval, by=somebody)


def test_a_group_of_the_same_name_elsewhere_does_not_count(book: Book) -> None:
    from tests.people import make_world

    approval = asked_offer(book)
    somebody = book.world.person("finance", Role.APPROVER)
    other = make_world("other")
    Group.objects.create(workspace=other.workspace, name="Sales approvers").members.add(somebody)
    refused(book, Forbidden, approval, by=somebody)


def test_an_approval_of_another_workspace_is_not_there(book: Book) -> None:
    from tests.people import make_world

    approval = asked_offer(book)
    other = make_world("other")
    Membership.objects.create(workspace=other.workspace, user=book.world.approver, roles=["approver"])
    actor = other.actor(book.world.approver)
    with pytest.raises(NotFound), transaction.atomic():
        approvals.decide(
            actor,
            approval.id,
            decision=Decision.APPROVE,
            payload_hash=approval.payload_hash,
            version=1,
            token="t",
        )


# Edit


def test_an_edit_is_a_new_revision_that_a_second_person_approves(book: Book) -> None:
    approval = asked_offer(book, allows=EDITABLE)
    assert approval.effect_id is not None

    book.decide(approval, Decision.EDIT, answer={"amount_minor": 850})

    effect = book.effect(approval.effect_id)
    assert book.standing(effect.id) == ("pending", "awaiting_approval")
    assert effect.revision == 2
    assert list(EffectRevision.objects.filter(effect=effect).order_by("n").values_list("n", "by")) == [
        (1, None),
        (2, book.world.approver.id),
    ]
    second = rounds.newest_of(book.run.run_id, "int_1", 0)
    assert second is not None
    assert (second.round, second.status, second.revision, second.payload_hash) == (
        2,
        "pending",
        2,
        effect.request_hash,
    )
    # Its editor is a co-author now, in this round and any later one.
    refused(book, Forbidden, second)
    book.decide(second, by=book.world.second_approver)
    book.perform(effect.id)
    [made] = book.witness.effects()
    assert made["document"]["amount_minor"] == 850
    assert book.witness.rx == (1, 1)


def test_the_second_person_reads_what_the_edit_made_of_it(book: Book) -> None:
    """Titles say amounts: that of the edited bytes, not of those that nobody will send."""
    approval = asked_offer(book, allows=EDITABLE)
    assert "10.00 USD" in approval.title
    book.decide(approval, Decision.EDIT, answer={"amount_minor": 85000})
    second = rounds.newest_of(book.run.run_id, "int_1", 0)
    assert second is not None
    assert "850.00 USD" in second.title


WRONG_EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "a number as text": ({"amount_minor": "850"}, "amount_minor"),
    "a number as a flag": ({"amount_minor": True}, "amount_minor"),
    "a list as text": ({"lines": "none"}, "lines"),
    "text as nothing": ({"subject": None}, "subject"),
    "an unknown key": ({"discount": 5}, "discount"),
    "another effect type": ({"effect_type": "ledger.mail"}, "effect_type"),
    "what the contract refuses": ({"currency": "dollars"}, "currency"),
    "too little": ({"amount_minor": 0}, "amount_minor"),
    "2^53": ({"amount_minor": 2**53}, "amount_minor"),
    "an unknown key deep inside": (
        {"lines": [{"sku": "S", "description": "d", "quantity": 1, "unit_minor": 1, "free": True}]},
        "lines.0",
    ),
}


@pytest.mark.parametrize("name", WRONG_EDITS)
def test_an_edit_keeps_every_type_and_adds_no_key(book: Book, name: str) -> None:
    answer, path = WRONG_EDITS[name]
    approval = asked_offer(book, allows=EDITABLE)
    assert refused(book, Invalid, approval, Decision.EDIT, answer=answer).field == path
    # An invalid answer leaves it open, and a right one is taken afterwards.
    assert book.decide(approval, Decision.EDIT, answer={"amount_minor": 850})


@pytest.mark.parametrize("answer", [None, [], "amount_minor=1", 5])
def test_an_edit_is_an_object(book: Book, answer: Any) -> None:
    refused(book, Invalid, asked_offer(book, allows=EDITABLE), Decision.EDIT, answer=answer)


@pytest.mark.parametrize(
    "answer",
    [
        {"percent": "10"},
        {"final": 0},
        {"final": "no"},
        {"note": 5},
        {"lines": {}},
        {"name": "delete"},
        {"percent": None},
    ],
)
def test_an_edited_action_keeps_every_type_and_adds_no_key(book: Book, answer: dict[str, Any]) -> None:
    refused(book, Invalid, book.ask(**ACTION), Decision.EDIT, answer=answer)


@pytest.mark.parametrize(
    "answer", [{"percent": 12.5}, {"percent": 12}, {"note": ""}, {"until": "June"}, {"lines": []}]
)
def test_an_edited_action_takes_a_value_of_the_same_type(book: Book, answer: dict[str, Any]) -> None:
    """A number stays a number: 10 may become 12.5."""
    book.decide(book.ask(**ACTION), Decision.EDIT, answer=answer)
    second = rounds.newest_of(book.run.run_id, "int_1", 0)
    assert second is not None
    args = {**ACTION["body"]["args"], **answer}
    assert rounds.body_of(second) == {"name": "discount", "args": args}
    assert second.payload_hash != ""
    [answered] = answered_after(book, second)
    assert answered.edited == args


def answered_after(book: Book, second: Approval) -> list[rounds.Answered]:
    book.decide(second, by=book.world.second_approver)
    answered = rounds.answers_of(book.run.run_id, "int_1", "sha256:asked", 1)
    assert answered is not None
    return answered


def test_a_number_of_a_bound_effect_stays_a_number(book: Book) -> None:
    """The payload says 10; a discount of 12.5 is no other type."""
    approval = book.ask(book.propose("ledger.customer_note").effect_id, allows=EDITABLE)
    book.decide(approval, Decision.EDIT, answer={"discount": 12.5})
    assert approval.effect_id is not None
    effect = book.effect(approval.effect_id)
    payload = payload_of(effect, revision_of(effect))
    assert isinstance(payload, dict)
    assert payload["discount"] == 12.5


def test_an_edit_that_was_rejected_by_the_second_person_sends_nothing(book: Book) -> None:
    approval = asked_offer(book, allows=EDITABLE)
    book.decide(approval, Decision.EDIT, answer={"amount_minor": 850})
    second = rounds.newest_of(book.run.run_id, "int_1", 0)
    assert second is not None
    book.decide(second, Decision.REJECT, by=book.world.second_approver, reason="No")
    assert approval.effect_id is not None
    assert book.standing(approval.effect_id) == ("failed", "rejected_by_person")


# Answers to questions


SCHEMA = {"type": "object", "properties": {"language": {"enum": ["de", "en"]}}, "required": ["language"]}


@pytest.mark.parametrize("answer", ["de", {"language": "fr"}, {}, {"language": None}, [], 5, True])
def test_an_answer_that_does_not_fit_leaves_the_question_open(book: Book, answer: Any) -> None:
    approval = book.ask(answer_schema=SCHEMA)
    assert refused(book, Invalid, approval, Decision.RESPOND, answer=answer).field == "answer"
    decision = book.decide(approval, Decision.RESPOND, answer={"language": "de"})
    assert answer_of(decision, approval) == {"language": "de"}


@pytest.mark.parametrize("answer", [None, ""])
def test_an_answer_is_needed(book: Book, answer: Any) -> None:
    refused(book, Invalid, book.ask(), Decision.RESPOND, answer=answer)


@pytest.mark.parametrize("answer", [math.nan, {"a": [math.inf]}])
def test_an_answer_that_json_can_not_carry_is_refused(book: Book, answer: Any) -> None:
    approval = book.ask()
    error = refused(book, Invalid, approval, Decision.RESPOND, answer=answer)
    assert str(error.field).startswith("answer")
    assert book.decide(approval, Decision.RESPOND, answer="German")


@pytest.mark.parametrize("answer", [{"k": 3544790567247868102}, "Grüße\n", {"a": [1, None, 0.5]}])
def test_an_answer_is_kept_as_it_is(book: Book, answer: Any) -> None:
    """Every digit of it."""
    approval = book.ask()
    assert answer_of(book.decide(approval, Decision.RESPOND, answer=answer), approval) == answer


def test_falsy_answers_are_answers(book: Book) -> None:
    for number, answer in enumerate((0, False, [], {})):
        approval = book.ask(interrupt=f"int_{number}")
        decision = book.decide(approval, Decision.RESPOND, answer=answer)
        assert answer_of(decision, approval) == answer


# Rounds


def test_a_pause_that_is_found_again_opens_nothing_new(book: Book) -> None:
    first = asked_offer(book)
    rows = rows_of_all_tables()
    again = book.ask(first.effect_id or "")
    assert again.id == first.id
    assert rows_of_all_tables() == rows


def test_a_decision_that_is_not_delivered_yet_stands(book: Book) -> None:
    """The worker that finds the pause before the answer reached the graph must not ask once more."""
    approval = asked_offer(book)
    book.decide(approval)
    assert book.ask(approval.effect_id or "").id == approval.id
    question = book.ask(interrupt="int_2")
    book.decide(question, Decision.RESPOND, answer="German")
    assert book.ask(interrupt="int_2").id == question.id


@pytest.mark.parametrize("status", [ApprovalStatus.EXPIRED, ApprovalStatus.CLOSED, ApprovalStatus.SUPERSEDED])
def test_after_an_ended_round_the_next_one_asks(book: Book, status: str) -> None:
    first = asked_offer(book)
    Approval.objects.filter(id=first.id).update(status=status, ended_at=Now())
    second = book.ask(first.effect_id or "")
    assert (second.round, second.status) == (2, "pending")
    refused(book, AlreadyDone, first)
    assert book.decide(second)


def test_a_changed_payload_supersedes_the_open_round(book: Book) -> None:
    first = asked_offer(book)
    book.propose("ledger.asked_offer", amount_minor=900)
    second = book.ask(first.effect_id or "")
    first.refresh_from_db()
    assert first.status == "superseded"
    assert (second.round, second.revision) == (2, 2)
    refused(book, AlreadyDone, first)
    book.decide(second)
    book.perform(first.effect_id or "")
    assert book.witness.effects()[0]["document"]["amount_minor"] == 900


def test_a_grant_that_is_over_is_asked_for_in_the_next_round(book: Book) -> None:
    effect = book.approved()
    type(effect).objects.filter(id=effect.id).update(grant_until=Now())
    book.perform(effect.id)
    second = book.ask(effect.id, interrupt=f"for {effect.id}")
    assert (second.round, second.status) == (2, "pending")
    book.decide(second)
    assert isinstance(book.perform(effect.id), Result)


def test_another_question_at_the_same_pause_is_asked_anew(book: Book) -> None:
    first = book.ask()
    with transaction.atomic():
        approvals.open_for(book.pause(value_hash="sha256:changed"), [book.request()])
    second = rounds.newest_of(book.run.run_id, "int_1", 0)
    assert second is not None
    assert second.round == 2
    first.refresh_from_db()
    assert first.status == "superseded"


def test_two_pauses_that_ask_about_one_effect_break_nothing(book: Book) -> None:
    """Two nodes in parallel wait for the same effect: it is one request to people, and no error of the database."""
    first = asked_offer(book)
    assert first.effect_id is not None
    with transaction.atomic():
        approvals.open_for(book.pause(interrupt="int_2"), [book.request(first.effect_id)])
    open_ones = Approval.objects.filter(effect=first.effect_id, status=ApprovalStatus.PENDING)
    assert open_ones.count() == 1
    book.decide(open_ones.get())
    assert book.standing(first.effect_id) == ("pending", "ready")


def test_several_actions_are_one_request_each_and_delivered_together(book: Book) -> None:
    requests = [book.request(**{**ACTION, "title": title}) for title in ("first", "second")]
    with transaction.atomic():
        approvals.open_for(book.pause(), requests)
    both = list(Approval.objects.filter(run_id=book.run.run_id).order_by("action"))
    assert [one.title for one in both] == ["first", "second"]
    book.decide(both[1], Decision.REJECT, reason="no")
    assert rounds.answers_of(book.run.run_id, "int_1", "sha256:asked", 2) is None
    assert rounds.decided_pauses(book.run.run_id) == set()
    book.decide(both[0])
    answered = rounds.answers_of(book.run.run_id, "int_1", "sha256:asked", 2)
    assert answered is not None
    assert [one.decision for one in answered] == [Decision.APPROVE, Decision.REJECT]
    assert rounds.decided_pauses(book.run.run_id) == {("int_1", "sha256:asked")}
    # Not for a pause whose value is another than people saw.
    assert rounds.answers_of(book.run.run_id, "int_1", "sha256:changed", 2) is None


def test_two_pauses_are_two_approvals_answered_each_for_itself(book: Book) -> None:
    first, second = book.ask(interrupt="int_1"), book.ask(interrupt="int_2")
    book.decide(second, Decision.RESPOND, answer="to the second")
    assert rounds.answers_of(book.run.run_id, "int_1", "sha256:asked", 1) is None
    answered = rounds.answers_of(book.run.run_id, "int_2", "sha256:asked", 1)
    assert answered is not None
    assert answered[0].answer == "to the second"
    first.refresh_from_db()
    assert first.status == "pending"


def test_ending_a_run_closes_its_open_approvals_and_no_others(book: Book) -> None:
    mine, decided = asked_offer(book), book.ask(interrupt="int_2")
    book.decide(decided, Decision.RESPOND, answer="German")
    others = book.ask(run=Run(book.world.workspace.id))

    assert approvals.close_for_run(book.run.run_id, why="The run was cancelled") == 1

    for row in (mine, decided, others):
        row.refresh_from_db()
    assert (mine.status, mine.ended_why, mine.version) == ("closed", "The run was cancelled", 2)
    assert (decided.status, others.status) == ("decided", "pending")
    assert refused(book, AlreadyDone, mine).status == 409
