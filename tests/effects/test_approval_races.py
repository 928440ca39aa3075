"""Many people, many tabs, one decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db import connection

from console.kernel.errors import AlreadyDone
from console.models import AuditEvent, User
from effects import rounds
from effects.models import ApprovalDecision
from effects.origin import Result
from effects.states import Decision
from tests.effects.book import Book, at_once


def kinds(answers: Iterable[object]) -> Counter[str]:
    return Counter(type(one).__name__ for one in answers)


def test_twenty_tabs_approve_once(kept: Book) -> None:
    """Each from its own form, two people among them: one decision, one grant, one event; the others are told."""
    approval = kept.ask(kept.propose("ledger.asked_offer").effect_id)
    people = [kept.world.approver, kept.world.second_approver]

    answers = at_once(20, lambda i: kept.decide(approval, by=people[i % 2]))

    assert kinds(answers) == {"ApprovalDecision": 1, "AlreadyDone": 19}, answers
    assert all(one.status == 409 for one in answers if isinstance(one, AlreadyDone))
    assert ApprovalDecision.objects.filter(approval=approval).count() == 1
    assert AuditEvent.objects.filter(subject=approval.id).count() == 1
    assert approval.effect_id is not None
    assert kept.effect(approval.effect_id).grant_approval_id == approval.id
    assert isinstance(kept.perform(approval.effect_id), Result)
    assert kept.witness.rx == (1, 1)


def test_a_double_click_is_one_decision_and_two_same_answers(kept: Book) -> None:
    approval = kept.ask(kept.propose("ledger.asked_offer").effect_id)
    approver = kept.world.approver
    answers = at_once(10, lambda _: kept.decide(approval, by=approver, token=f"form of {approval.id}"))
    assert len({one.id for one in answers if isinstance(one, ApprovalDecision)}) == 1, answers
    assert kinds(answers) == {"ApprovalDecision": 10}


def test_approve_against_reject_ends_in_one_of_them(kept: Book) -> None:
    """Twenty pairs; whoever was first, the effect, the approval and the decision say the same."""
    approver, second = kept.world.approver, kept.world.second_approver
    pairs = [
        kept.ask(kept.propose("ledger.asked_offer", key=str(n)).effect_id, interrupt=f"int_{n}")
        for n in range(20)
    ]

    def decide(number: int) -> ApprovalDecision:
        approval, reject = pairs[number // 2], number % 2
        if reject:
            return kept.decide(approval, Decision.REJECT, by=second, reason="no")
        return kept.decide(approval, by=approver)

    answers = at_once(40, decide)

    for approval, of_pair in zip(pairs, zip(answers[::2], answers[1::2], strict=True), strict=True):
        assert kinds(list(of_pair)) == {"ApprovalDecision": 1, "AlreadyDone": 1}, of_pair
        [decision] = ApprovalDecision.objects.filter(approval=approval)
        standing = kept.standing(approval.effect_id or "")
        expected = {"approve": ("pending", "ready"), "reject": ("failed", "rejected_by_person")}
        assert standing == expected[decision.decision]


def test_a_decision_and_a_change_of_mind_at_once_never_grant_unread_bytes(kept: Book) -> None:
    """Either the decision came first and is void, or the change came first and the decision is stale."""
    approver = kept.world.approver
    for number in range(8):
        proposal = kept.propose("ledger.asked_offer", key=str(number))
        approval = kept.ask(proposal.effect_id, interrupt=f"int_{number}")
        work = [
            lambda approval=approval: kept.decide(approval, by=approver),
            lambda n=number: kept.propose("ledger.asked_offer", key=str(n), amount_minor=900),
        ]
        at_once(2, lambda i, work=work: work[i]())  # type: ignore[misc]
        effect = kept.effect(proposal.effect_id)
        assert effect.revision == 2
        assert effect.grant_hash in ("", effect.request_hash)
        assert kept.standing(effect.id) != ("pending", "ready")


def test_two_workers_that_find_one_pause_ask_once(kept: Book) -> None:
    """In the product the run's row is held; the constraint stands behind it."""
    proposal = kept.propose("ledger.asked_offer")
    at_once(5, lambda _: kept.ask(proposal.effect_id))
    newest = rounds.newest_of(kept.run.run_id, "int_1", 0)
    assert newest is not None
    assert (newest.round, newest.status) == (1, "pending")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM effects_approval WHERE run_id = %s", [kept.run.run_id])
        assert cursor.fetchone() == (1,)


def test_two_editors_at_once_make_one_revision(kept: Book) -> None:
    allows = (Decision.APPROVE, Decision.EDIT, Decision.REJECT)
    approval = kept.ask(kept.propose("ledger.asked_offer").effect_id, allows=allows)
    editors: list[User] = [kept.world.approver, kept.world.second_approver]
    answers = at_once(
        2, lambda i: kept.decide(approval, Decision.EDIT, by=editors[i], answer={"amount_minor": 800 + i})
    )
    assert kinds(answers) == {"ApprovalDecision": 1, "AlreadyDone": 1}
    assert kept.effect(approval.effect_id or "").revision == 2
