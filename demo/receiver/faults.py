"""Fault orders: what shall go wrong, for whom, how often. They queue up per account and are used in their order.

An order fits requests that change something (POST, PUT) unless its match names another method. Each is used up by the
requests that fit it, in the transaction that records their arrival, so two requests never share one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from demo.receiver.loopback import Request
from demo.receiver.store import Store

ACCOUNT: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
CHANGING: Final = frozenset({"POST", "PUT"})
MATCHES: Final = ("method", "path", "body_contains", "key")
SECRET_SHOWN: Final = "whsec_…"


class BadOrder(ValueError):
    """The order can't be taken; ``field`` and the message say why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


@dataclass(frozen=True)
class Option:
    default: object
    valid: Callable[[Any], bool]
    rule: str


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_url(value: object) -> bool:
    return value is None or (isinstance(value, str) and re.match(r"https?://[^/\s]+", value) is not None)


def is_secret(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or not value.startswith("whsec_"):
        return False
    try:
        return len(base64.b64decode(value.removeprefix("whsec_"), validate=True)) > 0
    except (binascii.Error, ValueError):
        return False


def seconds(default: float) -> Option:
    return Option(
        default, lambda value: is_number(value) and 0 <= value <= 3600, "a number of seconds up to 3600"
    )


def one_of(default: str, *words: str) -> Option:
    return Option(default, lambda value: value in words, f"one of {', '.join(words)}")


def count(default: int, most: int) -> Option:
    return Option(
        default,
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
        f"a whole number from 1 to {most}",
    )


def switch() -> Option:
    return Option(False, lambda value: isinstance(value, bool), "true or false")


def webhook(final: str) -> dict[str, Option]:
    """How the later end of a command is told."""
    return {
        "final": one_of(final, "completed", "failed", "never"),
        "delay": seconds(1.0),
        "reason": Option("declined", lambda value: isinstance(value, str), "a string"),
        "webhook_url": Option(None, is_url, "an http or https address"),
        "secret": Option(None, is_secret, "a Standard Webhooks secret: whsec_ and base64"),
        "copies": count(1, 10),
        "webhook_first": switch(),
    }


def whole_or_none(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


#: Every kind with its own options. How each is played is in plays.py.
KINDS: Final[Mapping[str, Mapping[str, Option]]] = {
    "drop_after_commit": {"reset": switch()},
    "drop_before": {"reset": switch()},
    "hang_after_commit": {"seconds": seconds(30), "then": one_of("close", "close", "answer")},
    "hang_before": {"seconds": seconds(30)},
    "500_before": {},
    "500_after": {},
    "cached_500": {},
    "429": {"retry_after": count(1, 3600)},
    "409_in_progress": {"retry_after": count(1, 3600)},
    "503_unprocessed": {"retry_after": count(1, 3600), **webhook("never")},
    "202_webhook": webhook("completed"),
    "slow": {"seconds": seconds(3)},
    "drip": {"interval": seconds(0.1)},
    "wrong_amount": {"amount_minor": Option(None, whole_or_none, "a whole number of minor units")},
    "malformed": {},
    "401": {},
    "stale": {},
}
#: Kinds that make no sense for a look-up, and the one that makes sense for nothing else.
NOT_FOR_READS: Final = frozenset({"cached_500", "202_webhook", "409_in_progress"})
ONLY_FOR_READS: Final = frozenset({"stale"})


@dataclass(frozen=True)
class Order:
    """One accepted order. ``options`` holds every option of its kind, defaults filled in."""

    account: str
    kind: str
    match: Mapping[str, str]
    options: Mapping[str, Any]
    times: int


def parse(document: object) -> Order:
    """An order from its JSON. Raises BadOrder naming the field."""
    if not isinstance(document, dict):
        raise BadOrder("", "an order is a JSON object")
    given = dict(document)
    account, match, times = given.pop("account", None), given.pop("match", {}), given.pop("times", 1)
    kind = str(given.pop("kind", ""))
    if not isinstance(account, str) or not ACCOUNT.fullmatch(account):
        raise BadOrder("account", "name the account: 1 to 64 letters, digits, dots, dashes, underscores")
    if kind not in KINDS:
        raise BadOrder("kind", f"kind must be one of {', '.join(KINDS)}")
    if not count(1, 1000).valid(times):
        raise BadOrder("times", "times must be a whole number from 1 to 1000")
    order = Order(account, kind, parse_match(match), parse_options(kind, given), times)
    refuse_misfit(order)
    return order


def parse_match(match: object) -> dict[str, str]:
    if not isinstance(match, dict):
        raise BadOrder("match", "match must be an object")
    for name, value in match.items():
        if name not in MATCHES or not isinstance(value, str):
            raise BadOrder(f"match.{name}", f"match has strings under {', '.join(MATCHES)}")
    return {**match, "method": match["method"].upper()} if "method" in match else dict(match)


def parse_options(kind: str, given: Mapping[str, object]) -> dict[str, object]:
    known = KINDS[kind]
    for name, value in given.items():
        if name not in known:
            raise BadOrder(name, f"{kind} knows {', '.join(known) or 'no options'}, not {name}")
        if not known[name].valid(value):
            raise BadOrder(name, f"{name} must be {known[name].rule}")
    options = {name: option.default for name, option in known.items()} | dict(given)
    if options.get("webhook_url") and not options.get("secret"):
        raise BadOrder("secret", "a webhook is signed: give its secret")
    return options


def refuse_misfit(order: Order) -> None:
    reads = order.match.get("method", "POST") not in CHANGING
    if reads and order.kind in NOT_FOR_READS:
        raise BadOrder("kind", f"{order.kind} can't happen to a {order.match['method']}")
    if not reads and order.kind in ONLY_FOR_READS:
        raise BadOrder("match.method", f"{order.kind} happens to look-ups only: match the method GET")


def place(store: Store, order: Order) -> int:
    """Queue the order; its id."""
    with store.transaction() as db:
        cursor = db.execute(
            "INSERT INTO faults (account, kind, match, options, remaining) VALUES (?, ?, ?, ?, ?)",
            (order.account, order.kind, json.dumps(order.match), json.dumps(order.options), order.times),
        )
        return int(cursor.lastrowid or 0)


def take(db: sqlite3.Connection, account: str, request: Request, key: str | None) -> Order | None:
    """The first pending order that fits the request, used up by one; None when all shall go well."""
    pending = db.execute(
        "SELECT * FROM faults WHERE account = ? AND remaining > 0 ORDER BY id", (account,)
    ).fetchall()
    for row in pending:
        match = json.loads(row["match"])
        if fits(match, request, key):
            db.execute("UPDATE faults SET remaining = remaining - 1 WHERE id = ?", (row["id"],))
            return Order(account, row["kind"], match, json.loads(row["options"]), 1)
    return None


def fits(match: Mapping[str, str], request: Request, key: str | None) -> bool:
    if "method" in match:
        if match["method"] != request.method:
            return False
    elif request.method not in CHANGING:
        return False
    return (
        request.path.startswith(match.get("path", ""))
        and match.get("body_contains", "") in request.body.decode(errors="replace")
        and match.get("key", key) == key
    )


def pending(store: Store, account: str | None) -> list[dict[str, Any]]:
    """What is still to come, in its order; secrets are not shown."""
    rows = store.rows(
        "SELECT * FROM faults WHERE remaining > 0 AND ? IN (account, '') ORDER BY id", account or ""
    )
    return [
        {
            "id": row["id"],
            "account": row["account"],
            "kind": row["kind"],
            "match": json.loads(row["match"]),
            "remaining": row["remaining"],
            **masked(json.loads(row["options"])),
        }
        for row in rows
    ]


def masked(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "secret": SECRET_SHOWN} if options.get("secret") else options


def clear(store: Store, account: str) -> int:
    """Take back what is still to come; how many orders."""
    with store.transaction() as db:
        return db.execute(
            "UPDATE faults SET remaining = 0 WHERE account = ? AND remaining > 0", (account,)
        ).rowcount
