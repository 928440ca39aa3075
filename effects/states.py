"""Where an effect, an attempt, an approval and a review can stand. Templates, SQL and docs share this one truth."""

from __future__ import annotations

from django.db.models import Q, TextChoices


class EffectStatus(TextChoices):
    PENDING = "pending", "Pending"
    ACCEPTED = "accepted", "Accepted"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"


class SubState(TextChoices):
    """What is going on within a status. ACCEPTED and COMPLETED have none."""

    NONE = "", "–"
    RECORDED = "recorded", "Recorded"
    AWAITING_APPROVAL = "awaiting_approval", "Awaiting approval"
    READY = "ready", "Ready to send"
    IN_FLIGHT = "in_flight", "In flight"
    BACKOFF = "backoff", "Waiting to send"
    HELD = "held", "Held"
    UNCERTAIN = "uncertain", "Uncertain"
    REFUSED = "refused", "Refused by the receiver"
    REJECTED = "rejected_by_person", "Rejected by a person"
    CANCELLED = "cancelled", "Cancelled"


SUB_STATES: dict[EffectStatus, tuple[SubState, ...]] = {
    EffectStatus.PENDING: (
        SubState.RECORDED,
        SubState.AWAITING_APPROVAL,
        SubState.READY,
        SubState.IN_FLIGHT,
        SubState.BACKOFF,
        SubState.HELD,
        SubState.UNCERTAIN,
    ),
    EffectStatus.ACCEPTED: (SubState.NONE,),
    EffectStatus.COMPLETED: (SubState.NONE,),
    EffectStatus.FAILED: (SubState.REFUSED, SubState.REJECTED, SubState.CANCELLED),
}

#: Nothing of it can be under way: what Cancel, and settling a run for good, may close.
UNSENT = (SubState.RECORDED, SubState.AWAITING_APPROVAL, SubState.READY, SubState.BACKOFF, SubState.HELD)
#: The outcome is settled: `perform` answers without waiting.
SETTLED = Q(status__in=[EffectStatus.COMPLETED, EffectStatus.FAILED])
#: An attempt may have reached the receiver, and nothing has settled whether it did.
UNRESOLVED_IN = (SubState.IN_FLIGHT, SubState.UNCERTAIN)


Pair = tuple[EffectStatus, SubState]

_AWAITING: Pair = (EffectStatus.PENDING, SubState.AWAITING_APPROVAL)
_READY: Pair = (EffectStatus.PENDING, SubState.READY)
_IN_FLIGHT: Pair = (EffectStatus.PENDING, SubState.IN_FLIGHT)
_UNCERTAIN: Pair = (EffectStatus.PENDING, SubState.UNCERTAIN)
_ACCEPTED: Pair = (EffectStatus.ACCEPTED, SubState.NONE)
_COMPLETED: Pair = (EffectStatus.COMPLETED, SubState.NONE)
_REFUSED: Pair = (EffectStatus.FAILED, SubState.REFUSED)
_REJECTED: Pair = (EffectStatus.FAILED, SubState.REJECTED)
_CANCELLED: Pair = (EffectStatus.FAILED, SubState.CANCELLED)
_RECORDED: Pair = (EffectStatus.PENDING, SubState.RECORDED)
_BACKOFF: Pair = (EffectStatus.PENDING, SubState.BACKOFF)
_HELD: Pair = (EffectStatus.PENDING, SubState.HELD)

#: Every move there is. A trigger refuses all others to everybody; effects.moves says who makes each, and its guards.
MOVES: dict[Pair, tuple[Pair, ...]] = {
    _RECORDED: (_AWAITING, _READY, _REJECTED, _CANCELLED, _COMPLETED),
    _AWAITING: (_RECORDED, _READY, _REJECTED, _CANCELLED, _COMPLETED),
    _READY: (_RECORDED, _AWAITING, _IN_FLIGHT, _CANCELLED, _COMPLETED),
    _IN_FLIGHT: (_COMPLETED, _ACCEPTED, _REFUSED, _BACKOFF, _UNCERTAIN),
    _BACKOFF: (_IN_FLIGHT, _HELD, _AWAITING, _CANCELLED, _COMPLETED),
    _HELD: (_READY, _AWAITING, _CANCELLED, _COMPLETED),
    _UNCERTAIN: (_IN_FLIGHT, _READY, _ACCEPTED, _COMPLETED, _CANCELLED),
    _ACCEPTED: (_COMPLETED, _REFUSED, _CANCELLED),
    _REFUSED: (_READY, _AWAITING, _COMPLETED),
    _REJECTED: (_COMPLETED,),
    _CANCELLED: (_COMPLETED,),
    _COMPLETED: (),
}
#: Made only under an open review, with evidence: the trigger looks for the review. So is completing what was never tried.
ONLY_UNDER_REVIEW: tuple[tuple[Pair, Pair], ...] = (
    (_REFUSED, _COMPLETED),
    (_REJECTED, _COMPLETED),
    (_CANCELLED, _COMPLETED),
    (_ACCEPTED, _CANCELLED),
    (_UNCERTAIN, _CANCELLED),
)


