"""The addresses of runs and conversations in a workspace: one path a page, one a verb."""

from __future__ import annotations

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from runs.views import (
    branch,
    bulk_continue,
    checkpoint,
    compare,
    conversations,
    dropped,
    levers,
    migrate,
    page,
    permit,
    replay,
    runs,
    start,
)

_REST = "[0-7][0-9a-hjkmnp-tv-z]{25}"


class RunId(StringConverter):
    """An id in its stored spelling: anything else is no address."""

    regex = f"run_{_REST}"


class CheckpointId(StringConverter):
    regex = f"cp_{_REST}"


class ConversationId(StringConverter):
    regex = f"conv_{_REST}"


class BulkId(StringConverter):
    regex = f"blk_{_REST}"


register_converter(RunId, "run")
register_converter(CheckpointId, "checkpoint")
register_converter(ConversationId, "conversation")
register_converter(BulkId, "bulk")

urlpatterns = [
    path("runs/", runs.runs, name="runs"),
    path("runs/start/", start.choose, name="start"),
    path("runs/start/<str:name>/", start.start, name="start_workflow"),
    path("runs/compare/", compare.compare, name="compare"),
    path("runs/continue/", bulk_continue.plan, name="bulk_continue"),
    path("runs/continue/start/", bulk_continue.start, name="bulk_continue_start"),
    path("runs/continues/", bulk_continue.bulks, name="bulks"),
    path("runs/continues/<bulk:bulk_id>/", bulk_continue.bulk, name="bulk"),
    path("runs/continues/<bulk:bulk_id>/stop/", bulk_continue.stop, name="bulk_stop"),
    path("runs/compare/", compare.compare, name="compare"),
    path("runs/<run:run_id>/", page.run, name="run"),
    path("runs/<run:run_id>/continue/", levers.continue_, name="run_continue"),
    path("runs/<run:run_id>/ask-again/", levers.ask_again, name="run_ask_again"),
    path("runs/<run:run_id>/dropped/", dropped.dropped, name="run_dropped"),
    path("runs/<run:run_id>/pause/", levers.pause, name="run_pause"),
    path("runs/<run:run_id>/cancel/", levers.cancel, name="run_cancel"),
    path(
        "runs/<run:run_id>/checkpoints/<checkpoint:checkpoint_id>/", checkpoint.checkpoint, name="checkpoint"
    ),
    path(
        "runs/<run:run_id>/checkpoints/<checkpoint:checkpoint_id>/state.json",
        checkpoint.state_file,
        name="checkpoint_state",
    ),
    path(
        "runs/<run:run_id>/checkpoints/<checkpoint:checkpoint_id>/replay/",
        replay.replay_from,
        name="replay",
    ),
    path(
        "runs/<run:run_id>/checkpoints/<checkpoint:checkpoint_id>/branch/",
        branch.branch_from,
        name="branch",
    ),
    path("runs/<run:run_id>/migrate/<str:version>/", migrate.migrate_, name="run_migrate"),
    path("runs/<run:run_id>/permit/", permit.permit, name="run_permit"),
    path("conversations/", conversations.conversations, name="conversations"),
    path("conversations/<conversation:conversation_id>/", conversations.conversation, name="conversation"),
]
