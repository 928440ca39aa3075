"""Where an effect stands, how repeats of it are told, and what became of a decision: in sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from effects.contracts import EffectContract, UnknownType, contract, contracts
from effects.models import Effect
from effects.states import Dedup, EffectStatus, Reversibility, SubState


def promise_of(effect_type: str) -> EffectContract | None:
    """The contract of a type; None where the deployment no longer has one: old rows are still shown."""
    try:
        return contract(effect_type)
    except UnknownType:
        return None


def titles() -> dict[str, str]:
    """The title of every effect type that the deployment has a contract for."""
    return {promise.type: promise.title for promise in contracts().values()}


def act_of(title: str) -> str:
    """“Create an offer” as what a button does: create the offer."""
    with_article = re.sub(r"^(\w+) an? ", r"\1 the ", title)
    return with_article[:1].lower() + with_article[1:]


def object_of(title: str) -> str:
    """“Create an offer” as what it is about: the offer."""
    match = re.fullmatch(r"\w+ (?:an?|the) (.+)", title)
    return f"the {match[1]}" if match else "it"


def learned_by(kind: str) -> str:
    """How an observation came about."""
    return {
        "look_up": "Look-up",
        "late_answer": "Late answer",
        "webhook": "Webhook",
        "poll": "Poll",
        "probe": "Probe",
        "cached_error": "Old error",
    }.get(kind, kind.replace("_", " ").capitalize())


def standing(effect: Effect, *, may_repeat: bool = False, in_review: bool = False) -> str:
    """Where the effect stands, as one or two plain sentences about the outside world.

    *may_repeat*: its key's window is open and its contract probed, so the same key may go again by itself.
    *in_review*: a review of it is open, so nothing goes by itself.
    """
    receiver = effect.receiver.name
    said = {
        SubState.RECORDED: "The intent is saved. Nothing has been sent.",
        SubState.AWAITING_APPROVAL: f"Nothing is sent until {effect.asked_of or 'an approver'} has approved it.",
        SubState.READY: f"It may be sent, and goes to {receiver} when its run is worked on.",
        SubState.IN_FLIGHT: f"A worker is sending it to {receiver} now.",
        SubState.BACKOFF: f"{receiver} has not taken it so far; nothing was made. It is tried again by itself.",
        SubState.HELD: f"It was never sent: {receiver} could not be reached in all the time there was.",
        SubState.UNCERTAIN: _uncertain(effect, may_repeat, in_review),
        SubState.REFUSED: f"{receiver} refused it and made nothing.",
        SubState.REJECTED: "A person rejected it. Nothing was sent.",
        SubState.CANCELLED: "It was cancelled and is not sent.",
    }
    if effect.sub_state:
        return said[SubState(effect.sub_state)]
    if effect.status == EffectStatus.ACCEPTED:
        return f"{receiver} took it and has not yet said how it ended."
    return f"Done, and {receiver} confirmed it."


def _uncertain(effect: Effect, may_repeat: bool, in_review: bool) -> str:
    receiver = effect.receiver.name
    lost = f"{receiver} may or may not have it: an answer was lost."
    if effect.absent_at is not None:
        return f"An answer was lost, and it is proven since that {receiver} does not have it."
    if in_review:
        return f"{lost} It is not sent again by itself: a person settles it."
    if may_repeat:
        return f"{lost} It is sent again with the same key, inside its window, or {receiver} is asked."
    return {
        Dedup.NATURAL: f"{lost} {receiver} is asked before anything is sent again.",
        Dedup.NONE: f"{lost} {receiver} can't be asked, and it is not sent again by itself.",
    }.get(Dedup(effect.dedup), f"{lost} {receiver} is asked; it is not sent again by itself.")


def dedup_method(effect: Effect) -> str:
    """How the receiver tells a repeat from a new request, and so what a second sending would do."""
    return dedup_words(Dedup(effect.dedup))


def dedup_words(dedup: Dedup) -> str:
    """The same, of a contract's promise."""
    return {
        Dedup.KEY: "Idempotency key: inside its window, the same key with the same bytes is known as a repeat.",
        Dedup.NATURAL: "Natural key: the receiver is searched for this effect's id first, and never made twice.",
        Dedup.QUERY: "Look-up only: the receiver can be asked, but would not notice a repeat.",
        Dedup.NONE: "None: the receiver cannot tell a repeat. It is sent once, and never again by itself.",
    }[dedup]


def in_words(seconds: float) -> str:
    """A length of time as people say it: in the largest unit that divides it well."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size, 1)
            return f"{count:g} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"


@dataclass(frozen=True)
class KeyWindow:
    """Whether the receiver would still know a repeat by its key. *state*: none, unopened, open or passed."""

    state: str
    since: datetime | None = None
    until: datetime | None = None


def key_window(effect: Effect, now: datetime) -> KeyWindow:
    """As the database wrote it. Whether a repeat is allowed is decided there, not by this."""
    if effect.dedup != Dedup.KEY:
        return KeyWindow("none")
    if effect.key_until is None:
        return KeyWindow("unopened")
    return KeyWindow(
        "open" if effect.key_until > now else "passed", since=effect.first_sent_at, until=effect.key_until
    )


def risk(effect: Effect) -> str:
    """What can be undone, in one word and a half."""
    return {
        Reversibility.READ: "changes nothing",
        Reversibility.REVERSIBLE: "can be undone",
        Reversibility.IRREVERSIBLE: "cannot be undone",
    }[Reversibility(effect.reversibility)]
