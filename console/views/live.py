"""The event stream of a workspace's pages: the names of what changed, never content."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import redis.asyncio as redis
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_safe

from console.access import actor_in
from console.kernel.errors import BadRequest, Refusal
from console.kernel.live import channel_of
from console.models import Capability, User
from console.pages import refused, to_login

logger = logging.getLogger(__name__)

#: A comment goes out this often, so that proxies keep the connection and a dead one is noticed.
BEAT = 15.0
#: After so long the stream ends and the browser asks again: who may listen is looked up anew.
LIFETIME = 15 * 60.0
#: A page listens to a few topics; more is a mistake.
MAX_TOPICS = 64
MAX_LENGTH = 80


@require_safe
async def live(request: HttpRequest, workspace: str) -> HttpResponseBase:
    """Who may is asked first; while the stream is open it holds no database connection.

    Not async beyond this: a refusal is the same page as anywhere.
    """
    try:
        answer = await sync_to_async(_refusal_of)(request, workspace)
    finally:
        await sync_to_async(connections.close_all)()
    if answer is not None:
        return answer
    response = StreamingHttpResponse(
        _events(workspace, frozenset(request.GET.getlist("topic"))), content_type="text/event-stream"
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def _refusal_of(request: HttpRequest, workspace: str) -> HttpResponseBase | None:
    """None: go on. Otherwise what to answer instead of a stream."""
    if not isinstance(request.user, User):
        return to_login(request)
    topics = request.GET.getlist("topic")
    try:
        actor_in(request.user, workspace).require(Capability.SEE)
        if not topics or len(topics) > MAX_TOPICS or any(len(topic) > MAX_LENGTH for topic in topics):
            raise BadRequest(f"Name 1 to {MAX_TOPICS} topics.", field="topic")
    except Refusal as refusal:
        return refused(request, refusal)
    return None


async def _events(workspace: str, topics: frozenset[str]) -> AsyncIterator[str]:
    """Until the browser goes away or the lifetime is over. A broker that is away ends it: the browser tries again."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2)
    ends = asyncio.get_running_loop().time() + LIFETIME
    try:
        async with client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(channel_of(workspace))
            # From here on nothing is missed: the page catches up once with what changed before.
            yield "retry: 2000\nevent: listening\ndata: now\n\n"
            while asyncio.get_running_loop().time() < ends:
                message = await channel.get_message(timeout=BEAT)
                yield _said(message["data"], topics) if message else ": beat\n\n"
    except redis.RedisError as error:
        logger.warning("a live page lost the broker (%s)", type(error).__name__)
    finally:
        with suppress(redis.RedisError, OSError):
            await client.aclose()


def _said(data: bytes | str, topics: frozenset[str]) -> str:
    """The events of one message: those that the page listens to; a comment when there is none."""
    names = (data.decode() if isinstance(data, bytes) else data).split()
    events = [f"data: {json.dumps({'topic': name})}\n\n" for name in names if name in topics]
    return "".join(events) or ": other\n\n"
