"""Tenants and the people in them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now

from console.models.identity import PrefixedId
from console.models.roles import Role


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A person who logs in by e-mail. Without a password nobody can log in as them until they set one."""
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user


class User(AbstractBaseUser, PermissionsMixin):
    """A person. What they may do is written in their memberships, never here."""

    id = PrefixedId("usr")
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=120)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())

    objects = UserManager()
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = ["name"]

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_folded")]

    def __str__(self) -> str:
        return self.name or self.email


class Workspace(models.Model):
    """A tenant: everything else belongs to exactly one. Its id is its slug, as it stands in addresses."""

    id = models.SlugField(primary_key=True, max_length=40)
    name = models.CharField(max_length=120)
    is_demo = models.BooleanField(default=False)
    workflows = ArrayField(
        models.CharField(max_length=80), default=list, help_text="names of the workflows it has enabled"
    )
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    roles = ArrayField(models.CharField(max_length=20, choices=Role.choices), default=list)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="membership_once"),
            models.CheckConstraint(
                condition=Q(roles__contained_by=[role.value for role in Role]) & ~Q(roles=[]),
                name="membership_roles_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.workspace_id}"


class Group(models.Model):
    """Who is asked: an approval names a group, such as "Sales approvers"."""

    id = PrefixedId("grp")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="groups")
    name = models.CharField(max_length=80)
    members = models.ManyToManyField(User, related_name="approval_groups")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="group_name_once")]

    def __str__(self) -> str:
        return self.name
