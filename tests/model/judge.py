"""What must be so after every step, whatever happened: read from the ledger's rows and the receiver's own records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from effects.contracts import contract
from effects.states import OPEN_ORDERS, OVERRIDABLE, Dedup, Outcome
from tests.model.figures import Figures
from tests.model.outside import Outside
from tests.model.rows import Reading, Row, Rows

_NO_ANSWER_NEEDED = (Outcome.NOT_SENT, Outcome.SENDING, Outcome.UNKNOWN)


class Wrong(AssertionError):
    """The ledger and the world have parted."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


@dataclass
class Judge:
    """*commanded*: each effect that was proposed, by its id, and its run. *ended_runs*: those nobody works on any more.

    *may_leave_failed*: what the step at hand may make ready again; *must_stay*: what it may not touch.
    """

    reading: Reading
    outside: Outside
    figures: Figures
    commanded: dict[str, str] = field(default_factory=dict)
    ended_runs: set[str] = field(default_factory=set)
    may_leave_failed: set[str] = field(default_factory=set)
    must_stay: set[str] = field(default_factory=set)
    before: Rows | None = None
    #: What exists more than once because two people accepted that.
    accepted_twice: set[str] = field(default_factory=set)
    _bytes_of_key: dict[str, bytes] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """As they were after the last step."""
        assert self.before is not None
        return self.before

    def look(self) -> Rows:
        """Every rule there is, on the rows as they are now. Raises Wrong with what does not hold, in words."""
        now = self.reading.rows()
        if self.before is not None:
            self._what_is_final_stands(self.before, now)
            self._whatever_went_might_go(self.before, now)
        self._no_intent_is_lost(now)
        requests = self._requests_are_attempts(now)
        for effect in now["effect"].values():
            self._is_made_once(now, effect)
            self._did_not_fail_what_is_there(effect)
            self._did_complete_what_is_there(now, effect)
            self._is_not_stuck(now, effect)
            self._is_marked_right(now, effect, requests)
        self.before = now
        self.may_leave_failed.clear()
        self.must_stay.clear()
        return now

    # -- rows ----------------------------------------------------------------------------------------------------

    def _what_is_final_stands(self, before: Rows, now: Rows) -> None:
        for table, found in before.by_table.items():
            for key, row in found.items():
                is_now = now[table].get(key)
                require(is_now is not None, f"{table} {key} is gone")
                assert is_now is not None
                if not row["final"] or row["digest"] == is_now["digest"]:
                    continue
                made_ready = table == "effect" and row["status"] == "failed" and key in self.may_leave_failed
                require(made_ready, f"{table} {key} was final and has changed: {row} → {is_now}")

        for key in self.must_stay:
            was, is_now = before["effect"][key], now["effect"][key]
            require(
                was["digest"] == is_now["digest"], f"{_called(was)} had to stay as it was: {was} → {is_now}"
            )

    def _no_intent_is_lost(self, now: Rows) -> None:
        for effect_id in self.commanded:
            effect = now["effect"].get(effect_id)
            kept = (
                effect is not None
                and effect["command_id"] in now["command"]
                and any(one["n"] == effect["revision"] for one in now.of("revision", effect_id))
            )
            if not kept:
                self.figures.lost += 1
            require(kept, f"{effect_id} was proposed, and its command, its row or its payload is not there")

    def _is_not_stuck(self, now: Rows, effect: Row) -> None:
        stuck = not who_acts_next(now, effect, run_ended=effect["run_id"] in self.ended_runs)
        if stuck:
            self.figures.lost += 1
        require(not stuck, f"{_called(effect)} waits for nobody")

    # -- the receiver --------------------------------------------------------------------------------------------

    def _is_made_once(self, now: Rows, effect: Row) -> None:
        """Unless two people accepted, by an order, that there may be two."""
        made = len(self.outside.objects_of(effect["id"]))
        accepted = sum(
            one["attempts"] > 0 and one["overrides"] and one["second_by_id"] not in (None, one["asked_by_id"])
            for one in now["order"].values()
            if one["sends_id"] == effect["id"] == one["effect_id"]
        )
        if made > 1 and made <= 1 + accepted:
            self.accepted_twice.add(effect["id"])
        elif made > 1:
            self.figures.duplicates += 1
        require(made <= 1 + accepted, f"the receiver has {made} objects of {_called(effect)}")

    def _did_not_fail_what_is_there(self, effect: Row) -> None:
        if effect["status"] != "failed":
            return
        exists = self.outside.objects_of(effect["id"]) or self.outside.may_come(effect["id"])
        if exists:
            self.figures.wrongly_failed += 1
        require(not exists, f"{_called(effect)}, and the receiver has it or will")

    def _did_complete_what_is_there(self, now: Rows, effect: Row) -> None:
        """Completed is said only of this effect's own object; and of one that is as it was asked for, but by people."""
        if effect["status"] != "completed":
            return
        by_people = any(one["settled_as"] == "done" for one in now.of("review", effect["id"]))
        own = [one for one in self.outside.objects_of(effect["id"]) if one.as_asked or by_people]
        true = any(one.reference == effect["provider_reference"] for one in own)
        require(
            true,
            f"{_called(effect)} as {effect['provider_reference']}, and the receiver has no such object of it",
        )

    def _requests_are_attempts(self, now: Rows) -> dict[int, bool]:
        """Attempts that were sent = requests that left us, one to one. Returns whether each attempt's request left."""
        left: dict[int, bool] = {}
        for one in self.outside.deliveries:
            require(one.attempt_id is not None, f"a request for {one.effect_id} went out without an attempt")
            assert one.attempt_id is not None
            require(one.attempt_id not in left, f"attempt {one.attempt_id} sent twice")
            left[one.attempt_id] = one.left
            first = self._bytes_of_key.setdefault(one.key or f"attempt {one.attempt_id}", one.content)
            require(first == one.content, f"the key {one.key} went out with other bytes")
        for attempt in now["attempt"].values():
            outcome, sent = attempt["outcome"], left.get(attempt["id"], False)
            words = f"attempt {attempt['n']} of {attempt['effect_id']} is {outcome}"
            if outcome == Outcome.NOT_SENT and not attempt["answer_status"]:
                require(not sent, f"{words}, and its request left us")
            elif outcome not in _NO_ANSWER_NEEDED or attempt["answer_status"]:
                require(sent, f"{words}, and no request of it left us")
        require(set(left) <= set(now["attempt"]), "a request went out whose attempt is not there")
        return left

    def _is_marked_right(self, now: Rows, effect: Row, requests: dict[int, bool]) -> None:
        """Unresolved: while an attempt that may have arrived is not settled, and only then."""
        attempts = now.of("attempt", effect["id"])
        for one in attempts:
            if one["outcome"] == Outcome.SENDING:
                its_own = effect["sub_state"] == "in_flight" and effect["fence"] == one["fence"]
                require(
                    its_own or effect["status"] in ("completed", "accepted"),
                    f"{_called(effect)} is not in flight by attempt {one['n']}, which is under way",
                )
        if effect["absent_at"] and effect["sub_state"] == "uncertain":
            there = self.outside.objects_of(effect["id"]) or self.outside.may_come(effect["id"])
            require(not there, f"{_called(effect)} is proven absent, and the receiver has it or will")
        unknown = [one for one in attempts if one["outcome"] == Outcome.UNKNOWN]
        if effect["unresolved"]:
            require(unknown, f"{_called(effect)} is marked unresolved, and no attempt is unknown")
            return
        if effect["status"] in ("completed", "accepted") or not unknown:
            return
        sent = {one["id"] for one in unknown if requests.get(one["id"])}
        made = [one for one in self.outside.deliveries if one.attempt_id in sent and self.outside.may_do(one)]
        require(
            not made,
            f"{_called(effect)} is not marked unresolved, and the receiver has made or may make what attempt "
            f"{[one['n'] for one in unknown]} asked for",
        )

    # -- what may be sent ----------------------------------------------------------------------------------------

    def _whatever_went_might_go(self, before: Rows, now: Rows) -> None:
        new = [one for key, one in now["attempt"].items() if key not in before["attempt"]]
        for effect_id, count in Counter(one["effect_id"] for one in new).items():
            require(count == 1, f"{effect_id} was sent {count} times in one step")
        for attempt in new:
            was = before["effect"][attempt["effect_id"]]
            self._might_go(before, now, was, attempt)

    def _might_go(self, before: Rows, now: Rows, was: Row, attempt: Row) -> None:
        words = f"{_called(was)} was sent"
        order = before["order"].get(attempt["origin"])
        overrides = order is not None and order["overrides"] and order["attempts"] == 0
        reviews = set(before.open_reviews(was["id"])) - (set(OVERRIDABLE) if overrides else set())
        require(not reviews, f"{words} under review: {reviews}")
        require(not stopped(before, was), f"{words} although sending is stopped")
        if order is None:
            require(was["run_id"] not in self.ended_runs, f"{words} after its run had ended")
            require(
                not was["successor_of_id"] and not was["compensates_id"],
                f"{words} by a run, not by its order",
            )
        else:
            require(order["status"] == "due", f"{words} by an order that is {order['status']}")
        if was["unresolved"] and not overrides:
            promise = contract(was["effect_type"])
            require(promise.dedup == Dedup.KEY, f"{words} again although it may exist, and has no key")
        if was["needs_approval"]:
            require(_approved(now, attempt), f"{words} with bytes that nobody approved")


