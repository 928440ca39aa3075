"""Receivers that take mail. No retry; the watchdog shuts the socket at the total deadline."""

from __future__ import annotations

import base64
import json
import smtplib
import socket
import ssl
import threading
from email import message_from_bytes
from urllib.parse import urlsplit

from django.conf import settings

from effects.contracts import EffectContract
from effects.receivers.answers import Answer
from effects.receivers.wire import Deadline, Late, Refused, check_address
from effects.states import Outcome


def _shut(session: smtplib.SMTP) -> None:
    if session.sock is not None:
        try:
            session.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def deliver(
    contract: EffectContract,
    *,
    base_url: str,
    hosts: list[str],
    secret: str,
    request: bytes,
    send_by: float,
) -> Answer:
    """Hand the stored message over once. Before its first byte a failure is NOT_SENT, after it UNKNOWN."""
    stored = json.loads(request)
    raw = base64.b64decode(stored["message"])
    try:
        where = urlsplit(base_url)
        host, port = where.hostname or "", where.port or 25
    except ValueError as error:
        return Answer(Outcome.NOT_SENT, problem=f"The receiver's address can't be read: {error}")
    deadline = Deadline(contract.deadline, send_by)
    session = smtplib.SMTP(timeout=contract.deadline)
    watchdog = threading.Timer(contract.deadline, _shut, [session])
    watchdog.daemon = True
    watchdog.start()
    try:
        if host not in hosts:
            raise Refused(f"{host} is not among the receiver's hosts")
        code, said = session.connect(check_address(host, port), port)
        if code != 220:
            # A server that takes nothing now (RFC 5321, 3.1): smtplib would go on all the same.
            return Answer(
                Outcome.NOT_SENT, str(code), problem=f"The mail server takes nothing ({code}): {_words(said)}"
            )
        # The address was resolved once; the certificate has to be that of the name.
        session._host = host  # type: ignore[attr-defined]  # smtplib takes the name for TLS from here
        session.ehlo_or_helo_if_needed()
        if secret or settings.PRODUCTION:
            session.starttls(context=ssl.create_default_context())
        if secret:
            user, _, password = secret.partition(":")
            session.login(user, password)
        return _hand_over(session, stored, raw, deadline)
    except (Late, Refused) as error:
        return Answer(Outcome.NOT_SENT, problem=str(error))
    except smtplib.SMTPResponseException as error:
        return _refusal(error.smtp_code, error.smtp_error, sent=deadline.sent)
    except Exception as error:
        # Whatever it was: before the first byte nothing was sent, after it nobody knows.
        if not deadline.sent:
            return Answer(Outcome.NOT_SENT, problem=f"The mail server could not be reached: {error}")
        return Answer(
            Outcome.UNKNOWN,
            problem=f"The mail server took the message and did not say what came of it: {error}",
        )
    finally:
        watchdog.cancel()
        session.close()


def _hand_over(session: smtplib.SMTP, stored: dict[str, object], raw: bytes, deadline: Deadline) -> Answer:
    recipients = stored["to"]
    assert isinstance(recipients, list)
    code, said = session.mail(str(stored["sender"]))
    if code != 250:
        return _refusal(code, said, sent=False)
    for recipient in recipients:
        code, said = session.rcpt(recipient)
        if code not in (250, 251):
            return _refusal(code, said, sent=False)
    deadline.first_byte()
    code, said = session.data(raw)
    if code != 250:
        return _refusal(code, said, sent=True)
    return Answer(
        Outcome.COMPLETED,
        str(code),
        str(message_from_bytes(raw)["Message-ID"]),
        {"reply": said.decode("utf-8", "replace")},
    )


def _refusal(code: int, said: bytes | str, *, sent: bool) -> Answer:
    """RFC 5321: 5yz is a final refusal, 4yz "try again"; a reply to DATA in either class means it was not taken."""
    words = _words(said)
    if code < 0 or (sent and code < 400):
        return Answer(Outcome.UNKNOWN, str(code), problem=f"The mail server's answer was cut off: {words}")
    if 400 <= code < 500:
        return Answer(Outcome.NOT_SENT, str(code), problem=f"The mail server asked to wait ({code}): {words}")
    return Answer(Outcome.REFUSED, str(code), problem=f"{code}: {words}")


def _words(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said
