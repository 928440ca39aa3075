"""What `manage.py up` runs: the processes, and the environment they share."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from console.supervise import Program

BASE = Path(__file__).resolve().parents[1]
WORKFLOWS = "demo.workflows.sales_offer:workflow,demo.workflows.sales_offer_8:workflow,demo.workflows.support:workflow"
CONTRACTS = "demo.contracts:CONTRACTS"
# Each gets a secret, in SIGNALBOX_RECEIVER_SECRET_<NAME>. The mail catcher asks for none.
RECEIVERS = ("CRM", "DESK")
# The test receiver reads from a secret which account is meant: the part before the colon.
ACCOUNT = "acme-live"
PORTS = ("receiver", "model", "smtp", "mail")
ROLES = ("viewer", "operator", "approver", "auditor", "releaser", "developer", "administrator")


def default_folder() -> Path:
    return Path(os.environ.get("SIGNALBOX_DATA") or BASE / ".data")


def new_key() -> str:
    """A keyring of one fresh key, as SIGNALBOX_KEYS wants it."""
    return "k1:" + base64.b64encode(secrets.token_bytes(32)).decode()


def receiver_secret() -> str:
    return f"{ACCOUNT}:{secrets.token_urlsafe(32)}"


def webhook_secret() -> str:
    """A secret as Standard Webhooks writes it: both sides of an address for webhooks hold it."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


# Made once and kept in the data folder: sealed rows and sessions must outlive a restart.
SECRETS = {
    "SIGNALBOX_SECRET_KEY": lambda: secrets.token_urlsafe(50),
    "SIGNALBOX_KEYS": new_key,
}
DEMO_SECRETS = {
    "DEMO_PASSWORD": lambda: secrets.token_urlsafe(9),
    **{f"SIGNALBOX_RECEIVER_SECRET_{name}": receiver_secret for name in RECEIVERS},
    "SIGNALBOX_RECEIVER_SECRET_CRM_HOOK": webhook_secret,
}


@dataclass(frozen=True)
class Ports:
    """Where the processes listen, on the loopback."""

    web: int
    receiver: int
    model: int
    smtp: int
    mail: int


def environment(
    outer: Mapping[str, str],
    ports: Ports,
    made: Mapping[str, str],
    addresses: Mapping[str, str],
    *,
    demo: bool,
) -> dict[str, str]:
    """The environment of every process.

    What the person who starts it has set wins over all that is chosen here, kept secrets (*made*) included; only the
    *addresses* of servers that were started because theirs were not set win over everything.
    """
    chosen = {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "SIGNALBOX_ENV": "development",
        "SIGNALBOX_HOSTS": "localhost,127.0.0.1",
        "SIGNALBOX_ORIGIN": f"http://localhost:{ports.web}",
        "PYTHONUNBUFFERED": "1",
        **made,
    }
    if demo:
        chosen |= {
            "SIGNALBOX_APPS": "demo",
            "SIGNALBOX_WORKFLOWS": WORKFLOWS,
            "SIGNALBOX_CONTRACTS": CONTRACTS,
            "DEMO_RECEIVER_URL": f"http://127.0.0.1:{ports.receiver}",
            "DEMO_MODEL_URL": f"http://127.0.0.1:{ports.model}",
            "SIGNALBOX_MODEL_ADDRESSES": f"http://127.0.0.1:{ports.model}",
            "DEMO_SMTP_HOST": "127.0.0.1",
            "DEMO_SMTP_PORT": str(ports.smtp),
            "DEMO_MAIL_URL": f"http://127.0.0.1:{ports.mail}",
        }
    given = {name: value for name, value in outer.items() if value or name not in chosen}
    return {**chosen, **given, **addresses}


def web(env: Mapping[str, str], port: int) -> Program:
    """It says itself that it listens: the health page might be that of another stack at the same port."""
    command = (
        *("-m", "uvicorn", "console.asgi:application", "--host", "127.0.0.1", "--port", str(port)),
        # Streams to open pages never end by themselves.
        *("--timeout-graceful-shutdown", "3", "--no-access-log", "--no-server-header"),
    )
    return Program("web", (sys.executable, *command), without_owner(env), announces="Uvicorn running on")


def background(env: Mapping[str, str]) -> list[Program]:
    """The product's processes that no browser speaks to."""
    commands = {
        "worker": ("worker",),
        "replayer": ("worker", "--replayer"),
        "sweep": ("sweep",),
    }
    return [Program(name, manage(*command), without_owner(env)) for name, command in commands.items()]


def demo(env: Mapping[str, str], ports: Ports, folder: Path) -> list[Program]:
    """The outside world of the demo. It gets neither the databases nor the product's keys."""
    data = ("--data", str(folder))
    env = {
        name: value
        for name, value in env.items()
        if not name.startswith(
            ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL", "SIGNALBOX_SECRET_KEY", "SIGNALBOX_KEYS")
        )
    }
    commands = {
        "receiver": ("demo.receiver", "--port", str(ports.receiver), *data),
        "model": ("demo.model_endpoint", "--port", str(ports.model)),
        "mail": ("demo.mail_catcher", "--smtp-port", str(ports.smtp), "--http-port", str(ports.mail), *data),
    }
    return [
        Program(name, (sys.executable, "-m", *command), env, announces=r"^ready\b", spoken_to=True)
        for name, command in commands.items()
    ]


def setup(env: Mapping[str, str]) -> Program:
    return Program("setup", manage("setup_database"), env)


def seed(env: Mapping[str, str]) -> Program:
    """Makes what a person needs to log in and look around, in a moment."""
    return Program("seed", manage("seed_demo"), without_owner(env))


def day(env: Mapping[str, str]) -> Program:
    """Runs the workflows of the demo's day, which takes a minute; does nothing when that has been done."""
    return Program("day", manage("seed_demo", "--day"), without_owner(env), once=True)


def probes(env: Mapping[str, str]) -> Program:
    """Probes the demo's contracts that have not passed yet: until then nothing is sent a second time automatically."""
    return Program(
        "probe", manage("probe", "--all", "--missing", "--workspace", "acme"), without_owner(env), once=True
    )


def manage(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(BASE / "manage.py"), *arguments)


def without_owner(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("OWNER_DATABASE_URL")}


def greeting(env: Mapping[str, str], ports: Ports, *, seeded: bool, with_demo: bool) -> str:
    """What a person needs to begin."""
    lines = ["", f"  Signalbox is at  http://localhost:{ports.web}", ""]
    if seeded:
        lines += [f"  Demo logins, all with the password  {env['DEMO_PASSWORD']}"]
        lines += [f"    {role}@acme.example" for role in ROLES]
        lines += [""]
    if with_demo:
        lines += [
            f"  The test receiver is at  {env['DEMO_RECEIVER_URL']}   what agents did to the outside world",
            f"  The mail catcher is at   {env['DEMO_MAIL_URL']}   what they mailed",
            "",
        ]
    return "\n".join([*lines, "  Ctrl-C stops everything; the data are kept.", ""])
