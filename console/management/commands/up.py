"""`manage.py up`: the whole of Signalbox on one machine, with nothing but Python there before."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import database, embedded, env, stack
from console.folder import FolderUnusable, claimed, is_free, kept, kept_ports, open_folder
from console.supervise import ProgramFailed, Supervisor

FIRST_PORT, LAST_PORT = 8000, 8099
HEALTHY_WITHIN_S = 60.0
PORT_TRIES = 3
# Of the ten seconds in which everything must be gone, the programs' share, which the demo's outside world may take once
# more (it ends at once); the servers end after them.
GRACE_S = 4.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    help = (
        "Start Postgres and Redis (unless DATABASE_URL or REDIS_URL name real ones), set the database up, and run web, "
        "worker, sweep and the demo's processes until Ctrl-C."
    )
    requires_system_checks: list[str] = []  # each process makes its own, with the environment made here

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, help=f"the web port (default: the first free one from {FIRST_PORT})"
        )
        parser.add_argument(
            "--data", type=Path, default=stack.default_folder(), help="data folder (default %(default)s)"
        )
        parser.add_argument(
            "--no-demo", action="store_true", help="the product alone: no receiver, model, mail, data"
        )
        parser.add_argument("--no-seed", action="store_true", help="no demo data")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            stop_by_signal()
            self._run(options)
        except StopAsked:
            return
        except (FolderUnusable, embedded.ServersFailed, ProgramFailed) as failure:
            raise CommandError(str(failure)) from None

    def _run(self, options: dict[str, Any]) -> None:
        folder = open_folder(options["data"])
        with_demo = not options["no_demo"]
        with ExitStack() as stopping:
            try:
                stopping.enter_context(claimed(folder))
                stopping.enter_context(claimed(folder, "servers.lock"))
                self._bring_up(
                    folder, stopping, options["port"], with_demo, with_demo and not options["no_seed"]
                )
            finally:
                ignore_signals()  # from here on everything is on its way out, in a bounded time

    def _bring_up(
        self, folder: Path, stopping: ExitStack, port: int | None, with_demo: bool, with_seed: bool
    ) -> NoReturn:
        made = kept(folder / "secrets.json", stack.SECRETS | (stack.DEMO_SECRETS if with_demo else {}))
        ports = choose_ports(folder, port)  # a refusal comes before anything is started
        servers, addresses = start_servers(folder, stopping)

        def environment() -> dict[str, str]:
            return stack.environment(os.environ, ports, made, addresses, demo=with_demo)

        supervisor = Supervisor(cwd=stack.BASE, grace_s=GRACE_S, tend=lambda: tend(servers, supervisor.say))
        stopping.callback(supervisor.stop)
        if supervisor.run_once(stack.setup(environment())):
            raise ProgramFailed("the database could not be set up: the lines above say why")
        for tries_left in reversed(range(PORT_TRIES)):
            ports = choose_ports(folder, port)  # again: the set-up took its time
            supervisor.start([stack.web(environment(), ports.web)])
            supervisor.start(stack.demo(environment(), ports, folder) if with_demo else [])
            try:
                supervisor.wait_announced()
                break
            except ProgramFailed:
                supervisor.stop()
                if not tries_left or all(is_free(taken) for taken in astuple(ports)):
                    raise
                supervisor.say("another process took one of the ports meanwhile; trying others")
        supervisor.start(stack.background(environment()))
        supervisor.wait_until(
            lambda: is_healthy(ports.web),
            seconds=HEALTHY_WITHIN_S,
            what=f"http://localhost:{ports.web}/health/",
        )
        seeded = with_seed and self._seed(supervisor, environment(), ports)
        supervisor.say("ready")
        self.stdout.write(stack.greeting(environment(), ports, seeded=seeded, with_demo=with_demo))
        self.stdout.flush()
        if seeded:
            supervisor.say("the demo's day is run now; watch its runs come in, for about a minute")
            supervisor.start([stack.day(environment()), stack.probes(environment())])
        supervisor.watch()

    def _seed(self, supervisor: Supervisor, environment: dict[str, str], ports: stack.Ports) -> bool:
        """Whether the demo's people and conversations are there. A failure is told, and the rest goes on."""
        supervisor.say(f"http://localhost:{ports.web} answers; the demo's people are coming in")
        status = supervisor.run_once(stack.seed(environment))
        if status:
            supervisor.say(
                "the demo data could not be made: the lines above say why. `make reset` starts afresh."
            )
        return status == 0


class StopAsked(BaseException):
    """A person or the system asked for the end. No Exception: nothing on the way may take it for a failure."""


def stop_by_signal() -> None:
    """From now on Ctrl-C, SIGTERM and the terminal's end raise StopAsked in the main thread, once."""

    def stop(_signum: int, _frame: FrameType | None) -> NoReturn:
        ignore_signals()
        raise StopAsked

    for signum in STOPS:
        signal.signal(signum, stop)


def ignore_signals() -> None:
    for signum in STOPS:
        signal.signal(signum, signal.SIG_IGN)


def choose_ports(folder: Path, web: int | None) -> stack.Ports:
    return stack.Ports(web=web_port(web), **kept_ports(folder / "ports.json", stack.PORTS))


def web_port(asked: int | None) -> int:
    """The port asked for, or the first free one; refuses one that is taken."""
    if asked is not None:
        if not 0 < asked < 65536:
            raise CommandError(f"--port {asked} is no port. Give a number from 1 to 65535.")
        if not is_free(asked):
            raise CommandError(f"port {asked} is taken. Stop what listens there, or give another --port.")
        return asked
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if is_free(port):
            return port
    raise CommandError(f"every port from {FIRST_PORT} to {LAST_PORT} is taken. Give a free one with --port.")


def is_given(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


Server = embedded.Postgres | embedded.Redis


def start_servers(folder: Path, stopping: ExitStack) -> tuple[list[Server], dict[str, str]]:
    """Check the servers that the environment names, and start the others. Returns those started and their addresses."""
    servers: list[Server] = []
    if is_given("DATABASE_URL"):
        database.require("OWNER_DATABASE_URL")
    else:
        servers.append(embedded.Postgres(folder, durable=True))
    if is_given("REDIS_URL"):
        require_redis()
    else:
        servers.append(embedded.Redis(folder))
    addresses: dict[str, str] = {}
    for server in servers:
        stopping.callback(server.stop)
        server.start()
        addresses |= server.addresses()
    return servers, addresses


def require_redis() -> None:
    """End with one line when the Redis of REDIS_URL can't be used. Only here: the product itself starts without it."""
    try:
        with redis.Redis.from_url(
            env.text("REDIS_URL"), socket_connect_timeout=5, socket_timeout=5
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise env.BadEnvironment(
            "REDIS_URL",
            f"can't be used ({database.first_line(error)})",
            "Write it like redis://:password@host:6379/0.",
        ) from None


def tend(servers: list[Server], say: Callable[[str], None]) -> None:
    """Start a server again that has died: its data are in the folder, and its address stays the same."""
    for server in servers:
        if not server.is_alive():
            say(f"{type(server).__name__} has ended; starting it again")
            server.start()


def is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health/", headers={"Host": f"localhost:{port}"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
