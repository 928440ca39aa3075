"""Start a run: the form that a schema makes, what it refuses and where it says so, twice is once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.kernel.canonical import JSONValue
from console.models import AuditEvent, User
from console.pages import new_token
from runs.models import Run, WorkflowVersion
from runs.selectors import input_of
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "note": {"type": "string", "x-multiline": True},
        "seats": {"type": "integer", "minimum": 1, "maximum": 100},
        "discount": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "plan": {"$ref": "#/$defs/Plan"},
        "year": {"enum": [2026, 2027]},
        "express": {"type": "boolean"},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    "required": ["name", "seats"],
    "additionalProperties": False,
    "$defs": {"Plan": {"enum": ["team", "business"], "title": "Plan"}},
}


@pytest.fixture
def rich(acme: World) -> WorkflowVersion:
    """A workflow whose input has a field of each sort."""
    version = WorkflowVersion.objects.create(
        name="rich_input",
        version="1",
        schema_version=1,
        fingerprint="fp",
        title="Rich input",
        topology={"nodes": [], "edges": []},
        input_schema=SCHEMA,
        state_schema={},
        step_seconds=60,
    )
    acme.workspace.workflows = ["rich_input", "sales_offer_agent"]
    acme.workspace.save(update_fields=["workflows"])
    return version


def address(world: World, name: str = "sales_offer_agent") -> str:
    return f"/w/{world.workspace.id}/runs/start/{name}/"


def send(client: Client, world: World, which: str = "sales_offer_agent", /, **given: str) -> Any:
    form = client.get(address(world, which)).context["form"]
    fields = {f"input.{key}": value for key, value in given.items() if key != "conversation"}
    return client.post(
        address(world, which),
        {
            "form_token": form["form_token"].value(),
            "conversation": given.get("conversation", world.conversation.id),
            **fields,
        },
    )


def complete(world: World) -> dict[str, str]:
    return {
        "form_token": new_token(),
        "conversation": world.conversation.id,
        "input.email": rows.EMAIL,
        "input.request": "Forty seats",
    }


def made(response: Any) -> Run:
    assert response.status_code == 303, response.content.decode()[-3000:]
    return Run.objects.get(id=response["Location"].rstrip("/").rsplit("/", 1)[1])


def test_the_operator_starts_a_run_for_a_conversation(acme: World, client_of: ClientOf) -> None:
    run = made(
        send(
            client_of(acme.operator),
            acme,
            email=rows.EMAIL,
            request="Forty seats.\r\nThanks.",
            conversation=acme.conversation.id,
        )
    )
    assert (run.status, run.starter, run.conversation) == ("queued", acme.operator, acme.conversation)
    assert run.title == acme.conversation.subject
    assert input_of(run) == {"email": rows.EMAIL, "request": "Forty seats.\r\nThanks."}


@pytest.mark.parametrize("role", ["viewer", "approver", "auditor", "releaser", "administrator"])
def test_who_may_not_start_is_refused(acme: World, client_of: ClientOf, role: str) -> None:
    client = client_of(getattr(acme, role))
    assert client.get(f"/w/{acme.workspace.id}/runs/start/").status_code == 403
    assert client.get(address(acme)).status_code == 403
    form = complete(acme)
    assert client.post(address(acme), form).status_code == 403
    assert not Run.objects.filter(workspace=acme.workspace).exists()
    assert client_of(acme.developer).post(address(acme), form).status_code == 303


def test_others_get_nothing(acme: World, client: Client, client_of: ClientOf) -> None:
    assert client_of(make_world("other").operator).get(address(acme)).status_code == 404
    assert client.get(address(acme)).status_code == 302


def test_a_workflow_that_is_not_enabled_is_not_there(acme: World, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    assert client.get(address(acme, "support_agent")).status_code == 200
    acme.workspace.workflows = ["sales_offer_agent"]
    acme.workspace.save(update_fields=["workflows"])
    assert client.get(address(acme, "support_agent")).status_code == 404
    assert client.get(address(acme, "no_such")).status_code == 404
    shown = client.get(f"/w/{acme.workspace.id}/runs/start/").content.decode()
    assert address(acme) in shown
    assert address(acme, "support_agent") not in shown


def test_a_workspace_without_workflows_says_so(acme: World, client_of: ClientOf) -> None:
    acme.workspace.workflows = []
    acme.workspace.save(update_fields=["workflows"])
    shown = client_of(acme.operator).get(f"/w/{acme.workspace.id}/runs/start/").content.decode()
    assert "No workflow is enabled here" in shown


def test_the_same_form_twice_makes_one_run(acme: World, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    form = complete(acme)
    first, second = (client.post(address(acme), form) for _ in range(2))
    assert made(first) == made(second)
    assert Run.objects.filter(workspace=acme.workspace).count() == 1
    assert AuditEvent.objects.filter(verb="run.started", workspace=acme.workspace).count() == 1


def test_the_same_form_with_other_input_is_refused(acme: World, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    form = complete(acme)
    made(client.post(address(acme), form))
    again = client.post(address(acme), {**form, "input.request": "Fifty seats"})
    assert again.status_code == 422
    assert "Fifty seats" in again.content.decode()
    assert Run.objects.filter(workspace=acme.workspace).count() == 1


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("email", {"email": "not an address", "request": "Forty seats"}),
        ("email", {"email": "", "request": "Forty seats"}),
        ("request", {"email": rows.EMAIL, "request": "x"}),
        ("request", {"email": rows.EMAIL, "request": "x" * 20_001}),
        ("request", {"email": rows.EMAIL, "request": "nul \x00 inside"}),
    ],
)
def test_what_does_not_fit_is_said_beside_its_field_and_leaves_no_row(
    acme: World, client_of: ClientOf, field: str, given: dict[str, str]
) -> None:
    response = send(client_of(acme.operator), acme, **given)
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [f"input.{field}"]
    assert not Run.objects.filter(workspace=acme.workspace).exists()


def test_a_workflow_that_answers_in_a_conversation_needs_one(acme: World, client_of: ClientOf) -> None:
    client = client_of(acme.operator)
    refused = send(client, acme, email=rows.EMAIL, request="Forty seats", conversation="")
    assert refused.status_code == 422
    assert list(refused.context["form"].errors) == ["conversation"]
    run = made(send(client, acme, "support_agent", email=rows.EMAIL, message="It crashes", conversation=""))
    assert run.conversation is None


@pytest.mark.parametrize("conversation", ["conv_00000000000000000000000000", "nonsense", "\x00"])
def test_a_conversation_that_is_not_there_is_refused(
    acme: World, client_of: ClientOf, conversation: str
) -> None:
    response = send(
        client_of(acme.operator), acme, email=rows.EMAIL, request="Forty seats", conversation=conversation
    )
    assert response.status_code == 422
    assert "conversation" in response.context["form"].errors


def test_another_workspaces_conversation_is_not_offered_and_not_taken(
    acme: World, client_of: ClientOf
) -> None:
    theirs = make_world("other").conversation
    client = client_of(acme.operator)
    assert theirs.id not in client.get(address(acme)).content.decode()
    response = send(client, acme, email=rows.EMAIL, request="Forty seats", conversation=theirs.id)
    assert response.status_code == 422
    assert client.get(f"{address(acme)}?conversation={theirs.id}").status_code == 404


def test_a_conversation_named_in_the_address_is_chosen(acme: World, client_of: ClientOf) -> None:
    shown = (
        client_of(acme.operator).get(f"{address(acme)}?conversation={acme.conversation.id}").content.decode()
    )
    assert f'<option value="{acme.conversation.id}" selected>' in shown


@pytest.mark.usefixtures("rich")
def test_each_sort_of_field_keeps_its_type(acme: World, client_of: ClientOf) -> None:
    run = made(
        send(
            client_of(acme.operator),
            acme,
            "rich_input",
            name="Jana",
            note="",
            seats="40",
            discount="12.5",
            plan="team",
            year="2027",
            express="on",
            address='{"city": "Stuttgart", "codes": [1, 2.5, null]}',
        )
    )
    expected: JSONValue = {
        "name": "Jana",
        "seats": 40,
        "discount": 12.5,
        "plan": "team",
        "year": 2027,
        "express": True,
        "address": {"city": "Stuttgart", "codes": [1, 2.5, None]},
    }
    assert input_of(run) == expected


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seats", "forty"),
        ("seats", "4.5"),
        ("seats", "0"),
        ("seats", "true"),
        ("discount", "NaN"),
        ("plan", "gold"),
        ("year", "2028"),
        ("address", "{city"),
        ("address", "{}"),
        ("address", "[]"),
    ],
)
def test_a_value_of_another_type_is_refused_at_its_field(
    acme: World, client_of: ClientOf, field: str, value: str
) -> None:
    given = {"name": "Jana", "seats": "40", field: value}
    response = send(client_of(acme.operator), acme, "rich_input", **given)
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [f"input.{field}"]


def test_the_form_says_when_no_worker_holds_the_version(acme: World, client_of: ClientOf) -> None:
    assert (
        "No worker that holds this version is alive"
        in client_of(acme.operator).get(address(acme)).content.decode()
    )


def test_a_pinned_number_of_queries(
    acme: World, client_of: ClientOf, django_assert_max_num_queries: Any
) -> None:
    client = client_of(acme.operator)
    client.get(address(acme))
    with django_assert_max_num_queries(8):
        assert client.get(address(acme)).status_code == 200
