"""The demo's processes, really started on free ports and ended by SIGTERM; tests differ by account, not by process."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count(1)


@dataclass
class Process:
    """One started process and its address."""

    popen: subprocess.Popen[str]
    url: str

    def stop(self) -> int:
        """SIGTERM; its exit status. Raises TimeoutExpired if it takes more than five seconds."""
        self.popen.terminate()
        return self.popen.wait(timeout=5)


def start(module: str, *arguments: str) -> Process:
    """Start ``python -m module`` and wait for its ready line."""
    popen = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert popen.stdout is not None
    line = popen.stdout.readline()
    ready = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", line)
    assert ready, f"{module} said {line!r}"
    return Process(popen, ready[1])


def running(module: str, *arguments: str) -> Iterator[Process]:
    process = start(module, *arguments)
    try:
        yield process
    finally:
        status = process.stop()
    assert status == 0


@pytest.fixture(scope="session")
def receiver_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    yield from running("demo.receiver", "--port", "0", "--data", str(tmp_path_factory.mktemp("receiver")))


@pytest.fixture(scope="session")
def model_process() -> Iterator[Process]:
    yield from running("demo.model_endpoint", "--port", "0")


@pytest.fixture(scope="session")
def mail_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = str(tmp_path_factory.mktemp("mail"))
    yield from running("demo.mail_catcher", "--smtp-port", "0", "--http-port", "0", "--data", folder)


@dataclass
class Account:
    """A caller of the receiver, with an account of its own, and its view of the receiver's records."""

    url: str
    name: str
    client: httpx.Client = field(repr=False)

    @classmethod
    def new(cls, url: str) -> Account:
        name = f"test-{next(_numbers)}"
        token = {"Authorization": f"Bearer {name}:s3cret"}
        return cls(url, name, httpx.Client(base_url=url, headers=token, timeout=10, trust_env=False))

    def create(
        self, resource: str, body: dict[str, Any], *, key: str | None = None, **more: Any
    ) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.client.post(f"/v1/{resource}", json=body, headers=headers, **more)

    def get(self, path: str, /, **query: str) -> httpx.Response:
        return self.client.get(path, params=query)

    def order(self, kind: str, **more: Any) -> None:
        """Place a fault order for this account."""
        answer = self.client.post("/_faults", json={"account": self.name, "kind": kind, **more})
        assert answer.status_code == 201, answer.text

    def requests(self, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/_records/requests", account=self.name, **query).json()[
            "requests"
        ]
        return found

    def effects(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/_records/effects", account=self.name).json()["effects"]
        return found

    def rx(self) -> tuple[int, int]:
        """Effects made / effect-bearing requests received."""
        return len(self.effects()), len(self.requests(method="POST"))


@pytest.fixture
def account(receiver_process: Process) -> Iterator[Account]:
    caller = Account.new(receiver_process.url)
    yield caller
    caller.client.close()


@pytest.fixture
def other_account(receiver_process: Process) -> Iterator[Account]:
    caller = Account.new(receiver_process.url)
    yield caller
    caller.client.close()
