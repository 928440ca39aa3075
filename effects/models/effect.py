"""One result in the outside world, the revisions of its payload, and every attempt to bring it about."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.workspace import User, Workspace
from effects.models.command import Command
from effects.models.receiver import Receiver
from effects.states import (
    MOVES,
    ONLY_UNDER_REVIEW,
    UNRESOLVED_IN,
    UNSENT,
    Dedup,
    EffectStatus,
    Outcome,
    Pair,
    Reversibility,
    SubState,
    allowed_pairs,
)


def _pair(pair: Pair) -> str:
    return f"{pair[0]}/{pair[1]}"


def _moves_are_those_of_states() -> str:
    """The trigger's function: states.MOVES, and the review that some of them need."""
    moves = ", ".join(f"'{_pair(was)}>{_pair(to)}'" for was, allowed in MOVES.items() for to in allowed)
    reviewed = ", ".join(f"'{_pair(was)}>{_pair(to)}'" for was, to in ONLY_UNDER_REVIEW)
    return f"""
        move := OLD.status || '/' || OLD.sub_state || '>' || NEW.status || '/' || NEW.sub_state;
        IF (OLD.status, OLD.sub_state) IS DISTINCT FROM (NEW.status, NEW.sub_state) THEN
            IF NOT move = ANY (ARRAY[{moves}]) THEN
                RAISE EXCEPTION 'effect % can not move %', OLD.id, move;
            END IF;
            IF (move = ANY (ARRAY[{reviewed}]) OR (NEW.status = 'completed' AND OLD.tries = 0)) AND NOT EXISTS
                (SELECT 1 FROM effects_review WHERE effect_id = OLD.id AND closed_at IS NULL) THEN
                RAISE EXCEPTION 'effect % can move % only under review', OLD.id, move;
            END IF;
        ELSIF OLD.status = 'failed' THEN
            RAISE EXCEPTION 'effect % has failed and can not be edited', OLD.id;
        END IF;
        RETURN NEW;
    """  # noqa: S608  # made of the codes above, which are constants


MOVES_ARE_THOSE_OF_STATES = pgtrigger.Trigger(
    name="moves_are_those_of_states",
    when=pgtrigger.Before,
    operation=pgtrigger.Update,
    declare=[("move", "text")],
    func=_moves_are_those_of_states(),
)
COMPLETED_IS_FINAL = pgtrigger.Trigger(
    name="completed_is_final",
    when=pgtrigger.Before,
    operation=pgtrigger.Update,
    condition=pgtrigger.Q(old__status=EffectStatus.COMPLETED),
    func="RAISE EXCEPTION 'effect % is completed and can never change', OLD.id;",
)
IDENTITY_STAYS = pgtrigger.Trigger(
    name="identity_stays",
    when=pgtrigger.Before,
    operation=pgtrigger.Update,
    func=(
        "IF (NEW.id, NEW.workspace_id, NEW.run_id, NEW.effect_type, NEW.key, NEW.successor_of_id, "
        "NEW.compensates_id) IS DISTINCT FROM (OLD.id, OLD.workspace_id, OLD.run_id, OLD.effect_type, OLD.key, "
        "OLD.successor_of_id, OLD.compensates_id) THEN "
        "RAISE EXCEPTION 'the identity of effect % can never change', OLD.id; END IF; RETURN NEW;"
    ),
)
ENDED_IS_FINAL = pgtrigger.Trigger(
    name="ended_is_final",
    when=pgtrigger.Before,
    operation=pgtrigger.Update,
    condition=pgtrigger.Q(old__ended_at__isnull=False),
    func="RAISE EXCEPTION 'attempt % of % has ended and can never change', OLD.n, OLD.effect_id;",
)


