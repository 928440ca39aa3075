"""The orphan scan: what a receiver has that carries an id of ours, and the ledger has no row of or does not know done.

It reads only. An object is ours by exactly the form of an effect's id in the field that the contract names. Three kinds
are told: one without a row in any ledger of this database becomes a review, once; one whose effect is not settled is
exact evidence about it; one of another workspace is counted as not this workspace's, and no more is said of it.
A list that could not be read to its end makes the scan failed: it never means that there are no orphans.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from console import audit
from console.kernel.ids import is_effect_id
from console.kernel.live import announce
from console.models import User, Workspace
from effects import moves, receivers
from effects.contracts import EffectContract, UnknownType, contract, contracts
from effects.models import Effect, EffectAttempt, OrphanScan, Receiver, Review, Standing, Stop
from effects.moves import evidence
from effects.outcomes import found_at_receiver
from effects.receivers.looking import Listed
from effects.selectors import belongs_to_another, request_of, revision_of
from effects.states import EffectStatus, ReviewReason, ScanStatus
from effects.wires import HttpWire

#: How much longer than one page's deadline a scan is held: what was found on it is written meanwhile.
MARGIN = timedelta(seconds=30)
#: A visit to a scan ends after this; the next one goes on at the page where it stood, in seconds.
VISIT = 20.0
#: More objects are not gone through in one scan: ask with a later time.
MOST_OBJECTS = 1_000_000
#: A scan that has not ended after this never will.
LONGEST = timedelta(days=1)
#: By how much more than needed a scan goes back, where nobody says since when.
FURTHER_BACK = timedelta(hours=1)
#: Where nothing was restored and nobody says since when.
USUAL = timedelta(days=30)


def listable_types(receiver: Receiver) -> list[str]:
    """The effect types whose objects this receiver can list."""
    return sorted(
        name
        for name, promise in contracts().items()
        if promise.receiver == receiver.name
        and isinstance(promise.wire, HttpWire)
        and promise.wire.listing is not None
    )


def live_receivers(workspace_id: str) -> list[Receiver]:
    """Those that the ledger's effects go to. Isolated ones hold what simulations made, of which there are no rows."""
    return list(
        Receiver.objects.select_related("workspace")
        .filter(workspace_id=workspace_id, standing=Standing.LIVE)
        .order_by("name")
    )


def known_until(before: datetime) -> datetime | None:
    """The newest sending that the ledger knew of *before* a moment: it lacks nothing that is older.

    Only attempts count. Pages may be used on a restored database before anybody notices; sent is nothing until then.
    """
    return (
        EffectAttempt.objects.filter(started_at__lt=before)
        .order_by("-id")
        .values_list("started_at", flat=True)
        .first()
    )


def default_since(workspace: Workspace) -> datetime:
    """Since when a scan looks that nobody gave a time: as far back as a standing stop after a restore needs."""
    stop = Stop.objects.filter(workspace=workspace, needs_scan=True, lifted_at=None).order_by("at").first()
    if stop is None:
        return timezone.now() - USUAL
    return (known_until(stop.at) or workspace.created_at) - FURTHER_BACK


def unscanned(workspace_id: str, since: datetime) -> list[str]:
    """The receivers that can list and were not scanned to the end since *since*, a stop's moment. By name.

    A scan counts for a type when it was asked for after that moment and looked back to the newest sending that the
    ledger knew of then. Receivers that can't list are not named: what they have can be learned from them alone.
    """
    needed = known_until(since)
    done = OrphanScan.objects.filter(
        workspace_id=workspace_id, status=ScanStatus.DONE, asked_at__gte=since
    ).filter(Q(since__lte=needed) if needed else Q())
    scanned = set(done.values_list("receiver_id", "effect_type"))
    return [
        receiver.name
        for receiver in live_receivers(workspace_id)
        if any((receiver.id, name) not in scanned for name in listable_types(receiver))
    ]


