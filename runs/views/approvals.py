"""The inbox, one approval, and the four verbs that decide it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import Actor
from console.kernel.canonical import JSONValue
from console.kernel.errors import Forbidden, Invalid, NotFound, Refusal
from console.models import Capability
from console.pages import SeeOther, in_workspace
from effects.commands.preview import preview_of
from effects.forms import DecisionForm, JsonForm, answer_form
from effects.models import Approval
from effects.selectors import approval_seen_by
from effects.states import Decision
from effects.views.addresses import is_fragment
from effects.views.comparison import Comparison
from runs.commands.decide import decide
from runs.selectors import run_seen_by
from runs.views import inbox
from runs.views.approval_page import (
    ApprovalPage,
    Forms,
    approval_page,
    asked_again,
    changes_of,
    comparison_of,
    decision_of,
    edit_form,
    edited_before,
    forms_of,
    in_review,
    last_message,
    next_of,
    recipient_of,
    words_of,
)


@require_safe
@in_workspace()
def approvals(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The inbox: for me, all open, my decisions. ``?view=`` and ``?cursor=`` are its permalinks."""
    view = inbox.chosen(actor, request.GET.get("view", ""))
    shown = inbox.shown(actor, view, request.GET.get("cursor"))
    template = "approvals/_list.html" if is_fragment(request) else "approvals/list.html"
    return render(
        request, template, {"nav": "approvals", "view": view, "tabs": inbox.tabs(actor, view), **shown}
    )


