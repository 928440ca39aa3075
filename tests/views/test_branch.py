"""Create branch: the editor, what it shows before anything is made, who may, twice is once, and what is never shown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import DictRow, dict_row

from console.models import AuditEvent, User
from console.pages import new_token
from runs.commands.start import start
from runs.engine.branching import _InTransaction
from runs.engine.registry import workflows
from runs.engine.saver import SCHEMA, pool
from runs.inspection import state_of
from runs.models import BranchEdit, Checkpoint, Run, WorkflowVersion
from runs.states import RunKind, RunMode, RunStatus
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import words_of

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db

EXACT = 3544790567247868102
BODY = "Sehr geehrte Frau Brückner, unser Angebot."
STATE: dict[str, Any] = {
    "email": rows.EMAIL,
    "request": "An offer for 40 seats, please.",
    "intent": "offer",
    "customer": {"id": "cus_000003", "email": rows.EMAIL, "exact": EXACT},
    "offer": {"subject": "Seats", "body": BODY, "lines": [], "amount_minor": EXACT, "currency": "EUR"},
    "approved": True,
}


@dataclass
class Saved:
    """Checkpoints as the engine saves them, of a run that no worker has taken; cleared away afterwards."""

    run: Run
    number: int = -1

    def after(self, node: str, values: dict[str, Any], *beside: str) -> Checkpoint:
        workflow = workflows()[str(self.run.workflow)]
        graph = workflow.compiled.copy({"checkpointer": PostgresSaver(pool())})
        at: Any = {"configurable": {"thread_id": self.run.id, "checkpoint_ns": ""}}
        engine_id = graph.update_state(at, values, as_node=node)["configurable"]["checkpoint_id"]
        self.number = int((graph.get_state(at).metadata or {})["step"])
        claim = rows.execution(self.run, fence=self.number + 1)
        for one in (node, *beside):
            rows.step(claim, one, self.number)
        return Checkpoint.objects.create(
            run=self.run, engine_id=engine_id, fence=1, number=self.number, source="loop", size=1
        )

    def clear(self) -> None:
        with pool().connection() as connection:
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
                connection.execute(f"DELETE FROM {SCHEMA}.{table} WHERE thread_id = %s", (self.run.id,))


@pytest.fixture
def saved(acme: World) -> Iterator[Saved]:
    found = Saved(rows.stands(rows.run_in(acme), RunStatus.WAITING_APPROVAL))
    yield found
    found.clear()


@pytest.fixture
def approved(saved: Saved) -> Checkpoint:
    """Where the way forks: create_offer comes next, and decline if it had not been approved."""
    saved.after("classify", {"intent": "offer"})
    return saved.after("approve_offer", STATE)


@pytest.fixture
def talk(acme: World) -> Iterator[Checkpoint]:
    """A run of the agent whose state is messages."""
    run, _ = start(
        acme.actor(acme.operator),
        workflow=WorkflowVersion.objects.get(name="support_agent"),
        conversation=None,
        given={"email": rows.EMAIL, "message": "The export fails."},
        token=new_token(),
    )
    found = Saved(run)
    found.after("model", {"messages": [HumanMessage("The <b>export</b> fails.", id="m1")]})
    yield found.after("model", {"messages": [AIMessage("Let me look.", id="m2")]})
    found.clear()


def address(checkpoint: Checkpoint) -> str:
    run = checkpoint.run
    return f"/w/{run.workspace_id}/runs/{run.id}/checkpoints/{checkpoint.id}/branch/"


def filled(client: Client, checkpoint: Checkpoint, look: str = "fields") -> dict[str, str]:
    """The form as a browser would send it back untouched, every line end as CR LF."""
    form = client.get(address(checkpoint), {"view": look}).context["form"]
    sent = {"step": "show", "view": look}
    for bound in form:
        value = bound.value()
        if value is not None and value is not False:
            sent[bound.html_name] = str(value).replace("\n", "\r\n")
    return {**sent, "reason": "To see."}


def carried(page: Any) -> dict[str, str]:
    text = page.content.decode()
    found = {name: re.search(rf'name="{name}" value="([^"]*)"', text) for name in ("form_token", "carried")}
    return {name: html.unescape(match[1]) for name, match in found.items() if match}


def shown(client: Client, checkpoint: Checkpoint, look: str = "fields", **typed: str) -> Any:
    return client.post(address(checkpoint), {**filled(client, checkpoint, look), **typed})


def made(client: Client, checkpoint: Checkpoint, look: str = "fields", **typed: str) -> Run:
    page = shown(client, checkpoint, look, **typed)
    assert page.status_code == 200, words_of(page)
    response = client.post(address(checkpoint), {**carried(page), "step": "make"})
    assert response.status_code == 303, words_of(response)
    return Run.objects.get(id=response["Location"].rstrip("/").rsplit("/", 1)[1])


class Reads(_InTransaction):
    """Reads what the test's own transaction has written. Django's cursors give JSON as text; a binary one does not."""

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[psycopg.Cursor[DictRow]]:
        with psycopg.Cursor(connection.connection, row_factory=dict_row) as cursor:
            cursor.format = psycopg.pq.Format.BINARY
            yield cursor


def newest(run: Run) -> dict[str, Any]:
    """The state of the run's newest checkpoint, read from the engine's rows in this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL search_path TO public, {SCHEMA}")
    stored = Reads().get_tuple({"configurable": {"thread_id": run.id, "checkpoint_ns": ""}})
    assert stored is not None
    return {name: one for name, one in stored.checkpoint["channel_values"].items() if ":" not in name}


