"""The Review desk: what only a person can settle, the evidence side by side, and the decisions that the rules allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.kernel.errors import Forbidden, Invalid, NotFound, Refusal
from console.kernel.paging import keyset
from console.kernel.words import REVIEW_REASONS
from console.models import Capability
from console.pages import LeverForm, SeeOther, in_workspace, new_token
from effects import orphans
from effects.commands import settle_review as commands
from effects.commands.ask_receiver import ask_receiver
from effects.commands.scan_orphans import scan_orphans
from effects.forms import DeclineForm, ReviewFilter, ScanForm, SettleForm, first_problem
from effects.models import OrphanScan, Review
from effects.selectors import receiver_names, reviews_seen_by
from effects.states import OVERRIDABLE, EffectStatus, ReviewOutcome, ReviewReason, SubState
from effects.views.acts import Asking, asking_of
from effects.views.addresses import is_fragment, paged
from effects.views.record import record_of
from effects.views.section import section_of
from effects.views.telling import titles

#: How many reviews a page of the desk shows.
PAGE = 50
#: How many of the newest orphan scans it shows.
SCANS = 6
#: The desk's tabs: their word, and which reviews they show.
TABS: dict[str, tuple[str, Callable[[QuerySet[Review]], QuerySet[Review]]]] = {
    "open": ("Open", lambda found: found.filter(closed_at=None)),
    "second": (
        "Waiting for a second person",
        lambda found: found.filter(closed_at=None, proposed_at__isnull=False),
    ),
    "closed": ("Closed", lambda found: found.filter(closed_at__isnull=False)),
}
#: What each decision does, in a sentence under its verb.
SAYS: dict[ReviewOutcome, str] = {
    ReviewOutcome.DONE: "The receiver has it. The effect is completed with the reference that you give.",
    ReviewOutcome.NOT_DONE: "Nothing of it exists. The effect is closed as cancelled, and its run is told so.",
    ReviewOutcome.SEND: "Nothing of it exists. It is sent now, with the same key and the same bytes.",
    ReviewOutcome.STANDS: "Nothing changes in the ledger. Say what you did about it at the receiver.",
}
ICONS: dict[ReviewOutcome, str] = {
    ReviewOutcome.DONE: "circle-check",
    ReviewOutcome.NOT_DONE: "circle-slash",
    ReviewOutcome.SEND: "send",
    ReviewOutcome.STANDS: "bookmark",
}


@dataclass(frozen=True)
class Verb:
    """One way to settle a review, as a form of its own. *reason*: why it is not open to this person."""

    outcome: ReviewOutcome
    reason: str
    second: bool
    form: SettleForm
    tried: bool = False
    token: str = field(default_factory=new_token)

    @property
    def says(self) -> str:
        return SAYS[self.outcome]

    @property
    def icon(self) -> str:
        return ICONS[self.outcome]


@dataclass(frozen=True)
class Row:
    """A review on the desk: what it is about, and who is to do something next."""

    review: Review
    title: str
    whose: str

    @property
    def receiver(self) -> str:
        return receiver_of(self.review)


@require_safe
@in_workspace()
def reviews(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The desk: newest first. A filter that can't be read is 400 and says which."""
    return _listed(request, actor)


def _listed(
    request: HttpRequest, actor: Actor, *, typed: ScanForm | None = None, refusal: Refusal | None = None
) -> HttpResponse:
    form = ReviewFilter(request.GET, receivers=receiver_names(actor))
    valid = form.is_valid()
    view = request.GET.get("view", "open") if request.GET.get("view", "open") in TABS else "open"
    page = None
    if valid:
        found = TABS[view][1](reviews_seen_by(actor)).filter(form.conditions())
        page = keyset(found, fields=("opened_at", "id"), cursor=request.GET.get("cursor"), size=PAGE)
    scannable = _scannable(actor)
    if typed is not None and refusal is not None:
        typed.refuse(refusal)
    context = {
        **section_of(actor, "reviews"),
        "form": form,
        "problem": first_problem(form),
        "rows": _rows(page.rows, actor) if page else [],
        "view": view,
        "tabs": [
            {"label": word, "href": _tab(request, actor, name), "current": name == view}
            for name, (word, _) in TABS.items()
        ],
        "filtered": any(form.data.get(name) for name in form.fields),
        "scans": _scans(actor, request.GET.get("scan", "")),
        "scan": typed or ScanForm(receivers=scannable),
        "scan_reason": _not_scanned(actor, scannable),
        "token": new_token(),
        "refusal": refusal,
        **paged(request, page),
    }
    template = "reviews/_list.html" if is_fragment(request) and valid else "reviews/list.html"
    status = refusal.status if refusal else 200 if valid else 400
    return render(request, template, context, status=status)


def _rows(found: list[Review], actor: Actor) -> list[Row]:
    names = titles()
    return [Row(one, title_of(one, names), whose_turn(one, actor)) for one in found]


