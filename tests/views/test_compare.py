"""The Compare page: who may see it, what it says in a sentence, and that nothing protected shows by way of a difference."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from effects.models import EffectRevision, WouldHave
from effects.states import EffectStatus, SubState
from runs.comparing import MAX_WORDS, Sameness, words_apart
from runs.models import Checkpoint, Run
from runs.states import RunKind, RunMode, RunStatus, StepOutcome
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import Reads, words_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair(acme: World) -> tuple[Run, Run]:
    """Two runs that took the same two steps."""
    return walked(acme, "The one"), walked(acme, "The other")


def walked(world: World, title: str, *nodes: str) -> Run:
    run = rows.run_in(world, title=title)
    claim = rows.execution(run)
    for number, node in enumerate(nodes or ("understand", "draft_offer"), 1):
        rows.step(claim, node, number)
    return run


def read(reads: Reads, world: World, first: Run, second: Run, **others: str) -> Any:
    return reads(world.viewer, "runs/compare/", a=first.id, b=second.id, **others)


def replay_of(world: World, run: Run, mode: RunMode = RunMode.EVIDENCE) -> Run:
    """As the command leaves it, without its engine's rows."""
    at = Checkpoint.objects.create(
        run=run, engine_id=f"1f0-{run.checkpoints.count()}", fence=1, number=1, source="loop", size=1
    )
    made = rows.run_in(world, title="A replay")
    return rows.change(
        made, kind=RunKind.REPLAY, mode=mode, models_asked=False, parent_run=run, parent_checkpoint=at,
        root_run=run,
    )  # fmt: skip


# -- who, and what is asked for ----------------------------------------------------------------------------------------


def test_everybody_of_the_workspace_sees_it_and_it_only_reads(
    acme: World, reads: Reads, pair: tuple[Run, Run]
) -> None:
    one, other = pair
    for user in (acme.viewer, acme.operator, acme.approver, acme.auditor, acme.releaser, acme.developer):
        assert reads(user, "runs/compare/", a=one.id, b=other.id).status_code == 200
    assert reads(acme.outsider, "runs/compare/", a=one.id, b=other.id).status_code == 404
    address = reverse("compare", args=[acme.workspace.id])
    assert Client().get(f"{address}?a={one.id}&b={other.id}").status_code == 302


def test_it_answers_get_alone(acme: World, client_of: Any, pair: tuple[Run, Run]) -> None:
    address = f"{reverse('compare', args=[acme.workspace.id])}?a={pair[0].id}&b={pair[1].id}"
    client = client_of(acme.developer)
    assert client.head(address).status_code == 200
    assert client.post(address).status_code == 405


def test_a_run_of_another_workspace_is_not_there_on_either_side(acme: World, reads: Reads) -> None:
    own, theirs = rows.run_in(acme), rows.run_in(make_world("other"))
    assert read(reads, acme, own, theirs).status_code == 404
    assert read(reads, acme, theirs, own).status_code == 404
    assert reads(acme.viewer, "runs/compare/", a=theirs.id).status_code == 404
    for odd in ("run_nothing", "<b>", "x" * 64):
        assert reads(acme.viewer, "runs/compare/", a=own.id, b=odd).status_code == 404


def test_without_a_first_run_the_address_can_not_be_read(acme: World, reads: Reads) -> None:
    assert reads(acme.viewer, "runs/compare/").status_code == 400
    assert reads(acme.viewer, "runs/compare/", a="x" * 65).status_code == 400


def test_the_same_run_twice_is_refused_in_words_with_the_form_to_choose(
    acme: World, reads: Reads, pair: tuple[Run, Run]
) -> None:
    page = read(reads, acme, pair[0], pair[0])
    assert page.status_code == 422
    assert "That is the same run twice." in words_of(page)
    assert pair[1].id in page.content.decode(), "another one stands to be chosen"


