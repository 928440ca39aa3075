"""Conversations: their messages and every run made for them."""

from __future__ import annotations

from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.errors import NotFound
from console.kernel.paging import keyset
from console.pages import in_workspace
from runs.forms import Paging
from runs.inspection import Veil
from runs.models import Message
from runs.selectors import conversations_seen_by, runs_seen_by
from runs.views.reading import MAX_ROWS, message_row
from runs.views.runs import rows_of

SIZE = 50
#: Messages are veiled by what so many of the newest runs protect.
VEILED = 3


@require_safe
@in_workspace()
def conversations(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The newest first; ``?q=`` looks in subject, customer and customer's name."""
    chosen = Paging.read(request.GET).cleaned_data
    found = conversations_seen_by(actor)
    if text := chosen["q"]:
        found = found.filter(
            Q(subject__icontains=text) | Q(customer_ref=text) | Q(customer_name__icontains=text)
        )
    page = keyset(found, cursor=chosen["cursor"], size=SIZE)
    latest = latest_runs(actor, [row.id for row in page.rows])
    context = {
        "rows": [(row, latest.get(row.id)) for row in page.rows],
        "q": text,
        "newer": _address(text, page.newer),
        "older": _address(text, page.older),
        "text": f"{len(page.rows)} conversation{'' if len(page.rows) == 1 else 's'}, newest first",
        "nav": "conversations",
    }
    return render(request, "conversations/conversations.html", context)


def _address(text: str, cursor: str | None) -> str:
    """The query string of a neighbouring page; empty where there is none."""
    if not cursor:
        return ""
    return "?" + urlencode({"q": text, "cursor": cursor} if text else {"cursor": cursor})


@require_safe
@in_workspace()
def conversation(request: HttpRequest, actor: Actor, conversation_id: str) -> HttpResponse:
    """The messages, oldest first, beside the runs, newest first."""
    found = conversations_seen_by(actor).filter(id=conversation_id).first()
    if found is None:
        raise NotFound(f"There is no conversation {conversation_id} here.")
    newest = Message.objects.filter(conversation=found, would_be=False).order_by("-at", "-id")[:MAX_ROWS]
    of_it = runs_seen_by(actor).filter(conversation=found).select_related("workflow").defer("input")
    runs = list(of_it.order_by("-created_at", "-id")[:MAX_ROWS])
    veils = [Veil(run) for run in runs[:VEILED]]
    context = {
        "conversation": found,
        "thread": [message_row(message, veils) for message in newest][::-1],
        "rows": rows_of(runs),
        "nav": "conversations",
    }
    template = "conversations/_conversation.html" if request.htmx else "conversations/conversation.html"  # type: ignore[attr-defined]
    return render(request, template, context)


def latest_runs(actor: Actor, conversation_ids: list[str]) -> dict[str | None, object]:
    """The newest run of each conversation: one query by its index."""
    newest = (
        runs_seen_by(actor)
        .filter(conversation_id__in=conversation_ids)
        .select_related("workflow")
        .defer("input")
        .order_by("conversation_id", "-created_at")
        .distinct("conversation_id")
    )
    return {run.conversation_id: run for run in newest}
