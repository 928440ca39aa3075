"""The moves by what a receiver says later: a look-up's finding, a webhook. Each is one conditional UPDATE, as all are.

Two looks or messages about one effect are serialised by the lock on its row, which the caller holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from effects.models import Effect, LookRequest, Receiver, Review
from effects.moves import CLOSED_BY_EVIDENCE
from effects.states import Dedup, EffectStatus, ReviewReason, SubState

#: As long as the column of a review.
LONGEST_OBJECT = 200


def _kept_for_people() -> Exists:
    """An open review that evidence does not answer: while there is one, a machine only completes."""
    reviews = Review.objects.filter(effect=OuterRef("pk"), closed_at__isnull=True)
    return Exists(reviews.exclude(reason__in=CLOSED_BY_EVIDENCE))


def answerable() -> QuerySet[Effect]:
    """Accepted or uncertain, and no review stands that only people close."""
    return Effect.objects.filter(
        Q(status=EffectStatus.ACCEPTED) | Q(status=EffectStatus.PENDING, sub_state=SubState.UNCERTAIN)
    ).exclude(_kept_for_people())


def accept_by_evidence(effect_id: str, *, reference: str, wait: timedelta, deadline: timedelta) -> bool:
    """uncertain → accepted: the receiver has exactly this command and has not said how it ends.

    Looked at again after *wait*, its end due by *deadline*. *reference* is what the receiver calls the command, empty
    when it gave nothing.
    """
    return bool(
        answerable()
        .filter(id=effect_id, status=EffectStatus.PENDING)
        .update(
            status=EffectStatus.ACCEPTED,
            sub_state=SubState.NONE,
            provider_reference=reference,
            lease_until=None,
            due_at=Now() + wait,
            final_by=Now() + deadline,
            looks=0,
            absences=0,
            absent_at=None,
            problem="",
            updated_at=Now(),
        )
    )


def refuse_accepted(effect_id: str, *, problem: str) -> bool:
    """accepted → failed/refused: the receiver's own final answer about exactly this command.

    It answers for every attempt: they all carried the one key. Nothing exists, so the next sending would be the first.
    """
    return bool(
        answerable()
        .filter(id=effect_id, status=EffectStatus.ACCEPTED)
        .update(
            status=EffectStatus.FAILED,
            sub_state=SubState.REFUSED,
            unresolved=False,
            problem=problem,
            due_at=None,
            first_sent_at=None,
            key_until=None,
            settled_at=Now(),
            updated_at=Now(),
        )
    )


def count_absence(effect_id: str, *, fence: int, wait: timedelta) -> int:
    """One more look in a row, since the last send, that did not find it. Returns how many there are now; 0: it moved.

    *fence*: the effect's when it was asked. The next look is due after *wait*.
    """
    landed = Effect.objects.filter(
        id=effect_id, status=EffectStatus.PENDING, sub_state=SubState.UNCERTAIN, fence=fence
    ).update(absences=F("absences") + 1, due_at=Now() + wait, updated_at=Now())
    return Effect.objects.values_list("absences", flat=True).get(id=effect_id) if landed else 0


def break_row(effect_id: str) -> bool:
    """A look that did not say "not there" ends the row of those that did."""
    return bool(
        Effect.objects.filter(id=effect_id, sub_state=SubState.UNCERTAIN, absences__gt=0).update(
            absences=0, updated_at=Now()
        )
    )


def retract_absence(effect_id: str) -> bool:
    """Something of it is at the receiver: nothing is proven absent any more."""
    return bool(
        Effect.objects.filter(id=effect_id, sub_state=SubState.UNCERTAIN).update(
            absences=0, absent_at=None, updated_at=Now()
        )
    )


def prove_absent(effect_id: str, *, fence: int) -> bool:
    """Uncertain stays uncertain, with the proof: enough looks in a row since the last send did not find it.

    What may follow is decided elsewhere: sent again where the receiver enforces uniqueness, a successor by people.
    """
    return bool(
        Effect.objects.filter(
            id=effect_id, status=EffectStatus.PENDING, sub_state=SubState.UNCERTAIN, fence=fence
        ).update(absent_at=Coalesce(F("absent_at"), Now()), updated_at=Now())
    )


def close_key_window(effect_id: str) -> bool:
    """Uncertain by key, and the receiver would only repeat an old error: the machine repeats it no more."""
    return bool(
        Effect.objects.filter(
            id=effect_id,
            status=EffectStatus.PENDING,
            sub_state=SubState.UNCERTAIN,
            dedup=Dedup.KEY,
            key_until__gt=Now(),
        ).update(key_until=Now(), updated_at=Now())
    )


def look_soon(effect_id: str) -> bool:
    """Accepted or uncertain: the receiver is asked again as soon as may be."""
    return bool(
        Effect.objects.filter(id=effect_id)
        .filter(
            Q(status=EffectStatus.ACCEPTED) | Q(status=EffectStatus.PENDING, sub_state=SubState.UNCERTAIN)
        )
        .update(due_at=Now(), updated_at=Now())
    )


def open_orphan_review(receiver: Receiver, *, reference: str, ids: Sequence[str], sentence: str) -> bool:
    """The receiver has an object that carries *ids*, of which the ledger has no row. One review an object, for good.

    *reference*: the receiver's own id of it, empty where it gave none. *sentence* names the ids. Whoever learns of it,
    a scan or a webhook, comes by here. False: people have been told of this object already.
    """
    name, told = reference or ids[0], ", ".join(ids)
    # Some receivers number each kind of object by itself: the same number with another id is another object.
    numbered = f"{name} with {told}"[:LONGEST_OBJECT]
    known = Review.objects.filter(receiver=receiver, provider_object__in=[name, numbered])
    if any(told in earlier for earlier in known.values_list("sentence", flat=True)):
        return False
    _, made = Review.objects.get_or_create(
        receiver=receiver,
        provider_object=numbered if known else name,
        defaults={
            "workspace_id": receiver.workspace_id,
            "reason": ReviewReason.ORPHAN,
            "sentence": sentence,
        },
    )
    return made


def open_questions() -> QuerySet[LookRequest]:
    """Questions of people that wait for an answer, or whose asker was lost."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=Now())
    return LookRequest.objects.filter(free, ended_at=None)


def take_question(effect_id: str, *, lease: timedelta) -> bool:
    """Claim the open question about an effect: two sweeps never ask it at once."""
    return bool(open_questions().filter(effect_id=effect_id).update(lease_until=Now() + lease))


def end_question(effect_id: str, *, found: str) -> bool:
    return bool(
        LookRequest.objects.filter(effect_id=effect_id, ended_at=None).update(ended_at=Now(), found=found)
    )
