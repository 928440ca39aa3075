"""API tokens: an access for programs, as its maker but with fewer rights."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from console.models.identity import PrefixedId
from console.models.workspace import User, Workspace


class ApiToken(models.Model):
    """Stored as a hash: the token itself is shown once, when it is made. It never decides, repeats or reveals."""

    id = PrefixedId("tok")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="tokens")
    maker = models.ForeignKey(User, on_delete=models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=80)
    hash = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=20))
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name
