"""`manage.py worker`: the child comes back when it dies, a stop is warm, and nothing outlives a killed parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from console.embedded import Redis
from console.management.commands.worker import celery_command
from tests.setup.processes import ROOT, eventually, is_alive

APP = """
import os, time
from pathlib import Path
from celery import Celery

app = Celery("tried", broker=os.environ["REDIS_URL"])
app.conf.worker_prefetch_multiplier = 1

@app.task(name="slow")
def slow(folder):
    Path(folder, "began").touch()
    time.sleep(1.5)
    Path(folder, "finished").touch()

@app.task(name="endless")
def endless(folder):
    Path(folder, "began").touch()
    time.sleep(600)
"""
KEEP = """
import sys
from console.management.commands.worker import Keeper
sys.exit(Keeper(sys.argv[2:], restart=sys.argv[1] == "restart", say=lambda text: print(text, flush=True)).run())
"""


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


class Worker:
    """A worker's parent process, as `manage.py worker` is one, around a real Celery with an application of the test's."""

    def __init__(self, folder: Path, redis_url: str, *, restart: bool = True) -> None:
        (folder / "tried.py").write_text(APP)
        self.folder = folder
        # Not the product's settings: Celery would load Django for an application that has nothing to do with it.
        outer = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self.env = outer | {"REDIS_URL": redis_url, "PYTHONPATH": f"{ROOT}:{folder}"}
        self.log = (folder / "log").open("wb")
        command = celery_command(concurrency=2, queues="", loglevel="info", app="tried:app")
        self.parent = subprocess.Popen(
            [sys.executable, "-c", KEEP, "restart" if restart else "once", *command],
            env=self.env,
            cwd=ROOT,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def child(self) -> int:
        """The id of the Celery process, once there is one."""
        found = [p.pid for p in psutil.Process(self.parent.pid).children() if is_alive(p.pid)]
        return found[0] if found else 0

    def wait_ready(self, times: int = 1) -> int:
        eventually(lambda: (self.folder / "log").read_text().count("ready.") >= times, 15)
        return self.child()

    def ask(self, task: str) -> None:
        """Send *task* and return when it is under way."""
        ask = "import sys, tried; tried.app.send_task(sys.argv[1], [sys.argv[2]])"
        subprocess.run([sys.executable, "-c", ask, task, self.folder], env=self.env, check=True, timeout=15)
        eventually(lambda: (self.folder / "began").exists())

    def finished(self) -> bool:
        return (self.folder / "finished").exists()


@pytest.fixture
def worker(tmp_path: Path, redis_url: str) -> Iterator[Worker]:
    worker = Worker(tmp_path, redis_url)
    yield worker
    worker.parent.kill()
    worker.parent.wait()


def test_a_killed_child_is_replaced(worker: Worker) -> None:
    first = worker.wait_ready()
    os.kill(first, signal.SIGKILL)
    second = worker.wait_ready(times=2)
    assert second != first
    assert is_alive(second)
    assert worker.parent.poll() is None
    assert "ended with SIGKILL" in (worker.folder / "log").read_text()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_the_task_under_way_finish(worker: Worker, signum: signal.Signals) -> None:
    child = worker.wait_ready()
    worker.ask("slow")
    worker.parent.send_signal(signum)
    assert worker.parent.wait(10) == 0
    assert worker.finished()
    assert not is_alive(child)


def test_a_second_stop_does_not_wait(worker: Worker) -> None:
    child = worker.wait_ready()
    worker.ask("endless")
    worker.parent.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert worker.parent.poll() is None
    worker.parent.send_signal(signal.SIGTERM)
    assert worker.parent.wait(5) == 0
    assert not is_alive(child)
    assert not worker.finished()


def test_a_killed_parent_takes_the_child_along(worker: Worker) -> None:
    child = worker.wait_ready()
    worker.parent.kill()
    worker.parent.wait()
    eventually(lambda: not is_alive(child), 3)


def test_without_restart_it_ends_with_the_childs_status(tmp_path: Path, redis_url: str) -> None:
    worker = Worker(tmp_path, redis_url, restart=False)
    os.kill(worker.wait_ready(), signal.SIGKILL)
    assert worker.parent.wait(5) == 128 + signal.SIGKILL
