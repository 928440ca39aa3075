"""The words, signs and tones of every status: what pages, mails and screen readers say.

A leaf: plain tables, no models, no Django. The keys are the codes that the models store; a test walks the
models' choices, so that no status goes without a word. ``Tone`` names a group of colours in static/css/tokens.css:
done (green), bad (red), unsure (amber, striped), warn (amber), turn (violet: a person's turn), work (teal), wait (dashed:
a machine's turn), still (grey).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Tone = Literal["done", "bad", "unsure", "warn", "turn", "work", "wait", "still"]

MASKED = "•••• masked"
"""What a page says where a protected value is not shown (the marker of console.kernel.masking)."""


@dataclass(frozen=True, slots=True)
class Word:
    """One status as people meet it: the word, the name of its icon in the sprite, its tone."""

    text: str
    icon: str
    tone: Tone


RUN: Mapping[str, Word] = {
    "queued": Word("Queued", "circle-dashed", "wait"),
    "running": Word("Running", "circle-play", "work"),
    "waiting_approval": Word("Waiting for approval", "user-round-check", "turn"),
    "waiting_effect": Word("Waiting for an effect", "hourglass", "wait"),
    "paused": Word("Paused", "circle-pause", "warn"),
    "failed": Word("Failed", "octagon-x", "bad"),
    "diverged": Word("Diverged", "split", "warn"),
    "completed": Word("Completed", "circle-check", "done"),
    "cancelled": Word("Cancelled", "circle-slash", "still"),
    "pausing": Word("Pausing", "circle-pause", "warn"),
    "cancelling": Word("Cancelling", "circle-slash", "still"),
}
"""Run statuses, and the two flags (pausing, cancelling) that are shown until the worker has stopped."""

EFFECT: Mapping[str, Word] = {
    "pending": Word("Pending", "circle-dashed", "wait"),
    "recorded": Word("Recorded", "file-text", "wait"),
    "awaiting_approval": Word("Awaiting approval", "user-round-check", "turn"),
    "ready": Word("Ready to send", "circle-dashed", "wait"),
    "in_flight": Word("In flight", "send", "work"),
    "backoff": Word("Will be tried again", "timer", "wait"),
    "held": Word("Held, never sent", "flag", "warn"),
    "uncertain": Word("Uncertain", "circle-question-mark", "unsure"),
    "accepted": Word("Accepted", "circle-dot", "work"),
    "completed": Word("Completed", "circle-check", "done"),
    "failed": Word("Failed, nothing was made", "octagon-x", "bad"),
    "refused": Word("Refused by the receiver", "octagon-x", "bad"),
    "rejected_by_person": Word("Rejected by a person", "circle-slash", "still"),
    "cancelled": Word("Cancelled", "circle-slash", "still"),
    "would_have": Word("Would have sent", "eye", "still"),
}
"""Effect statuses and their sub-states; *uncertain* is never green and never red."""

ATTEMPT: Mapping[str, Word] = {
    "sending": Word("Sending", "send", "work"),
    "not_sent": Word("Not sent", "circle-slash", "still"),
    "refused": Word("Refused", "octagon-x", "bad"),
    "accepted": Word("Accepted", "circle-dot", "work"),
    "completed": Word("Completed", "circle-check", "done"),
    "unknown": Word("Unknown", "circle-question-mark", "unsure"),
}

APPROVAL: Mapping[str, Word] = {
    "pending": Word("Waiting for a decision", "user-round-check", "turn"),
    "overdue": Word("Overdue", "triangle-alert", "warn"),
    "decided": Word("Decided", "circle-check", "done"),
    "expired": Word("Expired", "timer", "warn"),
    "superseded": Word("Superseded", "history", "still"),
    "closed": Word("Closed", "circle-slash", "still"),
    "approve": Word("Approved", "circle-check", "done"),
    "edit": Word("Edited", "pencil", "turn"),
    "reject": Word("Rejected", "circle-slash", "still"),
    "respond": Word("Answered", "reply", "done"),
}
"""Approval statuses and decisions. A rejection is an outcome, not an error: grey, not red."""

STEP: Mapping[str, Word] = {
    "pending": Word("Not started", "circle", "still"),
    "running": Word("Running", "circle-play", "work"),
    "waiting": Word("Waiting", "hourglass", "wait"),
    "waiting_approval": Word("Waiting for approval", "user-round-check", "turn"),
    "waiting_effect": Word("Waiting for an effect", "hourglass", "wait"),
    "completed": Word("Completed", "circle-check", "done"),
    "failed": Word("Failed", "octagon-x", "bad"),
    "lost": Word("Worker lost", "unplug", "bad"),
    "cancelled": Word("Cancelled", "circle-slash", "still"),
    "kept": Word("Kept from the original", "bookmark", "still"),
    "diverged": Word("Diverged", "split", "warn"),
}

REVIEW: Mapping[str, Word] = {
    "open": Word("In review", "shield-alert", "unsure"),
    "closed": Word("Review closed", "shield-check", "still"),
}

ORDER: Mapping[str, Word] = {
    "awaiting_second": Word("Waiting for a second person", "user-round-check", "turn"),
    "due": Word("Due", "circle-dashed", "wait"),
    "done": Word("Carried out", "circle-check", "done"),
    "refused": Word("Refused", "circle-slash", "warn"),
    "withdrawn": Word("Withdrawn", "circle-slash", "still"),
}
"""Orders: repeat, send as new, compensate. *Carried out* says what the product did, not what the receiver has."""

KEY: Mapping[str, Word] = {
    "none": Word("No idempotency key", "zap-off", "still"),
    "unopened": Word("Not in use yet", "circle-dashed", "wait"),
    "open": Word("Window open", "lock-open", "work"),
    "passed": Word("Window passed", "timer", "warn"),
}
"""Whether the receiver would still know a repeat by the effect's key."""