def test_the_second_run_is_chosen_parent_first_then_its_lineage_then_its_workflow(
    acme: World, reads: Reads
) -> None:
    original, stranger = rows.run_in(acme), rows.run_in(acme)
    replay, sibling = replay_of(acme, original), replay_of(acme, original)
    elsewhere = rows.run_in(make_world("other"))
    page = reads(acme.viewer, "runs/compare/", a=replay.id)
    assert page.status_code == 200
    assert page.context["related"] == [original, sibling]
    assert page.context["others"] == [stranger]
    text = page.content.decode()
    assert f'value="{original.id}" selected' in text
    assert elsewhere.id not in text
    assert read(reads, acme, replay, original).context["found"].second == original


# -- what it says ------------------------------------------------------------------------------------------------------


def test_runs_that_have_done_nothing_are_said_to_have_done_nothing(acme: World, reads: Reads) -> None:
    page = read(reads, acme, rows.run_in(acme), rows.run_in(acme))
    assert page.status_code == 200
    text = words_of(page)
    for said in ("Neither run has ended", "One of them has taken no step.", "Neither run has taken a step.",
                 "no checkpoint at the same place", "Neither run has asked a model"):  # fmt: skip
        assert said in text


def test_where_they_part_stands_in_the_sentence_and_at_its_row(acme: World, reads: Reads) -> None:
    one = walked(acme, "One", "understand", "draft_offer", "send")
    other = walked(acme, "Other", "understand", "open_ticket", "send")
    page = read(reads, acme, one, other)
    assert "The paths part at step 2: A goes to draft_offer, B does not." in words_of(page)
    assert words_of(page).count("here they part") == 1
    assert [(row.number, row.either.node, row.where) for row in page.context["found"].steps] == [
        (1, "understand", "both"),
        (2, "draft_offer", "first"),
        (2, "open_ticket", "second"),
        (3, "send", "both"),
    ]


def test_a_run_that_has_gone_less_far_has_not_parted(acme: World, reads: Reads) -> None:
    one, other = walked(acme, "One", "understand", "draft_offer"), walked(acme, "Other", "understand")
    page = read(reads, acme, one, other)
    assert "The path is the same as far as B has gone." in words_of(page)
    assert page.context["found"].parting is None
    rows.stands(other, RunStatus.COMPLETED)
    ended = read(reads, acme, one, other)
    assert "The paths part at step 2" in words_of(ended), "it ended where the other went on"


def test_several_goes_of_a_step_are_one_row(acme: World, reads: Reads) -> None:
    one, other = rows.run_in(acme), walked(acme, "Other", "wait")
    for fence, outcome in ((1, StepOutcome.PAUSED), (2, StepOutcome.DONE)):
        rows.step(rows.execution(one, fence=fence), "wait", 1, outcome=outcome)
    page = read(reads, acme, one, other)
    (row,) = page.context["found"].steps
    assert row.first is not None
    assert (row.first.goes, row.first.seconds, row.first.outcome) == (2, 2.0, StepOutcome.DONE)
    assert "in 2 goes" in words_of(page)


def test_another_workflow_or_version_is_allowed_and_said(
    acme: World, reads: Reads, pair: tuple[Run, Run]
) -> None:
    one, other = pair
    old = other.workflow
    newer = type(old).objects.create(
        **{
            f.attname: getattr(old, f.attname) for f in old._meta.fields if f.attname not in ("id", "version")
        },
        version="999-of-a-test",
    )
    rows.change(other, workflow=newer)
    page = read(reads, acme, one, other)
    assert page.status_code == 200
    assert "Different versions of sales_offer_agent: A ran" in words_of(page)


# -- answers -----------------------------------------------------------------------------------------------------------


def answered(run: Run, text: Any, *, asked: str = "Write it.", number: int = 2) -> None:
    rows.recording(run, "draft_offer", number, request={"prompt": asked}, answer=text)


def test_model_answers_are_compared_word_by_word(acme: World, reads: Reads, pair: tuple[Run, Run]) -> None:
    one, other = pair
    answered(one, {"content": "We offer forty seats at a fair price."})
    answered(other, {"content": "We offer fifty seats at a fair price."})
    answered(one, {"content": "Kind regards"}, number=3)
    answered(other, {"content": "Kind regards"}, number=3)
    page = read(reads, acme, one, other)
    text = page.content.decode()
    assert "only A: </span>forty<" in text
    assert "only B: </span>fifty<" in text
    assert "One answer differs." in words_of(page)
    assert "1 with no difference" in words_of(page)


