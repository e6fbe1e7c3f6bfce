"""People, service accounts, what they may do where, and their tokens."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person who signs in, or a service account that only holds tokens."""

    class Kind(models.TextChoices):
        """Only persons vote."""

        PERSON = "person"
        SERVICE = "service"

    kind = models.CharField(max_length=10, choices=Kind, default=Kind.PERSON)
    # The token that this call was made with, set by authentication; None for a person who is signed in.
    token: ApiToken | None = None


class Grant(models.Model):
    """A role for a user, everywhere (empty scope), in one cluster, or in one namespace of it."""

    class Role(models.TextChoices):
        """viewer reads, operator drafts, starts, steers, approver votes, admin manages clusters, people."""

        VIEWER = "viewer"
        OPERATOR = "operator"
        APPROVER = "approver"
        ADMIN = "admin"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=20, choices=Role)
    cluster = models.CharField(max_length=63, blank=True)
    namespace = models.CharField(max_length=63, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user", "role", "cluster", "namespace"], name="one_grant_per_scope"
            )
        ]


class SignInFailure(models.Model):
    """One failed sign-in. Too many of the same name from the same address lock that pair for a while."""

    username = models.CharField(max_length=150)
    address = models.GenericIPAddressField()
    at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["username", "address", "at"], name="recent_failures")]


class ApiToken(models.Model):
    """A hashed bearer token. The secret is shown once; `prefix` finds the row, `digest` proves it."""

    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    name = models.CharField(max_length=100)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    minted_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="minted_tokens")
    responsible = models.ForeignKey(User, on_delete=models.PROTECT, related_name="answered_tokens")
    scopes = models.JSONField(default=list)  # subset of access.permissions.SCOPES
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)


class IdempotencyRecord(models.Model):
    """The stored answer to one unsafe POST: the same key and body replay it, another body is refused."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    request_digest = models.CharField(max_length=80)
    status = models.PositiveSmallIntegerField(null=True)  # null while in progress
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "key"], name="one_answer_per_key")]
