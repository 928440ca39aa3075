"""Reviews as the ledger leaves them, and a person's clicks on the desk."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client

from console.models import User
from effects import moves
from effects.commands.settle_review import settle_review
from effects.models import Effect, Review
from effects.states import ReviewOutcome, ReviewReason
from runs.models import Run
from tests.people import World
from tests.views import standing
from tests.views.asking import MAIL, TICKET, intend
from tests.views.ordering import form_at

WHY = "I called them, and they looked."


def opened(
    effect: Effect, reason: ReviewReason = ReviewReason.UNQUERYABLE, sentence: str = "Nobody can say."
) -> Review:
    assert moves.open_review(effect, reason, sentence)
    return Review.objects.get(effect=effect, reason=reason, closed_at=None)


def ticket_in_review(world: World, run: Run, **fields: Any) -> Review:
    """Uncertain, of a type that can be undone: one person settles it."""
    return opened(standing.uncertain(intend(world, run, "test.queried", TICKET)), **fields)


def mail_in_review(world: World, run: Run, **fields: Any) -> Review:
    """Uncertain, of a type that can't be undone: it takes two."""
    return opened(standing.uncertain(intend(world, run, "mail.send", MAIL)), **fields)


def orphan_in_review(world: World, reference: str = "tkt_000099") -> Review:
    """What a scan found at the receiver, and no row explains."""
    if not world.workspace.receivers.exists():
        world.receivers("http://127.0.0.1:9", 9)
    return Review.objects.create(
        workspace=world.workspace,
        receiver=world.workspace.receivers.get(name="desk"),
        provider_object=reference,
        reason=ReviewReason.ORPHAN,
        sentence=f"desk has {reference}, which bears an id of ours that no row has.",
    )


def proposed(world: World, review: Review, by: User | None = None, **given: Any) -> Review:
    """A releaser's proposal, which a second person has yet to confirm."""
    usual: dict[str, Any] = {
        "outcome": ReviewOutcome.DONE,
        "reason": WHY,
        "evidence": "<1@mail.example>",
        "token": f"propose-{review.id}",
    }
    settle_review(world.actor(by or world.releaser), review.id, **{**usual, **given})
    review.refresh_from_db()
    return review


def address(review: Review, verb: str = "") -> str:
    return f"/w/{review.workspace_id}/reviews/{review.id}/{f'{verb}/' if verb else ''}"


def outcomes_offered(page: Any) -> list[str]:
    """The decisions for which the page has a form."""
    return re.findall(r'name="outcome" value="(\w+)"', page.content.decode())


def settle(client: Client, review: Review, outcome: str, **typed: str) -> Any:
    """Open the review, fill in the decision's form, press its button. Who is shown no form sends a guess."""
    page = client.get(address(review)).content.decode()
    for body in re.findall(r"<form[^>]*>(.*?)</form>", page, re.DOTALL):
        if f'name="outcome" value="{outcome}"' in body:
            token = re.findall(r'name="form_token" value="([^"]*)"', body)[0]
            break
    else:
        token = "0" * 32
    given = {"form_token": token, "outcome": outcome, "reason": WHY, "evidence": "REF-7", **typed}
    return client.post(address(review, "settle"), given)


def press(client: Client, review: Review, verb: str, **typed: str) -> Any:
    """The form of *verb* on the review's page: confirm, decline or ask."""
    found = form_at(client.get(address(review)), address(review, verb))
    return client.post(address(review, verb), {**(found or {"form_token": "0" * 32}), **typed})
