"""Operations, their steps, targets and runs: the queue of record."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

FINISHED = ("succeeded", "aborted", "superseded", "rolled-back", "failed")


class Installation(models.Model):
    """One row: who we are to the clusters. `read_only` after a restore of the database until somebody adopts."""

    id = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField()


class Operation(models.Model):
    """One execution of a change. Waiting is `not_before`; whoever holds the lease under `fence` may act."""

    class State(models.TextChoices):
        """policy.rollout.machine holds the transitions."""

        WORKING = "working"
        WAITING = "waiting"
        HELD = "held"
        SUCCEEDED = "succeeded"
        ABORTED = "aborted"
        SUPERSEDED = "superseded"
        ROLLED_BACK = "rolled-back"
        FAILED = "failed"

    class Phase(models.TextChoices):
        """Forward, or on the way back."""

        FORWARD = "forward"
        ABORTING = "aborting"

    kind = models.CharField(max_length=40)  # upgrade
    subject_id = models.CharField(max_length=120)  # the plan
    digest = models.CharField(max_length=80)  # what was approved
    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT, related_name="operations")
    namespace = models.CharField(max_length=63)
    title = models.CharField(max_length=300)
    reason = models.TextField(blank=True)
    state = models.CharField(max_length=12, choices=State, default=State.WORKING)
    phase = models.CharField(max_length=10, choices=Phase, default=Phase.FORWARD)
    abort_step = models.CharField(max_length=80)  # step that plans the way back
    memory = models.JSONField(default=dict)  # what steps remember for later steps
    waits_for = models.JSONField(default=dict)  # {what, who, since, until, then}
    finding = models.JSONField(default=dict)  # {code, sentence, next_action, facts} while held
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="operations")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1)  # ETag; grows with every change that a person may see

    fence = models.BigIntegerField(default=0)
    settled = models.BooleanField(default=True)  # every call made under `fence` has been answered
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)  # failed tries of the current step

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["not_before"], condition=Q(state__in=["working", "waiting"]), name="due_operations")
        ]


class OperationTarget(models.Model):
    """What the operation has taken; unique while unfinished."""

    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="targets")
    kind = models.CharField(max_length=20)  # set
    uid = models.CharField(max_length=120)
    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT)
    released = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "uid"], condition=Q(released=False), name="one_operation_per_target"
            )
        ]


class Step(models.Model):
    """One idempotent action or look."""

    class State(models.TextChoices):
        """`skipped`: an abort or a stop made it moot."""

        PENDING = "pending"
        DONE = "done"
        SKIPPED = "skipped"

    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="steps")
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=80)  # upgrades.write_roles
    args = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    attempt = models.PositiveIntegerField(default=1)  # grows when the step is done over; keys side effects
    first_claimed_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    result = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation", "index"], name="one_step_per_index")
        ]


class Run(models.Model):
    """Long or cluster-reading work outside an operation: a plan's dry run, an evidence pack."""

    class State(models.TextChoices):
        """Claimed by lease like an operation."""

        WAITING = "waiting"
        DONE = "done"
        FAILED = "failed"

    kind = models.CharField(max_length=80)  # name of a registered run function, e.g. upgrades.check_plan
    args = models.JSONField(default=dict)
    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT, null=True)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    result = models.JSONField(default=dict)
    problem = models.JSONField(default=dict)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
