"""One execution of a workflow version, the claims workers made on it, and the steps they took."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from runs.models.conversation import Conversation
from runs.models.workflow import WorkflowVersion
from runs.states import (
    FINAL,
    Cause,
    ExecutionOutcome,
    Failure,
    PauseKind,
    RunKind,
    RunMode,
    RunStatus,
    StepOutcome,
)


class Run(models.Model):
    """The row is the queue: queued means due for a worker. Every change of status is a conditional UPDATE in runs.moves.

    *fence* goes up with every claim, and every write of an execution checks it under FOR SHARE. *lease_until* is
    renewed by the worker, never past *step_deadline*. *next_cause* says why it was queued last.
    """

    id = PrefixedId("run")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="runs")
    conversation = models.ForeignKey(Conversation, null=True, on_delete=models.PROTECT, related_name="runs")
    customer_ref = models.CharField(max_length=120, blank=True)
    title = models.CharField(max_length=200)
    workflow = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="runs")
    fingerprint = models.CharField(max_length=80, help_text="of the workflow when the run was made")
    kind = models.CharField(max_length=10, choices=RunKind.choices, default=RunKind.ORIGINAL)
    mode = models.CharField(max_length=10, choices=RunMode.choices, default=RunMode.LIVE)
    parent_run = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    parent_checkpoint = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.PROTECT, related_name="replays_and_branches"
    )
    root_run = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="lineage")
    launch_reason = models.CharField(max_length=300, blank=True)
    models_asked = models.BooleanField(
        default=True, help_text="whether its models are asked; else their recorded answers are given back"
    )
    recordings_removed_at = models.DateTimeField(
        null=True, help_text="by retention: no evidence from here on"
    )
    starter = models.ForeignKey(User, on_delete=models.PROTECT, related_name="started_runs")
    input = models.BinaryField(help_text="sealed: the input as it was given")
    input_hash = models.CharField(max_length=80)
    command_token = models.CharField(max_length=80, help_text="of the form or request that made it")

    status = models.CharField(max_length=20, choices=RunStatus.choices, default=RunStatus.QUEUED)
    status_since = models.DateTimeField(db_default=Now())
    version = models.IntegerField(default=1, help_text="goes up with every change that a page would show")
    next_cause = models.CharField(max_length=12, choices=Cause.choices, default=Cause.START)
    pause_requested = models.BooleanField(default=False)
    cancel_requested = models.BooleanField(default=False)
    stopped_by = models.CharField(max_length=160, blank=True, help_text="who paused or cancelled it")
    fence = models.IntegerField(default=0)
    worker_id = models.CharField(max_length=40, blank=True)
    lease_until = models.DateTimeField(null=True)
    step_deadline = models.DateTimeField(null=True)
    rung_at = models.DateTimeField(null=True, help_text="when the sweep last rang for it while it was queued")
    losses = models.IntegerField(default=0)
    loss_marker = models.CharField(max_length=80, blank=True, help_text="how far it was at its last loss")
    failure = models.CharField(max_length=20, choices=Failure.choices, blank=True)
    failure_text = models.TextField(blank=True)
    failure_of = models.CharField(max_length=200, blank=True, help_text="the node or receiver it names")
    failure_effect = models.CharField(max_length=45, blank=True, help_text="the effect that it failed for")
    failed_on_answer = models.BooleanField(
        default=False, help_text="a node raised on the answer that people gave it: it can be asked again"
    )
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "command_token"], name="run_once_a_form"),
            models.CheckConstraint(condition=Q(status__in=RunStatus.values), name="run_status_known"),
            models.CheckConstraint(
                condition=~Q(status=RunStatus.RUNNING) | Q(lease_until__isnull=False),
                name="run_running_has_lease",
            ),
            models.CheckConstraint(
                condition=~Q(status=RunStatus.FAILED) | ~Q(failure=""), name="run_failed_says_why"
            ),
            models.CheckConstraint(
                condition=(Q(status__in=list(FINAL)) & Q(ended_at__isnull=False))
                | (~Q(status__in=list(FINAL)) & Q(ended_at__isnull=True)),
                name="run_final_has_time",
            ),
            models.CheckConstraint(
                condition=Q(kind=RunKind.ORIGINAL, parent_run__isnull=True, mode=RunMode.LIVE)
                | (~Q(kind=RunKind.ORIGINAL) & Q(parent_run__isnull=False, parent_checkpoint__isnull=False)),
                name="run_lineage",
            ),
            models.CheckConstraint(
                condition=~Q(kind=RunKind.BRANCH) | ~Q(launch_reason=""), name="run_branch_has_reason"
            ),
            models.CheckConstraint(
                condition=~Q(status=RunStatus.DIVERGED) | Q(mode=RunMode.EVIDENCE),
                name="run_diverged_is_evidence",
            ),
            models.CheckConstraint(condition=~Q(parent_run=F("id")), name="run_not_its_own_parent"),
            models.CheckConstraint(
                condition=~Q(mode=RunMode.EVIDENCE) | Q(kind=RunKind.REPLAY, models_asked=False),
                name="run_evidence_is_a_replay_that_asks_nobody",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="run_newest"),  # the Runs page
            models.Index(  # the Runs page filtered by status
                fields=["workspace", "status", "-created_at", "-id"], name="run_by_status"
            ),
            models.Index(  # the sweep: due for a worker
                fields=["status_since"], condition=Q(status=RunStatus.QUEUED), name="run_due"
            ),
            models.Index(  # the sweep: lost workers
                fields=["lease_until"], condition=Q(status=RunStatus.RUNNING), name="run_lease"
            ),
            models.Index(fields=["workspace", "customer_ref", "-created_at"], name="run_of_customer"),
            models.Index(fields=["conversation", "-created_at"], name="run_of_conversation"),
            models.Index(fields=["root_run", "created_at"], name="run_lineage_of"),
        ]

    def __str__(self) -> str:
        return self.id


class Execution(models.Model):
    """One claim of a run by one worker."""

    id = PrefixedId("exe")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="executions")
    fence = models.IntegerField()
    cause = models.CharField(max_length=12, choices=Cause.choices)
    worker_id = models.CharField(max_length=40)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=ExecutionOutcome.choices, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "fence"], name="execution_once_a_fence"),
            models.UniqueConstraint(
                fields=["run"], condition=Q(ended_at__isnull=True), name="execution_one_open"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} #{self.fence}"


class Step(models.Model):
    """One node's execution. *number* is the engine's superstep; a node that runs again has a row each time."""

    id = PrefixedId("stp")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="steps")
    execution = models.ForeignKey(Execution, on_delete=models.PROTECT, related_name="steps")
    task_id = models.CharField(max_length=80)
    namespace = models.TextField(blank=True)
    node = models.CharField(max_length=200)
    number = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=8, choices=StepOutcome.choices, default=StepOutcome.RUNNING)
    problem = models.TextField(blank=True)
    said = models.CharField(
        max_length=300, blank=True, help_text="its newest words on the engine's custom stream"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["execution", "namespace", "task_id"], name="step_once_an_execution"
            )
        ]
        indexes = [models.Index(fields=["run", "started_at"], name="step_of_run")]

    def __str__(self) -> str:
        return f"{self.node} of {self.run_id}"


class Checkpoint(models.Model):
    """Our index row of one of the engine's checkpoints, written in the same transaction."""

    id = PrefixedId("cp")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="checkpoints")
    namespace = models.TextField(blank=True)
    engine_id = models.CharField(max_length=80)
    parent_engine_id = models.CharField(max_length=80, blank=True)
    fence = models.IntegerField(help_text="of the execution that wrote it")
    number = models.IntegerField(help_text="the engine's superstep; -1 is the input")
    source = models.CharField(max_length=20)
    nodes = models.JSONField(default=list, help_text="the nodes whose work it holds")
    size = models.IntegerField(help_text="bytes of state that were new in it")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "namespace", "engine_id"], name="checkpoint_once")
        ]
        indexes = [models.Index(fields=["run", "engine_id"], name="checkpoint_of_run")]

    def __str__(self) -> str:
        return self.id


