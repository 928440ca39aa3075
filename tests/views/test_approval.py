"""One approval: what is shown to whom, and what each verb answers."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, Role
from effects.models import Approval, ApprovalDecision, Effect
from effects.selectors import payload_of, revision_of
from effects.states import ApprovalStatus, Decision
from tests.people import World
from tests.views.asking import (
    MAIL,
    TICKET,
    asked,
    asked_action,
    asked_tool,
    expire,
    paused_run,
    questioned,
)
from tests.views.conftest import Decides, Reads, form_of, words_of
from tests.views.test_approvals import edited

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]

OTHERS = ["viewer", "operator", "auditor", "releaser", "developer", "administrator"]
VERBS = ["approve", "reject", "edit", "respond"]
SECRETS = ("jana@brueckner.example", "secret discount")


def page_of(approval: Approval) -> str:
    return f"approvals/{approval.id}/"


def readings(approval: Approval) -> int:
    return AuditEvent.objects.filter(subject=approval.id, verb="approval.read").count()


# -- what is shown to whom --------------------------------------------------------------------------------------


def test_who_may_decide_sees_all_that_will_be_sent(acme: World, reads: Reads) -> None:
    approval = asked(acme, "test.asked_mail", MAIL)
    said = words_of(reads(acme.approver, page_of(approval)))
    for words in (
        *SECRETS,
        "Send a mail",
        "cannot be undone",
        "acme-live",
        "Approve and send the mail",
        "Reject it",
    ):
        assert words.replace("acme-live", acme.account) in said
    assert "no preview" in said


@pytest.mark.parametrize("role", OTHERS)
def test_everybody_else_sees_masks_and_the_reason_instead_of_verbs(
    acme: World, reads: Reads, role: str
) -> None:
    approval = asked(acme, "test.asked_mail", MAIL)
    assert SECRETS[0] in words_of(reads(acme.approver, page_of(approval)))
    page = reads(getattr(acme, role), page_of(approval))
    said = words_of(page)
    assert page.status_code == 200
    assert not any(secret in page.content.decode() for secret in SECRETS)
    assert "•••• masked" in said
    assert "do not let you decide approvals" in said
    assert "Approve and" not in said
    assert form_of(page) == {}


def test_an_approver_of_another_group_sees_masks_and_whose_turn_it_is(acme: World, reads: Reads) -> None:
    approval = asked(acme, "test.asked_mail", MAIL)
    stranger = acme.person("stranger", Role.APPROVER)
    page = reads(stranger, page_of(approval))
    assert not any(secret in page.content.decode() for secret in SECRETS)
    assert "This is for Sales approvers" in words_of(page)
    assert readings(approval) == 0


def test_the_starter_sees_masks_and_that_it_takes_a_second_person(acme: World, reads: Reads) -> None:
    both = acme.approver
    both.memberships.update(roles=[Role.APPROVER, Role.OPERATOR])
    approval = asked(acme, "test.asked_mail", MAIL, run=paused_run(acme, starter=both))
    page = reads(both, page_of(approval))
    assert not any(secret in page.content.decode() for secret in SECRETS)
    assert "Four eyes" in words_of(page)
    assert SECRETS[0] in words_of(reads(acme.second_approver, page_of(approval)))


def test_a_closed_request_is_masked_again(acme: World, reads: Reads, decides: Decides) -> None:
    approval = asked(acme, "test.asked_mail", MAIL)
    decides(acme.approver, approval, "approve")
    page = reads(acme.approver, page_of(approval))
    assert not any(secret in page.content.decode() for secret in SECRETS)


def test_the_first_reading_of_each_person_is_recorded_and_nothing_else(
    acme: World, reads: Reads, client_of: Any
) -> None:
    approval = asked(acme)
    client_of(acme.approver).head(f"/w/{acme.workspace.id}/{page_of(approval)}")
    reads(acme.viewer, page_of(approval))
    assert readings(approval) == 0
    before = AuditEvent.objects.count()
    for _ in range(3):
        reads(acme.approver, page_of(approval))
    assert readings(approval) == 1
    reads(acme.second_approver, page_of(approval))
    assert AuditEvent.objects.count() == before + 2
    event = AuditEvent.objects.get(subject=approval.id, actor=acme.approver)
    assert event.sentence.startswith("Read for approval by Approver: Create an offer")
    approval.refresh_from_db()
    assert (approval.status, approval.version) == (ApprovalStatus.PENDING, 1)


def test_amounts_stand_as_people_write_them_beside_the_minor_units(acme: World, reads: Reads) -> None:
    said = words_of(reads(acme.approver, page_of(asked(acme))))
    assert "5,760.00 EUR 576000 in minor units" in said
    assert "144.00 EUR" in said


def test_hidden_characters_stand_as_marks_with_a_warning(acme: World, reads: Reads) -> None:
    tricky = {**MAIL, "body": "Pay 10\u202e001\u202c EUR\u200b now"}
    page = reads(acme.approver, page_of(asked(acme, "test.asked_mail", tricky)))
    assert "3 hidden characters" in words_of(page)
    assert "\u202e" not in page.content.decode()


def test_markup_of_an_agent_is_text(acme: World, reads: Reads) -> None:
    page = reads(
        acme.approver, page_of(asked(acme, "test.asked_mail", {**MAIL, "body": "<script>alert(1)</script>"}))
    )
    assert "<script>alert" not in page.content.decode()


def test_what_can_not_be_shown_whole_can_not_be_approved(acme: World, reads: Reads) -> None:
    huge = {"customer_id": "cus_000003", "text": "x" * 20_001}
    page = reads(acme.approver, page_of(asked(acme, "test.free_text", huge)))
    said = words_of(page)
    assert "Too large to be shown whole" in said
    assert "Approve and" not in said
    assert "Reject it" in said
    fits = reads(acme.approver, page_of(asked(acme, "test.free_text", {**huge, "text": "x" * 20_000})))
    assert "Approve and file the note" in words_of(fits)


def test_a_tool_without_a_contract_is_wholly_masked_for_who_may_not_decide(acme: World, reads: Reads) -> None:
    approval = asked_tool(
        acme, {"pattern": "s3cret", "deep": {"x": ["s3cret"]}}, Decision.APPROVE, Decision.REJECT
    )
    assert "s3cret" not in reads(acme.viewer, page_of(approval)).content.decode()
    assert "s3cret" in reads(acme.approver, page_of(approval)).content.decode()


def test_an_action_s_words_are_not_shown_to_who_may_not_read_its_arguments(acme: World, reads: Reads) -> None:
    approval = asked_action(acme)
    assert "It is broken." in words_of(reads(acme.approver, page_of(approval)))
    assert "It is broken." not in words_of(reads(acme.viewer, page_of(approval)))


def test_another_workspace_s_request_is_not_there(acme: World, client_of: Any) -> None:
    approval = asked(acme)
    address = f"/w/{acme.workspace.id}/{page_of(approval)}"
    assert client_of(acme.approver).get(address).status_code == 200
    assert client_of(acme.outsider).get(address).status_code == 404
    assert client_of(acme.approver).get(f"/w/{acme.workspace.id}/approvals/apr_none/").status_code == 404


# -- approve and reject -----------------------------------------------------------------------------------------


def test_approving_grants_and_the_page_says_who_when_and_why(
    acme: World, reads: Reads, decides: Decides
) -> None:
    approval = asked(acme)
    answer = decides(acme.approver, approval, "approve", reason="Price checked.")
    assert (answer.status_code, answer["Location"]) == (303, f"/w/{acme.workspace.id}/{page_of(approval)}")
    effect = Effect.objects.get(id=approval.effect_id)
    assert (effect.sub_state, effect.grant_hash) == ("ready", approval.payload_hash)
    said = words_of(reads(acme.approver, page_of(approval)))
    assert "Approved by Approver at" in said
    assert ": Price checked." in said
    assert "Reject it" not in said
    event = AuditEvent.objects.get(verb="approval.approve", subject=approval.id)
    assert event.sentence.startswith("Approved by Approver: ")


def test_afterwards_the_next_request_is_one_click_away(acme: World, reads: Reads, decides: Decides) -> None:
    first, second = asked(acme), asked(acme)
    decides(acme.approver, first, "approve")
    assert (
        f'href="/w/{acme.workspace.id}/{page_of(second)}"'
        in reads(acme.approver, page_of(first)).content.decode()
    )
    decides(acme.approver, second, "approve")
    assert "Nothing else waits for you" in words_of(reads(acme.approver, page_of(second)))


def test_a_double_click_is_one_decision_and_the_same_answer(acme: World, client_of: Any) -> None:
    approval = asked(acme)
    client: Client = client_of(acme.approver)
    here = f"/w/{acme.workspace.id}/{page_of(approval)}"
    carried = form_of(client.get(here))
    answers = [client.post(f"{here}approve/", carried) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert ApprovalDecision.objects.filter(approval=approval).count() == 1


def test_one_form_s_token_does_nothing_at_another_request(acme: World, client_of: Any) -> None:
    first, second = asked(acme), asked(acme)
    client: Client = client_of(acme.approver)
    token = form_of(client.get(f"/w/{acme.workspace.id}/{page_of(first)}"))["token"]
    for approval in (first, second):
        here = f"/w/{acme.workspace.id}/{page_of(approval)}"
        answer = client.post(f"{here}approve/", {**form_of(client.get(here)), "token": token})
        assert answer.status_code == 303
    assert ApprovalDecision.objects.filter(approval__in=[first, second]).count() == 2


def test_rejecting_needs_a_reason_said_beside_the_field(acme: World, decides: Decides) -> None:
    approval = asked(acme)
    page = decides(acme.approver, approval, "reject", reason="  ")
    assert page.status_code == 422
    assert 'aria-invalid="true"' in page.content.decode()
    assert "Say why you reject it." in words_of(page)
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    assert decides(acme.approver, approval, "reject", reason="Wrong customer.").status_code == 303
    assert Effect.objects.get(id=approval.effect_id).sub_state == "rejected_by_person"


def test_too_long_a_reason_is_kept_and_marked(acme: World, decides: Decides) -> None:
    approval = asked(acme)
    page = decides(acme.approver, approval, "approve", reason="y" * 2001)
    assert page.status_code == 422
    assert "y" * 2001 in page.content.decode()
    assert "at most 2000 characters" in words_of(page)


def test_what_changed_meanwhile_is_shown_afresh_and_the_typed_reason_kept(
    acme: World, decides: Decides
) -> None:
    approval = asked(acme)
    page = decides(acme.approver, approval, "approve", reason="Price checked.", payload_hash="sha256:other")
    assert page.status_code == 409
    assert "has changed since you opened it" in words_of(page)
    assert "Price checked." in page.content.decode()
    assert form_of(page)["payload_hash"] == approval.payload_hash
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    assert decides(acme.approver, approval, "approve", version="7").status_code == 409


def test_who_comes_second_is_told_by_whom_it_was_decided(
    acme: World, client_of: Any, decides: Decides
) -> None:
    approval = asked(acme)
    here = f"/w/{acme.workspace.id}/{page_of(approval)}"
    second: Client = client_of(acme.second_approver)
    carried = form_of(second.get(here))
    decides(acme.approver, approval, "approve")
    page = second.post(f"{here}reject/", {**carried, "reason": "Too dear."})
    assert page.status_code == 409
    assert "decided already: Approved by Approver" in words_of(page)
    assert [one.decision for one in approval.decisions.all()] == [Decision.APPROVE]


def test_a_second_too_late_is_a_conflict_that_says_so(acme: World, client_of: Any) -> None:
    approval = asked(acme)
    client: Client = client_of(acme.approver)
    here = f"/w/{acme.workspace.id}/{page_of(approval)}"
    carried = form_of(client.get(here))
    expire(approval)
    page = client.post(f"{here}approve/", carried)
    assert page.status_code == 409
    assert "has expired" in words_of(page)
    assert form_of(page) == {}
    assert "Nobody decided in time" in words_of(client.get(here))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", OTHERS)
def test_no_other_role_decides(acme: World, decides: Decides, role: str, verb: str) -> None:
    approval = asked(acme)
    assert decides(getattr(acme, role), approval, verb, reason="Because.").status_code == 403
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    assert decides(acme.approver, approval, "approve", reason="Because.").status_code == 303


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_the_starter_is_refused_in_words_and_a_second_person_is_not(
    acme: World, decides: Decides, verb: str
) -> None:
    both = acme.approver
    both.memberships.update(roles=[Role.APPROVER, Role.OPERATOR])
    approval = asked(acme, run=paused_run(acme, starter=both))
    page = decides(both, approval, verb, reason="Because.")
    assert page.status_code == 403
    assert "Four eyes" in words_of(page)
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    assert decides(acme.second_approver, approval, verb, reason="Because.").status_code == 303


def test_another_group_s_approver_is_refused_in_words(acme: World, decides: Decides) -> None:
    approval = asked(acme)
    page = decides(acme.person("stranger", Role.APPROVER), approval, "approve")
    assert page.status_code == 403
    assert "This is for Sales approvers" in words_of(page)


def test_outsiders_and_strangers_get_nowhere(acme: World, client: Client, decides: Decides) -> None:
    approval = asked(acme)
    assert decides(acme.outsider, approval, "approve").status_code == 404
    assert client.post(f"/w/{acme.workspace.id}/{page_of(approval)}approve/").status_code == 302
    assert not ApprovalDecision.objects.filter(approval=approval).exists()


def test_a_post_without_the_page_s_csrf_token_decides_nothing(acme: World, client_of: Any) -> None:
    approval = asked(acme)
    client = Client(enforce_csrf_checks=True)
    client.force_login(acme.approver, backend="django.contrib.auth.backends.ModelBackend")
    here = f"/w/{acme.workspace.id}/{page_of(approval)}"
    assert client.post(f"{here}approve/", form_of(client.get(here))).status_code == 403
    assert not ApprovalDecision.objects.filter(approval=approval).exists()


@pytest.mark.parametrize("broken", [{"token": ""}, {"token": "zz"}, {"version": "one"}, {"payload_hash": ""}])
def test_a_form_that_the_page_did_not_make_is_malformed(
    acme: World, decides: Decides, broken: dict[str, str]
) -> None:
    approval = asked(acme)
    assert decides(acme.approver, approval, "approve", **broken).status_code == 400
    assert not ApprovalDecision.objects.filter(approval=approval).exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_never_a_get(acme: World, client_of: Any, verb: str) -> None:
    approval = asked(acme)
    assert (
        client_of(acme.approver).get(f"/w/{acme.workspace.id}/{page_of(approval)}{verb}/").status_code == 405
    )


# -- edit -------------------------------------------------------------------------------------------------------


def test_an_edit_is_a_new_revision_that_somebody_else_approves(
    acme: World, reads: Reads, decides: Decides
) -> None:
    approval = asked_action(acme)
    answer = decides(acme.approver, approval, "edit", reason="Too low.", **edited(priority='"high"'))
    assert answer.status_code == 303
    effect = Effect.objects.get(id=approval.effect_id)
    assert payload_of(effect, revision_of(effect)) == {**TICKET, "priority": "high"}
    second = Approval.objects.get(run_id=approval.run_id, status=ApprovalStatus.PENDING)
    assert "Edited by Approver at" in words_of(reads(acme.approver, page_of(approval)))
    mine = words_of(reads(acme.approver, page_of(second)))
    assert "Four eyes" in mine
    assert "Reject it" not in mine
    theirs = words_of(reads(acme.second_approver, page_of(second)))
    assert "What the edit changed" in theirs
    assert "low" in theirs.partition("What the edit changed")[2]
    assert "Edited by Approver" in theirs
    assert decides(acme.approver, second, "approve").status_code == 403
    assert decides(acme.second_approver, second, "approve").status_code == 303


def test_an_edit_as_json_is_the_same_edit(acme: World, decides: Decides) -> None:
    approval = asked_action(acme)
    raw = '{"subject": "Fällt aus", "description": "Since this morning.", "priority": "low", "customer_id": "cus_000003"}'
    assert decides(acme.approver, approval, "edit", **{"as": "json", "json": raw}).status_code == 303
    effect = Effect.objects.get(id=approval.effect_id)
    assert payload_of(effect, revision_of(effect)) == {**TICKET, "subject": "Fällt aus"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"arg-priority": '"urgent"'}, "Select a valid choice"),
        ({"arg-subject": ""}, "This field is required"),
        ({"as": "json", "json": '{"subject": 7}'}, "subject must stay a text"),
        ({"as": "json", "json": '{"colour": "red"}'}, "colour is not among the arguments"),
        ({"as": "json", "json": '{"subject": "a", "subject": "b"}'}, "twice"),
        ({"as": "json", "json": "[]"}, "Write an object"),
        ({"as": "json", "json": "{"}, "The text is not JSON"),
    ],
)
def test_an_edit_that_does_not_fit_says_why_and_keeps_what_was_typed(
    acme: World, decides: Decides, typed: dict[str, str], said: str
) -> None:
    approval = asked_action(acme)
    page = decides(acme.approver, approval, "edit", reason="Because.", **{**edited(), **typed})
    assert page.status_code == 422
    assert said in words_of(page)
    assert "Because." in page.content.decode()
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    assert Effect.objects.get(id=approval.effect_id).revision == 1


def test_what_allows_no_edit_offers_none_and_refuses_one(acme: World, reads: Reads, decides: Decides) -> None:
    approval = asked(acme)
    assert "Edit it" not in words_of(reads(acme.approver, page_of(approval)))
    page = decides(acme.approver, approval, "edit", **{"as": "json", "json": '{"amount_minor": 1}'})
    assert page.status_code == 422
    assert "does not allow you to edit" in words_of(page)
    assert Effect.objects.get(id=approval.effect_id).revision == 1


# -- respond ----------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "blue"], "title": "Colour"},
        "count": {"type": "integer", "maximum": 9},
    },
    "required": ["colour", "count"],
}


def test_a_question_is_answered_in_words(acme: World, reads: Reads, decides: Decides) -> None:
    approval = questioned(acme)
    page = reads(acme.approver, page_of(approval))
    assert "They asked for a dark one." in words_of(page)
    assert "Approve" not in words_of(page).replace("Approvals", "")
    assert (
        decides(acme.approver, approval, "respond", **{"arg-answer": "Red.\r\nNot blue."}).status_code == 303
    )
    decision = ApprovalDecision.objects.get(approval=approval)
    assert approvals_answer(decision, approval) == "Red.\nNot blue."
    assert "Answered by Approver at" in words_of(reads(acme.approver, page_of(approval)))


def test_a_question_with_a_schema_is_answered_in_its_types(acme: World, decides: Decides) -> None:
    approval = questioned(acme, SCHEMA)
    typed = {"arg-colour": '"blue"', "arg-count": "4"}
    assert decides(acme.approver, approval, "respond", **typed).status_code == 303
    decision = ApprovalDecision.objects.get(approval=approval)
    assert approvals_answer(decision, approval) == {"colour": "blue", "count": 4}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"arg-colour": '"green"', "arg-count": "4"}, "Select a valid choice"),
        ({"arg-colour": '"blue"', "arg-count": "four"}, "Write a whole number"),
        ({"arg-colour": '"blue"', "arg-count": "10"}, "10 is greater than the maximum of 9"),
        ({"arg-colour": '"blue"'}, "This field is required"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_a_right_one_afterwards_works(
    acme: World, decides: Decides, typed: dict[str, str], said: str
) -> None:
    approval = questioned(acme, SCHEMA)
    page = decides(acme.approver, approval, "respond", **typed)
    assert page.status_code == 422
    assert said in words_of(page)
    assert not ApprovalDecision.objects.filter(approval=approval).exists()
    right = {"arg-colour": '"blue"', "arg-count": "9"}
    assert decides(acme.approver, approval, "respond", **right).status_code == 303


def test_words_never_stand_in_for_an_effect(acme: World, decides: Decides) -> None:
    approval = asked(acme)
    page = decides(acme.approver, approval, "respond", **{"arg-answer": "Done."})
    assert page.status_code == 422
    assert not ApprovalDecision.objects.filter(approval=approval).exists()


def approvals_answer(decision: ApprovalDecision, approval: Approval) -> object:
    from effects import rounds

    return rounds.answer_of(decision, approval)


# -- how much it asks of the database ------------------------------------------------------------------------------


def test_the_page_s_queries(
    acme: World, client_of: Any, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    address = f"/w/{acme.workspace.id}/{page_of(asked(acme))}"
    client: Client = client_of(acme.approver)
    client.get(address)
    with django_assert_num_queries(16):
        client.get(address)


def test_htmx_gets_the_request_alone(acme: World, client_of: Any) -> None:
    approval = asked(acme)
    address = f"/w/{acme.workspace.id}/{page_of(approval)}"
    part = client_of(acme.approver).get(address, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert f'data-live="approvals run:{approval.run_id} effect:{approval.effect_id}"' in part
