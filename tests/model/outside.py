"""The model receiver: what each way of telling repeats apart promises, no more, and its own records as the witness.

It stands where the network does (`effects.receivers.exchange`), so that everything above it is the product's:
which bytes go, what an answer means, how late is too late. It breaks no promise of a contract; it uses all the room
that they leave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import httpcore

from effects.models import EffectAttempt
from effects.receivers import http, looking
from effects.receivers.wire import Deadline
from effects.states import Dedup, Outcome
from effects.wires import HttpWire
from tests.model.clock import Clock
from tests.model.errands import Stop, underway
from tests.model.faults import Fault, View
from tests.model.promises import BY_PATH

Exchanged = tuple[int, dict[str, str], bytes]


@dataclass
class Held:
    """An object at the receiver. *visible_at*: from when on its look-ups show it. *as_asked*: it is what was sent."""

    reference: str
    effect_id: str
    path: str
    external_id: str
    body: dict[str, Any]
    visible_at: datetime
    as_asked: bool = True


@dataclass
class Delivery:
    """One request that bears an effect.

    *left*: its first byte went out. *arrived*: how often the receiver got it. *done*: it has made something, or has been
    taken to be done.
    """

    effect_id: str
    attempt_id: int | None
    path: str
    key: str
    content: bytes
    fault: Fault
    left: bool = False
    arrived: int = 0
    done: bool = False

    @property
    def body(self) -> dict[str, Any]:
        body = json.loads(self.content)
        assert isinstance(body, dict)
        return body


@dataclass
class Kept:
    """What a receiver with keys keeps under one: the request it stands for, and the answer that it repeats."""

    body_hash: str
    at: datetime
    answer: Exchanged


@dataclass
class Later:
    """A command that the receiver has taken and not done yet. *when* is None where nobody knows when."""

    delivery: Delivery
    when: datetime | None = None


def _json(status: int, body: Any, **headers: str) -> Exchanged:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"content-type": "application/json", **named}, json.dumps(body).encode()


def _error(status: int, code: str, message: str, **headers: str) -> Exchanged:
    return _json(status, {"error": {"code": code, "message": message}}, **headers)


_BEFORE_ANYTHING = {
    Fault.LOCKED_OUT: _error(401, "unauthorized", "Who are you?"),
    Fault.BUSY: _error(429, "too_many_requests", "Later, please.", retry_after="7"),
    Fault.CLOSED: _error(503, "closed", "We are closed."),
    Fault.REDIRECTS: (302, {"location": "/elsewhere"}, b""),
}
_INSTEAD_OF_DOING = {
    Fault.REFUSES: _error(422, "refused", "Not this."),
    Fault.FAILS_BEFORE: _error(500, "failed", "Something broke."),
    Fault.FAILS_BEFORE_KEPT: _error(500, "failed", "Something broke."),
}
_AFTER_DOING = {
    Fault.FAILS_AFTER: _error(500, "failed", "Something broke."),
    Fault.FAILS_AFTER_KEPT: _error(500, "failed", "Something broke."),
    Fault.GATEWAY: (504, {}, b"<html>Gateway time-out</html>"),
    Fault.GIVES_UP: _error(408, "timeout", "That took too long."),
    Fault.IN_PROGRESS: _error(409, "in_progress", "We are at it.", retry_after="3"),
    Fault.GARBLED: (200, {}, b"<html>Thank you!</html>"),
    Fault.NOT_A_NUMBER: (200, {}, b'{"id": "obj_9", "amount_minor": NaN}'),
    Fault.NAMELESS: _json(201, {"made": True}),
    Fault.SILENT: (204, {}, b""),
}
_ACCEPTING = (Fault.ACCEPTS, Fault.ACCEPTS_NAMELESS)
#: Kept under the key although it is an error, as some providers do.
_KEPT_ERRORS = (Fault.REFUSES, Fault.FAILS_BEFORE_KEPT, Fault.FAILS_AFTER_KEPT)


@dataclass
class Message:
    """A webhook that the receiver has to send, or has sent. *number*: its id at the sender."""

    number: int
    effect_id: str
    body: bytes
    sent: int = 0


@dataclass
class Outside:
    clock: Clock
    objects: list[Held] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    later: list[Later] = field(default_factory=list)
    #: Commands that were taken and failed, as a receiver that tells how far they are lists them.
    failed: list[Delivery] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    looks: int = 0

    def objects_of(self, effect_id: str) -> list[Held]:
        return [one for one in self.objects if one.effect_id == effect_id]

    def may_come(self, effect_id: str) -> bool:
        """Something of it is on its way or promised, and may still be done."""
        return any(one.delivery.effect_id == effect_id and self.may_do(one.delivery) for one in self.later)

    def may_do(self, delivery: Delivery) -> bool:
        """Whether a request that left has made something, or may yet: one on its way may find that it is known."""
        if delivery.done or all(one.delivery is not delivery for one in self.later):
            return delivery.done
        dedup = BY_PATH[delivery.path].dedup
        known = (dedup == Dedup.KEY and delivery.key in self.kept) or (
            dedup == Dedup.NATURAL and self._knows(delivery.body["external_id"])
        )
        return not known

    def exchange(
        self, method: str, url: str, *, content: bytes, headers: dict[str, str], deadline: Deadline, **_: Any
    ) -> Exchanged:
        """In the place of the network: one request, one answer, or the error that a client would see."""
        if method == "GET":
            return self._asked(url, deadline)
        errand = underway()
        assert errand is not None, "only an errand sends"
        path = urlsplit(url).path
        sending = EffectAttempt.objects.filter(effect_id=errand.effect_id, outcome=Outcome.SENDING)
        delivery = Delivery(
            effect_id=errand.effect_id,
            attempt_id=sending.values_list("id", flat=True).first(),
            path=path,
            key=headers.get("Idempotency-Key", ""),
            content=content,
            fault=errand.fault,
        )
        self.deliveries.append(delivery)
        errand.attempt_id = delivery.attempt_id
        errand.may_stop(Stop.BEFORE)
        if delivery.fault == Fault.UNREACHABLE:
            raise httpcore.ConnectError("nobody listens there")
        deadline.first_byte()
        delivery.left = True
        answer = self._received(delivery)
        if delivery.fault == Fault.SLOW:
            self.pass_time(BY_PATH[path].deadline + 0.5)
        errand.may_stop(Stop.ARRIVED)
        if deadline.passed:
            raise httpcore.ReadTimeout("the total deadline has passed")
        if answer is None:
            raise httpcore.ReadError("the connection was closed")
        errand.may_stop(Stop.ANSWERED)
        return answer

    def _received(self, delivery: Delivery) -> Exchanged | None:
        """What the receiver does with a request that has left us; None where no answer comes back."""
        fault = delivery.fault
        if fault == Fault.HANGS_UP:
            return None
        if fault in _BEFORE_ANYTHING:
            delivery.arrived += 1
            return _BEFORE_ANYTHING[fault]
        if fault == Fault.STRAGGLES:
            deadline = BY_PATH[delivery.path].deadline
            self.later.append(Later(delivery, self.clock.now + timedelta(seconds=deadline)))
            return None
        answer = self._taken(delivery)
        if fault == Fault.DOUBLED:
            answer = self._taken(delivery)
        return None if fault in (Fault.LOST, Fault.SLOW) else answer

    def _taken(self, delivery: Delivery) -> Exchanged:
        """By the way in which this receiver tells repeats apart."""
        delivery.arrived += 1
        promise = BY_PATH[delivery.path]
        if promise.dedup == Dedup.KEY:
            return self._taken_by_key(delivery)
        if promise.dedup == Dedup.NATURAL and self._knows(delivery.body["external_id"]):
            return _error(409, "exists", "There is one with this external_id.")
        return self._done(delivery)

    def _taken_by_key(self, delivery: Delivery) -> Exchanged:
        """The same key: the same answer; with another request: refused. Until it is pruned."""
        hashed = hashlib.sha256(delivery.content).hexdigest()
        known = self.kept.get(delivery.key)
        if known is not None and known.body_hash != hashed:
            return _error(422, "key_reused", "This key was used for another request.")
        if known is not None:
            status, headers, body = known.answer
            return status, {**headers, "idempotent-replay": "true"}, body
        answer = self._done(delivery)
        if 200 <= answer[0] < 300 or delivery.fault in _KEPT_ERRORS or self.objects_of(delivery.effect_id):
            self.kept[delivery.key] = Kept(hashed, self.clock.now, answer)
            if delivery.fault in _AFTER_DOING and delivery.fault not in _KEPT_ERRORS:
                # What went wrong went wrong after it was done: the next one is told what was done.
                self.kept[delivery.key].answer = self._told(self.objects_of(delivery.effect_id)[-1])
        return answer

    def _knows(self, external_id: str) -> bool:
        held = (one.external_id for one in self.objects)
        taken = (one.delivery.body.get("external_id") for one in self.later if one.delivery.arrived)
        return external_id in held or external_id in taken

    def _done(self, delivery: Delivery) -> Exchanged:
        fault = delivery.fault
        if fault in _INSTEAD_OF_DOING:
            return _INSTEAD_OF_DOING[fault]
        if fault in _ACCEPTING:
            delivery.done = True
            self.later.append(Later(delivery))
            number = {} if fault == Fault.ACCEPTS_NAMELESS else {"id": f"job_{len(self.deliveries)}"}
            return _json(202, {**number, **self._how_far(delivery, "processing")})
        made = self._make(delivery)
        if fault in _AFTER_DOING:
            return _AFTER_DOING[fault]
        told = self._told(made)
        if fault == Fault.MISSTATES:
            return _json(
                201, {**made.body, "id": made.reference, "amount_minor": made.body["amount_minor"] + 1}
            )
        return told

    def _make(self, delivery: Delivery) -> Held:
        body = delivery.body
        delivery.done = True
        if delivery.fault == Fault.OTHER_AMOUNT:
            body["amount_minor"] += 100
        promise = BY_PATH[delivery.path]
        made = Held(
            reference=f"obj_{len(self.objects) + 1}",
            effect_id=delivery.effect_id,
            path=delivery.path,
            external_id=body.get("external_id", ""),
            body=body,
            visible_at=self.clock.now + timedelta(seconds=promise.settle),
            as_asked=body == delivery.body,
        )
        self.objects.append(made)
        self._tell(made.effect_id, made.path, self._shown_object(made))
        return made

    def _told(self, one: Held) -> Exchanged:
        return _json(201, self._shown_object(one))

    def _shown_object(self, one: Held) -> dict[str, Any]:
        done = {"status": "done"} if _says_how_far(one.path) else {}
        return {**one.body, "id": one.reference, **done}

    def _how_far(self, delivery: Delivery, status: str) -> dict[str, Any]:
        why = {"why": "declined"} if status == "failed" else {}
        return {"external_id": delivery.body.get("external_id"), "status": status, **why}

    def _tell(self, effect_id: str, path: str, data: dict[str, Any]) -> None:
        """A webhook, from the receivers that send any."""
        wire = BY_PATH[path].wire
        if isinstance(wire, HttpWire) and wire.hook:
            body = json.dumps({"type": "command.ended", "data": data}).encode()
            self.messages.append(Message(len(self.messages) + 1, effect_id, body))

    # -- look-ups ------------------------------------------------------------------------------------------------

    def _asked(self, url: str, deadline: Deadline) -> Exchanged:
        errand = underway()
        assert errand is not None, "only an errand asks"
        self.looks += 1
        errand.may_stop(Stop.BEFORE)
        where = urlsplit(url)
        shown = self._shown(where.path, parse_qs(where.query)["external_id"][0], errand.view)
        errand.may_stop(Stop.ARRIVED)
        if deadline.passed or errand.view == View.DOWN:
            raise httpcore.ReadTimeout("the total deadline has passed")
        errand.may_stop(Stop.ANSWERED)
        return shown

    def _shown(self, path: str, key: str, view: View) -> Exchanged:
        if view == View.BROKEN:
            return _error(500, "failed", "Something broke.")
        if view == View.ODD:
            return _json(200, {"data": {"surprise": True}})
        if view == View.CUT:
            return _json(200, {"data": [], "has_more": True})
        found = [one for one in self.objects if one.path == path and one.external_id == key]
        if view == View.BEHIND:
            found = [one for one in found if self._shows(one)]
        listed = [self._shown_object(one) for one in found]
        if _says_how_far(path) and not found:
            listed += self._commands(path, key)
        if view == View.BROAD:
            listed += [
                {"id": f"obj_of_others_{n}", "external_id": like, "amount_minor": 1}
                for n, like in enumerate((key + "0", key[:-1], key.upper(), "x" + key))
            ]
        return _json(200, {"data": listed, "has_more": False})

    def _commands(self, path: str, key: str) -> list[dict[str, Any]]:
        """What became of the command with this id, where it has made nothing: under way, or failed."""
        known = [(one.delivery, "processing") for one in self.later] + [
            (one, "failed") for one in self.failed
        ]
        return [
            {"id": f"job_of_{key[:8]}", **self._how_far(one, status)}
            for one, status in known
            if one.path == path and one.arrived and one.body.get("external_id") == key
        ][:1]

    def _shows(self, one: Held) -> bool:
        """A look-up that may be behind: no longer than the contract says, for ever where that proves nothing."""
        return BY_PATH[one.path].authoritative and one.visible_at <= self.clock.now

    # -- what the receiver does by itself ------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """What was on its way arrives in its time."""
        ends = self.clock.now + timedelta(seconds=seconds)
        for one in [late for late in self.later if late.when is not None and late.when <= ends]:
            self.later.remove(one)
            self.clock.now = max(self.clock.now, one.when or self.clock.now)
            one.delivery.fault = Fault.LOST
            self._taken(one.delivery)
        self.clock.now = max(self.clock.now, ends)

    def taken_to_do_later(self) -> list[Later]:
        return [one for one in self.later if one.when is None]

    def finish(self, one: Later, *, done: bool) -> None:
        """The final result of what was taken with a 202."""
        self.later.remove(one)
        key = one.delivery.key
        if done:
            one.delivery.fault = Fault.NONE
            answer = self._told(self._make(one.delivery))
        else:
            one.delivery.done = False
            self.failed.append(one.delivery)
            self._tell(one.delivery.effect_id, one.delivery.path, self._how_far(one.delivery, "failed"))
            answer = _error(422, "failed", "It could not be done.")
        if key in self.kept:
            self.kept[key].answer = answer

    def prunable(self) -> list[str]:
        """The keys whose published retention is over: the receiver may forget them, or not."""
        return [key for key, kept in self.kept.items() if self.clock.since(kept.at) > self._retention(key)]

    def prune(self) -> None:
        for key in self.prunable():
            del self.kept[key]

    def _retention(self, key: str) -> float:
        return max(BY_PATH[one.path].retention for one in self.deliveries if one.key == key)


def _says_how_far(path: str) -> bool:
    wire = BY_PATH[path].wire
    return isinstance(wire, HttpWire) and wire.progress is not None


@contextmanager
def stands_for_the_network(outside: Outside) -> Iterator[None]:
    with (
        mock.patch.object(http, "exchange", outside.exchange),
        mock.patch.object(looking, "exchange", outside.exchange),
    ):
        yield
