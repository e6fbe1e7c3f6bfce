"""Plans of upgrades and the update records they end in."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from controlplane.upgrades.querysets import PlanQuerySet, UpdateRecordQuerySet


class Plan(models.Model):
    """What would change on one set. Editing makes a new version and voids votes on the old digest."""

    class State(models.TextChoices):
        """`checking` while a worker reads the cluster; only `ready` may be requested and started."""

        CHECKING = "checking"
        READY = "ready"
        BLOCKED = "blocked"
        FAILED = "failed"

    workload = models.ForeignKey("fleet.Workload", on_delete=models.PROTECT, related_name="plans")
    title = models.CharField(max_length=300)
    reason = models.TextField()
    draft = models.JSONField()  # as sent: per-role changes, whole roles, or the revision to go back to
    options = models.JSONField(default=dict)  # holds, hold ages, promote mode, minimum ready, profile
    state = models.CharField(max_length=10, choices=State, default=State.CHECKING)
    problem = models.JSONField(default=dict)
    content = models.JSONField(null=True)  # {roles_before, roles_after, diff}
    base = models.JSONField(null=True)
    bounds = models.JSONField(null=True)
    rows = models.JSONField(null=True)  # versioned: {"version": 1, "roles": [...], "rows": [...]}
    hazards = models.JSONField(default=list)
    acknowledged = models.JSONField(default=dict)  # hazard id → username
    digest = models.CharField(max_length=80, blank=True)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="plans")
    # People behind the tokens that wrote the draft: username → why they may not vote.
    answerable = models.JSONField(default=dict)
    editors = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="edited_plans")
    run = models.ForeignKey("operations.Run", on_delete=models.PROTECT, null=True)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    checked_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(PlanQuerySet)()

    def __str__(self) -> str:
        return f"plan {self.pk}: {self.title}"


class UpdateRecord(models.Model):
    """The document of one change; opened by start, closed with its evidence."""

    operation = models.OneToOneField("operations.Operation", on_delete=models.PROTECT, related_name="record")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="records")
    document = models.JSONField(default=dict)
    digest = models.CharField(max_length=80, blank=True)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=12, blank=True)

    objects = models.Manager.from_queryset(UpdateRecordQuerySet)()

    def __str__(self) -> str:
        return f"update record {self.pk}"
