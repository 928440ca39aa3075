"""Replay from checkpoint: what the form says in each mode, who may, twice is once, and what a refusal shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.models import User
from effects.models import Receiver
from effects.states import ApprovalStatus, EffectStatus, SubState
from runs.commands import replay as command
from runs.models import Checkpoint, Message, Recorded, Recording, Run
from runs.states import RunKind, RunMode, RunStatus
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import words_of

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _copied_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """These runs have no engine rows to copy: tests/engine/test_replay.py copies real ones."""
    monkeypatch.setattr(command, "copy_checkpoint", lambda checkpoint, run: checkpoint)


@pytest.fixture
def travelled(acme: World) -> Run:
    """A completed run: classify asked a model, approve_offer an approver, create_offer the receiver."""
    run = rows.stands(rows.run_in(acme), RunStatus.COMPLETED, fence=1)
    claim = rows.execution(run)
    checkpoint(run, 0)
    rows.step(claim, "classify", 1)
    rows.recording(run, "classify", 1, request="?", answer="!")
    rows.step(claim, "approve_offer", 2)
    made = rows.effect(
        acme, run, status=EffectStatus.COMPLETED, sub=SubState.NONE, reference="off_1", number=2
    )
    asked = rows.approval(acme, run, made)
    type(asked).objects.filter(id=asked.id).update(
        status=ApprovalStatus.DECIDED, ended_at=asked.created_at, ended_why="Approved by Mara"
    )
    return run


def checkpoint(run: Run, number: int) -> Checkpoint:
    return Checkpoint.objects.create(
        run=run, engine_id=f"1f0{number + 1:05d}-0000-6000-8000-000000000000", fence=1, number=number,
        source="loop", size=1,
    )  # fmt: skip


def newest(run: Run) -> Checkpoint:
    found = run.checkpoints.order_by("-engine_id").first()
    assert found is not None
    return found


def address(run: Run, of: Checkpoint | None = None) -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/checkpoints/{(of or newest(run)).id}/replay/"


def posted(client: Client, run: Run, **fields: str) -> Any:
    form = {"mode": "evidence", "form_token": "0123456789abcdef", **fields}
    return client.post(address(run), form)


def launched(run: Run) -> list[Run]:
    return list(Run.objects.filter(parent_run=run).order_by("created_at"))


# -- what it says -----------------------------------------------------------------------------------------------


def lines(response: Any, node: str) -> list[tuple[str, str, str]]:
    (plan,) = [plan for plan in response.context["preview"].nodes if plan.node == node]
    return [(line.fate.value, line.what, line.how) for line in plan.lines]


def test_evidence_is_shown_first_and_says_that_everything_is_recorded(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    response = client_of(acme.developer).get(address(travelled))
    assert response.context["mode"] == RunMode.EVIDENCE
    assert lines(response, "classify") == [
        ("recomputed", "its own code", "runs again on the state that it finds"),
        ("recorded", "1 model answer (a-model)", "given back from the recording; no model is asked"),
    ]
    assert [fate for fate, _, _ in lines(response, "approve_offer")] == ["recomputed", "recorded", "recorded"]
    said = words_of(response)
    for words in (
        "a new run with an id of its own",
        "The original stays exactly as it is",
        "Nothing outside is called, and no effect is made",
        "Approved by Mara",
        "after step 0",
        "no replayer that is alive holds it",
    ):
        assert words in said


def test_a_node_that_has_not_run_stops_evidence_and_is_said_to_be_perhaps(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    response = client_of(acme.developer).get(address(travelled))
    assert [fate for fate, _, _ in lines(response, "decline")] == ["recomputed", "stops"]
    assert "perhaps: did not run in the original" in words_of(response)


def test_simulation_says_what_its_doubles_answer_and_who_is_asked(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    response = client_of(acme.developer).get(address(travelled), {"mode": "simulation"})
    assert lines(response, "classify")[1][0] == "recorded"
    fates = {fate: how for fate, _, how in lines(response, "approve_offer")}
    assert "nothing is sent and no effect is made" in fates["doubled"]
    assert "asked of you alone" in fates["people"]
    assert "it grants nothing" in fates["people"]


def test_a_simulation_may_ask_its_models_live(acme: World, client_of: ClientOf, travelled: Run) -> None:
    response = client_of(acme.developer).get(address(travelled), {"mode": "simulation", "models": "asked"})
    assert lines(response, "classify")[1][0] == "asked_live"
    assert "asked live" in words_of(response)


def test_live_says_what_would_be_a_second_one_and_what_is_blocked(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    response = client_of(acme.developer).get(address(travelled), {"mode": "live"})
    assert lines(response, "classify")[1][0] == "asked_live"
    ((_, _, how),) = [line for line in lines(response, "approve_offer") if line[0] == "sent"]
    assert "under an id of its own, after a fresh approval" in how
    assert "The original's was sent (off_1): this would be a second one." in how
    said = words_of(response)
    assert "Blocked until a releaser permits them on the new run's page: mail.send" in said
    assert "no live replay or branch of this lineage has sent anything" in said


def test_an_irreversible_effect_is_blocked_in_live(acme: World, client_of: ClientOf, travelled: Run) -> None:
    Recording.objects.filter(run=travelled).update(kind=Recorded.TOOL, name="crm.find_customer")
    rows.step(travelled.executions.get(), "mail_offer", 3)
    rows.effect(acme, travelled, node="mail_offer", key="mail", number=3, kind="mail.send")
    response = client_of(acme.developer).get(address(travelled), {"mode": "live"})
    blocked = [line for line in lines(response, "mail_offer") if line[0] == "blocked"]
    assert "until a releaser permits this type" in blocked[0][2]
    assert ("asked_live", "1 tool result (crm.find_customer)", "the tool is asked anew") in lines(
        response, "classify"
    )


def test_live_lists_what_this_lineage_has_sent_already(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    assert posted(client_of(acme.developer), travelled, mode="live", reason="To mend it.").status_code == 303
    (earlier,) = launched(travelled)
    rows.effect(acme, earlier, status=EffectStatus.COMPLETED, sub=SubState.NONE, reference="off_2")
    unsure = rows.effect(acme, earlier, sub=SubState.UNCERTAIN, key="unsure")
    rows.effect(acme, earlier, sub=SubState.AWAITING_APPROVAL, key="unsent")
    response = client_of(acme.developer).get(address(travelled), {"mode": "live"})
    sent = response.context["preview"].sent
    assert {effect.provider_reference for effect in sent} == {"off_2", ""}
    assert unsure in sent
    assert len(sent) == 2
    assert "off_2" in words_of(response)


def test_it_says_what_is_copied_and_what_is_not(acme: World, client_of: ClientOf, travelled: Run) -> None:
    rows.approval(acme, travelled)
    Message.objects.create(
        conversation=acme.conversation, run_id=travelled.id, direction="outbound", author="Agent", text="Hello.",
        post_key="k",
    )  # fmt: skip
    said = words_of(client_of(acme.developer).get(address(travelled)))
    for words in (
        "Open approvals (1)",
        "Effects (1)",
        "Messages (1)",
        "deciding them answers nothing in the new run",
    ):
        assert words in said


def test_an_effect_without_a_recorded_result_ends_the_evidence(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    rows.effect(acme, travelled, sub=SubState.READY, key="open", number=2)
    response = client_of(acme.developer).get(address(travelled))
    assert "has no recorded result: the recording ends here" in [
        how for _, _, how in lines(response, "approve_offer")
    ]


def test_where_the_graph_has_ended_nothing_would_run(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    checkpoint(travelled, 9)
    response = client_of(acme.developer).get(address(travelled))
    assert response.context["preview"].nodes == []
    assert "nothing would run" in words_of(response)


def test_looking_makes_nothing(acme: World, client_of: ClientOf, travelled: Run) -> None:
    for mode in ("evidence", "simulation", "live"):
        assert client_of(acme.developer).get(address(travelled), {"mode": mode}).status_code == 200
    assert launched(travelled) == []


def test_htmx_gets_the_part_alone_with_the_reason_that_was_typed(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    query = {"mode": "simulation", "reason": "<b>why</b>"}
    part = client_of(acme.developer).get(address(travelled), query, headers={"HX-Request": "true"})
    text = part.content.decode()
    assert "<html" not in text
    assert 'id="replay"' in text
    assert 'value="&lt;b&gt;why&lt;/b&gt;"' in text


def test_hostile_names_are_text(acme: World, client_of: ClientOf, travelled: Run) -> None:
    evil = "<img src=x onerror=alert(1)>"
    Recording.objects.filter(run=travelled).update(name=evil)
    rows.change(travelled, title=evil)
    rows.step(travelled.executions.get(), evil, 3)
    for mode in ("evidence", "simulation", "live"):
        shown = client_of(acme.developer).get(address(travelled), {"mode": mode}).content.decode()
        assert "<img" not in shown


def test_nothing_of_the_recorded_answers_is_shown(acme: World, client_of: ClientOf, travelled: Run) -> None:
    rows.recording(travelled, "classify", 3, request=rows.EMAIL, answer="secret words")
    shown = client_of(acme.developer).get(address(travelled)).content.decode()
    assert "secret words" not in shown
    assert rows.EMAIL not in shown


# -- who may ----------------------------------------------------------------------------------------------------

MAY = {
    "evidence": {"operator", "auditor", "releaser", "developer"},
    "simulation": {"operator", "developer"},
    "live": {"developer"},
}
ROLES = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]


@pytest.mark.parametrize("mode", list(MAY))
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_what_the_table_says(
    acme: World, client_of: ClientOf, travelled: Run, role: str, mode: str
) -> None:
    client = client_of(getattr(acme, role))
    seen = client.get(address(travelled), {"mode": mode})
    answer = posted(client, travelled, mode=mode, reason="To see.")
    if role in MAY[mode]:
        assert (seen.status_code, seen.context["may_launch"]) == (200, True)
        assert answer.status_code == 303
        (run,) = launched(travelled)
        assert (run.kind, run.mode, run.launch_reason) == (RunKind.REPLAY, mode, "To see.")
        assert answer["Location"] == f"/w/{acme.workspace.id}/runs/{run.id}/"
    else:
        assert answer.status_code == 403
        assert launched(travelled) == []
        if any(role in may for may in MAY.values()):
            assert seen.context["may_launch"] is False
            assert "your roles do not let you" in words_of(seen)
        else:
            assert seen.status_code == 403


def test_others_get_nothing(acme: World, client: Client, client_of: ClientOf, travelled: Run) -> None:
    other = make_world("other")
    there = address(travelled).replace(acme.workspace.id, other.workspace.id)
    for path in (address(travelled), there):
        assert client_of(other.developer).get(path).status_code == 404
        form = {"mode": "evidence", "form_token": "0123456789abcdef"}
        assert client_of(other.developer).post(path, form).status_code == 404
    assert client.get(address(travelled)).status_code == 302
    assert launched(travelled) == []


def test_a_checkpoint_of_another_run_is_none_of_this(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    elsewhere = rows.run_in(acme)
    strange = checkpoint(elsewhere, 0)
    client = client_of(acme.developer)
    assert client.get(address(travelled, strange)).status_code == 404
    form = {"mode": "evidence", "form_token": "0123456789abcdef"}
    assert client.post(address(travelled, strange), form).status_code == 404
    assert client.get(address(elsewhere, strange)).status_code == 200
    assert launched(travelled) == []


# -- launching --------------------------------------------------------------------------------------------------


def test_two_posts_of_one_form_make_one_run(acme: World, client_of: ClientOf, travelled: Run) -> None:
    client = client_of(acme.developer)
    first, second = (posted(client, travelled, reason="Once.") for _ in range(2))
    assert (first.status_code, second.status_code) == (303, 303)
    assert first["Location"] == second["Location"]
    assert len(launched(travelled)) == 1


@pytest.mark.parametrize("other", [{"mode": "simulation"}, {"reason": "Another."}])
def test_a_token_used_with_other_input_is_refused(
    acme: World, client_of: ClientOf, travelled: Run, other: dict[str, str]
) -> None:
    client = client_of(acme.developer)
    assert posted(client, travelled, reason="Once.").status_code == 303
    answer = posted(client, travelled, **{"reason": "Once.", **other})
    assert answer.status_code == 422
    assert "used for another run" in words_of(answer)
    assert len(launched(travelled)) == 1


@pytest.mark.parametrize("reason", ["", "   "])
def test_live_needs_a_reason(acme: World, client_of: ClientOf, travelled: Run, reason: str) -> None:
    answer = posted(client_of(acme.developer), travelled, mode="live", reason=reason)
    assert answer.status_code == 422
    assert answer.context["mode"] == RunMode.LIVE
    assert "Say why: a live replay acts on the outside world." in words_of(answer)
    assert launched(travelled) == []
    assert posted(client_of(acme.developer), travelled, mode="live", reason="Because.").status_code == 303


def test_a_reason_that_is_too_long_is_kept_and_refused(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    answer = posted(client_of(acme.developer), travelled, reason="y" * 301)
    assert answer.status_code == 422
    assert "y" * 301 in answer.content.decode()
    assert launched(travelled) == []


@pytest.mark.parametrize(
    "form", [{}, {"form_token": "bad token!"}, {"mode": "wild"}, {"mode": ""}, {"models": "x"}]
)
def test_a_form_that_was_not_made_here_is_malformed(
    acme: World, client_of: ClientOf, travelled: Run, form: dict[str, str]
) -> None:
    sent = {"mode": "evidence", "form_token": "0123456789abcdef", **form} if form else {"mode": "evidence"}
    assert client_of(acme.developer).post(address(travelled), sent).status_code == 400
    assert launched(travelled) == []


def test_recordings_that_retention_removed_leave_no_evidence(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    rows.change(travelled, recordings_removed_at=travelled.created_at)
    client = client_of(acme.developer)
    seen = client.get(address(travelled))
    assert seen.context["mode"] == RunMode.SIMULATION, "the safest that is offered"
    assert "its recordings were removed by retention" in words_of(seen)
    answer = posted(client, travelled)
    assert answer.status_code == 409
    assert "its recordings were removed by retention" in words_of(answer)
    assert launched(travelled) == []


def test_live_is_never_preselected(acme: World, client_of: ClientOf, travelled: Run) -> None:
    """Even where it is all that could be offered: public report C56."""
    from runs.availability import Offer
    from runs.commands.replay import COMMANDS
    from runs.views.replay import _preselected

    off = {mode: Offer(COMMANDS[mode], "" if mode == RunMode.LIVE else "no") for mode in RunMode}
    assert _preselected(off) == RunMode.EVIDENCE


def test_models_are_asked_only_where_a_simulation_was_launched_so(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    client = client_of(acme.developer)
    posted(client, travelled, mode="simulation", models="asked", form_token="a" * 16)
    posted(client, travelled, mode="simulation", models="recorded", form_token="b" * 16)
    posted(client, travelled, mode="evidence", models="asked", form_token="c" * 16)
    assert [run.models_asked for run in launched(travelled)] == [True, False, False]


# -- what can't be simulated ------------------------------------------------------------------------------------


@pytest.fixture
def without_a_double(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from effects.contracts import contracts
    from runs.commands import replay_preview

    known = dict(contracts())
    known["mail.send"] = replace(known["mail.send"], double=None)
    for module in (command, replay_preview):
        monkeypatch.setattr(module, "contracts", lambda: known)


@pytest.mark.usefixtures("without_a_double")
def test_a_type_without_a_double_is_named_and_refused(
    acme: World, client_of: ClientOf, travelled: Run
) -> None:
    client = client_of(acme.developer)
    seen = client.get(address(travelled), {"mode": "simulation"})
    said = "sales_offer_agent@7 may ask for mail.send, and its contract declares no double."
    assert said in words_of(seen)
    assert seen.context["may_launch"] is False
    answer = posted(client, travelled, mode="simulation")
    assert answer.status_code == 422
    assert said in words_of(answer)
    assert launched(travelled) == []
    assert posted(client, travelled, mode="evidence").status_code == 303, "which asks nobody"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"account": "acct"}, "the account of the live receiver crm"),
        ({"base_url": "https://crm.example:443/v2"}, "the address of the live receiver crm"),
        ({"base_url": "HTTPS://CRM.example", "name": "desk"}, "the address of the live receiver crm"),
        ({"account": "acct", "name": "desk"}, ""),
        ({}, ""),
    ],
)
def test_an_isolated_receiver_that_is_a_live_one_is_refused_at_start(
    acme: World, client_of: ClientOf, travelled: Run, fields: dict[str, str], refused: str
) -> None:
    rows.receiver(acme)
    given = {"name": "crm", "account": "sandbox", "base_url": "https://sandbox.example", **fields}
    Receiver.objects.create(workspace=acme.workspace, standing="isolated", hosts=[], **given)
    client = client_of(acme.developer)
    answer = posted(client, travelled, mode="simulation")
    if not refused:
        assert answer.status_code == 303
        return
    assert answer.status_code == 409
    assert refused in words_of(answer)
    assert launched(travelled) == []
    assert refused in words_of(client.get(address(travelled), {"mode": "simulation"}))
    assert posted(client, travelled, mode="evidence").status_code == 303
