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
from django.urls import NoReverseMatch, reverse
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Send
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from console.kernel.masking import is_masked
from console.models import User
from runs import anatomy, inspection
from runs.engine.saver import SCHEMA, Saver, pool
from runs.inspection import State, state_of
from runs.models import Checkpoint, Run
from runs.states import RunStatus
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import words_of

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
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
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


# -- what it holds besides ---------------------------------------------------------------------------------------------


def write(
    engine: Engine, checkpoint: Checkpoint, task: str, channel: str, *, idx: int, path: str = ""
) -> None:
    """A pending write as the engine's saver leaves it."""
    with pool().connection() as connection:
        connection.execute(
            f"INSERT INTO {SCHEMA}.checkpoint_writes"
            " (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)"
            " VALUES (%s, '', %s, %s, %s, %s, %s, 'msgpack', %s)",
            (
                engine.run.id,
                checkpoint.engine_id,
                task,
                path,
                idx,
                channel,
                ormsgpack.packb("hush-hush value"),
            ),
        )


def test_the_next_tasks_are_told_with_what_each_is_sent_masked(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    saved = engine.save(
        {
            "email": rows.EMAIL,
            "branch:to:reply": None,
            "join:left+right:meet": {"left", "right"},
            "join:left+other:wait": {"left"},
            "__pregel_tasks": [Send("each", {"item": n, "email": rows.EMAIL}) for n in range(4)],
        }
    )
    response = client_of(acme.viewer).get(page(saved))
    tasks = response.context["anatomy"].next_tasks
    assert [(task.node, task.is_sent) for task in tasks] == [
        ("reply", False),
        ("meet", False),
        *[("each", True)] * 4,
    ]
    assert [task.argument["item"] for task in tasks[2:]] == [0, 1, 2, 3]
    assert all(is_masked(task.argument["email"]) for task in tasks[2:])
    assert rows.EMAIL not in response.content.decode()
    assert response.context["state"].next_nodes == ["each", "meet", "reply"]


def test_pending_writes_say_who_wrote_what_and_whether_an_answer_is_stored_and_no_value(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    saved = engine.save({"__pregel_tasks": [Send("each", {}), Send("other", {})]})
    pull, push = "~__pregel_pull, asks", "~__pregel_push, 0000000001, 0000000000"
    write(engine, saved, "t1", "__interrupt__", idx=-3, path=pull)
    write(engine, saved, "t1", "__resume__", idx=-4, path=pull)
    write(engine, saved, "t2", "log", idx=0, path=push)
    write(engine, saved, "t2", "branch:to:next", idx=1, path=push)
    write(engine, saved, "t3", "__interrupt__", idx=-3, path="~__pregel_pull, waits")
    write(engine, saved, "t4", "__error__", idx=-1, path="~__pregel_pull, breaks")
    response = client_of(acme.viewer).get(page(saved))
    shown = {
        writer.node: (writer.asks, writer.answered, writer.failed, [write.what for write in writer.writes])
        for writer in response.context["anatomy"].writers
    }
    assert shown == {
        "asks": (True, True, False, ["the answer to its pause", "a pause: what it asks"]),
        "waits": (True, False, False, ["a pause: what it asks"]),
        "breaks": (False, False, True, ["an error"]),
        "other": (False, False, False, ["log", "next comes next"]),
    }
    text = words_of(response)
    assert "Pending writes" in text
    assert "pause, answer stored" in text
    assert "pause, answer not stored" in text
    assert "hush-hush" not in response.content.decode()

    after = engine.save({"log": ["x"]}, parent=saved.engine_id)
    taken = client_of(acme.viewer).get(page(saved))
    assert taken.context["anatomy"].taken_into == after
    assert "Written after it" in words_of(taken)


def test_the_size_is_told_in_all_and_by_field_largest_first(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    saved = engine.save(
        {"small": [1], "large": ["y" * 5_000], "branch:to:x": None, "__start__": ["z" * 9_000]}
    )
    held = client_of(acme.viewer).get(page(saved)).context["anatomy"]
    assert [one.name for one in held.fields] == ["large", "small"]
    assert 5_000 < held.fields[0].size < 5_010
    assert held.size == sum(one.size for one in held.fields) < 5_020


# -- as a file ---------------------------------------------------------------------------------------------------------


def file_of(client: Client, checkpoint: Checkpoint) -> dict[str, Any]:
    response = client.get(f"{page(checkpoint)}state.json")
    assert response.status_code == 200
    assert response["Content-Disposition"] == f'attachment; filename="{checkpoint.id}.json"'
    assert response["Content-Type"] == "application/json"
    return dict(json.loads(b"".join(response)))


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_the_file_holds_the_state_masked_and_what_a_page_does_not_hold(
    acme: World, client_of: ClientOf, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MAX_BYTES", 1_000)
    saved = engine.save(
        {"email": rows.EMAIL, "offer": {"body": "Dear Jana", "n": 2**53 + 1}, "huge": ["y" * 5_000]},
        raw={"bad": ("msgpack", b"\xc1\xff")},
    )
    client = client_of(acme.viewer)
    held = file_of(client, saved)
    assert held["state"]["huge"] == ["y" * 5_000]
    assert held["state"]["offer"]["n"] == 2**53 + 1
    assert is_masked(held["state"]["email"])
    assert is_masked(held["state"]["offer"]["body"])
    assert list(held["left_out"]) == ["bad"]
    assert "huge is 5," in words_of(client.get(page(saved))), "the page says what it leaves out"


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_the_file_ends_at_its_cap_and_says_what_is_left_out(
    acme: World, client_of: ClientOf, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anatomy, "MAX_DOWNLOAD", 1_000)
    held = file_of(client_of(acme.viewer), engine.save({"small": ["x"], "huge": ["y" * 5_000]}))
    assert held["state"] == {"small": ["x"]}
    assert held["left_out"]["huge"].endswith("a file holds 1,000 in all.")


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_file_is_not_for_others_and_of_a_state_that_is_gone_it_is_empty(
    acme: World, client: Client, client_of: ClientOf, engine: Engine
) -> None:
    saved = engine.save({"a": [1]})
    address = f"{page(saved)}state.json"
    assert client_of(make_world("other").viewer).get(address).status_code == 404
    assert client.get(address).status_code == 302
    assert client_of(acme.viewer).post(address).status_code == 405
    engine.clear()
    assert file_of(client_of(acme.viewer), saved)["state"] == {}


# -- a newest state that can't be used ---------------------------------------------------------------------------------


def branch_from(checkpoint: Checkpoint) -> str:
    """The branch page, where there is one."""
    run = checkpoint.run
    try:
        return reverse("branch", args=[run.workspace_id, run.id, checkpoint.id])
    except NoReverseMatch:
        return ""


@pytest.mark.parametrize("where", ["run", "checkpoint"])
def test_a_newest_checkpoint_that_can_not_be_read_names_the_field_and_the_last_whole_one(
    acme: World, client_of: ClientOf, engine: Engine, where: str
) -> None:
    whole = engine.save({"good": 1})
    engine.save({"good": 2}, raw={"older_harm": ("msgpack", b"\xc1")}, parent=whole.engine_id)
    newest = engine.save({"good": 3}, raw={"price_list": ("msgpack", b"\xc1\xff")})
    rows.stands(
        engine.run, RunStatus.FAILED, failure="state_invalid", failure_text="Its saved state can't be read."
    )
    address = page(newest) if where == "checkpoint" else f"/w/{acme.workspace.id}/runs/{engine.run.id}/"
    response = client_of(acme.operator).get(address)
    assert response.status_code == 200
    assert response.context["broken"].fields == ["price_list"]
    assert response.context["broken"].last_valid == whole
    text = response.content.decode()
    assert "price_list can&#x27;t be read" in text
    assert page(whole) in text
    assert response.context["branch_url"] == branch_from(whole)
    assert ("Branch from there" in text) == bool(branch_from(whole))


def test_a_state_that_breaks_its_schema_names_the_field(
    acme: World, client_of: ClientOf, engine: Engine
) -> None:
    field, rule = next(
        (name, rule)
        for name, rule in engine.run.workflow.state_schema["properties"].items()
        if rule.get("type") == "string" and name not in engine.run.workflow.masks
    )
    assert rule
    whole = engine.save({field: "as it should be"})
    engine.save({field: [1, 2]}, parent=whole.engine_id)
    address = f"/w/{acme.workspace.id}/runs/{engine.run.id}/"
    rows.stands(engine.run, RunStatus.FAILED)
    assert client_of(acme.viewer).get(address).context["broken"] is None, "its failure is another one"
    rows.change(engine.run, failure="state_invalid")
    response = client_of(acme.viewer).get(address)
    assert response.status_code == 200
    assert (response.context["broken"].fields, response.context["broken"].last_valid) == ([field], whole)
    assert f"{field} does not fit the schema of the state." in words_of(response)


def test_where_no_state_is_whole_none_is_offered(acme: World, client_of: ClientOf, engine: Engine) -> None:
    newest = engine.save({"good": 3}, raw={"bad": ("pickle", b"x")})
    response = client_of(acme.viewer).get(page(newest))
    assert response.context["broken"].last_valid is None
    assert "No earlier one of this run is whole." in words_of(response)
