"""Servers, receivers and a web process of their own, with the demo's company. Nobody works: scenes stay as they are left."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.plugin import ROOT, WORKFLOWS
from tests.stack import Stack, environment, free_port, wait_for

if TYPE_CHECKING:
    from demo.people import Company

PASSWORD = "correct horse battery"


def set_up(folder: Path, ending: ExitStack) -> Stack:
    """The settings, an empty database with its tables, and the processes. All of it ends with *ending*."""
    from console import embedded

    secrets = folder / "secrets"
    secrets.mkdir()
    for name in ("crm", "desk"):
        (secrets / name).write_text("acme-live:s3cret")
    os.environ.setdefault("SIGNALBOX_ENV", "test")
    urls = ending.enter_context(embedded.servers(folder / "data", durable=False))
    os.environ.update(
        DATABASE_URL=urls.database,
        OWNER_DATABASE_URL=urls.owner_database,
        REDIS_URL=urls.redis,
        SIGNALBOX_WORKFLOWS=",".join(WORKFLOWS),
        SIGNALBOX_CONTRACTS="demo.contracts:CONTRACTS",
        SIGNALBOX_RECEIVER_SECRETS=str(secrets),
        SIGNALBOX_DURABLE_ONLY="no",
        DEMO_MODEL_URL="http://127.0.0.1:9",
        DJANGO_SETTINGS_MODULE="console.settings",
        # Playwright keeps an event loop in this thread; what is read here is synchronous all the same.
        DJANGO_ALLOW_ASYNC_UNSAFE="true",
    )
    subprocess.run([sys.executable, "manage.py", "setup_database", "-v", "0"], cwd=ROOT, check=True)
    import django

    django.setup()
    stack = Stack(folder, environment())
    ending.callback(stack.end)
    _begin(stack)
    return stack


def _begin(stack: Stack) -> None:
    data = str(stack.folder)
    stack.smtp_port = free_port()
    stack.receiver = _address(stack, "demo.receiver", "--port", "0", "--data", f"{data}/receiver")
    mail = ("--smtp-port", str(stack.smtp_port), "--http-port", "0", "--data", f"{data}/mail")
    stack.mail = _address(stack, "demo.mail_catcher", *mail)
    port = free_port()
    stack.web = f"http://localhost:{port}"
    stack.environment["SIGNALBOX_ORIGIN"] = stack.web
    web = ("-m", "uvicorn", "console.asgi:application", "--port", str(port), "--log-level", "warning")
    stack.run("web", *web)
    wait_for("the web process", lambda: _answers(stack.web))


def _address(stack: Stack, module: str, *args: str) -> str:
    process = stack.run(module, "-m", module, *args)
    wait_for(f"{module} to be ready", lambda: process.says("ready http"))
    return process.log.read_text().split("ready ")[1].split()[0]


def _answers(web: str) -> bool:
    try:
        return httpx.get(f"{web}/accounts/login/", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def company_at(stack: Stack) -> Company:
    """The demo's company with its people, conversations and probed receivers."""
    from demo import people, playing
    from effects.contracts import contracts
    from runs.execution import register_workflows
    from tests.people import probe_of

    register_workflows()
    receivers = {"crm": stack.receiver, "desk": stack.receiver, "mail": f"smtp://127.0.0.1:{stack.smtp_port}"}
    company = people.found("acme", password=PASSWORD, receivers=receivers)
    playing.open_conversations(company)
    for receiver in company.workspace.receivers.all():
        for promise in contracts().values():
            if promise.receiver == receiver.name:
                probe_of(receiver, promise).save(force_insert=True)
    return company
