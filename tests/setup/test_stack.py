"""What `manage.py up` gives each process, and what it refuses before it starts any."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console import env, stack
from console.folder import claimed
from console.kernel import webhooks
from tests.setup.processes import ROOT, working_on

PORTS = stack.Ports(web=8000, receiver=1, model=2, smtp=3, mail=4)
ADDRESSES = {"DATABASE_URL": "app", "OWNER_DATABASE_URL": "owner", "REDIS_URL": "redis"}
MADE = {"SIGNALBOX_SECRET_KEY": "made", "SIGNALBOX_KEYS": "made"}


def environment(outer: dict[str, str], *, demo: bool = True) -> dict[str, str]:
    return stack.environment(outer, PORTS, MADE, ADDRESSES, demo=demo)


def test_what_a_person_set_wins() -> None:
    assert environment({"SIGNALBOX_WORKFLOWS": "mine:graph"})["SIGNALBOX_WORKFLOWS"] == "mine:graph"
    assert environment({"SIGNALBOX_SECRET_KEY": "mine"})["SIGNALBOX_SECRET_KEY"] == "mine"
    assert environment({"SIGNALBOX_WORKFLOWS": ""})["SIGNALBOX_WORKFLOWS"] == stack.WORKFLOWS


def test_an_owner_address_without_the_applications_is_not_mixed_with_an_embedded_server() -> None:
    assert environment({"OWNER_DATABASE_URL": "elsewhere"})["OWNER_DATABASE_URL"] == "owner"


def test_without_the_demo_nothing_of_it_is_set() -> None:
    bare = environment({}, demo=False)
    assert not [name for name in bare if name.startswith("DEMO_")]
    assert "SIGNALBOX_WORKFLOWS" not in bare


def test_the_owners_database_reaches_the_setup_alone(tmp_path: Path) -> None:
    shared = environment({"OWNER_DATABASE_URL_FILE": "/run/owner"})
    assert stack.setup(shared).env["OWNER_DATABASE_URL"] == "owner"
    once = [stack.seed(shared), stack.day(shared), stack.probes(shared)]
    others = [stack.web(shared, 8000), *stack.background(shared), *once]
    for program in [*others, *stack.demo(shared, PORTS, tmp_path)]:
        assert not [name for name in program.env if name.startswith("OWNER_DATABASE_URL")], program.name


def test_the_outside_world_gets_no_database_and_no_key(tmp_path: Path) -> None:
    for program in stack.demo(environment({"DATABASE_URL_FILE": "/run/app"}), PORTS, tmp_path):
        known = set(program.env)
        assert not [name for name in known if name.startswith(("DATABASE_URL", "REDIS_URL"))]
        assert not {"SIGNALBOX_SECRET_KEY", "SIGNALBOX_KEYS"} & known


def test_a_made_key_is_one_the_product_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_KEYS", stack.new_key())
    assert list(env.keyring("SIGNALBOX_KEYS")) == ["k1"]


def test_a_made_secret_is_one_that_webhooks_can_be_checked_with() -> None:
    made = stack.DEMO_SECRETS["SIGNALBOX_RECEIVER_SECRET_CRM_HOOK"]
    assert made() != made()
    headers = webhooks.signed_headers([made()], "msg_1", datetime.now(UTC), b"{}")
    with pytest.raises(webhooks.BadSignature):
        webhooks.verify([made()], headers, b"{}", datetime.now(UTC))


def test_the_greeting_names_a_login_for_each_role_and_every_address() -> None:
    shared = environment({"DEMO_PASSWORD": "let-me-in"})
    text = stack.greeting(shared, PORTS, seeded=True, with_demo=True)
    assert "http://localhost:8000" in text
    assert "let-me-in" in text
    for role in ("viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator"):
        assert f"{role}@acme.example" in text
    assert shared["DEMO_RECEIVER_URL"] in text
    assert shared["DEMO_MAIL_URL"] in text
    assert "acme" not in stack.greeting(shared, PORTS, seeded=False, with_demo=False)


def manage(*arguments: str, **outer: str) -> subprocess.CompletedProcess[str]:
    names = ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL")
    base = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=base | {"SIGNALBOX_ENV": "development"} | outer,
        capture_output=True,
        text=True,
        timeout=60,
    )


def refusal(run: subprocess.CompletedProcess[str]) -> str:
    """The one line it refused with."""
    assert run.returncode != 0
    (line,) = run.stderr.splitlines()
    return line


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refusal(manage("up", "--data", str(tmp_path), "--port", str(port)))
    assert f"port {port} is taken" in line
    assert working_on(tmp_path) == []


def test_an_unusable_data_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can't be used" in refusal(manage("up", "--data", str(tmp_path / "file")))


def test_a_folder_in_use_is_one_line_for_up_and_reset(tmp_path: Path) -> None:
    with claimed(tmp_path):
        assert f"in use by process {os.getpid()}" in refusal(manage("up", "--data", str(tmp_path)))
        assert "in use" in refusal(manage("reset_data", "--data", str(tmp_path)))
    assert (tmp_path / "lock").exists()


@pytest.mark.parametrize("command", [("up", "--data"), ("worker",), ("setup_database",)])
def test_a_wrong_database_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    wrong = "postgresql://someone:canary@127.0.0.1:1/signalbox"
    folder = (str(tmp_path),) if command[-1] == "--data" else ()
    line = refusal(
        manage(*command, *folder, DATABASE_URL=wrong, OWNER_DATABASE_URL=wrong.replace("someone", "owner"))
    )
    assert "no Postgres answers" in line
    assert "canary" not in line
    assert working_on(tmp_path) == []


def test_a_wrong_redis_is_one_line(tmp_path: Path) -> None:
    assert "REDIS_URL can't be used" in refusal(
        manage("up", "--data", str(tmp_path), REDIS_URL="redis://127.0.0.1:1/0")
    )
    assert working_on(tmp_path) == []


def test_one_role_for_both_is_refused(tmp_path: Path) -> None:
    from console.embedded import servers

    with servers(tmp_path, durable=False) as urls:
        line = refusal(
            manage("setup_database", DATABASE_URL=urls.owner_database, OWNER_DATABASE_URL=urls.owner_database)
        )
    assert "names the owner" in line


def test_reset_clears_what_up_keeps_and_nothing_else(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    for folder in (ours, foreign):
        (folder / "inside").mkdir(parents=True)
        (folder / "inside" / "file").write_text("")
    (ours / "lock").write_text("")
    assert manage("reset_data", "--data", str(ours)).returncode == 0
    assert not ours.exists()
    assert "is no data folder" in refusal(manage("reset_data", "--data", str(foreign)))
    assert (foreign / "inside" / "file").exists()
    assert manage("reset_data", "--data", str(ours)).returncode == 0  # nothing there is no failure
