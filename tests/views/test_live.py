"""The event stream: who may listen, what it says, and that it holds no database connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections
from django.test import AsyncClient

from console.kernel.live import publish
from console.models import User
from console.views import live
from tests.people import World, make_world


@pytest.fixture
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """A committed workspace: the stream gives its connection back, and a rolled-back one would go with it."""
    with django_db_blocker.unblock():
        yield make_world("live")
        connections.close_all()


async def as_user(user: User | None) -> AsyncClient:
    client = AsyncClient()
    if user is not None:
        await sync_to_async(client.force_login)(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def address(world: World, query: str = "?topic=runs&topic=run:run_1") -> str:
    return f"/w/{world.workspace.id}/live{query}"


async def until(lines: AsyncIterator[bytes], found: Callable[[str], bool]) -> str:
    async with asyncio.timeout(10):
        async for line in lines:
            if found(line.decode()):
                return line.decode()
    raise AssertionError("the stream ended")


def test_it_says_the_topics_that_the_page_listens_to_and_no_others(world: World) -> None:
    async def scenario() -> None:
        client = await as_user(await sync_to_async(lambda: world.viewer)())
        response: Any = await client.get(address(world))
        assert response.status_code == 200
        assert response["Content-Type"] == "text/event-stream"
        assert response["Cache-Control"] == "no-store"
        assert response.streaming
        lines = aiter(response.streaming_content)
        await until(lines, lambda text: "listening" in text)
        assert await sync_to_async(lambda: connection.connection)() is None
        await sync_to_async(publish)(world.workspace.id, ("effects", "run:run_2"))
        await sync_to_async(publish)(world.workspace.id, ("effects", "runs", "run:run_1"))
        said = await until(lines, lambda text: text.startswith("data"))
        assert said == 'data: {"topic": "runs"}\n\ndata: {"topic": "run:run_1"}\n\n'
        await lines.aclose()

    async_to_sync(scenario)()


def test_another_workspaces_events_are_not_heard(world: World) -> None:
    async def scenario() -> None:
        client = await as_user(await sync_to_async(lambda: world.viewer)())
        response: Any = await client.get(address(world))
        lines = aiter(response.streaming_content)
        await until(lines, lambda text: "listening" in text)
        await sync_to_async(publish)("somebody-else", ("runs",))
        await sync_to_async(publish)(world.workspace.id, ("run:run_1",))
        assert "run_1" in await until(lines, lambda text: text.startswith("data"))
        await lines.aclose()

    async_to_sync(scenario)()


def test_it_ends_after_its_lifetime_so_that_rights_are_asked_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LIFETIME", 0.2)
    monkeypatch.setattr(live, "BEAT", 0.05)

    async def scenario() -> list[bytes]:
        client = await as_user(await sync_to_async(lambda: world.viewer)())
        response: Any = await client.get(address(world))
        async with asyncio.timeout(10):
            return [line async for line in response.streaming_content]

    lines = async_to_sync(scenario)()
    assert b": beat\n\n" in lines


@pytest.mark.parametrize(
    ("who", "query", "status"),
    [
        ("viewer", "", 400),
        ("viewer", "?topic=" + "x" * 81, 400),
        ("viewer", "?" + "&".join(f"topic=t{n}" for n in range(65)), 400),
        ("outsider", "?topic=runs", 404),
        ("", "?topic=runs", 302),
    ],
)
def test_who_may_not_listen_gets_no_stream(world: World, who: str, query: str, status: int) -> None:
    async def scenario() -> None:
        user = await sync_to_async(lambda: getattr(world, who))() if who else None
        response = await (await as_user(user)).get(address(world, query))
        assert response.status_code == status
        assert not response.streaming
        assert await sync_to_async(lambda: connection.connection)() is None

    async_to_sync(scenario)()