def ask(receiver: Receiver, *, since: datetime | None = None, token: str, by: User | str) -> list[OrphanScan]:
    """Queue a scan for each type that *receiver* can list. The same token again: those that it made.

    *by*: a person, or ``system:<part>``. Without *since* it is as far back as default_since says.
    """
    with transaction.atomic():
        # Two requests of one form, one after the other.
        Receiver.objects.select_for_update(no_key=True).get(id=receiver.id)
        tokens = {_token(token, receiver, name): name for name in listable_types(receiver)}
        known = list(OrphanScan.objects.filter(token__in=tokens).order_by("effect_type"))
        if known:
            return known
        since = since or default_since(receiver.workspace)
        scans = [
            OrphanScan.objects.create(
                workspace_id=receiver.workspace_id,
                receiver=receiver,
                effect_type=name,
                since=since,
                asked_by=by if isinstance(by, User) else None,
                token=unique,
            )
            for unique, name in tokens.items()
        ]
        audit.record(
            workspace_id=receiver.workspace_id,
            actor=by,
            verb="scan.asked",
            subject=receiver.id,
            sentence=f"Orphan scan of {receiver.name} since {since:%Y-%m-%d %H:%M} UTC asked by {by}",
            token=token,
            scans=[scan.id for scan in scans],
        )
        announce(receiver.workspace_id, "scans")
    return scans


def _token(token: str, receiver: Receiver, effect_type: str) -> str:
    """One for each row that a form makes: a token is the form's, and means nothing at another receiver."""
    return hashlib.sha256(json.dumps([token, receiver.id, effect_type]).encode()).hexdigest()


def _takeable() -> Q:
    return Q(status=ScanStatus.DUE) | Q(status=ScanStatus.RUNNING, lease_until__lte=Now())


def due(limit: int = 20) -> dict[str, str]:
    """Scans that nobody works on, oldest first, each with its receiver; at most one of a receiver."""
    busy = OrphanScan.objects.filter(status=ScanStatus.RUNNING, lease_until__gt=Now())
    waiting = OrphanScan.objects.filter(_takeable()).exclude(receiver__in=busy.values("receiver"))
    found: dict[str, str] = {}
    for scan_id, receiver_id in waiting.order_by("asked_at", "id").values_list("id", "receiver_id")[:200]:
        if receiver_id not in found.values() and len(found) < limit:
            found[scan_id] = receiver_id
    return found


class _Lost(Exception):
    """The lease ran out and somebody else has the scan."""


def work(
    scan_id: str, *, seconds: float = VISIT, stopping: Callable[[], bool] = lambda: False
) -> ScanStatus | None:
    """One visit: take the scan, and go through its pages for *seconds* or until *stopping*. How it stands afterwards.

    None: somebody else works on it or on another of its receiver, or it has ended. Asks outside any transaction; what
    was found on a page is written, then the page is noted as done. Killed anywhere, the next visit goes on there.
    """
    scan = _take(scan_id)
    if scan is None:
        return None
    ends = time.monotonic() + seconds
    try:
        while scan.status == ScanStatus.RUNNING:
            scan = _go_through_a_page(scan)
            if scan.status == ScanStatus.RUNNING and (stopping() or time.monotonic() > ends):
                _held(scan).update(lease_until=Now())
                break
    except _Lost:
        return None
    return ScanStatus(scan.status)


def _take(scan_id: str) -> OrphanScan | None:
    """Claim it by a lease, at most one of a receiver. The receiver's row keeps two from claiming at once."""
    with transaction.atomic():
        scan = OrphanScan.objects.filter(id=scan_id).select_related("receiver").first()
        if scan is None:
            return None
        Receiver.objects.select_for_update(no_key=True).get(id=scan.receiver_id)
        others = OrphanScan.objects.filter(
            receiver_id=scan.receiver_id, status=ScanStatus.RUNNING, lease_until__gt=Now()
        )
        if others.exists():
            return None
        taken = OrphanScan.objects.filter(_takeable(), id=scan_id).update(
            status=ScanStatus.RUNNING, lease_until=Now() + _lease(scan)
        )
        return _read_again(scan) if taken else None


def _lease(scan: OrphanScan) -> timedelta:
    promise = contracts().get(scan.effect_type)
    return MARGIN + timedelta(seconds=promise.deadline if promise else 0)


def _read_again(scan: OrphanScan) -> OrphanScan:
    return OrphanScan.objects.select_related("receiver").get(id=scan.id)