FINDING: Mapping[str, Word] = {
    "found": Word("Found at the receiver", "circle-check", "done"),
    "under_way": Word("Under way there", "circle-dot", "work"),
    "failed": Word("Failed there", "octagon-x", "bad"),
    "absent": Word("Not found", "search", "wait"),
    "several": Word("More than one found", "shield-alert", "unsure"),
    "mismatch": Word("Found, but differs", "shield-alert", "unsure"),
    "unclear": Word("No clear answer", "circle-question-mark", "still"),
    "sent": Word("Sent by the probe", "send", "work"),
    "refused": Word("Refused, as it must be", "circle-check", "done"),
    "not_refused": Word("Not refused", "octagon-x", "bad"),
}
"""What an observation found. *Not found* alone proves nothing: whether it does, the contract says."""

RECOVERY: Mapping[str, Word] = {
    "running": Word("Running", "circle-play", "work"),
    "stopped": Word("Stopped", "circle-pause", "warn"),
    "waiting": Word("Waiting", "circle-dashed", "wait"),
    "done": Word("Done", "circle-check", "done"),
    "skipped": Word("Left alone", "circle-slash", "still"),
    "not_reached": Word("Not reached", "circle-pause", "warn"),
}
"""Bulk acts and their items. *Done* of an item says that it was ordered, asked about or continued, not how it ended."""

VERDICT: Mapping[str, Word] = {
    "deliver": Word("Delivered again", "repeat-2", "work"),
    "look": Word("Looked up first", "search", "wait"),
    "continue": Word("Continued", "play", "work"),
    "skip": Word("Left alone", "circle-slash", "still"),
}

PROBE: Mapping[str, Word] = {
    "passed": Word("Probe passed", "circle-check", "done"),
    "failed": Word("Probe failed", "octagon-x", "bad"),
    "outdated": Word("Probe outdated", "history", "warn"),
    "never": Word("Never probed", "circle-dashed", "warn"),
    "nowhere": Word("No receiver here", "circle-slash", "still"),
}
"""What trying a contract at a workspace's receiver showed. *Outdated*: of another version, or another account."""

SCAN: Mapping[str, Word] = {
    "due": Word("Due", "circle-dashed", "wait"),
    "running": Word("Running", "circle-play", "work"),
    "done": Word("Done", "circle-check", "done"),
    "failed": Word("Failed", "octagon-x", "bad"),
}

TABLES: Mapping[str, Mapping[str, Word]] = {
    "run": RUN,
    "effect": EFFECT,
    "attempt": ATTEMPT,
    "approval": APPROVAL,
    "step": STEP,
    "review": REVIEW,
    "order": ORDER,
    "key": KEY,
    "finding": FINDING,
    "recovery": RECOVERY,
    "scan": SCAN,
    "verdict": VERDICT,
    "probe": PROBE,
}

