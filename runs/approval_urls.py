"""The addresses of approvals in a workspace: the inbox, one request, and one path a verb."""

from __future__ import annotations

from django.urls import path

from runs.views import approvals

urlpatterns = [
    path("approvals/", approvals.approvals, name="approvals"),
    path("approvals/<str:approval_id>/", approvals.approval, name="approval"),
    path("approvals/<str:approval_id>/preview/", approvals.preview, name="approval_preview"),
    path("approvals/<str:approval_id>/approve/", approvals.approve, name="approval_approve"),
    path("approvals/<str:approval_id>/reject/", approvals.reject, name="approval_reject"),
    path("approvals/<str:approval_id>/edit/", approvals.edit, name="approval_edit"),
    path("approvals/<str:approval_id>/respond/", approvals.respond, name="approval_respond"),
]
