"""Health: one word for a load balancer; what people on Home are told about workers, queue, sweep and broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from console.management.commands.sweep import ADVISORY_LOCK
from console.models import Worker
from console.views import health
from console.views.health import SWEEP_LOCK, health_of
from tests.people import World
from tests.views import rows


@pytest.fixture
def no_database(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The database is at an address where nothing listens."""
    from django.db.backends.postgresql.base import DatabaseWrapper

    settings = {
        **connection.settings_dict,
        "HOST": "127.0.0.1",
        "PORT": "9",
        "OPTIONS": {"connect_timeout": 1},
    }
    broken = DatabaseWrapper(settings, alias="broken")
    monkeypatch.setattr(health, "connection", broken)
    yield
    broken.close()


@pytest.mark.django_db
def test_it_is_well_when_the_database_answers(client: Client) -> None:
    response = client.get("/health/")
    assert (response.status_code, response.json()) == (200, {"status": "ok", "database": "ok"})
    assert response["Content-Type"] == "application/json"


@pytest.mark.usefixtures("no_database")
def test_it_is_not_when_the_database_does_not(client: Client) -> None:
    response = client.get("/health/")
    assert response.status_code == 503
    assert response.json()["database"] == "unreachable"


@pytest.mark.django_db
def test_nobody_posts_to_it(client: Client) -> None:
    assert client.post("/health/").status_code == 405
    assert client.head("/health/").status_code == 200


@pytest.mark.django_db
def test_workers_that_are_silent_or_stopped_do_not_count(acme: World) -> None:
    now = timezone.now()
    Worker.objects.create(host="a", pid=1, versions=["w@1#fp", "v@2#fp"])
    Worker.objects.create(host="b", pid=2, versions=["w@1#fp"])
    Worker.objects.filter(id=Worker.objects.create(host="c", pid=3, versions=["w@1#fp"]).id).update(
        last_seen=now - timedelta(minutes=2)
    )
    Worker.objects.create(host="d", pid=4, versions=["w@1#fp"], stopped_at=now)
    found = health_of(acme.actor(acme.viewer))
    assert (found.workers, found.versions) == (2, {"v 2": 1, "w 1": 2})


@pytest.mark.django_db
def test_the_queue_is_late_when_its_oldest_is(acme: World) -> None:
    actor = acme.actor(acme.viewer)
    assert (health_of(actor).queued, health_of(actor).late) == (0, False)
    run = rows.run_in(acme)
    assert (health_of(actor).queued, health_of(actor).late) == (1, False)
    rows.change(run, status_since=timezone.now() - timedelta(minutes=1))
    assert health_of(actor).late


@pytest.mark.django_db
def test_the_sweep_runs_while_somebody_holds_its_lock(acme: World) -> None:
    actor = acme.actor(acme.viewer)
    assert SWEEP_LOCK == ADVISORY_LOCK
    assert not health_of(actor).sweep
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
        assert health_of(actor).sweep
        cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])
    assert not health_of(actor).sweep


@pytest.mark.django_db
def test_a_broker_that_is_away_is_said_within_a_second(acme: World, settings: object) -> None:
    actor = acme.actor(acme.viewer)
    assert health_of(actor).broker
    settings.REDIS_URL = "redis://127.0.0.1:9/0"  # type: ignore[attr-defined]
    began = timezone.now()
    assert not health_of(actor).broker
    assert timezone.now() - began < timedelta(seconds=1)
