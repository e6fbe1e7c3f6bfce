"""Operations, their steps, targets and runs: the queue of record."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from controlplane.operations.querysets import OperationQuerySet, PauseQuerySet, RunQuerySet

FINISHED = ("succeeded", "aborted", "superseded", "rolled-back", "failed")


class Installation(models.Model):
    """One row: who we are to the clusters. A database restored from a copy keeps its id; what tells it apart
    is a number in a cluster above its own (finding `database-behind`)."""

    id = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField()
    only = models.BooleanField(default=True, unique=True)
    reconciled_at = models.DateTimeField(null=True)  # last full sweep, for /readyz

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(only=True), name="one_installation")]

    def __str__(self) -> str:
        return f"installation {self.id}"


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
    # step that freezes the live counts; empty: no stop
    stop_step = models.CharField(max_length=80, blank=True)
    adopt_step = models.CharField(max_length=80, blank=True)  # step that takes the world's state as ours
    memory = models.JSONField(default=dict)  # what steps remember for later steps
    waits_for = models.JSONField(default=dict)  # {what, who, since, until, then, person, hold_key}
    # {hold_key, attempt, by, at}: the last promote of the current step
    promoted = models.JSONField(default=dict)
    finding = models.JSONField(default=dict)  # {code, sentence, next_action, facts} while held
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="operations"
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField()  # last change that a person may see
    version = models.PositiveIntegerField(default=1)  # ETag; grows with every change that a person may see

    fence = models.BigIntegerField(default=0)
    # Every call of earlier claims has been answered or fenced off. False at the start: an earlier operation
    # on the same target may have left a call in flight, so the first claim fences.
    settled = models.BooleanField(default=False)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)  # failed tries of the current step in a row
    woken = models.BooleanField(default=False)  # rung awake since the last claim: its Wait is over at once
    # last bell of the sweep, so that a backlog is not rung over and over
    rung_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(OperationQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["not_before"], condition=Q(state__in=["working", "waiting"]), name="due_operations"
            )
        ]

    def __str__(self) -> str:
        return f"operation {self.pk}: {self.title}"


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
                fields=["cluster", "kind", "uid"],
                condition=Q(released=False),
                name="one_operation_per_target",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.uid}"


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
            models.UniqueConstraint(
                fields=["operation", "index"],
                name="one_step_per_index",
                deferrable=models.Deferrable.IMMEDIATE,
            )
        ]

    def __str__(self) -> str:
        return f"{self.index} {self.name}"


class AutomationPause(models.Model):
    """No upgrade of this set starts until a person resumes it."""

    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT, related_name="automation_pauses")
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=63)
    reason = models.CharField(max_length=300)
    since = models.DateTimeField()
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="pauses_resumed"
    )
    version = models.PositiveIntegerField(default=1)

    objects = models.Manager.from_queryset(PauseQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "namespace", "name"],
                condition=Q(resumed_at=None),
                name="one_standing_pause_per_set",
            )
        ]

    def __str__(self) -> str:
        return f"pause of {self.namespace}/{self.name}"


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
    namespace = models.CharField(max_length=63, blank=True)  # empty: about the whole cluster
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    result = models.JSONField(default=dict)
    problem = models.JSONField(default=dict)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    rung_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(RunQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["not_before"], condition=Q(state="waiting"), name="due_runs"),
            models.Index(fields=["done_at"], condition=~Q(state="waiting"), name="runs_to_prune"),
        ]

    def __str__(self) -> str:
        return f"run {self.pk}: {self.kind}"
