"""Create branch: the state is edited, what it leads to is shown, and only then is the new run made."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access import Actor
from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable, seal_json, unseal_json
from console.kernel.errors import AlreadyDone, BadRequest, Invalid, KeyReused, Refusal, Stale
from console.models import Capability
from console.pages import LeverForm, in_workspace, new_token
from runs.availability import Offer, availability
from runs.commands.branch import COMMANDS, FIRST_NODE, Editable, Preview, branch, editable, preview
from runs.commands.replay import against_simulation
from runs.commands.replay_preview import blocked_types, kept_of, sent_by_lineage
from runs.inspection import state_of
from runs.models import Checkpoint, Run
from runs.selectors import checkpoint_seen_by, run_seen_by, workers_for
from runs.states import RunMode
from runs.views.branch_form import FIELDS, JSON, BranchForm
from runs.views.levers import see_other

EDIT, SHOW, MAKE = "edit", "show", "make"
#: What of a posted form is its own and is not carried on to the next page.
_OWN = frozenset({"csrfmiddlewaretoken", "form_token", "step", "carried"})


class _Step(forms.Form):
    """Which of the three steps was posted: edit again, show what it leads to, make it."""

    step = forms.ChoiceField(required=False, choices=[(one, one) for one in ("", EDIT, SHOW, MAKE)])
    view = forms.ChoiceField(required=False, choices=[(one, one) for one in ("", FIELDS, JSON)])

    @classmethod
    def read(cls, given: QueryDict) -> _Step:
        form = cls(given)
        if not form.is_valid():
            raise BadRequest("This form was not made here. Open it again.", field="step")
        return form


@dataclass(frozen=True)
class _Subject:
    """What the page is about."""

    actor: Actor
    run: Run
    checkpoint: Checkpoint
    offers: Mapping[str, Offer]

    def form(self, can: Editable, data: QueryDict | None = None, *, look: str = FIELDS) -> BranchForm:
        return BranchForm(can, state_of(self.checkpoint).values or {}, self.offers, data, view=look)

    @property
    def back(self) -> str:
        return reverse("checkpoint", args=[self.actor.workspace.id, self.run.id, self.checkpoint.id])


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace(Capability.SIMULATE)
def branch_from(request: HttpRequest, actor: Actor, run_id: str, checkpoint_id: str) -> HttpResponse:
    """GET: the editor. POST: what the edit leads to, or the editor again with what was typed, or the new run.

    Between the pages what was typed is carried sealed: it may stand in the place of a protected value.
    """
    run = run_seen_by(actor, run_id)
    checkpoint = checkpoint_seen_by(actor, run_id, checkpoint_id)
    checkpoint.run = run
    subject = _Subject(actor, run, checkpoint, availability(run, actor))
    try:
        can = editable(actor, run_id, checkpoint_id)
    except (Invalid, AlreadyDone) as refusal:
        return _closed(request, subject, refusal)
    if request.method != "POST":
        look = _Step.read(request.GET).cleaned_data["view"] or FIELDS
        return _editor(request, subject, subject.form(can, look=look))
    step = _Step.read(request.POST).cleaned_data["step"] or SHOW
    if step == SHOW:
        return _show(request, subject, can, _typed(request.POST))
    typed, shown_next = _carried(subject, request.POST)
    if step == EDIT:
        return _editor(request, subject, subject.form(can, typed))
    return _make(request, subject, can, typed, shown_next)


def _show(
    request: HttpRequest,
    subject: _Subject,
    can: Editable,
    typed: QueryDict,
    refusal: Refusal | None = None,
) -> HttpResponse:
    """What the edit leads to; what does not fit stands beside its field, with everything that was typed."""
    form = subject.form(can, typed)
    if not form.is_valid():
        return _editor(request, subject, form, 422)
    try:
        shown = preview(
            subject.actor, subject.run.id, subject.checkpoint.id, edit=form.edit, as_node=form.chosen_node
        )
    except Invalid as invalid:
        form.refuse(invalid)
        return _editor(request, subject, form, invalid.status)
    return _preview(request, subject, form, typed, shown, refusal)


def _make(
    request: HttpRequest, subject: _Subject, can: Editable, typed: QueryDict, shown_next: list[str]
) -> HttpResponse:
    form = subject.form(can, typed)
    if not form.is_valid():
        return _editor(request, subject, form, 422)
    try:
        made, _ = branch(
            subject.actor,
            subject.run.id,
            subject.checkpoint.id,
            edit=form.edit,
            reason=form.cleaned_data["reason"],
            token=LeverForm.token_of(request.POST),
            mode=form.chosen_mode,
            as_node=form.chosen_node,
            models_asked=form.models_asked,
            shown_next=shown_next,
        )
    except (KeyReused, Stale, AlreadyDone) as refusal:
        return _show(request, subject, can, typed, refusal)
    except Invalid as refusal:
        form.refuse(refusal)
        return _editor(request, subject, form, refusal.status)
    messages.success(request, f"{COMMANDS[form.chosen_mode].label}: made by {subject.actor.user.name}.")
    return see_other(request, reverse("run", args=[subject.actor.workspace.id, made.id]))


# -- what is carried from the editor to the second page -----------------------------------------------------------


def _typed(given: QueryDict) -> QueryDict:
    typed = given.copy()
    for name in _OWN:
        typed.pop(name, None)
    return typed


def _seal(subject: _Subject, typed: QueryDict, shown: Preview) -> str:
    value: JSONValue = {
        "typed": {name: list(values) for name, values in typed.lists()},
        "next": list(shown.next_nodes),
    }
    sealed = seal_json(value, workspace=subject.run.workspace_id, owner=_owner(subject))
    return base64.b64encode(sealed).decode()


def _carried(subject: _Subject, given: QueryDict) -> tuple[QueryDict, list[str]]:
    """What was typed and what was shown to come next. BadRequest where it is not what this page sealed for them."""
    try:
        sealed = base64.b64decode(given.get("carried", ""), validate=True)
        value: Any = unseal_json(sealed, workspace=subject.run.workspace_id, owner=_owner(subject))
    except (ValueError, Undecryptable):
        raise BadRequest("This form was not made here. Open it again.", field="carried") from None
    typed = QueryDict(mutable=True)
    for name, values in value["typed"].items():
        typed.setlist(name, values)
    return typed, value["next"]


def _owner(subject: _Subject) -> str:
    return f"branch:{subject.checkpoint.id}:{subject.actor.user.id}"


# -- the pages ----------------------------------------------------------------------------------------------------


def _frame(subject: _Subject) -> dict[str, Any]:
    return {
        "run": subject.run,
        "checkpoint": subject.checkpoint,
        "back": subject.back,
        "nav": "runs",
    }


def _closed(request: HttpRequest, subject: _Subject, refusal: Refusal) -> HttpResponse:
    """The page of a checkpoint that no branch can be made from: it says why."""
    context = {**_frame(subject), "refusal": refusal}
    return render(request, "runs/branch_closed.html", context, status=refusal.status)


def _editor(request: HttpRequest, subject: _Subject, form: BranchForm, status: int = 200) -> HttpResponse:
    state = state_of(subject.checkpoint)
    context = {
        **_frame(subject),
        "form": form,
        "state": state,
        "node": form.editable.nodes[0] if len(form.editable.nodes) == 1 else "",
        "first": form.editable.nodes == [FIRST_NODE],
        "is_json": form.look == JSON,
        "live_reason": subject.offers[COMMANDS[RunMode.LIVE]].reason,
        "against": against_simulation(subject.run),
    }
    return render(request, "runs/branch.html", context, status=status)


def _preview(
    request: HttpRequest,
    subject: _Subject,
    form: BranchForm,
    typed: QueryDict,
    shown: Preview,
    refusal: Refusal | None,
) -> HttpResponse:
    run, mode = subject.run, form.chosen_mode
    against = against_simulation(run) if mode == RunMode.SIMULATION else []
    context = {
        **_frame(subject),
        "form": form,
        "shown": shown,
        "first": shown.as_node == FIRST_NODE,
        "mode": mode,
        "models_asked": form.models_asked,
        "reason": form.cleaned_data["reason"],
        "kept": kept_of(run, subject.checkpoint),
        "sent": sent_by_lineage(run) if mode == RunMode.LIVE else [],
        "blocked": blocked_types(run) if mode == RunMode.LIVE else [],
        "against": against,
        "workers": workers_for(run, mode).count(),
        "carried": _seal(subject, typed, shown),
        "form_token": new_token(),
        "refusal": refusal,
    }
    return render(request, "runs/branch_preview.html", context, status=refusal.status if refusal else 200)
