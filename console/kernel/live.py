"""Tell open pages what changed: names of topics over Redis, never content. A page then fetches what it shows."""

from __future__ import annotations

import logging
from functools import cache, partial

import redis
from django.conf import settings
from django.db import transaction

logger = logging.getLogger(__name__)


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5, retry_on_timeout=False
    )


def channel_of(workspace_id: str) -> str:
    return f"signalbox:live:{workspace_id}"


def publish(workspace_id: str, topics: tuple[str, ...]) -> None:
    """Best effort: a page that misses it shows the same after its next fetch."""
    try:
        _client().publish(channel_of(workspace_id), " ".join(topics))
    except redis.RedisError as error:
        logger.warning("open pages were not told (%s)", type(error).__name__)


def announce(workspace_id: str, *topics: str) -> None:
    """Publish *topics* (``run:run_…``, ``runs``, ``approvals``) when the current transaction commits."""
    transaction.on_commit(partial(publish, workspace_id, topics), robust=True)
