"""The audit trail: who did what, why, when. Appended in the command's own transaction, never changed."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace

#: Refuses UPDATE, DELETE and TRUNCATE to everybody, the owner included.
APPEND_ONLY = [
    pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
    pgtrigger.Trigger(
        name="no_truncate",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func="RAISE EXCEPTION 'this table is append-only';",
    ),
]


class AuditEvent(models.Model):
    """One act of a person or of the system. *sentence* says it in the words that the pages use."""

    id = PrefixedId("evt")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())
    actor = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    actor_name = models.CharField(max_length=160, help_text="the person's name then, or system:<part>")
    on_behalf_of = models.CharField(max_length=160, blank=True)
    verb = models.CharField(max_length=60)
    subject = models.CharField(max_length=60, help_text="the id of what it was done to")
    run_id = models.CharField(max_length=40, blank=True)
    reason = models.TextField(blank=True)
    sentence = models.TextField()
    detail = models.JSONField(default=dict, help_text="masked; digests of protected values only")

    class Meta:
        indexes = [
            models.Index(fields=["workspace", "-at", "-id"], name="audit_newest"),  # the Audit page
            models.Index(fields=["subject", "-at"], name="audit_of_subject"),  # the journals of pages
        ]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return self.sentence