def test_an_answer_of_one_run_alone_is_a_difference(acme: World, reads: Reads, pair: tuple[Run, Run]) -> None:
    answered(pair[1], {"content": "Only here"})
    page = read(reads, acme, *pair)
    assert "One answer differs." in words_of(page)
    assert "Only B asked here." in words_of(page)


def test_a_protected_field_that_differs_says_so_and_no_more(
    acme: World, reads: Reads, pair: tuple[Run, Run]
) -> None:
    one, other = pair
    answered(one, {"email": "first@secret.example", "content": "Dear"})
    answered(other, {"email": "second@secret.example", "content": "Dear"})
    page = read(reads, acme, one, other)
    text = page.content.decode()
    assert "secret.example" not in text
    assert "first@" not in text
    assert "protected, differs" in words_of(page)
    (answer,) = page.context["answers"]
    assert [passage.path for passage in answer.passages] == ["email"]


def test_what_one_run_protects_is_hidden_in_the_others_texts_too(acme: World, reads: Reads) -> None:
    """A value that only the first run's input protects stands in a text of the second."""
    one = rows.run_in(acme, email="whispered@secret.example")
    other = rows.run_in(acme)
    answered(one, {"content": "Nothing of the kind"})
    answered(other, {"content": "They wrote from whispered@secret.example today"})
    page = read(reads, acme, one, other)
    assert page.context["answers"], "they differ"
    assert "whispered" not in page.content.decode()


def test_hostile_words_are_text(acme: World, reads: Reads) -> None:
    evil = "<img src=x onerror=alert(1)>"
    one, other = walked(acme, f"{evil} one", evil), walked(acme, f"{evil} two", evil)
    answered(one, {evil: f"{evil} mine", "content": "\u202eright to left"})
    answered(other, {evil: f"yours {evil}", "content": "left to right"})
    page = read(reads, acme, one, other)
    assert page.status_code == 200
    assert "<img" not in page.content.decode()
    assert "RLO" in words_of(page), "a character that turns the text is marked"


def test_what_can_not_be_opened_is_a_notice(acme: World, reads: Reads, pair: tuple[Run, Run]) -> None:
    answered(pair[0], "one")
    answered(pair[1], "two")
    pair[1].recordings.update(answer=b"not sealed")
    page = read(reads, acme, *pair)
    assert page.status_code == 200
    assert "can't be opened" in words_of(page)


def test_long_texts_are_compared_up_to_so_many_words_and_it_is_said() -> None:
    same = "word " * MAX_WORDS
    passage = words_apart("content", f"{same}one", f"{same}other")
    assert passage.note == f"They differ after the first {MAX_WORDS:,} words."
    early = words_apart("content", f"first {same}", f"other {same}")
    assert early.note == f"The first {MAX_WORDS:,} words are compared."
    assert [piece.kind for piece in early.pieces[:2]] == ["gone", "new"]
    assert any(piece.kind == "left_out" for piece in early.pieces)
    assert sum(len(piece.text) for piece in early.pieces) < 200


# -- effects -----------------------------------------------------------------------------------------------------------


def would_have(
    world: World, run: Run, shown: dict[str, Any], *, hashed: str = "h", number: int = 4
) -> WouldHave:
    effect = rows.effect(world, rows.run_in(world), number=number)
    return WouldHave.objects.create(
        workspace=run.workspace, run_id=run.id, position=effect.command.position, place=effect.command.place,
        node="approve_offer", effect_type=effect.effect_type, contract_version=1, command_key="offer",
        recipient="cus_000003", payload=b"", shown=shown, request_hash=hashed,
    )  # fmt: skip


