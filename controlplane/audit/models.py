"""Append-only record of every write and every refusal, and the chain that seals it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class AuditEvent(models.Model):
    """One intent and its outcome. Rows are only ever inserted; a trigger refuses anything else."""

    class Outcome(models.TextChoices):
        """What became of the intent."""

        DONE = "done"
        REFUSED = "refused"

    at = models.DateTimeField(db_index=True)
    actor = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=20)  # person | token | worker | command
    on_behalf_of = models.CharField(max_length=200, blank=True)
    action = models.CharField(max_length=80, db_index=True)
    outcome = models.CharField(max_length=10, choices=Outcome)
    code = models.CharField(max_length=80, blank=True)
    target_kind = models.CharField(max_length=40)
    target_id = models.CharField(max_length=120)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=80, blank=True)
    source_ip = models.GenericIPAddressField(null=True)
    fence = models.BigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["target_kind", "target_id", "id"], name="events_of_target")]


class AuditPending(models.Model):
    """The unsealed tail: one row per event until the sealer has taken it."""

    event = models.OneToOneField(
        AuditEvent, on_delete=models.PROTECT, primary_key=True, related_name="pending"
    )
    at = models.DateTimeField()


class AuditSeal(models.Model):
    """One link of the chain: hash over (seq, previous hash, canonical event)."""

    seq = models.BigIntegerField(primary_key=True)
    event = models.OneToOneField(AuditEvent, on_delete=models.PROTECT, related_name="seal")
    previous = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    sealed_at = models.DateTimeField()