def _held(scan: OrphanScan) -> QuerySet[OrphanScan]:
    """The scan's row, while our lease is the newest."""
    return OrphanScan.objects.filter(id=scan.id, status=ScanStatus.RUNNING, lease_until=scan.lease_until)


@dataclass
class _Tally:
    orphans: int = 0
    elsewhere: int = 0


def _go_through_a_page(scan: OrphanScan) -> OrphanScan:
    """Ask for the page where the scan stands, tell what is on it, and note that. Raises _Lost."""
    try:
        promise = contract(scan.effect_type)
    except UnknownType as unknown:
        return _ended(scan, ScanStatus.FAILED, unknown.message)
    page = receivers.list_page(promise, scan.receiver, since=scan.since, address=scan.page)
    if not _held(scan).filter(lease_until__gt=Now()).exists():
        raise _Lost
    tally = _tell(scan, promise, page.objects)
    with transaction.atomic():
        landed = _held(scan).update(
            looked_at=F("looked_at") + len(page.objects),
            found=F("found") + tally.orphans,
            elsewhere=F("elsewhere") + tally.elsewhere,
            page=page.following,
            lease_until=Now() + _lease(scan),
        )
        if not landed:
            raise _Lost
        was, scan = scan.page, _read_again(scan)
        if page.cut:
            return _ended(scan, ScanStatus.FAILED, page.cut)
        if not page.following:
            return _ended(scan, ScanStatus.DONE)
        if problem := _endless(scan, was):
            return _ended(scan, ScanStatus.FAILED, problem)
        announce(scan.workspace_id, "scans")
    return scan


def _endless(scan: OrphanScan, was: str) -> str:
    """Why the list can't be read to its end, in words; empty while it may be."""
    if scan.page == was:
        return "The list goes on at the page that was read already."
    if scan.looked_at > MOST_OBJECTS:
        return f"The list has more than {MOST_OBJECTS:,} objects. Scan again from a later time."
    if OrphanScan.objects.filter(id=scan.id, asked_at__lt=Now() - LONGEST).exists():
        return "The list could not be read to its end within a day. Scan again from a later time."
    return ""


def _ended(scan: OrphanScan, status: ScanStatus, problem: str = "") -> OrphanScan:
    with transaction.atomic():
        if not _held(scan).update(status=status, problem=problem, lease_until=None, ended_at=Now()):
            raise _Lost
        scan = _read_again(scan)
        audit.record(
            workspace_id=scan.workspace_id,
            actor="system:scan",
            verb=f"scan.{status}",
            subject=scan.id,
            sentence=f"{_what(scan)}: {outcome(scan)}",
            receiver=scan.receiver_id,
            effect_type=scan.effect_type,
            since=scan.since.isoformat(),
            looked_at=scan.looked_at,
            found=scan.found,
            elsewhere=scan.elsewhere,
        )
        announce(scan.workspace_id, "scans", "stops", "home")
    return scan


def _what(scan: OrphanScan) -> str:
    return f"Orphan scan of {scan.receiver.name} ({scan.effect_type}) since {scan.since:%Y-%m-%d %H:%M} UTC"


def outcome(scan: OrphanScan) -> str:
    """What came of a scan so far, in words."""
    objects = f"{scan.looked_at:,} object{'' if scan.looked_at == 1 else 's'} looked at"
    orphans = f"{scan.found or 'no'} orphan{'' if scan.found == 1 else 's'}"
    elsewhere = f", {scan.elsewhere} not this workspace's" if scan.elsewhere else ""
    if scan.status == ScanStatus.DONE:
        return f"{objects}, {orphans}{elsewhere}"
    so_far = f"{objects}, {scan.found} orphan{'' if scan.found == 1 else 's'} found{elsewhere}"
    if scan.status == ScanStatus.FAILED:
        return f"failed: {scan.problem} ({so_far} until then; there may be more)"
    return f"{scan.get_status_display().lower()}: {so_far} so far"