REVIEW_REASONS: Mapping[str, str] = {
    "unqueryable": "The receiver cannot be asked whether it has this effect.",
    "key_expired": "The time in which the receiver would recognise a repeat is over.",
    "cached_error": "The receiver repeats an old error under this key, which says nothing new.",
    "duplicate_found": "More than one object with this effect's id was found.",
    "mismatch": "What the receiver has differs from what was to be sent.",
    "orphan": "The receiver has an object that no row of this ledger explains.",
    "deadline_passed": "The receiver accepted the command and has not said how it ended.",
    "not_asked_again": "The step ran again and no longer asked for this effect.",
    "contradiction": "What was learned later contradicts what was saved.",
}

KINDS: Mapping[str, str] = {"original": "Original", "replay": "Replay", "branch": "Branch"}
MODES: Mapping[str, str] = {"live": "Live", "simulation": "Simulation", "evidence": "Evidence"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, in words. ``text`` may hold ``{it}``: the receiver, node or effect type the run names."""

    title: str
    text: str
    nameless: str


FAILURES: Mapping[str, Failure] = {
    "worker_lost": Failure(
        "The worker was lost",
        "The worker on step {it} disappeared three times without getting any further.",
        "The worker disappeared three times without getting any further.",
    ),
    "step_deadline": Failure(
        "A step took too long",
        "Step {it} was still running at its deadline and was stopped.",
        "A step was still running at its deadline and was stopped.",
    ),
    "node_error": Failure(
        "A step raised an error",
        "The code of step {it} raised an error.",
        "The code of a step raised an error.",
    ),
    "effect_refused": Failure(
        "The receiver refused",
        "{it} refused the effect and made nothing.",
        "The receiver refused the effect and made nothing.",
    ),
    "receiver_unreachable": Failure(
        "The receiver could not be reached",
        "{it} could not be reached in the time allowed; nothing was sent.",
        "The receiver could not be reached in the time allowed; nothing was sent.",
    ),
    "effect_conflict": Failure(
        "Asked for again with another payload",
        "{it} was asked for again with another payload after the first one had been sent; the first one stands.",
        "An effect was asked for again with another payload after the first one had been sent; the first one stands.",
    ),
    "effect_blocked": Failure(
        "An effect is not permitted here",
        "Effects of type {it} cannot be undone, so this run may not make them until a releaser permits it.",
        "The effect cannot be undone, so this run may not make it until a releaser permits it.",
    ),
    "obligation_dropped": Failure(
        "A step dropped its effect",
        "Step {it} ran again and did not ask for an effect that it had made before.",
        "A step ran again and did not ask for an effect that it had made before.",
    ),
    "version_mismatch": Failure(
        "No worker has this version",
        "The saved state does not fit {it}; nothing was guessed.",
        "The saved state does not fit the version at hand; nothing was guessed.",
    ),
    "state_invalid": Failure(
        "The state is not valid",
        "The state after step {it} does not fit the workflow's schema.",
        "The state does not fit the workflow's schema.",
    ),
    "pause_swallowed": Failure(
        "A step went on without its answer",
        "Step {it} asked a person and returned without waiting for the answer.",
        "A step asked a person and returned without waiting for the answer.",
    ),
    "not_permitted": Failure(
        "Permission was taken away",
        "{it} set this run going last and may no longer run anything here; nothing more was sent.",
        "Who set this run going last may no longer run anything here; nothing more was sent.",
    ),
    "limit": Failure(
        "A limit was reached",
        "The run reached its limit of {it} and was stopped.",
        "The run reached one of its limits and was stopped.",
    ),
    "approval_expired": Failure(
        "The approval expired",
        "Nobody decided the request of step {it} in time. Continue asks again.",
        "Nobody decided in time. Continue asks again.",
    ),
}


def word(code: str, table: str = "") -> Word:
    """The word of a status; ``table`` is a key of TABLES, without it the first table that knows the code answers.

    A code that no table knows is shown as it is, under a question mark: a page never fails on a status.
    """
    tables = [TABLES[table]] if table else list(TABLES.values())
    for entries in tables:
        if code in entries:
            return entries[code]
    return Word(code.replace("_", " ").capitalize() or "–", "circle-question-mark", "still")


def failure_title(code: str) -> str:
    """The few words that name a failure code; an unknown code reads as itself."""
    known = FAILURES.get(code)
    return known.title if known else code.replace("_", " ").capitalize()


def failure_sentence(code: str, it: str = "") -> str:
    """A failure as one plain sentence, naming ``it`` (the receiver, node or effect type) where there is one."""
    known = FAILURES.get(code)
    if known is None:
        return f"The run stopped with the code {code}."
    if not it:
        return known.nameless
    # replace, not format: `it` and the texts may hold braces
    return known.text.replace("{it}", it)
