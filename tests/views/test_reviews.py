"""The Review desk: what is on it, whose turn it is, what each may decide, and twice is once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.models import AuditEvent, User
from effects import moves
from effects.commands import repeat
from effects.models import Effect, LookRequest, OrphanScan, Review
from effects.states import ReviewReason
from runs.models import Run
from tests.people import World, make_world
from tests.views import desk, standing
from tests.views.asking import MAIL, OFFER, intend, paused_run
from tests.views.conftest import Decides, Reads, words_of
from tests.views.desk import WHY, address, outcomes_offered, press, settle
from tests.views.ordering import request_of

ClientOf = Callable[[User], Client]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("contracts_that_ask")]
EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
OTHERS = [role for role in EVERYBODY if role != "releaser"]
TOKEN = "f" * 32


@pytest.fixture
def run(acme: World) -> Run:
    return paused_run(acme)


@pytest.fixture
def ticket(acme: World, run: Run) -> Review:
    return desk.ticket_in_review(acme, run)


@pytest.fixture
def mail(acme: World, run: Run) -> Review:
    return desk.mail_in_review(acme, run)


def ids_in(page: Any) -> list[str]:
    return re.findall(r'<tr id="(rev_\w+)"', page.content.decode())


def fresh(review: Review) -> Review:
    return Review.objects.select_related("effect", "settled_by", "confirmed_by").get(id=review.id)


# -- the desk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", EVERYBODY)
def test_everybody_sees_the_desk_masked(acme: World, mail: Review, reads: Reads, role: str) -> None:
    page = reads(getattr(acme, role), "reviews/")
    assert ids_in(page) == [mail.id]
    said = words_of(page)
    for words in ("Send a mail", "j•••@brueckner.example", "The receiver can't be asked", "mail"):
        assert words in said
    assert MAIL["to"] not in page.content.decode()


def test_whose_turn_it_is(acme: World, ticket: Review, mail: Review, reads: Reads) -> None:
    desk.proposed(acme, mail)

    def turn(user: User) -> dict[str, str]:
        return {row.review.id: row.whose for row in reads(user, "reviews/").context["rows"]}

    assert turn(acme.viewer) == {ticket.id: "A releaser", mail.id: "A second person"}
    assert turn(acme.releaser) == {ticket.id: "You", mail.id: "A second person"}
    assert turn(acme.approver) == {ticket.id: "A releaser", mail.id: "You, as the second person"}


def test_filters_and_tabs_narrow_and_go_together(acme: World, run: Run, mail: Review, reads: Reads) -> None:
    ticket = desk.ticket_in_review(acme, run, reason=ReviewReason.DEADLINE_PASSED)
    orphan = desk.orphan_in_review(acme)
    other = desk.proposed(acme, desk.mail_in_review(acme, run))

    def found(**query: str) -> set[str]:
        return set(ids_in(reads(acme.viewer, "reviews/", **query)))

    assert found() == {mail.id, ticket.id, orphan.id, other.id}
    assert found(view="second") == {other.id}
    assert found(reason="deadline_passed") == {ticket.id}
    assert found(receiver="desk") == {ticket.id, orphan.id}
    assert found(receiver="desk", reason="orphan") == {orphan.id}
    assert found(view="second", receiver="desk") == set()
    page = reads(acme.viewer, "reviews/", receiver="desk", reason="orphan").content.decode()
    assert "receiver=desk&amp;reason=orphan&amp;view=closed" in page


@pytest.mark.parametrize(("query", "said"), [({"reason": "x"}, "Reason"), ({"receiver": "x"}, "Receiver")])
def test_a_filter_that_can_not_be_read_is_named(
    acme: World, mail: Review, reads: Reads, query: dict[str, str], said: str
) -> None:
    page = reads(acme.viewer, "reviews/", **query)
    assert page.status_code == 400
    assert said in words_of(page)
    assert "No review fits" not in words_of(page)


def test_a_cursor_that_nobody_made_is_a_bad_request(acme: World, reads: Reads) -> None:
    assert reads(acme.viewer, "reviews/", cursor="zzz").status_code == 400


def test_pages_follow_each_other(
    acme: World, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("effects.views.reviews.PAGE", 2)
    made = {desk.ticket_in_review(acme, run).id for _ in range(3)}
    first = reads(acme.viewer, "reviews/")
    older = re.search(r'rel="next" href="[^"?]*\?cursor=([^"]+)"', first.content.decode())
    assert older
    second = reads(acme.viewer, "reviews/", cursor=older[1])
    assert len(ids_in(first)) == 2
    assert {*ids_in(first), *ids_in(second)} == made


def test_what_is_closed_says_as_what_and_by_whom(
    acme: World, ticket: Review, reads: Reads, client_of: ClientOf
) -> None:
    settle(client_of(acme.releaser), ticket, "not_done")
    assert ids_in(reads(acme.viewer, "reviews/")) == []
    said = words_of(reads(acme.viewer, "reviews/", view="closed"))
    assert "It was not done, and is not to be" in said
    assert "Releaser" in said


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "Nothing is in review"),
        ({"view": "second"}, "Nothing waits for a second person"),
        ({"view": "closed"}, "Nothing has been settled here yet"),
        ({"reason": "orphan"}, "No review fits these filters"),
    ],
)
def test_empty_states(acme: World, reads: Reads, query: dict[str, str], said: str) -> None:
    assert said in words_of(reads(acme.viewer, "reviews/", **query))


def test_nobody_else_gets_in_and_looking_writes_nothing(
    acme: World, mail: Review, client: Client, client_of: ClientOf
) -> None:
    events = AuditEvent.objects.count()
    for path in (f"/w/{acme.workspace.id}/reviews/", address(mail)):
        assert client_of(acme.viewer).get(path).status_code == 200
        assert client_of(acme.outsider).get(path).status_code == 404
        assert client.get(path).status_code == 302
    assert AuditEvent.objects.count() == events
    other = make_world("other")
    elsewhere = address(mail).replace(acme.workspace.id, other.workspace.id)
    assert client_of(other.releaser).get(elsewhere).status_code == 404
    for verb in ("settle", "confirm", "decline", "ask"):
        assert client_of(other.releaser).post(f"{elsewhere}{verb}/", {"form_token": TOKEN}).status_code == 404
    assert fresh(mail).closed_at is None


def test_htmx_gets_exactly_the_part_of_the_page(acme: World, mail: Review, client_of: ClientOf) -> None:
    client = client_of(acme.viewer)
    for path in (f"/w/{acme.workspace.id}/reviews/", address(mail)):
        part = client.get(path, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in part
        assert part.strip() in client.get(path).content.decode()


# -- one review ----------------------------------------------------------------------------------------------------


def test_the_evidence_stands_side_by_side_masked(acme: World, run: Run, reads: Reads) -> None:
    review = desk.mail_in_review(acme, run)
    page = reads(acme.viewer, f"reviews/{review.id}/")
    said = words_of(page)
    for words in (
        "The receiver cannot be asked whether it has this effect.",
        "Nobody can say.",
        "What was meant to be sent",
        "What mail said",
        "j•••@brueckner.example",
        standing.LOST,
        "Attempt 1",
    ):
        assert words in said
    assert MAIL["to"] not in page.content.decode()
    assert "secret discount" not in page.content.decode()


def test_every_reference_of_a_duplicate_is_named(acme: World, run: Run, reads: Reads) -> None:
    effect = standing.completed(intend(acme, run, "test.offer", OFFER), "off_000042")
    several = ["off_000042", "off_000043"]
    moves.observe(effect, "look_up", "several", "crm has 2 objects with this id.", references=several)
    review = desk.opened(effect, ReviewReason.DUPLICATE_FOUND, "crm has 2 objects with this id.")
    said = words_of(reads(acme.viewer, f"reviews/{review.id}/"))
    assert "off_000043" in said
    assert "the ledger's own" in said


@pytest.mark.parametrize("reason", [ReviewReason.MISMATCH, ReviewReason.CONTRADICTION])
def test_what_differs_names_the_object_that_is_there(
    acme: World, run: Run, reads: Reads, reason: ReviewReason
) -> None:
    effect = standing.uncertain(intend(acme, run, "test.offer", OFFER))
    moves.observe(effect, "look_up", "mismatch", "Another amount is there.", reference="off_000918")
    review = desk.opened(effect, reason, "Another amount is there.")
    page = reads(acme.viewer, f"reviews/{review.id}/")
    assert page.context["references"] == ["off_000918"]
    assert "Object there off_000918" in words_of(page)


def test_while_it_is_in_flight_it_is_nobody_s_turn(
    acme: World, mail: Review, reads: Reads, decides: Decides
) -> None:
    assert mail.effect is not None
    order = repeat.deliver_again(
        acme.actor(acme.releaser),
        mail.effect.id,
        reason=WHY,
        token=TOKEN,
        typed_id=mail.effect.id,
        accepts="Two would do no harm.",
    )
    assert decides(acme.approver, request_of(order), "approve", reason="Two are no harm.").status_code == 303
    lease, window = timedelta(minutes=5), timedelta(0)
    effect = standing.fresh(mail.effect)
    assert moves.claim(
        effect, lease=lease, key_window=window, worker_id="w", origin=order.id, overriding=True
    )
    page = reads(acme.releaser, f"reviews/{mail.id}/")
    assert "It is the turn of nobody, while it is in flight" in words_of(page)
    assert "Nobody, while it is in flight" in words_of(reads(acme.releaser, "reviews/"))
    assert outcomes_offered(page) == []


def test_what_was_found_since_is_said_where_a_person_has_to_close_it(
    acme: World, run: Run, reads: Reads
) -> None:
    effect = standing.uncertain(intend(acme, run, "test.offer", OFFER), window=-standing.DAYS)
    review = desk.opened(effect, ReviewReason.KEY_EXPIRED)
    assert "was found since" not in words_of(reads(acme.releaser, f"reviews/{review.id}/"))
    assert moves.complete_by_evidence(effect.id, reference="off_000042", answer=b"")
    page = reads(acme.releaser, f"reviews/{review.id}/")
    assert "crm has it: that was found since." in words_of(page)
    assert outcomes_offered(page) == ["stands"]


def test_one_reason_that_shuts_several_ways_is_said_once(acme: World, client_of: ClientOf) -> None:
    page = client_of(acme.releaser).get(address(desk.orphan_in_review(acme)))
    assert words_of(page).count("There is no effect of ours") == 1
    assert "It was done · It was not done, and is not to be · It was not done: send it" in words_of(page)


def test_an_orphan_names_the_object_and_can_only_be_noted(acme: World, client_of: ClientOf) -> None:
    review = desk.orphan_in_review(acme)
    client = client_of(acme.releaser)
    page = client.get(address(review))
    assert "tkt_000099" in words_of(page)
    assert "No row of this ledger explains it" in words_of(page)
    assert outcomes_offered(page) == ["stands"]
    assert settle(client, review, "stands").status_code == 303
    assert fresh(review).settled_as == "stands"
    assert settle(client, review, "stands").status_code == 409
    assert press(client, review, "ask").status_code == 404


def test_only_a_releaser_is_shown_decisions_the_others_why_not(
    acme: World, ticket: Review, client_of: ClientOf
) -> None:
    assert outcomes_offered(client_of(acme.releaser).get(address(ticket))) == ["done", "not_done", "send"]
    for role in OTHERS:
        page = client_of(getattr(acme, role)).get(address(ticket))
        assert outcomes_offered(page) == []
        assert "Only a releaser may settle a review." in words_of(page)


def test_what_is_not_allowed_says_why(acme: World, ticket: Review, reads: Reads) -> None:
    said = words_of(reads(acme.releaser, f"reviews/{ticket.id}/"))
    assert "The ledger does not know: say whether it was done." in said


def test_one_settles_what_can_be_undone_and_twice_is_once(
    acme: World, ticket: Review, client_of: ClientOf
) -> None:
    client = client_of(acme.releaser)
    given = {"form_token": TOKEN, "outcome": "done", "reason": WHY, "evidence": "tkt_7"}
    for _ in range(2):
        answer = client.post(address(ticket, "settle"), given)
        assert (answer.status_code, answer["Location"]) == (303, address(ticket))
    settled = fresh(ticket)
    assert (settled.settled_as, settled.settled_by, settled.evidence) == ("done", acme.releaser, "tkt_7")
    assert settled.effect is not None
    assert (settled.effect.status, settled.effect.provider_reference) == ("completed", "tkt_7")
    assert AuditEvent.objects.filter(subject=ticket.id, verb="review.settled").count() == 1
    page = client.get(address(ticket))
    assert outcomes_offered(page) == []
    for words in ("Settled: it was done", "Releaser", "tkt_7", WHY):
        assert words in words_of(page)


@pytest.mark.parametrize("role", OTHERS)
def test_nobody_else_may_settle_and_it_is_recorded(
    acme: World, ticket: Review, client_of: ClientOf, role: str
) -> None:
    given = {"form_token": TOKEN, "outcome": "done", "reason": WHY, "evidence": "tkt_7"}
    assert client_of(getattr(acme, role)).post(address(ticket, "settle"), given).status_code == 403
    assert fresh(ticket).closed_at is None
    assert AuditEvent.objects.filter(subject=ticket.id, verb="review.not_settled").count() == 1
    assert client_of(acme.releaser).post(address(ticket, "settle"), given).status_code == 303


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        ({"reason": ""}, 422, "Say what you found out, and how."),
        ({"evidence": ""}, 422, "Give the receiver's own reference of it."),
        ({"evidence": "x" * 201}, 422, "at most 200"),
        ({"reason": "y" * 2001}, 422, "at most 2000"),
        ({"outcome": "perhaps"}, 422, "Choose how to settle it."),
    ],
)
def test_what_is_missing_is_said_beside_what_was_typed(
    acme: World, ticket: Review, client_of: ClientOf, typed: dict[str, str], status: int, said: str
) -> None:
    given = {"form_token": TOKEN, "outcome": "done", "reason": "kept words", "evidence": "kept-7", **typed}
    page = client_of(acme.releaser).post(address(ticket, "settle"), given)
    assert page.status_code == status
    assert said in words_of(page)
    if "outcome" not in typed:
        kept = "kept-7" if "reason" in typed else "kept words"
        assert kept in page.content.decode()
    assert fresh(ticket).closed_at is None


def test_a_form_without_a_token_was_not_made_here(acme: World, ticket: Review, client_of: ClientOf) -> None:
    for verb in ("settle", "confirm", "decline", "ask"):
        assert client_of(acme.releaser).post(address(ticket, verb), {"outcome": "done"}).status_code == 400


def test_who_comes_second_is_told_who_was_first_and_keeps_their_words(
    acme: World, ticket: Review, client_of: ClientOf
) -> None:
    other = acme.person("other_releaser", *acme.actor(acme.releaser).roles)
    settle(client_of(acme.releaser), ticket, "not_done")
    given = {"form_token": TOKEN, "outcome": "done", "reason": WHY, "evidence": "tkt_7"}
    page = client_of(other).post(address(ticket, "settle"), given)
    assert page.status_code == 409
    assert "It has been settled already by Releaser" in words_of(page)


def test_a_decision_that_is_no_longer_open_keeps_what_was_typed(
    acme: World, ticket: Review, client_of: ClientOf
) -> None:
    page = settle(client_of(acme.releaser), ticket, "stands", reason="My kept words.")
    assert page.status_code == 409
    assert "My kept words." in words_of(page)
    assert fresh(ticket).closed_at is None


# -- two people ----------------------------------------------------------------------------------------------------


def test_what_can_not_be_undone_is_proposed_and_a_second_person_confirms(
    acme: World, mail: Review, client_of: ClientOf
) -> None:
    answer = settle(client_of(acme.releaser), mail, "done", evidence="<7@mail>")
    assert answer.status_code == 303
    assert fresh(mail).closed_at is None
    own = words_of(client_of(acme.releaser).get(address(mail)))
    assert "Four eyes: you proposed it" in own
    page = client_of(acme.approver).get(address(mail))
    for words in ("Releaser proposes: it was done", "<7@mail>", WHY, "Agree: it was done"):
        assert words in words_of(page)
    client = client_of(acme.approver)
    given = {"form_token": TOKEN}
    for _ in range(2):
        assert client.post(address(mail, "confirm"), given).status_code == 303
    settled = fresh(mail)
    assert (settled.settled_by, settled.confirmed_by, settled.settled_as) == (
        acme.releaser,
        acme.approver,
        "done",
    )
    assert AuditEvent.objects.filter(subject=mail.id, verb="review.settled").count() == 1
    assert "and Approver as the second person" in words_of(client.get(address(mail)))


@pytest.mark.parametrize("role", ["viewer", "operator", "auditor", "developer", "administrator", "releaser"])
def test_who_is_no_second_person_has_no_form_and_may_not(
    acme: World, mail: Review, client_of: ClientOf, role: str
) -> None:
    desk.proposed(acme, mail)
    client = client_of(getattr(acme, role))
    page = client.get(address(mail)).content.decode()
    for verb in ("confirm", "decline"):
        assert address(mail, verb) not in page
        assert client.post(address(mail, verb), {"form_token": TOKEN, "reason": "No."}).status_code == 403
    assert fresh(mail).proposed_as == "done"
    assert press(client_of(acme.approver), mail, "confirm").status_code == 303


def test_the_second_person_may_not_agree_and_it_stays_open(
    acme: World, mail: Review, client_of: ClientOf
) -> None:
    desk.proposed(acme, mail)
    client = client_of(acme.approver)
    refused = press(client, mail, "decline", reason="")
    assert refused.status_code == 422
    assert "Say why you do not agree." in words_of(refused)
    assert press(client, mail, "decline", reason="Another mail.").status_code == 303
    assert (fresh(mail).proposed_as, fresh(mail).closed_at) == ("", None)
    assert AuditEvent.objects.get(subject=mail.id, verb="review.declined").reason == "Another mail."
    assert press(client, mail, "confirm").status_code == 409


# -- ask, and scan -------------------------------------------------------------------------------------------------


def test_the_receiver_is_asked_once_from_here(acme: World, ticket: Review, client_of: ClientOf) -> None:
    client = client_of(acme.releaser)
    for _ in range(2):
        answer = client.post(address(ticket, "ask"), {"form_token": TOKEN})
        assert (answer.status_code, answer["Location"]) == (303, address(ticket))
    assert LookRequest.objects.filter(effect=ticket.effect).count() == 1
    assert "Asked, waiting for the answer" in words_of(client.get(address(ticket)))
    assert client_of(acme.viewer).post(address(ticket, "ask"), {"form_token": TOKEN}).status_code == 403


def test_who_can_not_be_asked_is_said(acme: World, mail: Review, client_of: ClientOf) -> None:
    page = press(client_of(acme.releaser), mail, "ask")
    assert page.status_code == 422
    assert "mail can't be asked" in words_of(page)


def listing(settings: Any) -> None:
    from effects.contracts import contracts

    settings.CONTRACTS = ["demo.contracts:CONTRACTS"]
    contracts.cache_clear()


def test_a_scan_is_asked_for_once_by_a_releaser(acme: World, settings: Any, client_of: ClientOf) -> None:
    listing(settings)
    acme.receivers("http://127.0.0.1:9", 9)
    desk_page = f"/w/{acme.workspace.id}/reviews/"
    client = client_of(acme.releaser)
    choices = [name for _, name in client.get(desk_page).context["scan"].fields["receiver"].choices]
    assert choices[0] == "Choose…"
    assert len(choices) > 1, "no contract of the demo lists"
    receiver = acme.workspace.receivers.get(name=choices[1])
    given = {"form_token": TOKEN, "receiver": receiver.id, "since": "2026-01-02T03:04"}
    scans = f"/w/{acme.workspace.id}/scans/"
    for role in OTHERS:
        assert client_of(getattr(acme, role)).post(scans, given).status_code == 403
        assert "Only a releaser may scan" in words_of(client_of(getattr(acme, role)).get(desk_page))
    for _ in range(2):
        answer = client.post(scans, given)
        assert (answer.status_code, answer["Location"]) == (303, f"{desk_page}#scans")
    made = OrphanScan.objects.filter(workspace=acme.workspace)
    assert made.count() == len({scan.effect_type for scan in made}) >= 1
    assert "2026" in words_of(client.get(desk_page))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"receiver": ""}, "Choose a receiver."),
        ({"receiver": "rcv_other"}, "Receiver"),
        ({"since": "yesterday"}, "Write a date and a time."),
        ({"since": "2999-01-01T00:00"}, "That time is yet to come."),
    ],
)
def test_a_scan_that_can_not_be_made_says_why_and_keeps_what_was_typed(
    acme: World, settings: Any, client_of: ClientOf, typed: dict[str, str], said: str
) -> None:
    listing(settings)
    acme.receivers("http://127.0.0.1:9", 9)
    client = client_of(acme.releaser)
    form = client.get(f"/w/{acme.workspace.id}/reviews/").context["scan"]
    given = {"form_token": TOKEN, "receiver": form.fields["receiver"].choices[1][0], "since": "", **typed}
    page = client.post(f"/w/{acme.workspace.id}/scans/", given)
    assert page.status_code == 422
    assert said in words_of(page)
    assert not OrphanScan.objects.filter(workspace=acme.workspace).exists()


# -- hostile text, and cost ----------------------------------------------------------------------------------------


def test_hostile_text_is_text(acme: World, run: Run, client_of: ClientOf) -> None:
    evil = "<img src=x onerror=alert(1)>"
    review = desk.ticket_in_review(acme, run, sentence=evil)
    desk.orphan_in_review(acme, evil)
    client = client_of(acme.releaser)
    settle(client, review, "not_done", reason=evil)
    for path in (
        f"/w/{acme.workspace.id}/reviews/",
        f"/w/{acme.workspace.id}/reviews/?view=closed",
        address(review),
        address(Review.objects.get(provider_object=evil)),
    ):
        assert "<img" not in client.get(path).content.decode()


def test_more_reviews_take_no_more_queries(
    acme: World, run: Run, client_of: ClientOf, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = client_of(acme.viewer)
    for _ in range(2):
        desk.mail_in_review(acme, run)
        desk.ticket_in_review(acme, run)
        client.get(f"/w/{acme.workspace.id}/reviews/")
        with django_assert_num_queries(11):
            client.get(f"/w/{acme.workspace.id}/reviews/")


def test_one_review_takes_few_queries(
    acme: World, mail: Review, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    client = client_of(acme.releaser)
    client.get(address(mail))
    with django_assert_max_num_queries(20):
        client.get(address(mail))
    effect = Effect.objects.get(id=mail.effect_id)
    for _ in range(4):
        standing.looked(effect)
    with django_assert_max_num_queries(20):
        client.get(address(mail))
