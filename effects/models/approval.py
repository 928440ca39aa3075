"""A request to a person at a pause, and what they decided."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace
from effects.models.effect import Effect
from effects.models.order import Order
from effects.models.would_have import WouldHave
from effects.states import ApprovalStatus, Asked, Decision


class Approval(models.Model):
    """An immutable snapshot of what was asked, keyed by the pause: (run, interrupt id, round, action).

    Bound to one effect revision by number and hash, or to a question. *version* goes up with every change of the
    row; a decision names the version it was made on.
    """

    id = PrefixedId("apr")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="approvals")
    run_id = models.CharField(max_length=40)
    checkpoint_id = models.CharField(max_length=40, blank=True)
    workflow = models.CharField(max_length=120, help_text="name@version when it was asked")
    fingerprint = models.CharField(max_length=80)
    node = models.CharField(max_length=200)
    interrupt_id = models.CharField(max_length=80)
    interrupt_hash = models.CharField(max_length=80, help_text="of the value that the pause carried")
    round = models.IntegerField(default=1)
    action = models.IntegerField(default=0, help_text="which of several actions in one pause")

    asks = models.CharField(max_length=10, choices=Asked.choices)
    effect = models.ForeignKey(Effect, null=True, on_delete=models.PROTECT, related_name="approvals")
    revision = models.IntegerField(null=True)
    contract_version = models.IntegerField(null=True)
    payload_hash = models.CharField(max_length=80)
    title = models.CharField(max_length=200)
    why = models.TextField(blank=True)
    body = models.BinaryField(help_text="sealed: the question, or the action's name and arguments")
    answer_schema = models.JSONField(null=True)
    allows = ArrayField(models.CharField(max_length=10, choices=Decision.choices))
    asked_of = models.CharField(max_length=80, blank=True, help_text="a group's name; empty: any approver")
    irreversible = models.BooleanField(default=False)

    order = models.ForeignKey(
        Order,
        null=True,
        on_delete=models.PROTECT,
        related_name="approvals",
        help_text="asked for by an order, not a pause",
    )
    simulated_for = models.ForeignKey(
        User,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="asked by a simulation, of its launcher alone; it grants nothing",
    )
    would_have = models.ForeignKey(WouldHave, null=True, on_delete=models.PROTECT, related_name="approvals")
    must_say = models.BooleanField(
        default=False, help_text="whoever approves says in words that the risk is taken"
    )

    status = models.CharField(max_length=12, choices=ApprovalStatus.choices, default=ApprovalStatus.PENDING)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_why = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "interrupt_id", "round", "action"], name="approval_once_a_pause"
            ),
            models.CheckConstraint(
                condition=Q(asks=Asked.EFFECT, effect__isnull=False)
                | Q(asks=Asked.QUESTION, effect__isnull=True)
                | Q(asks=Asked.ACTION),
                name="approval_names_what_it_asks",
            ),
            models.CheckConstraint(
                condition=Q(effect__isnull=True) | Q(revision__isnull=False), name="approval_names_revision"
            ),
            models.CheckConstraint(
                condition=Q(status=ApprovalStatus.PENDING, ended_at__isnull=True)
                | (~Q(status=ApprovalStatus.PENDING) & Q(ended_at__isnull=False)),
                name="approval_ended_has_time",
            ),
            models.CheckConstraint(
                condition=Q(simulated_for__isnull=True, would_have__isnull=True)
                | Q(simulated_for__isnull=False, effect__isnull=True, order__isnull=True),
                name="approval_simulated_grants_nothing",
            ),
            # One revision of one effect is never asked for twice at once.
            models.UniqueConstraint(
                fields=["effect", "revision"],
                condition=Q(status=ApprovalStatus.PENDING),
                name="approval_one_open_a_revision",
            ),
        ]
        indexes = [
            models.Index(  # the inbox and its badge
                fields=["workspace", "due_at", "id"],
                condition=Q(status=ApprovalStatus.PENDING),
                name="approval_open",
            ),
            models.Index(  # the sweep
                fields=["expires_at"], condition=Q(status=ApprovalStatus.PENDING), name="approval_expiry"
            ),
            models.Index(fields=["run_id", "created_at"], name="approval_of_run"),  # the Run page, settle
        ]

    def __str__(self) -> str:
        return self.title


class ApprovalDecision(models.Model):
    """What one person decided about one approval. Append-only."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    decision = models.CharField(max_length=10, choices=Decision.choices)
    by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, help_text="null: system:timeout")
    at = models.DateTimeField(db_default=Now())
    reason = models.TextField(blank=True)
    payload_hash = models.CharField(max_length=80, help_text="of what the person had before them")
    answer = models.BinaryField(null=True, help_text="sealed: the edited arguments or the response")
    token = models.CharField(max_length=60, help_text="of the form or request it came by")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "by"], name="decision_once_a_person"),
            models.UniqueConstraint(fields=["token"], name="decision_once_a_form"),
            models.CheckConstraint(
                condition=~Q(decision=Decision.REJECT) | ~Q(reason=""), name="decision_reject_has_reason"
            ),
        ]
        indexes = [models.Index(fields=["by", "-at"], name="decision_of_person")]  # "my decisions"
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.decision} {self.approval_id}"
