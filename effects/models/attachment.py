"""Files that states and intents refer to, kept by what is in them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from console.models.audit import APPEND_ONLY
from console.models.identity import PrefixedId
from console.models.workspace import Workspace


class Attachment(models.Model):
    """The bytes of a file, once a workspace however often they are attached. Append-only.

    It is named by *digest*, so nothing that a replay or branch attaches can take the place of what another run refers to.
    """

    id = PrefixedId("att")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=71, help_text="sha256: and 64 hexadecimal digits")
    size = models.BigIntegerField(help_text="bytes")
    data = models.BinaryField(help_text="sealed")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "digest"], name="attachment_once_a_workspace"),
            models.CheckConstraint(
                condition=Q(digest__regex=r"^sha256:[0-9a-f]{64}$"), name="attachment_digest_is_one"
            ),
        ]
        triggers = APPEND_ONLY

    def __str__(self) -> str:
        return self.digest
