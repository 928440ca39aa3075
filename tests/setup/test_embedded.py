"""Postgres and Redis from wheels: started, stopped, killed and found again, for real."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from console import embedded
from console.embedded import Postgres, Redis, servers
from console.folder import FolderUnusable
from tests.setup.processes import eventually, is_alive, python, working_on

START_AND_HANG = """
import sys, time
from pathlib import Path
from console.embedded import servers
with servers(Path(sys.argv[1]), durable=False) as urls:
    print(urls.owner_database, flush=True)
    time.sleep(60)
"""


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        answer = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert answer is not None
    return int(answer[0])


def postmaster(folder: Path) -> int:
    return int((folder / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0])


def test_both_answer_and_are_gone_after(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as urls:
        assert rows(urls.owner_database) == 1
        assert redis.Redis.from_url(urls.redis).ping()
        assert working_on(tmp_path)
    assert working_on(tmp_path) == []
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(urls.database, connect_timeout=2)
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(urls.redis).ping()


def test_a_second_start_keeps_data_and_passwords(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as first:
        assert rows(first.owner_database) == 1
    with servers(tmp_path, durable=False) as second:
        assert second.database == first.database
        assert rows(second.owner_database) == 2


def test_the_application_role_makes_no_tables_and_is_known_by_password(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as urls:
        with (
            psycopg.connect(urls.database) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("CREATE TABLE mine (n int)")
        mine = urlsplit(urls.database).password
        owners, cache = urlsplit(urls.owner_database).password, urlsplit(urls.redis).password
        assert mine
        assert owners
        assert cache
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(urls.owner_database.replace(owners, mine))
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(urls.redis.replace(cache, mine)).ping()


@pytest.mark.parametrize(("durable", "expected"), [(True, "on"), (False, "off")])
def test_only_tests_do_without_the_disk(tmp_path: Path, durable: bool, expected: str) -> None:
    with servers(tmp_path, durable=durable) as urls, psycopg.connect(urls.database) as connection:
        assert connection.execute("SHOW fsync").fetchone() == (expected,)
        assert connection.execute("SHOW max_connections").fetchone() == ("200",)


def test_two_side_by_side_leave_each_other_alone(tmp_path: Path) -> None:
    with servers(tmp_path / "one", durable=False) as one:
        assert rows(one.owner_database) == 1
        with servers(tmp_path / "two", durable=False) as two:
            assert rows(two.owner_database) == 1
            redis.Redis.from_url(two.redis).set("here", "two")
            assert redis.Redis.from_url(one.redis).get("here") is None
        assert rows(one.owner_database) == 2


def test_a_folder_in_use_is_refused_and_its_user_undisturbed(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as urls:
        with pytest.raises(FolderUnusable, match=f"in use by process {os.getpid()}"), servers(tmp_path):
            pass
        assert rows(urls.owner_database) == 1


def test_a_path_longer_than_a_socket_may_have(tmp_path: Path) -> None:
    with servers(tmp_path / ("long" * 25) / ("longer" * 25), durable=False) as urls:
        assert rows(urls.owner_database) == 1
        door = Path(str(psycopg.conninfo.conninfo_to_dict(urls.database)["host"]))
        assert door.parent.stat().st_mode & 0o077 == 0
    assert not door.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts Postgres as another user")
def test_the_folders_above_the_data_may_be_closed_at_any_time(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir(mode=0o700)
    for _ in range(2):
        with servers(above / "data", durable=False) as urls:
            rows(urls.owner_database)
    assert above.stat().st_mode & 0o777 == 0o700
    assert (above / "data").stat().st_mode & 0o777 == 0o700


def test_killed_servers_come_back_with_their_data(tmp_path: Path) -> None:
    postgres, cache = Postgres(tmp_path, durable=False), Redis(tmp_path)
    try:
        postgres.start()
        cache.start()
        url = postgres.url(embedded.OWNER_ROLE)
        assert rows(url) == 1
        before, address = postmaster(tmp_path), cache.url
        os.kill(before, signal.SIGKILL)
        os.kill(redis_pid(address), signal.SIGKILL)
        eventually(lambda: not postgres.is_alive() and not cache.is_alive())
        assert postmaster(tmp_path) == before  # the pid file a killed server leaves
        postgres.start()
        cache.start()
        assert rows(url) == 2
        assert cache.url == address
        assert redis.Redis.from_url(address).ping()
    finally:
        cache.stop()
        postgres.stop()


def redis_pid(url: str) -> int:
    """The id of the Redis at *url*, as it tells it itself."""
    return int(redis.Redis.from_url(url).info("server")["process_id"])


def test_a_pid_file_that_names_a_stranger_is_no_obstacle(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as urls:
        assert rows(urls.owner_database) == 1
        text = (tmp_path / "postgres" / "postmaster.pid").read_text().split("\n", 1)[1]
        lock = (tmp_path / "postgres" / ".s.PGSQL.5432.lock").read_text().split("\n", 1)[1]
    # After a reboot the number may be anybody's: here it is this process's.
    (tmp_path / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{text}")
    (tmp_path / "postgres" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n{lock}")
    with servers(tmp_path, durable=False) as urls:
        assert rows(urls.owner_database) == 2


def test_a_killed_parent_takes_its_servers_along(tmp_path: Path) -> None:
    parent = python(START_AND_HANG, tmp_path)
    assert parent.stdout is not None
    url = parent.stdout.readline().decode().strip()
    assert rows(url) == 1
    server = postmaster(tmp_path)
    parent.kill()
    parent.wait()
    with servers(tmp_path, durable=False) as urls:  # at once, while the old one may still be closing
        assert rows(urls.owner_database) == 2
        assert not is_alive(server)
    assert working_on(tmp_path) == []


def test_a_first_start_cut_short_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    half_made = tmp_path / "postgres.new"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18\n")
    with servers(tmp_path, durable=False) as urls:
        assert rows(urls.owner_database) == 1


def test_a_lost_password_file_is_one_line(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False):
        pass
    (tmp_path / "postgres-passwords.json").unlink()
    with (
        pytest.raises(embedded.ServersFailed, match=r"Restore postgres-passwords.json") as refused,
        servers(tmp_path),
    ):
        pass
    assert "\n" not in str(refused.value)
    assert working_on(tmp_path) == []


def test_data_of_another_release_are_left_alone(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False):
        pass
    (tmp_path / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(embedded.ServersFailed, match="made by Postgres 17"), servers(tmp_path):
        pass


def test_passwords_are_for_this_user_only(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False):
        assert (tmp_path / "postgres-passwords.json").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "postgres").stat().st_mode & 0o077 == 0