def title_of(found: Review, names: dict[str, str]) -> str:
    """The effect's title; of an orphan the receiver's own name of the object."""
    if found.effect is None:
        return f"Object {found.provider_object}"
    return names.get(found.effect.effect_type, found.effect.effect_type)


def receiver_of(found: Review) -> str:
    """Who has, or may have, what it is about."""
    of_effect = found.effect.receiver if found.effect else None
    receiver = of_effect or found.receiver
    return receiver.name if receiver else ""


def whose_turn(found: Review, actor: Actor) -> str:
    """Who has to do something about it now, as *actor* reads it; nobody once it is closed."""
    if found.closed_at is not None:
        return ""
    if found.effect is not None and found.effect.sub_state == SubState.IN_FLIGHT:
        return "Nobody, while it is in flight"
    if found.proposed_at is None:
        return "You" if actor.may(Capability.REPEAT) else "A releaser"
    return "A second person" if _second(actor, found) else "You, as the second person"


def _tab(request: HttpRequest, actor: Actor, view: str) -> str:
    """The same filters in another tab, from its first page."""
    query = request.GET.copy()
    for name in ("cursor", "view", "scan"):
        query.pop(name, None)
    query["view"] = view
    return f"{reverse('reviews', args=[actor.workspace.id])}?{query.urlencode()}"


def _scans(actor: Actor, also: str) -> list[OrphanScan]:
    """The newest scans, and the one that was asked for."""
    found = OrphanScan.objects.filter(workspace=actor.workspace).select_related("receiver", "asked_by")
    newest = list(found.order_by("-asked_at", "-id")[:SCANS])
    if also and all(scan.id != also for scan in newest):
        newest += found.filter(id=also)
    return newest


def _scannable(actor: Actor) -> list[tuple[str, str]]:
    """The receivers that can list what they have, as a form's choices."""
    return [
        (one.id, one.name)
        for one in orphans.live_receivers(actor.workspace.id)
        if orphans.listable_types(one)
    ]


def _not_scanned(actor: Actor, scannable: list[tuple[str, str]]) -> str:
    if not actor.may(Capability.REPEAT):
        return "Only a releaser may scan for orphans."
    return "" if scannable else "No receiver of this workspace can list what it has."


