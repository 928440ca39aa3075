"""The mail catcher, spoken to by smtplib."""

from __future__ import annotations

import itertools
import smtplib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from typing import Any

import httpx
import pytest

from tests.demo.conftest import Process

_numbers = itertools.count(1)


@pytest.fixture
def recipient() -> str:
    """An address that no other test uses."""
    return f"person{next(_numbers)}@customers.example"


@pytest.fixture
def smtp(mail_process: Process) -> Iterator[smtplib.SMTP]:
    port = httpx.get(f"{mail_process.url}/health").json()["smtp_port"]
    client = smtplib.SMTP("127.0.0.1", port, timeout=5)
    yield client
    client.close()


def offer(
    to: str, message_id: str = "<eff_1@signalbox.example>", text: str = "Sehr geehrte Frau Brückner"
) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Sales <sales@signalbox.example>"
    message["To"] = to
    message["Subject"] = "Ihr Angebot: 40 Plätze"
    message["Message-ID"] = message_id
    message.set_content(text)
    return message


def kept(process: Process, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{process.url}/_records/messages", params=query).json()[
        "messages"
    ]
    return found


def order(process: Process, kind: str, to: str, **more: Any) -> None:
    answer = httpx.post(f"{process.url}/_faults", json={"kind": kind, "match": {"to": to}, **more})
    assert answer.status_code == 201, answer.text


def test_a_message_is_kept_with_its_envelope(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    smtp.send_message(
        offer(recipient), from_addr="bounce@signalbox.example", to_addrs=[recipient, "copy@signalbox.example"]
    )
    [message] = kept(mail_process, to=recipient)
    assert message["envelope"] == {
        "mail_from": "bounce@signalbox.example",
        "rcpt_tos": [recipient, "copy@signalbox.example"],
    }
    assert message["message_id"] == "<eff_1@signalbox.example>"
    assert message["subject"] == "Ihr Angebot: 40 Plätze"
    assert "Brückner" in message["text"]
    assert message["raw"].startswith("From: Sales")
    assert message["received_at"].endswith("Z")
    assert kept(mail_process, to=recipient, contains="Brückner") == [message]
    assert kept(mail_process, to=recipient, contains="Lagerhaus") == []


def test_every_delivery_of_one_message_id_is_kept(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    for _ in range(3):
        smtp.send_message(offer(recipient, f"<same-{recipient}>"))
    assert len(kept(mail_process, message_id=f"<same-{recipient}>")) == 3
    assert len(kept(mail_process, message_id=f"same-{recipient}")) == 3
    assert kept(mail_process, message_id="same") == []
    last = kept(mail_process, to=recipient)[-1]
    assert kept(mail_process, to=recipient, since=str(last["seq"] - 1)) == [last]


def test_many_senders_at_once(mail_process: Process, recipient: str) -> None:
    port = httpx.get(f"{mail_process.url}/health").json()["smtp_port"]

    def send(number: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as client:
            client.send_message(offer(recipient, f"<{number}@x.example>"))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(send, range(20)))
    assert len({message["message_id"] for message in kept(mail_process, to=recipient)}) == 20


def test_drop_after_data_keeps_the_message_and_says_nothing(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    order(mail_process, "drop_after_data", recipient)
    with pytest.raises(smtplib.SMTPServerDisconnected):
        smtp.send_message(offer(recipient))
    [message] = kept(mail_process, to=recipient)
    assert message["fault"] == "drop_after_data"


@pytest.mark.parametrize(("kind", "code"), [("refuse", 550), ("defer", 451)])
def test_refused_at_the_recipient_by_default(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str, kind: str, code: int
) -> None:
    order(mail_process, kind, recipient)
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        smtp.send_message(offer(recipient))
    assert refused.value.recipients[recipient][0] == code
    assert kept(mail_process, to=recipient) == []
    smtp.send_message(offer(recipient))
    assert len(kept(mail_process, to=recipient)) == 1


@pytest.mark.parametrize(("kind", "code"), [("refuse", 550), ("defer", 451)])
def test_refused_after_the_data_on_request(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str, kind: str, code: int
) -> None:
    order(mail_process, kind, recipient, at="data", times=2)
    for _ in range(2):
        with pytest.raises(smtplib.SMTPDataError) as refused:
            smtp.send_message(offer(recipient))
        assert refused.value.smtp_code == code
    assert kept(mail_process, to=recipient) == []
    smtp.send_message(offer(recipient))
    assert len(kept(mail_process, to=recipient)) == 1


def test_hang_keeps_the_message_and_answers_late_to_that_one_alone(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    order(mail_process, "hang", recipient, seconds=1.2)
    with ThreadPoolExecutor(1) as pool:
        started = time.monotonic()
        hanging = pool.submit(smtp.send_message, offer(recipient))
        while not kept(mail_process, to=recipient):
            time.sleep(0.02)
        port = httpx.get(f"{mail_process.url}/health").json()["smtp_port"]
        with smtplib.SMTP("127.0.0.1", port, timeout=5) as other:
            other.send_message(offer(f"other-{recipient}"))
        assert not hanging.done()
        hanging.result()
        assert time.monotonic() - started >= 1.2


def test_a_fault_for_one_recipient_leaves_others_alone(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    order(mail_process, "refuse", recipient)
    smtp.send_message(offer(f"other-{recipient}"))
    assert len(kept(mail_process, to=f"other-{recipient}")) == 1
    assert recipient in [fault["to"] for fault in httpx.get(f"{mail_process.url}/_faults").json()["faults"]]
    assert httpx.delete(f"{mail_process.url}/_faults").json()["cleared"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "lose"},
        {"kind": "hang", "at": "rcpt"},
        {"kind": "refuse", "times": 0},
        {"kind": "hang", "second": 1},
        7,
    ],
)
def test_a_bad_order_is_refused(mail_process: Process, bad: object) -> None:
    assert httpx.post(f"{mail_process.url}/_faults", json=bad).status_code == 422


def test_a_filter_that_there_is_not_is_refused(mail_process: Process) -> None:
    assert httpx.get(f"{mail_process.url}/_records/messages", params={"too": "x"}).status_code == 400


@pytest.mark.parametrize(
    "content",
    [
        b"no headers at all",
        b"Subject: =?bad?q?\xff?=\r\nFrom: <<<\r\nContent-Type: text/plain; charset=nonsense\r\n\r\n\xff\xfe",
    ],
)
def test_a_broken_message_is_kept_as_it_is(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str, content: bytes
) -> None:
    smtp.sendmail("a@signalbox.example", [recipient], content)
    [message] = kept(mail_process, to=recipient)
    assert message["message_id"] is None


def test_the_inbox_shows_messages_escaped_and_without_scripts(
    mail_process: Process, smtp: smtplib.SMTP, recipient: str
) -> None:
    smtp.send_message(offer(recipient, text="<script>alert(1)</script>"))
    page = httpx.get(mail_process.url)
    assert page.status_code == 200
    assert recipient in page.text
    assert "<script" not in page.text
    assert httpx.get(f"{mail_process.url}/nothing").status_code == 404
