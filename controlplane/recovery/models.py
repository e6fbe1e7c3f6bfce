"""Combinations, and restores of them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.recovery.querysets import CombinationQuerySet, RestoreQuerySet


class Combination(models.Model):
    """Everything that must be put back together to be where we were (controlplane/recovery/reading)."""

    class State(models.TextChoices):
        """policy.recovery.states holds the transitions."""

        CANDIDATE = "candidate"
        VERIFIED = "verified"
        REVOKED = "revoked"

    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT, related_name="combinations")
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=63)  # of the set
    uid = models.CharField(max_length=64)  # of the set
    number = models.PositiveIntegerField()  # per set, from 1
    revision = models.CharField(max_length=16)
    document = models.JSONField()
    digest = models.CharField(max_length=80)  # over the document with secrets as salted hashes
    state = models.CharField(max_length=10, choices=State, default=State.CANDIDATE)
    pinned = models.BooleanField(default=False)
    reason = models.TextField(blank=True)  # why it was captured
    # {outputs: [paths.golden.summary_of]} that were given when it was proved; the answers stand there alone.
    golden = models.JSONField(default=dict)
    evidence = models.JSONField(default=dict)  # {kind, id}: what proved it
    captured_at = models.DateTimeField()
    captured_by = models.CharField(max_length=200)
    verified_at = models.DateTimeField(null=True)
    revoked_reason = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1)

    objects = models.Manager.from_queryset(CombinationQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "namespace", "name", "number"], name="one_combination_per_number"
            )
        ]

    def __str__(self) -> str:
        return f"combination {self.number} of {self.namespace}/{self.name}"


class Restore(models.Model):
    """One restore: what was agreed to, and what came of each part (the rest is with its operation)."""

    operation = models.OneToOneField("operations.Operation", on_delete=models.PROTECT, related_name="restore")
    combination = models.ForeignKey(Combination, on_delete=models.PROTECT, related_name="restores")
    superseded = models.ForeignKey(
        "operations.Operation", on_delete=models.PROTECT, null=True, related_name="superseded_by_restore"
    )
    # Who has to look at it afterwards, where nobody voted beforehand.
    review = models.ForeignKey("approvals.ChangeRequest", on_delete=models.PROTECT, null=True)
    options = models.JSONField(default=dict)  # {accept_outage, writers}
    document = models.JSONField(default=dict)  # closed: order, bits, diff, counts of requests
    digest = models.CharField(max_length=80, blank=True)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(RestoreQuerySet)()

    def __str__(self) -> str:
        return f"restore {self.pk}: {self.combination}"