class Pause(models.Model):
    """A pending interrupt as the execution *fence* found it when it settled. Rows of older fences are history.

    What wakes a waiting run is read from these rows, never from the engine.
    """

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="pauses")
    fence = models.IntegerField()
    interrupt_id = models.CharField(max_length=80)
    namespace = models.TextField(blank=True)
    task_id = models.CharField(max_length=80)
    node = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=PauseKind.choices)
    value_hash = models.CharField(max_length=80)
    effect_id = models.CharField(max_length=45, blank=True)
    position = models.CharField(
        max_length=64, blank=True, help_text="hash of its task's place: a replay finds the decision by it"
    )
    actions = models.IntegerField(default=0, help_text="how many requests it makes of people")
    answered = models.BooleanField(default=False, help_text="its answer is in the checkpoint already")
    raised = models.BooleanField(default=False, help_text="its node raised on the answer")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "fence", "interrupt_id"], name="pause_once"),
            models.CheckConstraint(
                condition=Q(kind__in=[PauseKind.ACTIONS, PauseKind.QUESTION]) | ~Q(effect_id=""),
                name="pause_names_its_effect",
            ),
        ]
        indexes = [models.Index(fields=["effect_id"], name="pause_of_effect")]  # waking

    def __str__(self) -> str:
        return f"{self.kind} of {self.run_id}"
