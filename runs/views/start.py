"""Start a run: choose a workflow, fill in the form that its schema asks for."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from console.access import Actor
from console.kernel.errors import Invalid, KeyReused, NotFound
from console.models import Capability
from console.pages import in_workspace
from runs.commands.start import start as start_run
from runs.forms import StartForm, StartOn
from runs.models import Conversation, WorkflowVersion
from runs.selectors import conversations_seen_by, workflows_of
from runs.views.levers import see_other
from runs.views.workers import holders_of


@require_safe
@in_workspace(Capability.RUN)
def choose(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The workflows that the workspace has enabled, each with the workers that hold it."""
    found = workflows_of(actor)
    conversation = _conversation(actor, StartOn.read(request.GET).chosen_id)
    context = {"workflows": holders_of(found), "conversation": conversation, "nav": "runs"}
    return render(request, "runs/choose.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@in_workspace(Capability.RUN)
def start(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """The form, and on POST the run. A form posted twice leads to the same run."""
    workflow = _workflow(actor, name)
    conversations = conversations_seen_by(actor)
    if request.method != "POST":
        chosen = _conversation(actor, StartOn.read(request.GET).chosen_id)
        return _form(request, StartForm(workflow, conversations, chosen=chosen))
    form = StartForm(workflow, conversations, request.POST)
    if not form.is_valid():
        return _form(request, form, 422)
    try:
        run, made = start_run(
            actor,
            workflow=workflow,
            conversation=form.cleaned_data["conversation"],
            given=form.given,
            token=form.cleaned_data["form_token"],
        )
    except (Invalid, KeyReused) as refusal:
        form.refuse(refusal)
        return _form(request, form, refusal.status)
    if made:
        messages.success(request, f"Started by {actor.user.name}.")
    return see_other(request, reverse("run", args=[actor.workspace.id, run.id]))


def _form(request: HttpRequest, form: StartForm, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "workflow": form.workflow,
        "holders": holders_of([form.workflow])[0],
        "nav": "runs",
    }
    return render(request, "runs/start.html", context, status=status)


def _workflow(actor: Actor, name: str) -> WorkflowVersion:
    found = next((workflow for workflow in workflows_of(actor) if workflow.name == name), None)
    if found is None:
        raise NotFound(f"{actor.workspace.name} has enabled no workflow {name}.")
    return found


def _conversation(actor: Actor, conversation_id: str) -> Conversation | None:
    """The one that the address names. NotFound when it is not there to be seen."""
    if not conversation_id:
        return None
    found = conversations_seen_by(actor).filter(id=conversation_id).first()
    if found is None:
        raise NotFound(f"There is no conversation {conversation_id} here.")
    return found