def branches() -> int:
    return Run.objects.filter(kind=RunKind.BRANCH).count()


def test_an_edit_is_shown_before_it_is_made(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    client = client_of(acme.operator)
    page = shown(client, approved, **{"value.approved": "false"})
    words = words_of(page)
    assert page.status_code == 200
    assert branches() == 0
    assert [(one.path, one.before, one.after) for one in page.context["shown"].changes] == [
        ("approved", "true", "false")
    ]
    assert "Next: decline" in words
    assert "The edit changes the way." in words
    assert "In the original came next: create_offer" in words
    assert "counts as the output of approve_offer" in words
    assert "no replayer that is alive holds it" in words

    run = made(client, approved, **{"value.approved": "false"})
    assert (run.kind, run.mode, run.status) == (RunKind.BRANCH, RunMode.SIMULATION, RunStatus.QUEUED)
    assert (run.parent_run_id, run.parent_checkpoint_id) == (approved.run_id, approved.id)
    assert run.launch_reason == "To see."
    assert newest(run)["approved"] is False
    assert BranchEdit.objects.get(run=run).next_nodes == ["decline"]


@pytest.mark.parametrize("look", ["fields", "json"])
def test_a_long_number_keeps_every_digit(
    acme: World, client_of: ClientOf, approved: Checkpoint, look: str
) -> None:
    client = client_of(acme.operator)
    assert str(EXACT) in client.get(address(approved), {"view": look}).content.decode()
    edit = {"value.intent": "ticket"}
    if look == "json":
        typed = filled(client, approved, "json")["state"]
        edit = {"state": typed.replace('"intent": "offer"', '"intent": "ticket"')}
    page = shown(client, approved, look, **edit)
    assert [one.path for one in page.context["shown"].changes] == ["intent"], "nothing else is an edit"
    values = newest(made(client, approved, look, **edit))
    assert values["intent"] == "ticket"
    assert values["customer"] == STATE["customer"]
    assert values["offer"] == STATE["offer"]


def test_a_protected_value_is_in_no_page_and_is_replaced_whole(
    acme: World, client_of: ClientOf, approved: Checkpoint
) -> None:
    client = client_of(acme.operator)
    for look in ("fields", "json"):
        text = client.get(address(approved), {"view": look}).content.decode()
        assert rows.EMAIL not in text
        assert BODY not in text
    new = "new.address@example.org"
    page = shown(client, approved, **{"replace.email": "on", "value.email": new})
    assert new not in page.content.decode()
    assert rows.EMAIL not in page.content.decode()
    assert [(one.path, one.before, one.after) for one in page.context["shown"].changes] == [
        ("email", "•••• masked", "•••• masked")
    ]
    run = made(client, approved, **{"replace.email": "on", "value.email": new})
    assert (newest(run)["email"], newest(run)["customer"]) == (new, STATE["customer"])


def test_a_mark_is_no_value(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    client = client_of(acme.operator)
    typed = filled(client, approved, "json")["state"]
    page = shown(client, approved, "json", state=typed.replace('"Seats"', '"Other"'))
    assert page.status_code == 422
    assert "offer holds a protected value" in words_of(page)
    page = shown(client, approved, **{"value.email": "typed@example.org"})
    assert page.status_code == 422
    assert "tick that the field is to be replaced" in words_of(page)
    assert branches() == 0


WRONG: list[tuple[str, dict[str, str], str]] = [
    ("fields", {}, "Nothing is edited yet"),
    ("json", {}, "Nothing is edited yet"),
    ("fields", {"value.intent": "ticket", "reason": "  "}, "Say why"),
    ("fields", {"value.intent": "ticket", "reason": "x" * 301}, "at most 300"),
    ("fields", {"value.intent": "ticket", "mode": "live"}, "your roles do not let you"),
    ("fields", {"value.intent": "ticket", "mode": "evidence"}, "not one of the available choices"),
    ("fields", {"replace.customer": "on", "value.customer": "{oops"}, "is not JSON"),
    ("fields", {"replace.customer": "on", "value.customer": ""}, "Nothing is typed"),
    ("fields", {"replace.customer": "on", "value.customer": '"a text"'}, "be an object"),
    ("fields", {"replace.offer": "on", "value.offer": '{"subject": 1}'}, "offer.subject"),
    ("json", {"state": "[]"}, "The state is an object"),
    ("json", {"state": "{}"}, "can't be taken out of the state"),
    ("json", {"state": "{'a': 1}"}, "is not JSON"),
]


@pytest.mark.parametrize(("look", "typed", "words"), WRONG)
def test_what_does_not_fit_stays_as_it_was_typed(
    acme: World, client_of: ClientOf, approved: Checkpoint, look: str, typed: dict[str, str], words: str
) -> None:
    page = shown(client_of(acme.operator), approved, look, **typed)
    assert page.status_code == 422
    assert words in words_of(page)
    for name, text in typed.items():
        assert page.context["form"][name].value() == (True if text == "on" else text)
    assert branches() == 0


def test_an_unknown_field_is_named(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    client = client_of(acme.operator)
    typed = filled(client, approved, "json")["state"].replace("{", '{"nmae": 1,', 1)
    page = shown(client, approved, "json", state=typed)
    assert page.status_code == 422
    assert "nmae: the state has no such field" in words_of(page)
    assert page.context["form"]["state"].value() == typed


def test_where_several_ran_the_node_is_asked_for(acme: World, client_of: ClientOf, saved: Saved) -> None:
    saved.after("classify", {"intent": "offer"})
    both = saved.after("approve_offer", STATE, "find_customer")
    client = client_of(acme.operator)
    page = shown(client, both, **{"value.intent": "ticket"})
    assert page.status_code == 422
    assert "Say whose output the edit counts as" in words_of(page)
    page = shown(client, both, **{"value.intent": "ticket", "as_node": "approve_offer"})
    assert page.context["shown"].next_nodes == ["create_offer", "draft_offer"]
    assert shown(client, both, **{"value.intent": "x", "as_node": "reply"}).status_code == 422


@pytest.mark.parametrize(
    ("number", "namespace", "words"), [(-1, "", "new input"), (1, "inner:1", "graph around it")]
)
def test_what_can_not_be_branched_from_says_why(
    acme: World, client_of: ClientOf, approved: Checkpoint, number: int, namespace: str, words: str
) -> None:
    Checkpoint.objects.filter(id=approved.id).update(number=number, namespace=namespace)
    client = client_of(acme.operator)
    for page in (client.get(address(approved)), client.post(address(approved), {"step": "show"})):
        assert page.status_code == 422
        assert words in words_of(page)


def test_other_code_is_refused(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    rows.change(approved.run, fingerprint="fp1:other")
    page = client_of(acme.operator).get(address(approved))
    assert page.status_code == 409
    assert "has changed since the run was made" in words_of(page)


# -- who may, and how often ---------------------------------------------------------------------------------------

MAY = {"operator": 200, "developer": 200}
ROLES = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]


@pytest.mark.parametrize("role", ROLES)
def test_who_may(acme: World, client_of: ClientOf, approved: Checkpoint, role: str) -> None:
    form = {**filled(client_of(acme.operator), approved), "value.approved": "false"}
    client = client_of(getattr(acme, role))
    assert client.get(address(approved)).status_code == MAY.get(role, 403)
    page = client.post(address(approved), form)
    assert page.status_code == MAY.get(role, 403)
    response = client.post(address(approved), {**carried(page), "step": "make"})
    assert response.status_code == (303 if role in MAY else 403)
    assert branches() == (1 if role in MAY else 0)


@pytest.mark.parametrize(("role", "status"), [("operator", 422), ("developer", 200)])
def test_who_may_live(acme: World, client_of: ClientOf, approved: Checkpoint, role: str, status: int) -> None:
    page = shown(client_of(getattr(acme, role)), approved, **{"value.approved": "false", "mode": "live"})
    assert page.status_code == status
    if status == 200:
        assert "Blocked until a releaser permits them" in words_of(page)
        assert "mail.send" in words_of(page)
        run = made(client_of(acme.developer), approved, **{"value.approved": "false", "mode": "live"})
        assert (run.mode, run.models_asked) == (RunMode.LIVE, True)


def test_others_get_nothing(acme: World, client: Client, client_of: ClientOf, approved: Checkpoint) -> None:
    form = {**filled(client_of(acme.operator), approved), "value.approved": "false"}
    other = make_world("other")
    elsewhere = address(approved).replace(acme.workspace.id, other.workspace.id)
    another = address(approved).replace(approved.run_id, rows.run_in(acme).id)
    for who, where in (
        (client_of(other.operator), address(approved)),
        (client_of(other.operator), elsewhere),
        (client_of(acme.operator), another),
    ):
        assert who.get(where).status_code == 404
        assert who.post(where, form).status_code == 404
    assert client.get(address(approved)).status_code == 302
    assert branches() == 0


def test_the_same_form_twice_makes_one_run(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    client = client_of(acme.operator)
    form = {**carried(shown(client, approved, **{"value.approved": "false"})), "step": "make"}
    first, second = (client.post(address(approved), form) for _ in range(2))
    assert (first.status_code, second.status_code) == (303, 303)
    assert first["Location"] == second["Location"]
    assert branches() == 1
    assert AuditEvent.objects.filter(verb="run.branched").count() == 1


def test_a_token_used_for_another_edit_is_refused(
    acme: World, client_of: ClientOf, approved: Checkpoint
) -> None:
    client = client_of(acme.operator)
    one = carried(shown(client, approved, **{"value.approved": "false"}))
    other = carried(shown(client, approved, **{"value.intent": "ticket"}))
    assert client.post(address(approved), {**one, "step": "make"}).status_code == 303
    response = client.post(address(approved), {**other, "form_token": one["form_token"], "step": "make"})
    assert response.status_code == 422
    assert "used for another run" in words_of(response)
    assert branches() == 1


def test_what_was_carried_belongs_to_this_checkpoint_and_person(
    acme: World, client_of: ClientOf, saved: Saved, approved: Checkpoint
) -> None:
    other = saved.after("approve_offer", {"intent": "other"})
    client = client_of(acme.operator)
    sealed = {**carried(shown(client, approved, **{"value.approved": "false"})), "step": "make"}
    assert client.post(address(other), sealed).status_code == 400
    assert client_of(acme.developer).post(address(approved), sealed).status_code == 400
    for broken in ("", "x", sealed["carried"][:-8] + "AAAAAAA="):
        assert client.post(address(approved), {**sealed, "carried": broken}).status_code == 400
    assert client.post(address(approved), {**sealed, "form_token": ""}).status_code == 400
    assert client.post(address(approved), {**sealed, "step": "other"}).status_code == 400
    assert branches() == 0


def test_it_can_be_edited_again(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    client = client_of(acme.operator)
    page = shown(client, approved, **{"value.intent": "ticket", "reason": "Because."})
    again = client.post(address(approved), {**carried(page), "step": "edit"})
    assert again.status_code == 200
    assert again.context["form"]["value.intent"].value() == "ticket"
    assert again.context["form"]["reason"].value() == "Because."


def test_it_stays_what_it_was_shown_to_be(
    acme: World, client_of: ClientOf, approved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow is deployed anew between the two pages, and something else would come next."""
    from runs.commands import branch
    from runs.engine import branching

    client = client_of(acme.operator)
    form = {**carried(shown(client, approved, **{"value.approved": "false"})), "step": "make"}
    edited = branching.edited

    def elsewhere(*given: Any, **named: Any) -> Any:
        found = edited(*given, **named)
        found.next_nodes[:] = ["elsewhere"]
        return found

    monkeypatch.setattr(branch, "edited", elsewhere)
    response = client.post(address(approved), form)
    assert response.status_code == 409
    assert "Something else would come next" in words_of(response)
    assert branches() == 0


# -- messages, and what is hostile --------------------------------------------------------------------------------


def test_messages_are_edited_removed_and_appended(acme: World, client_of: ClientOf, talk: Checkpoint) -> None:
    client = client_of(acme.operator)
    text = client.get(address(talk)).content.decode()
    assert "<b>export</b>" not in text
    assert "one with an id that is there takes that one" in html.unescape(text)
    edit = {
        "remove.messages.0": "on",
        "message.messages.1": "Another answer.",
        "role.messages": "user",
        "value.messages": "And now?",
    }
    messages = newest(made(client, talk, **edit))["messages"]
    assert [(one.type, one.content) for one in messages] == [("ai", "Another answer."), ("human", "And now?")]
    assert messages[0].id == "m2"


def test_hostile_values_are_text(acme: World, client_of: ClientOf, saved: Saved) -> None:
    evil = "</textarea><img src=x onerror=alert(1)>"
    saved.after("classify", {"intent": "offer"})
    checkpoint = saved.after("approve_offer", {**STATE, "intent": evil, "decision": evil})
    client = client_of(acme.operator)
    pages = [
        client.get(address(checkpoint)),
        client.get(address(checkpoint), {"view": "json"}),
        shown(client, checkpoint, **{"value.intent": f"{evil}!", "reason": evil}),
        shown(client, checkpoint, **{"value.intent": f"{evil}!", "reason": ""}),
    ]
    assert [page.status_code for page in pages] == [200, 200, 200, 422]
    for page in pages:
        assert "<img" not in page.content.decode()


def test_the_original_is_only_read(acme: World, client_of: ClientOf, approved: Checkpoint) -> None:
    before = state_of(approved)
    asked = rows.approval(acme, approved.run)
    client = client_of(acme.operator)
    page = shown(client, approved, **{"value.approved": "false"})
    assert "Open approvals (1)" in words_of(page)
    run = made(client, approved, **{"value.approved": "false"})
    assert state_of(approved) == before
    asked.refresh_from_db()
    assert (asked.run_id, asked.status) == (approved.run_id, "pending")
    assert approved.run.checkpoints.count() == 2
    assert run.checkpoints.count() == 2