def stopped(rows: Rows, effect: Row) -> bool:
    return any(
        one["lifted_at"] is None and (one["scope"] != "type" or one["target"] == effect["effect_type"])
        for one in rows["stop"].values()
    )


def who_acts_next(now: Rows, effect: Row, *, run_ended: bool) -> str:
    """Who or what takes an effect on from where it stands; empty where nobody will."""
    status, sub = effect["status"], effect["sub_state"]
    if status in ("completed", "failed"):
        return "nobody has to"
    if now.open_reviews(effect["id"]):
        return "a person, at its review"
    if status == "accepted":
        return "the sweep" if effect["due_at"] or effect["final_by"] else ""
    if sub in ("in_flight", "backoff", "uncertain"):
        return "the sweep" if effect["lease_until" if sub == "in_flight" else "due_at"] else ""
    if sub == "held":
        return "a person, by Continue or Repeat"
    if any(one["sends_id"] == effect["id"] for one in now["order"].values() if one["status"] in OPEN_ORDERS):
        return "its order"
    if effect["successor_of_id"] or effect["compensates_id"]:
        return ""
    if sub == "ready" and run_ended:
        return "the sweep, which cancels it"
    return "" if run_ended else "its run"


def _approved(now: Rows, attempt: Row) -> bool:
    """By somebody who did not edit these bytes."""
    editors = {
        one["by_id"]
        for one in now.of("revision", attempt["effect_id"])
        if one["n"] == attempt["revision"] and one["by_id"]
    }
    asked = {one["id"] for one in now.of("approval", attempt["effect_id"])}
    return any(
        one["approval_id"] in asked
        and one["decision"] == "approve"
        and one["payload_hash"] == attempt["request_hash"]
        and one["by_id"] not in editors
        for one in now["decision"].values()
    )


def _called(effect: Row) -> str:
    where = f"{effect['status']}/{effect['sub_state']}" if effect["sub_state"] else effect["status"]
    return f"{effect['effect_type']} {effect['id'][:12]} ({where})"
