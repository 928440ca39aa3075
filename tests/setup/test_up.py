"""`manage.py up` as a person types it: up, answering, started again with its data, and gone without a trace."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.setup.processes import ROOT, eventually, is_alive, working_on

pytestmark = pytest.mark.process


class Stack:
    """One `manage.py up` in a folder, in a process group of its own, as a terminal would start it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        names = ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL")
        base = {name: value for name, value in os.environ.items() if name not in names}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--data", str(folder), *options],
                cwd=ROOT,
                env=base | {"SIGNALBOX_ENV": "development"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> int:
        """Return the port, once the greeting is printed."""

        def greeted() -> bool:
            assert self.process.poll() is None, self.text()
            return "Ctrl-C stops everything" in self.text()

        eventually(greeted, 90)
        found = re.findall(r"Signalbox is at +http://localhost:(\d+)", self.text())
        return int(found[0])

    def everyone(self) -> list[int]:
        return [self.process.pid, *(p.pid for p in psutil.Process(self.process.pid).children(recursive=True))]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def health(port: int) -> int:
    connection = http.client.HTTPConnection("localhost", port, timeout=5)
    try:
        connection.request("GET", "/health/")
        return connection.getresponse().status
    finally:
        connection.close()


class Homes:
    """The stacks of this file. A start takes seconds, so a test that needs a running one takes the one that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stacks: dict[str, Stack] = {}

    def start(self, name: str, *options: str) -> Stack:
        """Start the stack whose data are in the folder *name*. Should it run, it is killed first."""
        if name in self._stacks:
            self._stacks[name].close()
        self._stacks[name] = Stack(self.folder / name, *options)
        return self._stacks[name]

    def up(self, name: str, *options: str) -> Stack:
        """The stack that runs in the folder *name*, started if none does."""
        running = self._stacks.get(name)
        return running if running and running.process.poll() is None else self.start(name, *options)

    def close(self) -> None:
        for stack in self._stacks.values():
            stack.close()


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    homes = Homes(tmp_path_factory.mktemp("homes"))
    yield homes
    homes.close()
    eventually(lambda: not working_on(homes.folder), 15)  # also after a failure: nothing stays behind


def test_what_dies_comes_back_while_the_rest_lives(homes: Homes) -> None:
    stack = homes.up("one", "--no-seed")
    port = stack.wait_ready()
    eventually(lambda: stack.text().count("ready.") == 2, 60)  # the worker's own word, and the replayer's
    processes = {p.pid: p for p in psutil.Process(stack.process.pid).children(recursive=True)}
    celery = [pid for pid, p in processes.items() if "celery" in p.cmdline()]
    postgres = [pid for pid, p in processes.items() if p.name() == "postgres" and "-D" in p.cmdline()]
    assert (len(celery), len(postgres)) == (2, 1)
    for pid in (*celery, *postgres):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: stack.text().count("ready.") >= 4, 60)
    eventually(lambda: "Postgres has ended; starting it again" in stack.text())
    eventually(lambda: health(port) == 200, 15)
    assert stack.process.poll() is None


def test_it_answers_and_a_stop_ends_every_process_and_keeps_the_data(homes: Homes) -> None:
    kept: set[bytes] = set()
    for signum in (signal.SIGINT, signal.SIGTERM):
        stack = homes.up("one", "--no-seed")
        assert health(stack.wait_ready()) == 200
        everyone = stack.everyone()
        assert len(everyone) > 8
        kept.add((stack.folder / "secrets.json").read_bytes())
        assert (stack.folder / "secrets.json").stat().st_mode & 0o777 == 0o600
        began = time.monotonic()
        os.killpg(stack.process.pid, signum)  # as the terminal does
        assert stack.process.wait(10) == 0, stack.text()
        assert time.monotonic() - began < 10
        assert [pid for pid in everyone if is_alive(pid)] == []
    assert len(kept) == 1


def test_two_stacks_side_by_side(homes: Homes) -> None:
    # At the same moment: both may choose the same port first.
    one, two = homes.start("one", "--no-demo"), homes.start("two", "--no-demo")
    ports = {one.wait_ready(), two.wait_ready()}
    assert len(ports) == 2
    assert [health(port) for port in ports] == [200, 200]
    assert json.loads((one.folder / "secrets.json").read_text()) != json.loads(
        (two.folder / "secrets.json").read_text()
    )


def test_a_killed_supervisor_leaves_nothing_and_the_next_start_works(homes: Homes) -> None:
    stack = homes.up("two", "--no-demo")
    stack.wait_ready()
    everyone = stack.everyone()
    stack.close()
    eventually(lambda: not any(is_alive(pid) for pid in everyone), 10)
    again = homes.start("two", "--no-demo")
    assert health(again.wait_ready()) == 200