def allowed_pairs() -> Q:
    """The check constraint: each status with its own sub-states only."""
    condition = Q()
    for status, subs in SUB_STATES.items():
        condition |= Q(status=status, sub_state__in=list(subs))
    return condition


class Outcome(TextChoices):
    """How an attempt stands. All but SENDING are ended, and ended rows are immutable."""

    SENDING = "sending", "Sending"
    NOT_SENT = "not_sent", "Not sent"
    REFUSED = "refused", "Refused"
    ACCEPTED = "accepted", "Accepted"
    COMPLETED = "completed", "Completed"
    UNKNOWN = "unknown", "Unknown"


class Reversibility(TextChoices):
    READ = "read", "Read"
    REVERSIBLE = "reversible", "Reversible"
    IRREVERSIBLE = "irreversible", "Irreversible"


class Stance(TextChoices):
    """How an origin stands to the outside world."""

    LIVE = "live", "Sends"
    FRESH = "fresh", "Sends, always asking, and nothing irreversible without permission"
    SIMULATION = "simulation", "Is answered by doubles"
    EVIDENCE = "evidence", "Is answered from the recording"


#: Nothing of these is ever sent.
NEVER_SENDS = (Stance.SIMULATION, Stance.EVIDENCE)


class Dedup(TextChoices):
    """How the receiver tells a repeat from a new request. Decides whether anything may be sent a second time."""

    KEY = "K", "Idempotency key"
    NATURAL = "N", "Natural key"
    QUERY = "Q", "Look-up only"
    NONE = "X", "None"


class ApprovalStatus(TextChoices):
    PENDING = "pending", "Pending"
    DECIDED = "decided", "Decided"
    EXPIRED = "expired", "Expired"
    SUPERSEDED = "superseded", "Superseded"
    CLOSED = "closed", "Closed"


class Asked(TextChoices):
    """What an approval asks about."""

    EFFECT = "effect", "An effect"
    QUESTION = "question", "A question"
    ACTION = "action", "An agent's action"


class Decision(TextChoices):
    APPROVE = "approve", "Approve"
    EDIT = "edit", "Edit"
    REJECT = "reject", "Reject"
    RESPOND = "respond", "Respond"


class ReviewReason(TextChoices):
    UNQUERYABLE = "unqueryable", "The receiver can't be asked"
    KEY_EXPIRED = "key_expired", "The key's window has passed"
    CACHED_ERROR = "cached_error", "The receiver repeats an old error"
    DUPLICATE_FOUND = "duplicate_found", "More than one was found"
    MISMATCH = "mismatch", "The receiver holds something else"
    ORPHAN = "orphan", "The receiver has one that the ledger lacks"
    DEADLINE_PASSED = "deadline_passed", "No final answer in time"
    NOT_ASKED_AGAIN = "not_asked_again", "The workflow did not ask for it again"
    CONTRADICTION = "contradiction", "The evidence contradicts the ledger"


class ReviewOutcome(TextChoices):
    """What a releaser settles a review as."""

    DONE = "done", "It was done"
    NOT_DONE = "not_done", "It was not done, and is not to be"
    SEND = "send", "It was not done: send it"
    STANDS = "stands", "The ledger stands as it is"


#: Reviews that only say "nobody knows": two people may accept that and order it sent all the same.
OVERRIDABLE = (
    ReviewReason.UNQUERYABLE,
    ReviewReason.KEY_EXPIRED,
    ReviewReason.CACHED_ERROR,
    ReviewReason.DEADLINE_PASSED,
    ReviewReason.NOT_ASKED_AGAIN,
)


class OrderKind(TextChoices):
    """What a person may order about an effect."""

    DELIVER_AGAIN = "deliver_again", "Deliver again"
    SEND_AS_NEW = "send_as_new", "Send as a new effect"
    COMPENSATE = "compensate", "Compensate"


class OrderStatus(TextChoices):
    AWAITING_SECOND = "awaiting_second", "Waiting for a second person"
    DUE = "due", "Due"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    WITHDRAWN = "withdrawn", "Withdrawn"


#: Still to be decided or carried out. There is at most one for an effect.
OPEN_ORDERS = (OrderStatus.AWAITING_SECOND, OrderStatus.DUE)


class StopScope(TextChoices):
    """What a kill switch stops."""

    WORKSPACE = "workspace", "Everything"
    RECEIVER = "receiver", "A receiver"
    TYPE = "type", "An effect type"


class Verdict(TextChoices):
    """What bulk recover would do with an effect."""

    DELIVER = "deliver", "Delivered again"
    LOOK = "look", "Looked up first"
    SKIP = "skip", "Left alone"


class ScanStatus(TextChoices):
    DUE = "due", "Due"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
