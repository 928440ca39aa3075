"""The addresses of runs and conversations in a workspace: one path a page, one a verb."""

from __future__ import annotations

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from runs.views import checkpoint, conversations, levers, page, runs, start

_REST = "[0-7][0-9a-hjkmnp-tv-z]{25}"


class RunId(StringConverter):
    """An id in its stored spelling: anything else is no address."""

    regex = f"run_{_REST}"


class CheckpointId(StringConverter):
    regex = f"cp_{_REST}"


class ConversationId(StringConverter):
    regex = f"conv_{_REST}"


register_converter(RunId, "run")
register_converter(CheckpointId, "checkpoint")
register_converter(ConversationId, "conversation")

urlpatterns = [
    path("runs/", runs.runs, name="runs"),
    path("runs/start/", start.choose, name="start"),
    path("runs/start/<str:name>/", start.start, name="start_workflow"),
    path("runs/<run:run_id>/", page.run, name="run"),
    path("runs/<run:run_id>/continue/", levers.continue_, name="run_continue"),
    path("runs/<run:run_id>/pause/", levers.pause, name="run_pause"),
    path("runs/<run:run_id>/cancel/", levers.cancel, name="run_cancel"),
    path(
        "runs/<run:run_id>/checkpoints/<checkpoint:checkpoint_id>/", checkpoint.checkpoint, name="checkpoint"
    ),
    path("conversations/", conversations.conversations, name="conversations"),
    path("conversations/<conversation:conversation_id>/", conversations.conversation, name="conversation"),
]
