"""How the processes start, stop and refuse to start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.demo.conftest import ROOT, Account, Process, start


def commands(folder: Path) -> dict[str, list[str]]:
    data = str(folder)
    return {
        "demo.receiver": ["--port", "0", "--data", data],
        "demo.model_endpoint": ["--port", "0"],
        "demo.mail_catcher": ["--smtp-port", "0", "--http-port", "0", "--data", data],
    }


@pytest.mark.parametrize("module", ["demo.receiver", "demo.model_endpoint", "demo.mail_catcher"])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_cleanly(tmp_path: Path, module: str, end: signal.Signals) -> None:
    process = start(module, *commands(tmp_path)[module])
    assert httpx.get(f"{process.url}/health").json()["status"] == "ok"
    started = time.monotonic()
    process.popen.send_signal(end)
    assert process.popen.wait(timeout=5) == 0
    assert time.monotonic() - started < 2
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{process.url}/health")


def test_a_hanging_request_does_not_delay_the_end(tmp_path: Path) -> None:
    process = start("demo.receiver", "--port", "0", "--data", str(tmp_path))
    caller = Account.new(process.url)
    caller.order("hang_after_commit", seconds=60)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(caller.create, "offers", {}, key="k1")
        while not caller.effects():
            time.sleep(0.01)
        started = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - started < 2
        with pytest.raises(httpx.TransportError):
            hanging.result(timeout=5)


def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    first = start("demo.receiver", "--port", "0", "--data", str(tmp_path))
    caller = Account.new(first.url)
    made = caller.create("offers", {"external_id": "eff_1"}, key="k1").json()
    first.popen.kill()
    first.popen.wait()
    second = start("demo.receiver", "--port", "0", "--data", str(tmp_path))
    caller.client.base_url = second.url
    assert caller.create("offers", {"external_id": "eff_1"}, key="k1").json() == made
    assert caller.rx() == (1, 2)
    assert second.stop() == 0


def refusal(module: str, *arguments: str) -> str:
    """What the process says on stderr when it does not start."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("module", ["demo.receiver", "demo.model_endpoint", "demo.mail_catcher"])
def test_a_taken_port_is_one_line(tmp_path: Path, module: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = [port if word == "0" else word for word in commands(tmp_path)[module]]
        said = refusal(module, *arguments)
    assert len(said.splitlines()) == 1
    assert port in said


def test_an_unusable_data_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    said = refusal("demo.receiver", "--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert len(said.splitlines()) == 1
    assert "--data" in said


def test_it_listens_on_loopback_only(receiver_process: Process) -> None:
    inodes = {
        path.readlink().name
        for path in Path(f"/proc/{receiver_process.popen.pid}/fd").iterdir()
        if path.is_symlink()
    }
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [row[1] for row in listening if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    port = int(receiver_process.url.rsplit(":", 1)[1])
    assert mine == [f"0100007F:{port:04X}"]
