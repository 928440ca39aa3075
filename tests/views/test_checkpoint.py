"""The Checkpoint page and what it reads: the state as plain values, masked, and nothing that a row says is ever run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from django.test import Client
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Send
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from console.kernel.masking import is_masked
from console.models import User
from runs import inspection
from runs.engine.saver import SCHEMA, Saver, pool
from runs.inspection import State, state_of
from runs.models import Checkpoint, Run
from tests.people import World, make_world
from tests.views import rows

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


class Money(BaseModel):
    amount: int


@dataclass
class Engine:
    """Writes checkpoints of one run as the engine does; they are committed, and cleared away afterwards."""

    run: Run
    number: int = 0

    def save(
        self, values: dict[str, Any], *, raw: dict[str, tuple[str, bytes]] | None = None, parent: str = ""
    ) -> Checkpoint:
        engine_id = f"1f0{self.number:05d}-0000-6000-8000-000000000000"
        self.number += 1
        stored = {name: Saver().serde.dumps_typed(value) for name, value in values.items()} | (raw or {})
        versions = {name: f"{self.number}.{name}" for name in stored}
        body = {
            "v": 4,
            "id": engine_id,
            "channel_values": {},
            "channel_versions": versions,
            "versions_seen": {},
        }
        with pool().connection() as connection:
            connection.execute(
                f"INSERT INTO {SCHEMA}.checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata)"
                " VALUES (%s, '', %s, %s, '{}')",
                (self.run.id, engine_id, Jsonb(body)),
            )
            for name, (kind, blob) in stored.items():
                connection.execute(
                    f"INSERT INTO {SCHEMA}.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)"
                    " VALUES (%s, '', %s, %s, %s, %s)",
                    (self.run.id, name, versions[name], kind, blob),
                )
        return Checkpoint.objects.create(
            run=self.run,
            engine_id=engine_id,
            parent_engine_id=parent,
            fence=1,
            number=self.number,
            source="loop",
            size=1,
        )

    def clear(self) -> None:
        with pool().connection() as connection:
            for table in ("checkpoints", "checkpoint_blobs"):
                connection.execute(f"DELETE FROM {SCHEMA}.{table} WHERE thread_id = %s", (self.run.id,))


@pytest.fixture
def engine(acme: World) -> Iterator[Engine]:
    written = Engine(rows.run_in(acme))
    yield written
    written.clear()


def page(checkpoint: Checkpoint) -> str:
    run = checkpoint.run
    return f"/w/{run.workspace_id}/runs/{run.id}/checkpoints/{checkpoint.id}/"


def values(state: State) -> dict[str, Any]:
    assert state.values is not None, state.problem
    return dict(state.values)


def test_the_page_shows_state_difference_and_what_comes_next(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    before = engine.save(
        {"intent": "offer", "email": rows.EMAIL, "offer": {"lines": [1, 2], "body": "Dear Jana"}}
    )
    after = engine.save(
        {
            "intent": "ticket",
            "email": rows.EMAIL,
            "offer": {"lines": [1, 3], "body": "Dear Jon"},
            "branch:to:reply": None,
        },
        parent=before.engine_id,
    )
    response = client_of(acme.viewer).get(page(after))
    shown = response.content.decode()
    assert response.status_code == 200
    assert "reply" in shown
    assert rows.EMAIL not in shown
    assert "Dear J" not in shown
    changes = {change.path: (change.before, change.after) for change in response.context["state"].changes}
    assert changes["intent"] == ("offer", "ticket")
    assert changes["offer.lines[1]"] == ("2", "3")
    assert changes["offer.body"][0] == changes["offer.body"][1] == "•••• masked"
    assert "email" not in changes
    assert response.context["earlier"] == before


def test_messages_are_roles_contents_and_tool_calls(engine: Engine) -> None:
    call = {"name": "look_up", "args": {"q": "seats"}, "id": "call_1"}
    state = state_of(
        engine.save({"messages": [HumanMessage("Hello", id="h"), AIMessage("", tool_calls=[call], id="a")]})
    )
    assert values(state)["messages"] == [
        {"role": "user", "content": "Hello", "id": "h"},
        {"role": "assistant", "content": "", "tool_calls": [call], "id": "a"},
    ]


def test_the_internal_channels_are_no_state_and_sends_come_next(engine: Engine) -> None:
    state = state_of(
        engine.save({"a": 1, "__start__": {"a": 1}, "__pregel_tasks": [Send("worker", {"n": 1})]})
    )
    assert values(state) == {"a": 1}
    assert state.next_nodes == ["worker"]


def test_an_unknown_type_is_plain_and_marked(engine: Engine) -> None:
    state = state_of(engine.save({"price": Money(amount=5), "ids": {1, 2}, "path": Path("/x")}))
    assert values(state)["price"] == {"type": "Money", "amount": 5}
    assert values(state)["ids"] == {"type": "set", "value": [1, 2]}


def test_nothing_that_a_row_names_is_run(engine: Engine, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    evil = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {trace}"))))

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(trace), "w"))

    constructor = json.dumps(
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [f"touch {trace}"]}
    )
    state = state_of(
        engine.save(
            {"good": 1},
            raw={
                "evil": ("msgpack", evil),
                "bomb": ("pickle", pickle.dumps(Bomb())),
                "built": ("json", constructor.encode()),
            },
        )
    )
    assert not trace.exists()
    assert values(state)["good"] == 1
    assert values(state)["evil"] == {"type": "system", "value": f"touch {trace}"}
    assert "bomb" not in values(state)
    assert any("bomb can't be read" in note for note in state.notes)


def test_what_can_not_be_read_is_a_notice_and_the_rest_is_shown(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    damaged = engine.save({"good": "still here"}, raw={"bad": ("msgpack", b"\xc1\xff")})
    response = client_of(acme.viewer).get(page(damaged))
    assert response.status_code == 200
    assert "still here" in response.content.decode()
    assert "bad can&#x27;t be read" in response.content.decode()


def test_a_state_that_is_gone_is_a_notice(acme: World, client_of: ClientOf, engine: Engine) -> None:
    kept = engine.save({"a": 1})
    client = client_of(acme.viewer)
    assert "can't be shown" not in client.get(page(kept)).content.decode()
    engine.clear()
    response = client.get(page(kept))
    assert response.status_code == 200
    assert "This state can't be shown" in response.content.decode()
    beside = client.get(f"/w/{acme.workspace.id}/runs/{kept.run_id}/?show={kept.id}")
    assert "This state can't be shown" in beside.content.decode()


def test_a_huge_value_is_named_with_its_size_and_not_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MAX_BYTES", 10_000)
    state = state_of(engine.save({"small": "x", "huge": "y" * 20_000}))
    assert values(state) == {"small": "x"}
    assert state.notes == ["huge is 20,003 bytes; a page does not hold it."]


def test_a_deep_value_is_cut(engine: Engine) -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = [deep]
    assert "deeper than is shown" in json.dumps(values(state_of(engine.save({"deep": deep}))))


def test_masks_hide_by_path_and_only_there(engine: Engine) -> None:
    state = state_of(
        engine.save({"email": "a@b.example", "customer": {"email": "c@d.example", "name": "Jana"}})
    )
    assert is_masked(values(state)["email"])
    assert is_masked(values(state)["customer"]["email"])
    assert values(state)["customer"]["name"] == "Jana"


def test_hostile_values_are_text(acme: World, client_of: ClientOf, engine: Engine) -> None:
    evil = "<img src=x onerror=alert(1)>"
    saved = engine.save({"a": evil, evil: {evil: [evil]}})
    assert "<img" not in client_of(acme.viewer).get(page(saved)).content.decode()


def test_others_see_nothing(acme: World, client: Client, client_of: ClientOf, engine: Engine) -> None:
    saved = engine.save({"a": 1})
    other = make_world("other")
    elsewhere = rows.run_in(acme)
    assert client_of(acme.viewer).get(page(saved)).status_code == 200
    assert client_of(other.viewer).get(page(saved)).status_code == 404
    assert client.get(page(saved)).status_code == 302
    assert client_of(acme.viewer).get(page(saved).replace(saved.run_id, elsewhere.id)).status_code == 404