def test_an_effect_and_what_would_have_been_sent_are_compared_by_hash(
    acme: World, reads: Reads, pair: tuple[Run, Run]
) -> None:
    one, other = pair
    rows.effect(acme, one, status=EffectStatus.COMPLETED, sub=SubState.NONE)
    would_have(acme, other, {"amount_minor": 766000})
    page = read(reads, acme, one, other)
    text = words_of(page)
    assert "same bytes" in text
    assert "Would have sent" in text
    assert "What was, or would have been, sent is the same." in text
    changed = would_have(acme, other, {"amount_minor": 1}, hashed="other")
    page = read(reads, acme, one, other)
    (row,) = page.context["effects"]
    assert row.second.row == changed, "the newest of several counts"
    assert row.sameness == Sameness.DIFFERS
    assert [(one.path, one.before, one.after) for one in row.changes] == [("amount_minor", "766000", "1")]
    assert "different bytes" in words_of(page)


def test_protected_parts_of_a_payload_stay_masked(acme: World, reads: Reads, pair: tuple[Run, Run]) -> None:
    one, other = pair
    masked = {"__masked__": True, "kind": "text", "length": 9}
    effect = rows.effect(acme, one)
    assert EffectRevision.objects.filter(effect=effect).count() == 1
    would_have(acme, other, {"amount_minor": 766000, "body": masked}, hashed="other")
    page = read(reads, acme, one, other)
    (row,) = page.context["effects"]
    assert [(change.path, change.after) for change in row.changes] == [("body", "•••• masked")]
    assert "__masked__" not in html.unescape(page.content.decode())


def test_an_effect_of_one_run_alone_is_said(acme: World, reads: Reads, pair: tuple[Run, Run]) -> None:
    rows.effect(acme, pair[0], number=9)
    page = read(reads, acme, *pair)
    assert "only A" in words_of(page)
    assert "One effect differs." in words_of(page)


def test_what_lies_before_a_replay_is_no_difference(acme: World, reads: Reads) -> None:
    original = walked(acme, "One", "understand", "draft_offer")
    answered(original, {"content": "Before"}, number=1)
    rows.effect(acme, original, number=1)
    replay = replay_of(acme, original)
    Checkpoint.objects.create(run=replay, engine_id="1f0-0", fence=0, number=1, source="loop", size=1)
    rows.step(rows.execution(replay), "draft_offer", 2)
    page = read(reads, acme, original, replay)
    assert "Both took the same path." in words_of(page)
    assert [(row.where, row.earlier) for row in page.context["found"].steps] == [
        ("first", True),
        ("both", False),
    ]
    assert page.context["answers"] == []
    assert [row.earlier for row in page.context["effects"]] == [True]
    assert "before B begins" in words_of(page)


def test_a_state_that_was_written_by_hand_is_no_step(acme: World, reads: Reads) -> None:
    """A branch counts its edit as a step of the engine: what follows is compared with what followed in the original."""
    original = walked(acme, "One", "understand", "draft_offer", "send")
    branch = replay_of(acme, original, RunMode.SIMULATION)
    for number, source, engine_id in ((1, "loop", "1f0-1"), (2, "update", "1f0-2")):
        Checkpoint.objects.create(
            run=branch, engine_id=engine_id, fence=0, number=number, source=source, size=1
        )
    claim = rows.execution(branch)
    for number, node in ((3, "draft_offer"), (4, "send")):
        rows.step(claim, node, number)
    answered(original, {"content": "Same"}, number=2)
    answered(branch, {"content": "Same"}, number=3)
    found = read(reads, acme, original, branch).context["found"]
    assert [(row.number, row.either.node, row.where) for row in found.steps] == [
        (1, "understand", "first"),
        (2, "draft_offer", "both"),
        (3, "send", "both"),
    ]
    assert found.parting is None
    (answer,) = found.answers
    assert answer.where == "both"


def test_words_that_changed_together_stand_together() -> None:
    passage = words_apart("", "We ask for answer 2 now.", "We ask for another price now.")
    assert [(piece.kind, piece.text) for piece in passage.pieces] == [
        ("same", "We ask for "),
        ("gone", "answer 2"),
        ("new", "another price"),
        ("same", " now."),
    ]
