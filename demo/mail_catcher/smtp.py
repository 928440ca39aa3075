"""The SMTP side, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Final

from aiosmtpd.smtp import SMTP

from demo.mail_catcher import mailbox
from demo.mail_catcher.faults import REPLIES, Faults
from demo.mail_catcher.mailbox import Envelope
from demo.receiver.loopback import HOST, CannotStart
from demo.receiver.store import Store

IDENTITY: Final = "Demo mail catcher"


class Catcher:
    """aiosmtpd's handler: keeps each message before it answers, or answers as a fault order says."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    async def handle_RCPT(
        self,
        server: SMTP,  # noqa: ARG002  (aiosmtpd passes it)
        session: Any,  # noqa: ARG002  (aiosmtpd passes it)
        envelope: Any,
        address: str,
        rcpt_options: list[str],
    ) -> str:
        if fault := self._faults.take("rcpt", [address]):
            return REPLIES[fault.kind]
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(rcpt_options)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: ARG002  (aiosmtpd passes it)
        fault = self._faults.take("data", envelope.rcpt_tos)
        if fault and fault.kind in REPLIES:
            return REPLIES[fault.kind]
        got = Envelope(envelope.mail_from or "", tuple(envelope.rcpt_tos), envelope.content)
        number = await asyncio.to_thread(mailbox.keep, self._store, got, fault.kind if fault else None)
        if fault and fault.kind == "drop_after_data":
            # aiosmtpd takes this for a lost connection: it closes the socket and sends nothing more.
            raise asyncio.CancelledError
        if fault:
            await asyncio.sleep(fault.seconds)
        return f"250 2.0.0 OK: kept as message {number}"


def start(catcher: Catcher, port: int) -> int:
    """Listen for SMTP in a daemon thread; the port it got. Raises CannotStart when the port is taken."""
    listening: Future[int] = Future()
    threading.Thread(target=asyncio.run, args=(serve(catcher, port, listening),), daemon=True).start()
    try:
        return listening.result()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotStart(
            f"port {port} of {HOST} can't be used for SMTP: {reason}. Choose another, or 0 for a free one."
        ) from None


def ignore_lost_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A client that breaks off is everyday here; anything else is reported as ever."""
    if not isinstance(context.get("exception"), ConnectionError):
        loop.default_exception_handler(context)


async def serve(catcher: Catcher, port: int, listening: Future[int]) -> None:
    """Serve until the process ends; reports the port, or why there is none, to *listening*."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(ignore_lost_connections)
    try:
        server = await loop.create_server(
            lambda: SMTP(catcher, ident=IDENTITY, enable_SMTPUTF8=True), HOST, port
        )
    except (OSError, OverflowError) as error:
        listening.set_exception(error)
        return
    listening.set_result(server.sockets[0].getsockname()[1])
    await server.serve_forever()
