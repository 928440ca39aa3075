"""Procfile, compose file and image, checked against the commands they name: no engine is needed to find a wrong word."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import uvicorn
import yaml
from django.core.management import get_commands, load_command_class

from tests.setup.processes import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PRODUCT = {name for name, service in SERVICES.items() if service.get("image") == "signalbox"}


def procfile() -> dict[str, list[str]]:
    lines = [
        line for line in (ROOT / "Procfile").read_text().splitlines() if line and not line.startswith("#")
    ]
    named = dict(line.split(": ", 1) for line in lines)
    return {name: shlex.split(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", command)) for name, command in named.items()}


def image_command() -> list[str]:
    found = re.search(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    command: list[str] = json.loads(found[1])
    return command


def commands() -> dict[str, list[str]]:
    compose = {f"compose {name}": SERVICES[name].get("command", image_command()) for name in PRODUCT}
    return {f"Procfile {name}": command for name, command in procfile().items()} | compose


@pytest.mark.parametrize("name", sorted(commands()))
def test_each_command_and_its_arguments_exist(name: str) -> None:
    program, *arguments = commands()[name]
    assert program == "python"
    if arguments[0] == "manage.py":
        app = get_commands()[arguments[1]]
        assert app == "console"
        command = load_command_class(app, arguments[1])
        command.create_parser("manage.py", arguments[1]).parse_args(
            arguments[2:]
        )  # exits on what it doesn't know
    else:
        assert arguments[:3] == ["-m", "uvicorn", "console.asgi:application"]
        context = uvicorn.main.make_context("uvicorn", arguments[2:])
        assert context.params["host"] == "0.0.0.0"
        assert context.params["port"] == 8000


def test_compose_and_procfile_run_the_same_processes() -> None:
    assert PRODUCT - {"setup"} == set(procfile()) == {"web", "worker", "replayer", "sweep"}
    for name, command in procfile().items():
        assert SERVICES[name].get("command", image_command()) == command


def test_only_the_setup_gets_the_owners_database() -> None:
    with_owner = {name for name in PRODUCT if "OWNER_DATABASE_URL" in SERVICES[name]["environment"]}
    assert with_owner == {"setup"}


def test_nothing_starts_before_what_it_needs() -> None:
    for name in PRODUCT - {"setup"}:
        assert SERVICES[name]["depends_on"]["setup"] == {"condition": "service_completed_successfully"}
    assert SERVICES["setup"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    for name in ("postgres", "redis", "web"):
        assert SERVICES[name]["healthcheck"]["test"]


def test_the_health_checks_program_compiles() -> None:
    *_, program = SERVICES["web"]["healthcheck"]["test"]
    compile(program, "healthcheck", "exec")
    assert "$" not in program  # compose would put something else in its place


def test_secrets_have_no_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = dict(re.findall(r"\$\{(\w+)(:[-?][^}]*)\}", text))
    secret = {name for name in used if re.search("PASSWORD|SECRET|KEYS", name)}
    assert secret >= {
        "SIGNALBOX_SECRET_KEY",
        "SIGNALBOX_KEYS",
        "POSTGRES_OWNER_PASSWORD",
        "POSTGRES_APP_PASSWORD",
    }
    assert all(used[name].startswith(":?") for name in secret)


def test_every_variable_is_one_the_product_reads() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "console").rglob("*.py"))
    for name in PRODUCT:
        for variable in SERVICES[name]["environment"]:
            assert f'"{variable}"' in sources, variable


def test_every_volume_is_declared() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]


def test_the_image_runs_as_an_ordinary_user_and_holds_no_demo() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] == ["signalbox"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", ".data", "tests", "demo"} <= set(ignored)
    assert any("collectstatic" in line for line in lines)