@require_POST
@in_workspace()
def scan(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Scan a receiver for objects that bear our ids and have no row. The sweep goes through it."""
    form = ScanForm(request.POST, receivers=_scannable(actor))
    token = LeverForm.token_of(request.POST)
    valid = form.is_valid()
    try:
        if not valid and actor.may(Capability.REPEAT):
            raise Invalid(first_problem(form))
        scans = scan_orphans(
            actor,
            form.text("receiver"),
            since=form.cleaned_data.get("since"),
            token=token,
        )
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _listed(request, actor, typed=form, refusal=refusal)
    messages.success(request, f"{scans[0].receiver.name} is being scanned. What is found becomes a review.")
    return SeeOther(f"{reverse('reviews', args=[actor.workspace.id])}#scans")


@require_safe
@in_workspace()
def review(request: HttpRequest, actor: Actor, review_id: str) -> HttpResponse:
    """One review, with what was meant beside what is known."""
    return _shown(request, actor, review_id)


@require_POST
@in_workspace()
def settle(request: HttpRequest, actor: Actor, review_id: str) -> HttpResponse:
    """Settle it, or propose how where a second person has to agree."""
    found = _seen(actor, review_id)
    form = SettleForm(request.POST, name=request.POST.get("outcome", "")[:20])
    token = LeverForm.token_of(request.POST)
    try:
        outcome = _outcome(request.POST.get("outcome", ""))
        form.is_valid()
        settled = commands.settle_review(
            actor,
            found.id,
            outcome=outcome,
            reason=form.text("reason"),
            evidence=form.text("evidence"),
            token=token,
        )
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _shown(request, actor, review_id, typed=form, refusal=refusal)
    messages.success(request, _told(settled))
    return SeeOther(reverse("review", args=[actor.workspace.id, review_id]))


def _outcome(given: str) -> ReviewOutcome:
    if given not in ReviewOutcome.values:
        raise Invalid("Choose how to settle it.", field="outcome")
    return ReviewOutcome(given)


def _told(settled: Review) -> str:
    if settled.closed_at is None:
        return (
            f"Proposed by {settled.proposed_by.name if settled.proposed_by else ''}: "
            f"{settled.get_proposed_as_display().lower()}. A second person has to agree."
        )
    return f"Settled: {settled.get_settled_as_display().lower()}."


@require_POST
@in_workspace()
def confirm(request: HttpRequest, actor: Actor, review_id: str) -> HttpResponse:
    """The second person agrees with what was proposed."""
    token = LeverForm.token_of(request.POST)
    try:
        settled = commands.confirm(actor, review_id, token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _shown(request, actor, review_id, refusal=refusal)
    messages.success(request, _told(settled))
    return SeeOther(reverse("review", args=[actor.workspace.id, review_id]))


@require_POST
@in_workspace()
def decline(request: HttpRequest, actor: Actor, review_id: str) -> HttpResponse:
    """The second person does not agree; the review stays open."""
    token = LeverForm.token_of(request.POST)
    form = DeclineForm(request.POST)
    form.is_valid()
    try:
        commands.decline(actor, review_id, reason=form.cleaned_data.get("reason", ""), token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        if refusal.field == "reason" and "reason" not in form.errors:
            form.add_error("reason", refusal.message)
        return _shown(request, actor, review_id, declining=form, refusal=refusal)
    messages.info(request, "It stays open: you did not agree.")
    return SeeOther(reverse("review", args=[actor.workspace.id, review_id]))


def _seen(actor: Actor, review_id: str) -> Review:
    found = reviews_seen_by(actor).filter(id=review_id).first()
    if found is None:
        raise NotFound(f"There is no review {review_id} here.")
    return found


def _shown(
    request: HttpRequest,
    actor: Actor,
    review_id: str,
    *,
    typed: SettleForm | None = None,
    declining: DeclineForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    found = _seen(actor, review_id)
    if typed is not None and refusal is not None:
        typed.refuse(refusal)
    effect = found.effect
    verbs = verbs_of(actor, found, typed)
    context: dict[str, Any] = {
        **section_of(actor, "reviews"),
        "review": found,
        "title": title_of(found, titles()),
        "receiver_name": receiver_of(found),
        "whose": whose_turn(found, actor),
        "means": REVIEW_REASONS.get(found.reason, found.sentence),
        "verbs": verbs,
        "ways": [verb for verb in verbs if not verb.reason],
        "shut": [verb for verb in verbs if verb.reason],
        "declining": declining or DeclineForm(),
        "second": _second(actor, found),
        "token": new_token(),
        "refusal": refusal,
        "references": references_of(found),
        "found_since": _found_since(found),
        "asking": _asking(actor, found),
        **(record_of(effect) if effect else {}),
    }
    template = "reviews/_review.html" if is_fragment(request) else "reviews/review.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _found_since(found: Review) -> bool:
    """It was asked because nobody knew, and somebody knows now: the receiver has it."""
    done = found.effect is not None and found.effect.status == EffectStatus.COMPLETED
    return done and found.closed_at is None and found.reason in OVERRIDABLE


def _asking(actor: Actor, found: Review) -> Asking | None:
    """“Ask the receiver now”, coming back to this page."""
    if found.effect is None or found.closed_at is not None:
        return None
    return replace(
        asking_of(found.effect, actor), action=reverse("review_ask", args=[found.workspace_id, found.id])
    )


@require_POST
@in_workspace()
def ask(request: HttpRequest, actor: Actor, review_id: str) -> HttpResponse:
    """Ask the receiver now about the review's effect: one look-up is queued."""
    found = _seen(actor, review_id)
    token = LeverForm.token_of(request.POST)
    if found.effect is None:
        raise NotFound("There is no effect of ours to ask about.")
    try:
        ask_receiver(actor, found.effect.id, token=token)
    except (Forbidden, NotFound):
        raise
    except Refusal as refusal:
        return _shown(request, actor, review_id, refusal=refusal)
    messages.info(request, f"{actor.user.name} asked {receiver_of(found)}. What it says will stand here.")
    return SeeOther(reverse("review", args=[actor.workspace.id, review_id]))


def verbs_of(actor: Actor, found: Review, typed: SettleForm | None = None) -> list[Verb]:
    """Every decision, those that are not open with their reason. None on a closed review."""
    if found.closed_at is not None:
        return []
    lacking = "" if actor.may(Capability.REPEAT) else "Only a releaser may settle a review."
    made = []
    for outcome, why_not in commands.outcomes_of(found).items():
        tried = typed is not None and typed.name == outcome.value
        form = typed if typed is not None and tried else SettleForm(name=outcome.value)
        made.append(Verb(outcome, why_not or lacking, commands.needs_second(found, outcome), form, tried))
    return made


def _second(actor: Actor, found: Review) -> str:
    """Why this person can't be the second one; empty: they can. Only where something is proposed."""
    if not actor.may(Capability.SECOND):
        return "Your roles do not let you be the second person."
    if found.proposed_by_id == actor.user.id:
        return "Four eyes: you proposed it, so somebody else confirms it."
    return ""


def references_of(found: Review) -> list[str]:
    """The receiver's own numbers of what it has there, as the newest finding that the review is about said them."""
    effect = found.effect
    if effect is not None and found.reason == ReviewReason.DUPLICATE_FOUND:
        several = effect.observations.filter(found="several").order_by("-at", "-id").first()
        named = several.detail.get("references", []) if several else []
        return [str(one) for one in named] if isinstance(named, list) else []
    if effect is not None and found.reason in (ReviewReason.MISMATCH, ReviewReason.CONTRADICTION):
        named_last = effect.observations.exclude(provider_reference="").order_by("-at", "-id").first()
        return [named_last.provider_reference] if named_last else []
    return [found.provider_object] if found.provider_object else []
