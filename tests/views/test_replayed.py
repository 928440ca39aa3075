"""The pages of a replay or branch: the banner, where it diverged, what it would have sent, permits, simulated approvals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.kernel.canonical import JSONValue, canonicalise, request_hash
from console.kernel.crypto import seal_json
from console.kernel.ids import new_id
from console.models import AuditEvent, User
from effects.models import Approval, Effect, WouldHave
from effects.states import ApprovalStatus, Asked, Decision, EffectStatus, SubState
from runs.models import Asked as DivergedAt
from runs.models import Divergence, Recording, Run, TypePermit
from runs.states import Failure, RunKind, RunMode, RunStatus
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import Decides, form_of, words_of
from tests.views.test_lineage import checkpoint, made_of

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def page(run: Run, query: str = "") -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/{query}"


# -- the banner -------------------------------------------------------------------------------------------------

SAYS = {
    RunMode.EVIDENCE: ("Replay in evidence.", "Nothing outside was called, and no effect was made"),
    RunMode.SIMULATION: ("Replay in simulation.", "Its effects are doubles"),
    RunMode.LIVE: ("Live replay.", "Its effects are real, under ids of their own"),
}


@pytest.mark.parametrize("mode", list(SAYS))
def test_the_run_page_says_what_it_is_and_is_not(acme: World, client_of: ClientOf, mode: RunMode) -> None:
    root = rows.run_in(acme, title="<i>Offer</i>")
    run = made_of(acme, root, mode=mode, reason="Which <b>price</b>?")
    response = client_of(acme.viewer).get(page(run))
    said, text = words_of(response), response.content.decode()
    for words in (
        *SAYS[mode],
        "Nothing of it is the result of the original request.",
        "after step 3",
        "Developer",
    ):
        assert words in said
    assert "Which <b>price</b>?" in said
    assert "<b>price</b>" not in text
    assert f"/runs/{root.id}/" in text
    assert f"/checkpoints/{run.parent_checkpoint_id}/" in text


def test_an_original_has_no_banner(acme: World, client_of: ClientOf) -> None:
    run = rows.run_in(acme)
    made_of(acme, run)
    assert "runbanner" not in client_of(acme.viewer).get(page(run)).content.decode()


def test_the_pages_of_what_belongs_to_it_say_it_too(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    branch = made_of(acme, root, kind=RunKind.BRANCH, mode=RunMode.LIVE, reason="Less")
    own = checkpoint(branch)
    effect = rows.effect(acme, branch)
    approval = rows.approval(acme, branch, effect)
    client = client_of(acme.viewer)
    here = f"/w/{acme.workspace.id}"
    for path in (
        f"{here}/runs/{branch.id}/checkpoints/{own.id}/",
        f"{here}/effects/{effect.id}/",
        f"{here}/approvals/{approval.id}/",
    ):
        said = words_of(client.get(path))
        assert "Of a live branch." in said, path
        assert "Nothing of it is the result of the original request." in said
    original = rows.effect(acme, root, key="original")
    assert "runbanner" not in client.get(f"{here}/effects/{original.id}/").content.decode()


def test_a_recording_that_ends_is_said(acme: World, client_of: ClientOf) -> None:
    run = made_of(acme, rows.run_in(acme))
    rows.stands(run, RunStatus.COMPLETED, failure_text="The recording ends here: nobody answered.")
    assert "Ended early. The recording ends here: nobody answered." in words_of(
        client_of(acme.viewer).get(page(run))
    )


# -- where it diverged ------------------------------------------------------------------------------------------


def diverged(
    run: Run, asked: JSONValue, *, recorded: Recording | None = None, effect: str = "", kind: str = "model"
) -> Divergence:
    rows.stands(
        run,
        RunStatus.DIVERGED,
        ended_at=timezone.now(),
        failure_text="It was asked something else than recorded.",
    )
    return Divergence.objects.create(
        run=run,
        node="classify",
        place={"step": 1, "node": "classify"},
        kind=DivergedAt(kind),
        name="a-model",
        asked=seal_json(asked, workspace=run.workspace_id, owner=run.id),
        recorded=recorded,
        recorded_effect=effect,
    )


def test_a_divergence_shows_recorded_and_asked_side_by_side(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    request: dict[str, JSONValue] = {
        "messages": ["Say what they want"],
        "email": rows.EMAIL,
        "temperature": 0,
    }
    recorded = rows.recording(root, "classify", 1, request=request, answer="offer")
    run = made_of(acme, root)
    diverged(run, {**request, "temperature": 1, "extra": "<img src=x>"}, recorded=recorded)
    response = client_of(acme.viewer).get(page(run))
    said, text = words_of(response), response.content.decode()
    for words in (
        "Left the recording in classify",
        "step 1, a model: a-model",
        "It was asked something else",
    ):
        assert words in said
    changes = {one.path: (one.before, one.after, one.kind) for one in response.context["compared"].changes}
    assert changes == {
        "temperature": ("0", "1", "changed"),
        "extra": ("", "<img src=x>", "added"),
    }
    assert rows.EMAIL not in text
    assert "<img src=x>" not in text
    assert f"/runs/{root.id}/?show={recorded.id}" in text


def test_a_protected_value_that_differs_is_masked_on_both_sides(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    recorded = rows.recording(root, "classify", 1, request={"email": rows.EMAIL}, answer="")
    run = made_of(acme, root)
    diverged(run, {"email": "other@brueckner.example"}, recorded=recorded)
    response = client_of(acme.viewer).get(page(run))
    (change,) = response.context["compared"].changes
    assert change.before == change.after == "•••• masked"
    assert "brueckner.example" not in response.content.decode()


def test_what_was_never_recorded_is_said_to_be_so(acme: World, client_of: ClientOf) -> None:
    run = made_of(acme, rows.run_in(acme))
    diverged(run, {"q": "new"}, kind="tool")
    assert "Nothing was recorded here." in words_of(client_of(acme.viewer).get(page(run)))


def test_a_divergence_at_an_effect_shows_the_recorded_payload(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    effect = rows.effect(acme, root, status=EffectStatus.COMPLETED, sub=SubState.NONE)
    run = made_of(acme, root)
    diverged(run, {"amount_minor": 1}, effect=effect.id, kind="effect")
    response = client_of(acme.viewer).get(page(run))
    (change,) = response.context["compared"].changes
    assert (change.path, change.before, change.after) == ("amount_minor", "766000", "1")


# -- what would have been sent ----------------------------------------------------------------------------------


def would_have(run: Run, shown: dict[str, Any], *, stands_for: str = "", hashed: str = "") -> WouldHave:
    return WouldHave.objects.create(
        workspace=run.workspace,
        run_id=run.id,
        position="p",
        node="approve_offer",
        stands_for=stands_for,
        effect_type="crm.create_offer",
        contract_version=1,
        command_key=new_id("cmd"),
        recipient="cus_000003",
        payload=b"",
        shown=shown,
        request_hash=hashed or request_hash(canonicalise(shown)),
    )


@pytest.mark.parametrize(
    ("mode", "marks"),
    [
        (
            RunMode.EVIDENCE,
            ("not sent: recorded result used", "not sent: no result is recorded for it"),
        ),
        (RunMode.SIMULATION, ("not sent: simulated", "not sent: simulated")),
    ],
)
def test_would_be_effects_are_compared_with_the_originals(
    acme: World, client_of: ClientOf, mode: RunMode, marks: tuple[str, str]
) -> None:
    root = rows.run_in(acme)
    effect = rows.effect(acme, root, status=EffectStatus.COMPLETED, sub=SubState.NONE)
    run = made_of(acme, root, mode=mode)
    same = would_have(run, {"amount_minor": 766000}, stands_for=effect.id, hashed="h")
    other = would_have(run, {"amount_minor": 1}, stands_for=effect.id)
    would_have(run, {"amount_minor": 2})
    client = client_of(acme.viewer)
    response = client.get(page(run))
    assert response.context["part"] == "effects", "it has something to say"
    assert [(one.words, one.why_not_sent) for one in response.context["would_be"]] == [
        ("same as the original's", marks[0]),
        ("differs from the original's", marks[1]),
        ("not in the original", marks[1]),
    ]
    said = words_of(response)
    assert "Would have sent" in said
    opened = client.get(page(run, f"?show={other.id}"))
    assert [(one.path, one.before, one.after) for one in opened.context["beside"].context["changes"]] == [
        ("amount_minor", "766000", "1")
    ]
    assert client.get(page(run, f"?show={same.id}")).status_code == 200
    assert client.get(page(root, f"?show={same.id}")).status_code == 404


# -- permits ----------------------------------------------------------------------------------------------------


@pytest.fixture
def blocked(acme: World) -> Run:
    """A live replay that failed before a mail."""
    run = made_of(acme, rows.run_in(acme), mode=RunMode.LIVE)
    mail = rows.effect(acme, run, kind="mail.send", node="mail_offer")
    return rows.stands(
        run, RunStatus.FAILED, failure=Failure.EFFECT_BLOCKED, failure_of="mail.send", failure_effect=mail.id
    )


def permit(client: Client, run: Run, **fields: str) -> Any:
    form = {"effect_type": "mail.send", "reason": "Checked.", "form_token": "0123456789abcdef", **fields}
    return client.post(page(run, "permit/"), form)


def test_a_releaser_permits_the_type_that_the_run_stopped_at(
    acme: World, client_of: ClientOf, blocked: Run
) -> None:
    client = client_of(acme.releaser)
    (lever,) = [one for one in client.get(page(blocked)).context["levers"] if "Permit" in one.label]
    assert (lever.look, lever.reason) == ("primary", "")
    assert "It is the turn of a releaser, to permit the type" in words_of(client.get(page(blocked)))
    asked = client.get(lever.href)
    assert "The run stopped before one to cus_000003; nothing of it was sent." in words_of(asked)
    assert " checked" not in asked.content.decode(), "nothing is chosen beforehand"
    answer = permit(client, blocked)
    assert (answer.status_code, answer["Location"]) == (303, page(blocked))
    permitted = TypePermit.objects.get(run=blocked)
    assert (permitted.effect_type, permitted.by, permitted.reason) == ("mail.send", acme.releaser, "Checked.")
    assert "Permitted by Releaser" in words_of(client.get(lever.href))
    (lever,) = [one for one in client.get(page(blocked)).context["levers"] if "Permit" in one.label]
    assert lever.look == "", "Continue is the useful act now"
    assert permit(client, blocked).status_code == 303
    assert AuditEvent.objects.filter(subject=blocked.id, verb="run.type_permitted").count() == 1
    again = permit(client, blocked, form_token="another-token-of-16")
    assert again.status_code == 409
    assert "was permitted here by Releaser already" in words_of(again)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "auditor", "developer", "administrator"])
def test_nobody_else_permits(acme: World, client_of: ClientOf, blocked: Run, role: str) -> None:
    client = client_of(getattr(acme, role))
    assert client.get(page(blocked, "permit/")).status_code == 403
    assert permit(client, blocked).status_code == 403
    (lever,) = [one for one in client.get(page(blocked)).context["levers"] if "Permit" in one.label]
    assert "your roles do not let you permit" in lever.reason
    assert not TypePermit.objects.exists()


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"reason": " "}, 422, "Say why it may be sent from here."),
        ({"effect_type": "crm.create_offer"}, 422, "is no irreversible type"),
        ({"effect_type": "<b>x</b>"}, 422, "<b>x</b> is no irreversible type"),
        ({"effect_type": ""}, 422, "is no irreversible type"),
        ({"form_token": ""}, 400, "no token"),
    ],
)
def test_bad_input_permits_nothing(
    acme: World, client_of: ClientOf, blocked: Run, fields: dict[str, str], status: int, words: str
) -> None:
    answer = permit(client_of(acme.releaser), blocked, **fields)
    assert answer.status_code == status
    assert words in words_of(answer)
    assert "<b>x</b>" not in answer.content.decode()
    assert not TypePermit.objects.exists()


def test_an_original_has_nothing_to_permit_and_others_see_none(
    acme: World, client_of: ClientOf, blocked: Run
) -> None:
    original = rows.run_in(acme)
    answer = permit(client_of(acme.releaser), original)
    assert answer.status_code == 409
    assert "only a live replay or branch blocks irreversible types" in words_of(answer)
    other = make_world("other")
    assert permit(client_of(other.releaser), blocked).status_code == 404
    assert not TypePermit.objects.exists()


# -- simulated approvals ----------------------------------------------------------------------------------------


@pytest.fixture
def simulated(acme: World) -> Approval:
    """What a simulation asks of its launcher, as the engine opens it."""
    run = made_of(acme, rows.run_in(acme), mode=RunMode.SIMULATION)
    rows.stands(run, RunStatus.WAITING_APPROVAL)
    payload: JSONValue = {"customer_id": "cus_000003", "amount_minor": 5}
    row = would_have(run, {"customer_id": "cus_000003", "amount_minor": 5})
    now = timezone.now()
    return Approval.objects.create(
        workspace=acme.workspace,
        run_id=run.id,
        workflow=str(run.workflow),
        fingerprint=run.fingerprint,
        node="approve_offer",
        interrupt_id=new_id("ord"),
        interrupt_hash="h",
        asks=Asked.ACTION,
        would_have=row,
        simulated_for=acme.developer,
        payload_hash="h",
        title="Create an offer: 0.05 EUR",
        body=seal_json(
            {"name": "crm.create_offer", "args": payload}, workspace=acme.workspace.id, owner=run.id
        ),
        allows=["approve", "reject"],
        due_at=now + timedelta(hours=4),
        expires_at=now + timedelta(days=1),
    )


def test_the_launcher_finds_and_decides_it_from_the_runs_page(
    acme: World, client_of: ClientOf, decides: Decides, simulated: Approval
) -> None:
    client = client_of(acme.developer)
    run = Run.objects.get(id=simulated.run_id)
    seen = client.get(page(run, "?part=approvals"))
    assert "simulated: grants nothing" in words_of(seen)
    assert "It is the turn of Developer, who launched the simulation" in words_of(seen)
    decide = seen.context["levers"][0]
    assert (decide.label, decide.look) == ("Decide…", "primary")
    request = client.get(decide.href)
    said = words_of(request)
    for words in (
        "Simulated: it grants nothing.",
        "nothing is sent",
        "Approve in the simulation",
        "Of a replay in simulation.",
    ):
        assert words in said
    answer = decides(acme.developer, simulated, "approve")
    assert answer.status_code == 302 or answer.status_code == 303
    simulated.refresh_from_db()
    assert simulated.status == ApprovalStatus.DECIDED
    assert simulated.decisions.get().decision == Decision.APPROVE
    assert not Effect.objects.filter(run_id=run.id).exists()


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "administrator"])
def test_nobody_else_decides_it(
    acme: World, client_of: ClientOf, decides: Decides, simulated: Approval, role: str
) -> None:
    user = getattr(acme, role)
    shown = client_of(user).get(f"/w/{acme.workspace.id}/approvals/{simulated.id}/")
    assert form_of(shown) == {}
    assert "Only Developer decides this" in words_of(shown)
    assert decides(user, simulated, "approve").status_code == 403
    simulated.refresh_from_db()
    assert simulated.status == ApprovalStatus.PENDING


def test_it_is_in_nobodys_inbox(acme: World, client_of: ClientOf, simulated: Approval) -> None:
    for user in (acme.developer, acme.approver):
        listed = client_of(user).get(f"/w/{acme.workspace.id}/approvals/?view=open").content.decode()
        assert simulated.id not in listed


# -- levers -----------------------------------------------------------------------------------------------------


def test_the_levers_lead_to_the_checkpoints_and_from_each_to_its_form(
    acme: World, client_of: ClientOf
) -> None:
    run = rows.stands(rows.run_in(acme), RunStatus.COMPLETED)
    point = checkpoint(run)
    form = f"/checkpoints/{point.id}/replay/"
    for user, offered in ((acme.developer, True), (acme.viewer, False)):
        client = client_of(user)
        seen = client.get(page(run, "?part=checkpoints"))
        (lever,) = [one for one in seen.context["levers"] if one.label.startswith("Replay")]
        assert bool(lever.reason) is not offered
        assert (form in seen.content.decode()) is offered
        own = client.get(page(run, f"checkpoints/{point.id}/"))
        assert (form in own.content.decode()) is offered
        assert ("your roles do not let you" in words_of(own)) is not offered


def test_evidence_is_not_replayed_itself(acme: World, client_of: ClientOf) -> None:
    run = rows.stands(made_of(acme, rows.run_in(acme)), RunStatus.COMPLETED)
    (lever,) = [
        one for one in client_of(acme.developer).get(page(run)).context["levers"] if "Replay" in one.label
    ]
    assert "it is evidence itself" in lever.reason