def _tell(scan: OrphanScan, promise: EffectContract, objects: Iterable[Listed]) -> _Tally:
    """What the objects of one page say. Each is told in a transaction of its own, and telling it again says no more."""
    ours = [(one, [key for key in one.keys if is_effect_id(key)]) for one in objects]
    rows = dict(
        Effect.objects.filter(id__in={key for _, keys in ours for key in keys}).values_list(
            "id", "workspace_id"
        )
    )
    tally = _Tally()
    for one, keys in ours:
        if lacking := [key for key in keys if key not in rows]:
            tally.orphans += 1
            _review_orphan(scan, promise, one, lacking)
        if any(rows.get(key, scan.workspace_id) != scan.workspace_id for key in keys):
            tally.elsewhere += 1
        # An object that bears several ids, as a text that quotes another does, is evidence about none of them.
        if len(one.keys) == 1 and keys and rows.get(keys[0]) == scan.workspace_id:
            _weigh(scan, keys[0], one)
    return tally


def _review_orphan(scan: OrphanScan, promise: EffectContract, one: Listed, ids: list[str]) -> None:
    sentence = (
        f"{scan.receiver.name} has {one.reference or 'an object'} ({promise.title}), which carries {', '.join(ids)}. "
        "The ledger has no effect of that id: what was noted of it is lost, or another installation sent it."
    )
    with transaction.atomic():
        if evidence.open_orphan_review(scan.receiver, reference=one.reference, ids=ids, sentence=sentence):
            announce(scan.workspace_id, "reviews", "effects", "home")


def _weigh(scan: OrphanScan, effect_id: str, one: Listed) -> None:
    """An object that bears the id of an effect of this workspace: evidence, unless the ledger says the same already."""
    with transaction.atomic():
        effect = Effect.objects.select_for_update(of=("self",)).select_related("receiver").get(id=effect_id)
        if effect.status == EffectStatus.COMPLETED and one.reference in ("", effect.provider_reference):
            return
        name, reference = scan.receiver.name, one.reference or "an object without an id"
        if effect.receiver_id != scan.receiver_id:
            _say_once(
                effect,
                ReviewReason.CONTRADICTION,
                one,
                f"{name} has {reference} with its id, but it was to go to {effect.receiver.name}.",
            )
        elif effect.status == EffectStatus.COMPLETED:
            _say_once(
                effect,
                ReviewReason.DUPLICATE_FOUND,
                one,
                f"{name} has {reference} with its id, beside {effect.provider_reference}.",
            )
        elif effect.status == EffectStatus.FAILED:
            _say_once(
                effect,
                ReviewReason.CONTRADICTION,
                one,
                f"{name} has {reference} with its id, but the ledger says: {effect.get_sub_state_display().lower()}.",
            )
        else:
            _settle(effect, one)
        announce(effect.workspace_id, f"run:{effect.run_id}", f"effect:{effect.id}", "effects", "home")


def _say_once(effect: Effect, reason: ReviewReason, one: Listed, sentence: str) -> None:
    """A review of an effect that is settled: nothing of it changes any more, so what people have seen is not told again."""
    told = Review.objects.filter(effect=effect, reason=reason)
    if told.filter(provider_object=one.reference).exists() or told.filter(closed_at=None).exists():
        return
    moves.observe(effect, "scan", "found", sentence, reference=one.reference)
    Review.objects.create(
        workspace_id=effect.workspace_id,
        effect=effect,
        reason=reason,
        provider_object=one.reference,
        sentence=sentence,
    )


def _settle(effect: Effect, one: Listed) -> None:
    """What is not settled is settled by exact evidence, compared with what was sent, or goes to a person."""
    finding = receivers.judge(
        contract(effect.effect_type), effect, request_of(effect, revision_of(effect)), one.object
    )
    moves.observe(
        effect, "scan", finding.found, finding.sentence, reference=finding.reference, **finding.detail
    )
    if finding.found == "mismatch":
        moves.open_review(effect, ReviewReason.MISMATCH, finding.sentence)
    elif finding.found == "found" and belongs_to_another(effect, finding.reference):
        moves.open_review(
            effect,
            ReviewReason.MISMATCH,
            f"{finding.reference} belongs to another effect already.",
        )
    elif finding.found == "found":
        found_at_receiver(
            effect, finding.reference, finding.body, why="An orphan scan found it at the receiver."
        )