class Effect(models.Model):
    """The ledger's row. Every change of where it stands is one conditional UPDATE in effects.moves.

    *fence* goes up with every claim; a sender writes only while it still holds the newest. *unresolved* is true
    while an attempt may have reached the receiver and nothing has settled whether it did. The grant covers one
    revision (its number and hash) until *grant_until*, every attempt with those bytes, and nothing else.
    """

    id = models.CharField(primary_key=True, max_length=45, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="effects")
    command = models.OneToOneField(Command, on_delete=models.PROTECT, related_name="effect")
    run_id = models.CharField(max_length=40)
    customer_ref = models.CharField(max_length=120, blank=True)
    effect_type = models.CharField(max_length=80)
    contract_version = models.IntegerField()
    reversibility = models.CharField(max_length=12, choices=Reversibility.choices)
    dedup = models.CharField(max_length=1, choices=Dedup.choices)
    receiver = models.ForeignKey(Receiver, on_delete=models.PROTECT, related_name="+")
    account = models.CharField(max_length=120, help_text="the receiver's account at intent")
    recipient = models.CharField(max_length=300, help_text="masked where the contract masks it")
    key = models.CharField(
        max_length=200, help_text="what the receiver tells repeats by; derived from the id"
    )
    creates = models.BooleanField(
        default=False, help_text="each makes an object of its own: no two have one reference"
    )
    successor_of = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="successors")
    compensates = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="compensations")
    amount_minor = models.BigIntegerField(
        null=True, help_text="what it takes of, or back from, a capped amount"
    )

    status = models.CharField(max_length=10, choices=EffectStatus.choices, default=EffectStatus.PENDING)
    sub_state = models.CharField(
        max_length=20, choices=SubState.choices, default=SubState.RECORDED, blank=True
    )
    revision = models.IntegerField(default=1)
    request_hash = models.CharField(max_length=80)
    unresolved = models.BooleanField(default=False)
    fence = models.IntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="next try in backoff, next look in uncertain")
    tries = models.IntegerField(default=0)
    tries_before = models.IntegerField(default=0, help_text="tries when it was last made ready")
    looks = models.IntegerField(default=0)
    final_by = models.DateTimeField(null=True, help_text="accepted: by when its final result is expected")
    give_up_at = models.DateTimeField(null=True)
    first_sent_at = models.DateTimeField(null=True, help_text="first attempt that is not proven unsent")
    last_sent_at = models.DateTimeField(null=True)
    key_until = models.DateTimeField(null=True, help_text="until when the same key may be sent again")
    absent_at = models.DateTimeField(
        null=True, help_text="since the last send, proven not to be at the receiver"
    )
    absences = models.IntegerField(
        default=0, help_text="looks in a row, since the last send, that did not find it"
    )

    needs_approval = models.BooleanField()
    asked_of = models.CharField(max_length=80, blank=True, help_text="the group that is asked")
    grant_approval_id = models.CharField(max_length=40, blank=True)
    grant_revision = models.IntegerField(null=True)
    grant_hash = models.CharField(max_length=80, blank=True)
    grant_until = models.DateTimeField(null=True)

    provider_reference = models.CharField(max_length=200, blank=True)
    answer = models.BinaryField(null=True, help_text="sealed: what the receiver answered at completion")
    problem = models.TextField(blank=True, help_text="why it is not completed, in plain words")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "effect_type", "id"], name="effect_once"),
            models.CheckConstraint(condition=allowed_pairs(), name="effect_status_pairs"),
            models.CheckConstraint(
                condition=~Q(sub_state=SubState.IN_FLIGHT) | Q(lease_until__isnull=False),
                name="effect_in_flight_has_lease",
            ),
            # Uncertain is a property of the attempts: nothing but settling them takes the mark away.
            models.CheckConstraint(
                condition=Q(unresolved=False)
                | Q(sub_state__in=list(UNRESOLVED_IN))
                | Q(status__in=[EffectStatus.ACCEPTED, EffectStatus.COMPLETED]),
                name="effect_unresolved_not_closed",
            ),
            models.CheckConstraint(
                condition=Q(successor_of__isnull=True) | Q(compensates__isnull=True),
                name="effect_one_kind_of_link",
            ),
            models.UniqueConstraint(
                fields=["receiver", "effect_type", "provider_reference"],
                condition=Q(creates=True, status=EffectStatus.COMPLETED) & ~Q(provider_reference=""),
                name="effect_reference_once",
            ),
            models.CheckConstraint(
                condition=~Q(sub_state=SubState.UNCERTAIN) | Q(unresolved=True),
                name="effect_uncertain_is_unresolved",
            ),
            # Nothing that needs an approval is under way without a grant for exactly these bytes.
            models.CheckConstraint(
                condition=Q(needs_approval=False)
                | ~Q(sub_state__in=[SubState.READY, SubState.IN_FLIGHT])
                | Q(grant_revision=F("revision"), grant_hash=F("request_hash")),
                name="effect_sent_only_with_grant",
            ),
            models.CheckConstraint(
                condition=Q(
                    status__in=[EffectStatus.COMPLETED, EffectStatus.FAILED], settled_at__isnull=False
                )
                | Q(status__in=[EffectStatus.PENDING, EffectStatus.ACCEPTED], settled_at__isnull=True),
                name="effect_settled_has_time",
            ),
        ]
        indexes = [
            models.Index(
                fields=["workspace", "-created_at", "-id"], name="effect_newest"
            ),  # the Effects page
            models.Index(fields=["run_id", "created_at"], name="effect_of_run"),  # the Run page, settle
            models.Index(  # the sweep: leases that ended
                fields=["lease_until"], condition=Q(sub_state=SubState.IN_FLIGHT), name="effect_lease"
            ),
            models.Index(  # the sweep: tries and looks that are due
                fields=["due_at"],
                condition=Q(sub_state__in=[SubState.BACKOFF, SubState.UNCERTAIN])
                | Q(status=EffectStatus.ACCEPTED),
                name="effect_due",
            ),
            models.Index(  # the sweep: what an ended run left unsent
                fields=["run_id"], condition=Q(sub_state__in=list(UNSENT)), name="effect_unsent"
            ),
            models.Index(  # search by the receiver's own number
                fields=["receiver", "effect_type", "provider_reference"],
                condition=~Q(provider_reference=""),
                name="effect_reference",
            ),
        ]
        triggers = [COMPLETED_IS_FINAL, IDENTITY_STAYS, MOVES_ARE_THOSE_OF_STATES]

    def __str__(self) -> str:
        return self.id


