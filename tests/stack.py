"""The running stack that process and browser tests share: real processes, each with its log.

Every test makes a workspace and an account at the receiver of its own, so that they do not meet.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Process:
    """One process of the stack, its output in a file."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    keep: bool = False
    _child: subprocess.Popen[bytes] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Process:
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        if self.keep:
            threading.Thread(target=self._keep, daemon=True).start()
        return self

    def _keep(self) -> None:
        """Start it again whenever it dies, at once: what a supervisor does, without its patience."""
        while not self._stopping.is_set():
            if self._child is not None and self._child.poll() is not None:
                self.keep = False
                self.start()
                self.keep = True
            self._stopping.wait(0.1)

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def says(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def ended(self) -> bool:
        return self._child is None or self._child.poll() is not None

    def stop(self, *, signal_number: int = 15) -> None:
        self._stopping.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal_number)
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
        data = str(self.folder)
        self.receiver = self._demo("receiver", "demo.receiver", "--port", "0", "--data", f"{data}/receiver")
        self.model = self._demo("model", "demo.model_endpoint", "--port", "0")
        self.smtp_port = free_port()
        self.mail = self._demo(
            "mail",
            "demo.mail_catcher",
            "--smtp-port",
            str(self.smtp_port),
            "--http-port",
            "0",
            "--data",
            f"{data}/mail",
        )
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
        self.worker("worker", WORKFLOWS)
        crashes = self.folder / "crashes"
        crashes.mkdir()
        self.worker("crashing", TEST_WORKFLOWS, keep=True, SIGNALBOX_TEST_CRASHES=str(crashes))
        wait_for("the web process", self._answers)

    def _demo(self, name: str, module: str, *args: str) -> str:
        process = self.run(name, "-m", module, *args)
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
            keep=keep,
        )
        self.processes[name] = process
        return process.start()

    def worker(
        self, name: str, workflows: tuple[str, ...], *, keep: bool = False, **environment: str
    ) -> Process:
        """One more worker that holds *workflows*; ready when it says so."""
        process = self.run(
            name,
            "-m",
            "tests.worker",
            keep=keep,
            **{"SIGNALBOX_WORKFLOWS": ",".join(workflows), **environment},
        )
        wait_for(f"{name} to be ready", lambda: process.says("ready."))
        return process

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()


def environment() -> dict[str, str]:
    """What every process gets: this process's, with the receivers' secrets by account name."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
