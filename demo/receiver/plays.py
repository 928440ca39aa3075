"""How each fault is played. A play decides what is done and what is answered; the request's record shows both."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from demo.receiver import business, lookups, webhooks
from demo.receiver.faults import CHANGING
from demo.receiver.intents import Intent, Refused, intent_of, is_whole
from demo.receiver.loopback import Answer, Dripped, Dropped, Reply, Request
from demo.receiver.store import Store

MALFORMED: Final = b'{"id": "off_0'


@dataclass(frozen=True)
class Scene:
    """One request of a known account, and what a play may do with it."""

    store: Store
    deliverer: webhooks.Deliverer
    stopping: threading.Event
    account: str
    request_seq: int
    request: Request
    options: Mapping[str, Any]

    @property
    def reads(self) -> bool:
        return self.request.method not in CHANGING

    def intent(self) -> Intent:
        return intent_of(self.account, self.request_seq, self.request)

    def perform(self) -> Answer:
        """Do what the request asks, as if nothing were wrong; the answer that would be given."""
        try:
            if self.request.method in ("GET", "HEAD"):
                return lookups.look_up(self.store, self.account, self.request)
            return business.carry_out(self.store, self.intent())
        except Refused as refused:
            return refused.answer

    def wait(self, seconds: float) -> None:
        self.stopping.wait(seconds)


def drop_after_commit(scene: Scene) -> Reply:
    scene.perform()
    return Dropped(scene.options["reset"])


def drop_before(scene: Scene) -> Reply:
    return Dropped(scene.options["reset"])


def hang_after_commit(scene: Scene) -> Reply:
    answer = scene.perform()
    scene.wait(scene.options["seconds"])
    return answer if scene.options["then"] == "answer" else Dropped()


def hang_before(scene: Scene) -> Reply:
    scene.wait(scene.options["seconds"])
    return Dropped()


def fail_before(_scene: Scene) -> Reply:
    return Answer.error(500, "internal", "something went wrong")


def fail_after(scene: Scene) -> Reply:
    scene.perform()
    return Answer.error(500, "internal", "something went wrong")


def cached_500(scene: Scene) -> Reply:
    document = {"error": "internal", "message": "something went wrong"}
    return business.carry_out_failure(scene.store, scene.intent(), 500, document)


def come_back(scene: Scene, status: int, code: str, message: str) -> Answer:
    """A refusal that says in Retry-After when to come back."""
    headers = {"Retry-After": str(scene.options["retry_after"])}
    return Answer.of(status, {"error": code, "message": message}, headers)


def too_many(scene: Scene) -> Reply:
    return come_back(scene, 429, "rate_limited", "too many requests")


def in_progress(scene: Scene) -> Reply:
    return come_back(
        scene, 409, "in_progress", "a request with this Idempotency-Key is still being processed"
    )


def unprocessed(scene: Scene) -> Reply:
    """503; with a ``final`` it is a lie: the command ends later all the same."""
    if scene.options["final"] != "never" and not scene.reads:
        with scene.store.transaction() as db:
            delivery = webhooks.schedule(db, scene.intent(), scene.options)
        end_later(scene, delivery)
    return come_back(scene, 503, "unprocessed", "the request was not processed")


def accepted(scene: Scene) -> Reply:
    intent = scene.intent()
    document = {"status": "accepted", "key": intent.key, "external_id": intent.fields.get("external_id")}
    answer, delivery = webhooks.accept(scene.store, intent, scene.options, document)
    end_later(scene, delivery)
    return answer


def end_later(scene: Scene, delivery: int | None) -> None:
    if delivery is None:
        return
    if scene.options["webhook_first"]:
        scene.deliverer.finish(delivery)
    else:
        scene.deliverer.ring()


def slow(scene: Scene) -> Reply:
    scene.wait(scene.options["seconds"])
    return scene.perform()


def drip(scene: Scene) -> Reply:
    return Dripped(scene.perform(), scene.options["interval"])


def wrong_amount(scene: Scene) -> Reply:
    """The object keeps the amount that was asked for; only the answer says another."""
    answer = scene.perform()
    document = json.loads(answer.body)
    if answer.status >= 300 or not is_whole(document.get("amount_minor")):
        return answer
    wrong = scene.options["amount_minor"]
    document["amount_minor"] = document["amount_minor"] + 100 if wrong is None else wrong
    return Answer.of(200, document)


def malformed(scene: Scene) -> Reply:
    answer = scene.perform()
    return Answer(200, MALFORMED, answer.headers) if answer.status < 300 else answer


def unauthorized(_scene: Scene) -> Reply:
    return Answer.error(401, "unauthorized", "the token is not valid")


def stale(scene: Scene) -> Reply:
    """The look-up finds nothing, whatever there is: an index that lags behind."""
    is_list = scene.request.path.strip("/").count("/") == 1
    if is_list:
        return Answer.of(200, {"data": [], "has_more": False})
    return Answer.error(404, "not_found", "there is nothing here")


PLAYS: Final[Mapping[str, Callable[[Scene], Reply]]] = {
    "drop_after_commit": drop_after_commit,
    "drop_before": drop_before,
    "hang_after_commit": hang_after_commit,
    "hang_before": hang_before,
    "500_before": fail_before,
    "500_after": fail_after,
    "cached_500": cached_500,
    "429": too_many,
    "409_in_progress": in_progress,
    "503_unprocessed": unprocessed,
    "202_webhook": accepted,
    "slow": slow,
    "drip": drip,
    "wrong_amount": wrong_amount,
    "malformed": malformed,
    "401": unauthorized,
    "stale": stale,
}


def play(kind: str | None, scene: Scene) -> Reply:
    """The reply to a request: by the rules, or as its fault order says."""
    if kind is None:
        return scene.perform()
    try:
        return PLAYS[kind](scene)
    except Refused as refused:
        return refused.answer
