"""Where a run, an execution and a step can stand, and why a run failed. Templates, SQL and docs share this truth."""

from __future__ import annotations

from django.db.models import TextChoices


class RunStatus(TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    WAITING_APPROVAL = "waiting_approval", "Waiting for approval"
    WAITING_EFFECT = "waiting_effect", "Waiting for an effect"
    PAUSED = "paused", "Paused"
    FAILED = "failed", "Failed"
    DIVERGED = "diverged", "Diverged"
    COMPLETED = "completed", "Completed"
    CANCELLED = "cancelled", "Cancelled"


#: Nothing leaves these.
FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.DIVERGED)
#: No worker is on it; rows that change wake it.
WAITING = (RunStatus.WAITING_APPROVAL, RunStatus.WAITING_EFFECT)
#: A person has to do something.
NEEDS_A_PERSON = (RunStatus.WAITING_APPROVAL, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.DIVERGED)

#: Several statuses under one name, as the Runs page's filter knows them.
NEEDS, UNDER_WAY = "needs_a_person", "under_way"
TOGETHER: dict[str, tuple[RunStatus, ...]] = {
    NEEDS: NEEDS_A_PERSON,
    UNDER_WAY: (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING_EFFECT),
}


class RunKind(TextChoices):
    ORIGINAL = "original", "Original"
    REPLAY = "replay", "Replay"
    BRANCH = "branch", "Branch"


class RunMode(TextChoices):
    LIVE = "live", "Live"
    SIMULATION = "simulation", "Simulation"
    EVIDENCE = "evidence", "Evidence"


class Failure(TextChoices):
    """Why a run failed. The page says each in a sentence (console.kernel.words)."""

    WORKER_LOST = "worker_lost", "Its worker was lost three times"
    STEP_DEADLINE = "step_deadline", "A step ran past its deadline"
    NODE_ERROR = "node_error", "A node raised an error"
    EFFECT_REFUSED = "effect_refused", "The receiver refused an effect"
    RECEIVER_UNREACHABLE = "receiver_unreachable", "The receiver could not be reached"
    EFFECT_BLOCKED = "effect_blocked", "An irreversible effect is blocked here"
    EFFECT_CONFLICT = "effect_conflict", "An effect was asked for again with another payload"
    OBLIGATION_DROPPED = "obligation_dropped", "A node no longer asks for an effect that it made"
    VERSION_MISMATCH = "version_mismatch", "Its workflow version is not what it was"
    STATE_INVALID = "state_invalid", "Its state can't be saved or read"
    PAUSE_SWALLOWED = "pause_swallowed", "A node caught its own pause and went on"
    NOT_PERMITTED = "not_permitted", "Who set it going may no longer do so"
    NOT_RECORDED = "not_recorded", "What it asked for was never recorded"
    STRAY_REQUEST = "stray_request", "A node made a request of its own"
    LIMIT = "limit", "It took more steps than it may"


#: These never touch the outside world's live systems: they run apart, in a process of their own each.
APART = (RunMode.EVIDENCE, RunMode.SIMULATION)


class Cause(TextChoices):
    """Why an execution began."""

    START = "start", "Started"
    WAKE = "wake", "Something it waited for is there"
    CONTINUE = "continue", "Continued by a person"
    ASK_AGAIN = "ask_again", "A person had its question asked again"
    RECOVERY = "recovery", "Taken up after its worker was lost"
    HANDED_BACK = "handed_back", "Handed back by a worker that shut down"


class ExecutionOutcome(TextChoices):
    """How a claim ended. Empty while it is open."""

    FINISHED = "finished", "Finished the graph"
    PAUSED = "paused", "Stopped at a pause"
    DRAINED = "drained", "Stopped between two steps"
    FAILED = "failed", "Failed"
    LOST = "lost", "Its worker was lost"
    OVERRAN = "overran", "Ran past a step's deadline"


class StepOutcome(TextChoices):
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    PAUSED = "paused", "Paused"
    FAILED = "failed", "Failed"
    LOST = "lost", "Lost with its worker"


class PauseKind(TextChoices):
    """What a pending interrupt of the engine is."""

    EFFECT_WAIT = "effect_wait", "Waits for an effect"
    EFFECT_APPROVAL = "effect_approval", "Asks about an effect"
    ACTIONS = "actions", "Asks about an agent's actions"
    QUESTION = "question", "Asks a question"


#: These are answered through the engine; the others are only woken and read the ledger themselves.
ANSWERED_BY_ENGINE = (PauseKind.ACTIONS, PauseKind.QUESTION)


class InputClass(TextChoices):
    """The three classes of every input of a run."""

    RECORDED = "recorded", "Recorded fact"
    REPEATABLE = "repeatable", "Repeatable computation"
    LIVE = "live", "Live request"
