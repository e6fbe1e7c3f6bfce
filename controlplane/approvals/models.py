"""What is asked to be approved, and who said what about which digest. Knows (subject, digest), no more."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Prefetch, Q


class VoteRows(models.QuerySet["Vote"]):
    """Votes in the order they were cast."""

    def with_voters(self) -> VoteRows:
        """Oldest first, with everything that decides whether they count: three queries in all."""
        return self.select_related("voter").prefetch_related("voter__grants", "voter__groups").order_by("pk")


class ChangeRequestRows(models.QuerySet["ChangeRequest"]):
    """Change requests."""

    def with_votes(self) -> ChangeRequestRows:
        """With requester and votes, in a number of queries that does not grow with the rows."""
        votes = Prefetch("votes", queryset=Vote.objects.with_voters())
        return self.select_related("requester").prefetch_related(votes)

    def of_subject(self, subject_kind: str, subject_id: object) -> ChangeRequestRows:
        """Every request for one subject, any step."""
        return self.filter(subject_kind=subject_kind, subject_id=str(subject_id))

    def overdue(self, now: datetime) -> ChangeRequestRows:
        """Open past their time."""
        return self.filter(state=ChangeRequest.State.OPEN, expires_at__lte=now)


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
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="requests_made"
    )
    # Usernames that may not vote, and why: {"username": "requester" | "editor" | …}
    excluded = models.JSONField(default=dict)
    # What to wake when the request is decided: {"task": ..., "argument": ...}; this room knows no operation.
    bell = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=State, default=State.OPEN)
    state_reason = models.TextField(blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1)

    objects = ChangeRequestRows.as_manager()

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

    objects = VoteRows.as_manager()
