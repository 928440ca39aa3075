"""The running stack that process and browser tests share: real processes, each with its log.

Every test makes a workspace and an account at the receiver of its own, so that they do not meet.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.plugin import ROOT, TEST_WORKFLOWS, WORKFLOWS

PATIENCE = 45.0


def wait_for(what: str, look: Callable[[], Any], *, within: float = PATIENCE) -> Any:
    """Wait for the row, never for a time: the first truthy value of *look*; AssertionError names *what* otherwise."""
    ends = time.monotonic() + within
    while True:
        if found := look():
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"waited {within:g} s for {what}; last seen: {found!r}")
        time.sleep(0.05)


def free_port() -> int:
    """Below those that the system gives to outgoing connections: until it is used nobody comes upon it by chance."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Process:
    """One process of the stack, its output in a file."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    _child: subprocess.Popen[bytes] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> Process:
        """A process of its own: what an earlier one of the name wrote is not its word. One that is kept writes on."""
        with self.log.open("ab" if self._child else "wb") as out:
            self._child = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        return self

    def keep(self) -> Process:
        """From now on start it again whenever it dies, at once: what a supervisor does, without its patience."""
        threading.Thread(target=self._keep, daemon=True).start()
        return self

    def _keep(self) -> None:
        while not self._stopping.wait(0.1):
            with self._starting:
                if self.ended() and not self._stopping.is_set():
                    self.start()

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def says(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def ended(self) -> bool:
        return self._child is None or self._child.poll() is not None

    def ask_to_stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Send it the signal once; it has its time to end."""
        with self._starting:
            asked = self._stopping.is_set()
            self._stopping.set()
        if self._child is not None and not asked and not self.ended():
            self._child.send_signal(signal_number)

    def stop(self, *, signal_number: int = signal.SIGTERM) -> None:
        self.ask_to_stop(signal_number)
        if self._child is not None:
            try:
                self._child.wait(8)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


@dataclass
class Stack:
    """Where everything is, and how to start one more worker."""

    folder: Path
    environment: dict[str, str]
    receiver: str = ""
    model: str = ""
    mail: str = ""
    smtp_port: int = 0
    web: str = ""
    processes: dict[str, Process] = field(default_factory=dict)

    def begin(self) -> None:
        """Start everything, side by side where one does not need the other's address, and return when all are ready."""
        data = str(self.folder)
        self.smtp_port = free_port()
        self.run("receiver", "-m", "demo.receiver", "--port", "0", "--data", f"{data}/receiver")
        self.run("model", "-m", "demo.model_endpoint", "--port", "0")
        self.run(
            *("mail", "-m", "demo.mail_catcher", "--smtp-port", str(self.smtp_port), "--http-port", "0"),
            *("--data", f"{data}/mail"),
        )
        self.receiver, self.model, self.mail = map(self._address, ("receiver", "model", "mail"))
        self.environment |= {
            "DEMO_RECEIVER_URL": self.receiver,
            "DEMO_MODEL_URL": self.model,
            "DEMO_MAIL_URL": self.mail,
        }
        port = free_port()
        self.web = f"http://localhost:{port}"
        self.environment["SIGNALBOX_ORIGIN"] = self.web
        self.run("sweep", "manage.py", "sweep")
        self.run(
            "web", "-m", "uvicorn", "console.asgi:application", "--port", str(port), "--log-level", "warning"
        )
        crashes = self.folder / "crashes"
        crashes.mkdir()
        self._worker("worker", WORKFLOWS)
        self._worker("crashing", TEST_WORKFLOWS, keep=True, SIGNALBOX_TEST_CRASHES=str(crashes))
        self.run(
            *("replayer", "-m", "tests.worker", "--replayer"),
            SIGNALBOX_WORKFLOWS=",".join((*WORKFLOWS, *TEST_WORKFLOWS)),
            SIGNALBOX_MODEL_ADDRESSES=self.model,
        )
        for name in ("worker", "crashing", "replayer"):
            self._until_ready(name)
        wait_for("the web process", self._answers)

    def _address(self, name: str) -> str:
        process = self.processes[name]
        wait_for(f"{name} to be ready", lambda: process.says("ready http"))
        return process.log.read_text().split("ready ")[1].split()[0]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.web}/accounts/login/").status_code == 200
        except httpx.HTTPError:
            return False

    def run(self, name: str, *args: str, keep: bool = False, **environment: str) -> Process:
        process = Process(
            name,
            [sys.executable, *args],
            {**self.environment, **environment},
            self.folder / f"{name}.log",
        )
        self.processes[name] = process.start()
        return process.keep() if keep else process

    def worker(
        self, name: str, workflows: tuple[str, ...], *, keep: bool = False, **environment: str
    ) -> Process:
        """One more worker that holds *workflows*; ready when it says so."""
        self._worker(name, workflows, keep=keep, **environment)
        return self._until_ready(name)

    def _worker(
        self, name: str, workflows: tuple[str, ...], *, keep: bool = False, **environment: str
    ) -> None:
        held = {"SIGNALBOX_WORKFLOWS": ",".join(workflows)}
        self.run(name, "-m", "tests.worker", keep=keep, **(held | environment))

    def _until_ready(self, name: str) -> Process:
        process = self.processes[name]
        wait_for(f"{name} to be ready", lambda: process.says("ready."))
        return process

    def end(self) -> None:
        """All are asked at once; each has its time."""
        for process in self.processes.values():
            process.ask_to_stop()
        for process in reversed(self.processes.values()):
            process.stop()


def environment() -> dict[str, str]:
    """What every process gets: this process's, with the receivers' secrets by account name."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
