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
