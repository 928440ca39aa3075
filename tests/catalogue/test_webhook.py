"""Webhooks out, to a real HTTP server that checks them with the reference implementation of Standard Webhooks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from effects import receivers
from effects.contracts import contract
from effects.models import EffectRevision
from effects.selectors import request_of
from tests.catalogue.conftest import Desk
from tests.catalogue.servers import LocalServer, Reply, Seen
from tests.effects.book import tables_that_hold

SECRET = "whsec_" + base64.b64encode(b"a secret of the consumer").decode()
NEXT = "whsec_" + base64.b64encode(b"the one it is changed to").decode()
EVENT: dict[str, Any] = {
    "type": "offer.accepted",
    "timestamp": "2026-12-01T09:00:00Z",
    "data": {"customer": "cus_1", "text": "ü"},
}


class Consumer:
    """Knows a webhook-id again; answers 400 to what is not signed with its secret."""

    def __init__(self, secret: str = SECRET) -> None:
        self.secret = secret
        self.taken: list[str] = []

    def __call__(self, seen: Seen) -> Reply:
        try:
            Webhook(self.secret).verify(seen.body, seen.headers)
        except WebhookVerificationError as error:
            return Reply(400, {"message": str(error)})
        if seen.headers["webhook-id"] not in self.taken:
            self.taken.append(seen.headers["webhook-id"])
        return Reply(204)


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def hook(desk: Desk, consumer: Consumer, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(consumer)
    desk.receiver("consumer", server.url, SECRET)
    return server


def test_the_consumer_can_tell_who_sent_it(desk: Desk, hook: LocalServer, consumer: Consumer) -> None:
    effect_id = desk.send("webhook.again", **EVENT)
    [sent] = hook.writes
    assert consumer.taken == [sent.headers["webhook-id"]] == [effect_id]
    assert sent.json == EVENT
    assert sent.target == "/hook"
    assert "authorization" not in sent.headers
    assert desk.standing(effect_id) == ("completed", "")
    assert desk.effect(effect_id).provider_reference == effect_id


def test_signature_and_secret_are_stored_nowhere(desk: Desk, hook: LocalServer) -> None:
    effect_id = desk.send("webhook.again", **EVENT)
    signature = hook.writes[0].headers["webhook-signature"]
    assert signature.startswith("v1,")
    for word in (SECRET, SECRET.removeprefix("whsec_"), signature, signature.removeprefix("v1,")):
        assert tables_that_hold(word) == []
    stored = request_of(desk.effect(effect_id), EffectRevision.objects.get(effect_id=effect_id))
    assert b"webhook-" not in stored


def test_sent_again_it_has_the_same_id_and_body_and_a_fresh_signature(
    desk: Desk, hook: LocalServer, consumer: Consumer
) -> None:
    hook.lose = 1
    effect_id = desk.send("webhook.again", **EVENT)
    desk.perform(effect_id)
    first, second = hook.writes
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == effect_id
    assert consumer.taken == [effect_id]
    assert desk.standing(effect_id) == ("completed", "")


def test_without_the_consumers_promise_it_is_sent_once(
    desk: Desk, hook: LocalServer, consumer: Consumer
) -> None:
    hook.lose = 1
    effect_id = desk.send("webhook.once", **EVENT)
    desk.perform(effect_id)
    assert len(hook.writes) == 1
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.reviews(effect_id) == ["unqueryable"]


@pytest.mark.parametrize("secret", [SECRET, NEXT])
def test_while_a_secret_is_replaced_the_consumer_may_hold_either(
    desk: Desk, serve: Callable[..., LocalServer], secret: str
) -> None:
    consumer = Consumer(secret)
    desk.receiver("consumer", serve(consumer).url, f"{NEXT} {SECRET}")
    effect_id = desk.send("webhook.again", **EVENT)
    assert consumer.taken == [effect_id]


def test_another_secret_is_refused_by_the_consumer(desk: Desk, hook: LocalServer, consumer: Consumer) -> None:
    desk.receiver("consumer", hook.url, NEXT)
    effect_id = desk.propose("webhook.again", **EVENT)
    with pytest.raises(Exception, match="400: No matching signature found"):
        desk.perform(effect_id)
    assert consumer.taken == []


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("", "There is no secret to sign with"),
        ("s3cret", "A webhook's secret begins with whsec_; this one does not"),
        ("whsec_c2hvcnQ=", "The webhook's secret is 5 bytes long, not 24 to 64"),
    ],
)
def test_what_can_not_be_signed_is_not_sent(desk: Desk, hook: LocalServer, secret: str, says: str) -> None:
    desk.receiver("consumer", hook.url, secret)
    effect_id = desk.send("webhook.again", **EVENT)
    assert hook.seen == []
    assert desk.standing(effect_id) == ("pending", "backoff")
    assert desk.effect(effect_id).problem == f"The request can't be signed: {says}"


@pytest.mark.parametrize(
    ("reply", "standing"),
    [
        (Reply(200, b"ok"), ("completed", "")),
        (Reply(202), ("completed", "")),
        (Reply(301, None, {"Location": "/elsewhere"}), ("pending", "uncertain")),
        (Reply(429, None, {"Retry-After": "5"}), ("pending", "backoff")),
        (Reply(502), ("pending", "uncertain")),
        (Reply(410), ("failed", "refused")),
    ],
)
def test_every_2xx_is_success_and_nothing_else_is(
    desk: Desk, hook: LocalServer, reply: Reply, standing: tuple[str, str]
) -> None:
    hook.instead = [reply]
    effect_id = desk.propose("webhook.again", **EVENT)
    if standing[1] == "refused":
        with pytest.raises(Exception, match="410"):
            desk.perform(effect_id)
    else:
        desk.perform(effect_id)
    assert desk.standing(effect_id) == standing
    assert len(hook.seen) == 1


def test_a_consumer_can_not_be_asked(desk: Desk, hook: LocalServer) -> None:
    effect = desk.effect(desk.send("webhook.again", **EVENT))
    listing = receivers.list_made(contract("webhook.again"), effect.receiver, since=effect.created_at)
    assert (listing.objects, listing.cut) == ((), "This receiver can't list what it has.")