class EffectRevision(models.Model):
    """One version of an effect's payload, with the exact bytes that are sent. Immutable."""

    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="revisions")
    n = models.IntegerField()
    by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, help_text="null: the machine")
    payload = models.BinaryField(help_text="sealed: canonical JSON")
    request = models.BinaryField(help_text="sealed: the bytes to send")
    shown = models.JSONField(help_text="the payload with protected fields masked")
    recipient = models.CharField(max_length=300, help_text="masked where the contract masks it")
    request_hash = models.CharField(max_length=80)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["effect", "n"], name="revision_once")]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return f"{self.effect_id} revision {self.n}"


class EffectAttempt(models.Model):
    """One try to deliver an effect. Inserted and committed before the first byte; ended once."""

    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="attempts")
    n = models.IntegerField()
    fence = models.IntegerField()
    revision = models.IntegerField()
    request_hash = models.CharField(max_length=80)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.SENDING)
    worker_id = models.CharField(max_length=40, blank=True)
    origin = models.CharField(max_length=60, help_text="the execution or the order that sent it")
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    latency_ms = models.IntegerField(null=True)
    answer_status = models.CharField(max_length=20, blank=True, help_text="HTTP status or SMTP code")
    provider_reference = models.CharField(max_length=200, blank=True)
    problem = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["effect", "n"], name="attempt_once"),
            models.CheckConstraint(
                condition=Q(outcome=Outcome.SENDING, ended_at__isnull=True)
                | (~Q(outcome=Outcome.SENDING) & Q(ended_at__isnull=False)),
                name="attempt_ended_has_time",
            ),
            # One effect is never under way twice.
            models.UniqueConstraint(
                fields=["effect"], condition=Q(outcome=Outcome.SENDING), name="attempt_one_sending"
            ),
        ]
        triggers = [
            ENDED_IS_FINAL,
            pgtrigger.Protect(name="kept", operation=pgtrigger.Delete),
            *APPEND_ONLY[1:],
        ]

    def __str__(self) -> str:
        return f"{self.effect_id} attempt {self.n}"


class Observation(models.Model):
    """Something learned later about an effect: a look-up's answer, a late response. Append-only."""

    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="observations")
    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=40, help_text="look_up, late_answer, webhook, …")
    found = models.CharField(
        max_length=20, help_text="found, absent, unclear, mismatch, several, under_way, failed"
    )
    provider_reference = models.CharField(max_length=200, blank=True)
    sentence = models.TextField()
    detail = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["effect", "at"], name="observation_of_effect")]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return self.sentence
