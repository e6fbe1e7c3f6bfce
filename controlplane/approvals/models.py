"""What is asked to be approved, and who said what about which digest. Knows (subject, digest), nothing else."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q


class ChangeRequest(models.Model):
    """A digest over plan, diff and base that needs a quorum. A step approval also names step and attempt."""

    class State(models.TextChoices):
        """Only `open` collects votes; only `approved` lets anything start."""

        OPEN = "open"
        APPROVED = "approved"
        REJECTED = "rejected"
        STALE = "stale"
        EXPIRED = "expired"
        WITHDRAWN = "withdrawn"

    subject_kind = models.CharField(max_length=40)  # upgrades.plan | operations.hold
    subject_id = models.CharField(max_length=120)
    step = models.CharField(max_length=80, blank=True)  # hold key, for step approvals
    attempt = models.PositiveIntegerField(default=0)
    digest = models.CharField(max_length=80)
    title = models.CharField(max_length=300)
    reason = models.TextField()
    evidence = models.JSONField(default=dict)  # what the voter is shown: diff, rows, hazards, bounds
    risk = models.CharField(max_length=10)
    slots = models.JSONField()  # policy.approval.quorum slots
    cluster = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="requests_made")
    # Usernames that may not vote, and why: {"username": "requester" | "editor" | "token-owner" | …}
    excluded = models.JSONField(default=dict)
    # What to wake when the request is decided: {"task": "...", "argument": "..."}; this room knows no operation.
    bell = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=State, default=State.OPEN)
    state_reason = models.TextField(blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["subject_kind", "subject_id", "step", "attempt"],
                condition=Q(state="open"),
                name="one_open_request_per_subject",
            )
        ]


class Vote(models.Model):
    """One person's word on one digest. Append-only: withdrawing is another row."""

    class Choice(models.TextChoices):
        """reject needs a comment."""

        APPROVE = "approve"
        REJECT = "reject"
        WITHDRAW = "withdraw"

    request = models.ForeignKey(ChangeRequest, on_delete=models.PROTECT, related_name="votes")
    voter = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="votes")
    choice = models.CharField(max_length=10, choices=Choice)
    comment = models.TextField(blank=True)
    digest = models.CharField(max_length=80)
    at = models.DateTimeField()
    void_reason = models.CharField(max_length=200, blank=True)  # set when the request goes stale
