"""Mail, against the mail catcher as a real process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.catalogue.conftest import Desk
from tests.stack import Stack, environment, free_port, wait_for


@pytest.fixture(scope="module")
def catcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    folder: Path = tmp_path_factory.mktemp("mail")
    stack = Stack(folder, environment())
    port = free_port()
    try:
        process = stack.run(
            "mail",
            "-m",
            "demo.mail_catcher",
            "--smtp-port",
            str(port),
            "--http-port",
            "0",
            "--data",
            str(folder),
        )
        wait_for("the mail catcher", lambda: process.says("ready http"))
        yield process.log.read_text().split("ready ")[1].split()[0], port
    finally:
        stack.end()


@pytest.fixture
def caught(desk: Desk, catcher: tuple[str, int]) -> httpx.Client:
    address, port = catcher
    desk.receiver("mail", f"smtp://127.0.0.1:{port}")
    return httpx.Client(base_url=address, trust_env=False)


def mails(caught: httpx.Client, effect_id: str) -> list[dict[str, str]]:
    return list(caught.get("/_records/messages", params={"contains": effect_id}).json()["messages"])


def letter(desk: Desk) -> dict[str, str]:
    return {
        "to": f"{desk.world.workspace.id}@example.com",
        "subject": "Your offer",
        "body": "Please see below.",
    }


def test_one_mail_with_one_message_id(desk: Desk, caught: httpx.Client) -> None:
    effect_id = desk.send("catalogue.mail", **letter(desk))
    [mail] = mails(caught, effect_id)
    assert mail["message_id"] == f"<{effect_id}@signalbox.example>"
    assert desk.standing(effect_id) == ("completed", "")
    assert desk.effect(effect_id).provider_reference == f"<{effect_id}@signalbox.example>"


def test_a_lost_reply_is_not_answered_with_a_second_mail(desk: Desk, caught: httpx.Client) -> None:
    to = letter(desk)["to"]
    caught.post("/_faults", json={"kind": "drop_after_data", "match": {"to": to}}).raise_for_status()
    effect_id = desk.send("catalogue.mail", **letter(desk))
    desk.perform(effect_id)
    assert len(mails(caught, effect_id)) == 1
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.reviews(effect_id) == ["unqueryable"]


@pytest.mark.parametrize(
    ("kind", "standing"), [("refuse", ("failed", "refused")), ("defer", ("pending", "backoff"))]
)
def test_what_was_not_taken_was_not_sent(
    desk: Desk, caught: httpx.Client, kind: str, standing: tuple[str, str]
) -> None:
    """RFC 5321, 4.2.1: 5yz is final, 4yz means that nothing was done and may be tried again."""
    to = letter(desk)["to"]
    caught.post("/_faults", json={"kind": kind, "match": {"to": to}}).raise_for_status()
    effect_id = desk.propose("catalogue.mail", **letter(desk))
    if kind == "refuse":
        with pytest.raises(Exception, match="550"):
            desk.perform(effect_id)
    else:
        desk.perform(effect_id)
    assert desk.standing(effect_id) == standing
    assert mails(caught, effect_id) == []