@require_safe
@in_workspace()
def approval(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    """One request. An eligible approver's first GET is recorded as the reading of protected data; nothing else is."""
    found = approval_seen_by(actor, approval_id)
    page = _page(actor, found, reading=request.method == "GET")
    return _shown(request, page, forms_of(page))


@require_POST
@in_workspace()
def preview(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    """What the receiver has now, against what is asked about: for who may decide it, protected fields too.

    The receiver is asked now; nothing is sent. Their reading is recorded as that of the page is.
    """
    page = _page(actor, approval_seen_by(actor, approval_id), reading=True)
    comparison = comparison_of(page)
    if comparison is None:
        raise Forbidden(page.refusal or "There is nothing to compare here any more.")
    shown = preview_of(comparison.effect, revision=comparison.revision, whole=True)
    seen = replace(comparison, shown=shown)
    if is_fragment(request):
        return render(request, "effects/_preview.html", {"comparison": seen})
    return _shown(request, page, forms_of(page), comparison=seen)


@require_POST
@in_workspace()
def approve(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    return _decided(request, actor, approval_id, Decision.APPROVE)


@require_POST
@in_workspace()
def reject(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    return _decided(request, actor, approval_id, Decision.REJECT)


@require_POST
@in_workspace()
def edit(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    return _decided(request, actor, approval_id, Decision.EDIT)


@require_POST
@in_workspace()
def respond(request: HttpRequest, actor: Actor, approval_id: str) -> HttpResponse:
    return _decided(request, actor, approval_id, Decision.RESPOND)


def _decided(request: HttpRequest, actor: Actor, approval_id: str, decision: Decision) -> HttpResponse:
    """Form, command, redirect; or the page again, fresh, with the refusal beside what it is about."""
    found = approval_seen_by(actor, approval_id)
    # Who may at all; whether this person may decide this one the command says.
    if found.simulated_for_id != actor.user.id:
        actor.require(Capability.SECOND if found.order_id else Capability.DECIDE)
    form = DecisionForm(request.POST, auto_id="decide_%s")
    form.check_carried()
    forms = _typed(found, decision, request.POST, form)
    try:
        _command(actor, found, decision, form, forms)
    except NotFound:
        raise
    except Refusal as refusal:
        return _refused(request, actor, approval_id, decision, forms, refusal)
    return SeeOther(reverse("approval", args=[actor.workspace.id, approval_id]))


def _command(actor: Actor, found: Approval, decision: Decision, form: DecisionForm, forms: Forms) -> None:
    if form.errors:
        raise Invalid(str(form.errors["reason"][0]), field="reason")
    decide(
        actor,
        found.id,
        decision=decision,
        payload_hash=form.cleaned_data["payload_hash"],
        version=form.cleaned_data["version"],
        # A form's token counts for its own approval only.
        token=f"{found.id.rpartition('_')[2]}.{form.cleaned_data['token']}",
        reason=form.cleaned_data["reason"],
        answer=_answer(forms),
    )


def _typed(found: Approval, decision: Decision, data: QueryDict, form: DecisionForm) -> Forms:
    """The forms as they were sent: only that of the verb is bound."""
    forms = Forms(decision=form)
    if decision == Decision.RESPOND:
        forms.answer = answer_form(found.answer_schema, data)
    elif decision == Decision.EDIT and data.get("as") == "json":
        forms.raw = JsonForm(data)
    elif decision == Decision.EDIT:
        forms.edit = edit_form(found, data)
    return forms


def _answer(forms: Forms) -> JSONValue:
    """What was typed for an edit or a response; Invalid where it can't even be read."""
    typed = forms.answer or forms.raw or forms.edit
    if typed is None:
        return None
    if not typed.is_valid():
        raise Invalid("Some of it could not be read. It is marked below.")
    return typed.value()


def _refused(
    request: HttpRequest, actor: Actor, approval_id: str, decision: Decision, typed: Forms, refusal: Refusal
) -> HttpResponse:
    page = _page(actor, approval_seen_by(actor, approval_id), reading=True)
    forms = forms_of(page)
    forms.decision = typed.decision
    beside = False
    if isinstance(refusal, Invalid):
        beside = _put_beside(forms, typed, refusal)
    return _shown(request, page, forms, refusal=refusal, beside=beside, tried=decision)


def _put_beside(forms: Forms, typed: Forms, refusal: Invalid) -> bool:
    """Put a 422 beside the field it is about; the forms then hold what was typed. Whether a field was found."""
    if refusal.field == "reason":
        if "reason" not in typed.decision.errors:
            typed.decision.add_error("reason", refusal.message)
        return True
    for name in ("answer", "raw", "edit"):
        form = getattr(typed, name)
        if form is not None and getattr(forms, name) is not None:
            setattr(forms, name, form)
            if form.is_valid():
                form.refuse(refusal)
            return True
    return False


def _page(actor: Actor, found: Approval, *, reading: bool) -> ApprovalPage:
    return approval_page(actor, found, run_seen_by(actor, found.run_id), reading=reading)


def _shown(
    request: HttpRequest,
    page: ApprovalPage,
    forms: Forms,
    *,
    refusal: Refusal | None = None,
    beside: bool = False,
    tried: Decision | None = None,
    comparison: Comparison | None = None,
) -> HttpResponse:
    decision = None if page.open else decision_of(page.approval)
    edited = edited_before(page.approval) if page.approval.round > 1 else None
    edit = decision_of(edited) if edited else None
    if page.approval.must_say:
        for form in (forms.decision, forms.fresh):
            form.must_say()
    context: dict[str, Any] = {
        "nav": "approvals",
        "page": page,
        "approval": page.approval,
        "run": page.run,
        "effect": page.effect,
        "forms": forms,
        "refusal": refusal,
        "beside": beside,
        "tried": tried.value if tried else "",
        "recipient": recipient_of(page),
        "comparison": comparison or comparison_of(page),
        "changes": changes_of(page),
        "edited": edited,
        "edited_words": words_of(edit) if edit else "",
        "message": last_message(page.run),
        "decision": decision,
        "decided_words": words_of(decision) if decision else "",
        "again": None if page.open else asked_again(page.approval),
        "in_review": bool(page.effect and not page.open and in_review([page.effect.id])),
        "next": next_of(page.actor, page.approval),
    }
    template = "approvals/_approval.html" if is_fragment(request) else "approvals/approval.html"
    return render(request, template, context, status=refusal.status if refusal else 200)
