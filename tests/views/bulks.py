"""The pages of any bulk act: reading its dry run, pressing its button, stopping it; and what holds of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.test import Client

from console.models import AuditEvent, Bulk, User
from tests.people import World, make_world
from tests.views.conftest import words_of

EVERYBODY = ["viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"]
TOKEN = "f" * 32
WHY = "crm was away from nine to ten."

#: What is typed, the status it is refused with, and the words.
REFUSED: list[tuple[dict[str, str], int, str]] = [
    ({"reason": ""}, 422, "Say why."),
    ({"reason": "y" * 2001}, 422, "at most 2000"),
    ({"per_minute": "0"}, 422, "Between 1 and 600 a minute."),
    ({"per_minute": "many"}, 422, "Enter a whole number."),
    ({"digest": "old"}, 409, "have moved since you looked."),
]


@dataclass(frozen=True)
class BulkPages:
    """The pages of one kind. *plan* and *many*: the addresses of its dry run and of its list, in a workspace."""

    model: Any
    plan: str
    many: str

    def path(self, world: World, rest: str | None = None) -> str:
        """Its dry run, or another page of the workspace."""
        return f"/w/{world.workspace.id}/{self.plan if rest is None else rest}"

    def begin(self, client: Client, world: World, query: str = "", **typed: str) -> Any:
        """Read the dry run, fill in its form, press its button."""
        plan = client.get(f"{self.path(world)}{query}").context["plan"]
        given = {"form_token": TOKEN, "digest": plan.digest, "per_minute": "60", "reason": WHY, **typed}
        return client.post(f"{self.path(world)}start/{query}", given)

    def begun(self, world: World, client: Client, query: str = "") -> Any:
        assert self.begin(client, world, query).status_code == 303
        return self.model.objects.get(workspace=world.workspace)

    def page(self, world: World, found: Bulk) -> str:
        return self.path(world, f"{self.many}{found.id}/")

    def check_refused(
        self, client: Client, world: World, query: str, typed: dict[str, str], status: int, said: str
    ) -> None:
        """A refusal says why, keeps what was typed, repeats the filter and starts nothing."""
        page = self.begin(client, world, query, **{"reason": "kept words", "per_minute": "77", **typed})
        assert page.status_code == status
        assert said in words_of(page)
        assert ('value="77"' if "reason" in typed else "kept words") in page.content.decode()
        assert query in page.content.decode()
        assert not self.model.objects.exists()

    def check_stopped_once(
        self, clients: tuple[Client, Iterable[Client]], world: World, by: User, verb: str, asks: str
    ) -> None:
        """Asked in words first; by who may and by nobody else, once; and the page says by whom."""
        client, others = clients
        found = self.begun(world, client)
        here = self.page(world, found)
        question = words_of(client.get(here))
        assert asks in question
        assert "Stop it and leave 2 as they are" in question
        for other in others:
            assert f"{here}stop/" not in other.get(here).content.decode()
            assert other.post(f"{here}stop/", {"form_token": TOKEN}).status_code == 403
        assert client.post(f"{here}stop/", {"form_token": TOKEN}).status_code == 303
        found.refresh_from_db()
        assert (found.status, found.stopped_by) == ("stopped", by)
        said = words_of(client.get(here))
        assert "Not reached" in said
        assert f"stopped by {by.name}" in said
        again = client.post(f"{here}stop/", {"form_token": TOKEN})
        assert again.status_code == 409
        assert "It is stopped already." in words_of(again)
        assert AuditEvent.objects.filter(subject=found.id, verb=verb).count() == 1

    def check_nobody_elses(self, world: World, found: Bulk, stranger_in: Any, anonymous: Client) -> None:
        """Neither under its own workspace nor under the stranger's."""
        other = make_world("other")
        elsewhere = stranger_in(other)
        assert elsewhere.get(self.path(world)).status_code == 404
        assert elsewhere.get(self.page(world, found)).status_code == 404
        assert elsewhere.get(self.page(other, found)).status_code == 404
        assert elsewhere.post(f"{self.page(other, found)}stop/", {"form_token": TOKEN}).status_code == 404
        assert anonymous.get(self.path(world)).status_code == 302
        assert anonymous.post(f"{self.path(world)}start/", {"form_token": TOKEN}).status_code == 302

    def check_fragments(self, client: Client, world: World, found: Bulk, query: str) -> None:
        """htmx gets exactly the part of the page."""
        for address in (f"{self.path(world)}{query}", self.path(world, self.many), self.page(world, found)):
            part = client.get(address, headers={"HX-Request": "true"}).content.decode().strip()
            assert "<html" not in part
            assert part in client.get(address).content.decode()
