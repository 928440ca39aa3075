"""What can go wrong between us and a receiver, in the words of a story."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """What becomes of one delivery."""

    NONE = "which does it and says so"
    UNREACHABLE = "which can't be reached"
    HANGS_UP = "which hangs up before it has read anything"
    REFUSES = "which refuses it (422)"
    LOCKED_OUT = "which does not let us in (401)"
    BUSY = "which asks to wait (429)"
    CLOSED = "which has not processed it (503)"
    REDIRECTS = "which is somewhere else (302)"
    FAILS_BEFORE = "which fails before it has done it (500)"
    FAILS_BEFORE_KEPT = "which fails before it has done it and keeps that answer (500)"
    FAILS_AFTER = "which does it and then fails (500)"
    FAILS_AFTER_KEPT = "which does it, then fails, and keeps that answer (500)"
    GATEWAY = "which does it behind a gateway that gives up (504)"
    GIVES_UP = "which does it and says that it took too long (408)"
    LOST = "which does it, and its answer is lost"
    SLOW = "which does it and answers after the deadline"
    STRAGGLES = "which gets it only later, and says nothing"
    IN_PROGRESS = "which does it and says that it is at it (409)"
    OTHER_AMOUNT = "which does another amount and says so"
    MISSTATES = "which does it and misstates the amount"
    ACCEPTS = "which takes it to do it later (202)"
    ACCEPTS_NAMELESS = "which takes it to do it later and gives no number (202)"
    GARBLED = "which does it and answers what nobody can read"
    NOT_A_NUMBER = "which does it and answers with NaN in it"
    NAMELESS = "which does it and gives no number"
    SILENT = "which does it and answers with nothing (204)"
    DOUBLED = "which gets it twice from a proxy"


class View(StrEnum):
    """What a look-up is shown."""

    TRUE = "which tells the truth"
    BEHIND = "which is behind"
    CUT = "which cuts its list"
    BROAD = "which lists what is like it, too"
    ODD = "which answers with another list"
    DOWN = "which does not answer"
    BROKEN = "which fails (500)"


#: Families of faults: a rule for each, so that an example may be all about one of them.
UNSENT = (Fault.UNREACHABLE, Fault.BUSY, Fault.CLOSED)
REFUSED = (Fault.REFUSES, Fault.LOCKED_OUT)
LOST = (Fault.LOST, Fault.HANGS_UP, Fault.SLOW, Fault.STRAGGLES, Fault.GATEWAY, Fault.GIVES_UP, Fault.DOUBLED)
FAILING = (
    Fault.FAILS_BEFORE,
    Fault.FAILS_BEFORE_KEPT,
    Fault.FAILS_AFTER,
    Fault.FAILS_AFTER_KEPT,
    Fault.IN_PROGRESS,
    Fault.REDIRECTS,
)
ODD = (
    Fault.OTHER_AMOUNT,
    Fault.MISSTATES,
    Fault.GARBLED,
    Fault.NOT_A_NUMBER,
    Fault.NAMELESS,
    Fault.SILENT,
)
ACCEPTED = (Fault.ACCEPTS, Fault.ACCEPTS_NAMELESS)
