"""Pools as last observed, how they may be probed, series of probes with their evidence, and golden outputs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from controlplane.paths.querysets import GoldenQuerySet, PoolQuerySet, SeriesQuerySet


class Pool(models.Model):
    """An InferencePool with its path, as last observed. Identity is the UID. Steps that judge read live."""

    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.PROTECT, related_name="pools")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    # paths.view.PathView.as_json; empty before the first look.
    path = models.JSONField(default=dict)
    # How requests reach it and what a probe asks: paths.pool_settings.
    settings = models.JSONField(default=dict)
    version = models.PositiveIntegerField(default=1)  # ETag of the settings
    observed_at = models.DateTimeField()
    observed_fence = models.BigIntegerField(default=0)
    gone_at = models.DateTimeField(null=True)
    # What the metric source says of it (paths.measuring); empty without a source, and before the first reading.
    measured = models.JSONField(default=dict)
    measured_at = models.DateTimeField(null=True)
    # Until then one series alone sends through it, and which one found it taken first: paths.turns.
    turn_until = models.DateTimeField(null=True)
    turn_next = models.BigIntegerField(null=True)

    objects = models.Manager.from_queryset(PoolQuerySet)()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_row_per_pool")]
        indexes: ClassVar = [models.Index(fields=["cluster", "namespace", "name"], name="pools_by_name")]

    def __str__(self) -> str:
        return f"pool {self.namespace}/{self.name}"


class ProbeSeries(models.Model):
    """Requests that Lockstep sends through the gateway to see a path, and what came of them.

    One row per (subject, key): who asks twice for the same look gets the same series.
    """

    class Kind(models.TextChoices):
        """`probe`: does each group serve in its role. `parity`: is the output what the reference says."""

        PROBE = "probe"
        PARITY = "parity"

    class State(models.TextChoices):
        """Running until it is judged; failed where it could not be run."""

        RUNNING = "running"
        JUDGED = "judged"
        FAILED = "failed"

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="series")
    kind = models.CharField(max_length=10, choices=Kind)
    subject_kind = models.CharField(max_length=40)  # operation, or person
    subject_id = models.CharField(max_length=120)
    key = models.CharField(max_length=120)  # within the subject: step, attempt, revision
    revision = models.CharField(max_length=16, blank=True)  # pinned; empty: as any client
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    plan = models.JSONField(default=dict)  # prompts, groups to cover, rate, seed
    results = models.JSONField(default=list)  # one entry per request that was sent
    verdict = models.JSONField(default=dict)
    problem = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    pruned_at = models.DateTimeField(null=True)  # since when answers are kept without their tokens

    objects = models.Manager.from_queryset(SeriesQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["pool", "kind", "subject_kind", "subject_id", "key"], name="one_series_per_look"
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["finished_at"],
                condition=Q(pruned_at=None) & ~Q(state="running"),
                name="series_to_prune",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} series {self.pk} of {self.pool}"


class GoldenOutputs(models.Model):
    """Answers of one revision to the fixed prompts, taken from a parity series: what later answers of the path are
    compared with. Usable as long as somebody vouches for them.

    The answers stand here alone: what refers to them (`Combination.golden`, verdicts) names them by id and digest.
    They are comparable with answers to the same texts only: of the same model name, and of `prompt_set`
    (paths.golden.prompt_set_of).
    """

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="golden_outputs")
    series = models.OneToOneField(
        ProbeSeries, on_delete=models.SET_NULL, null=True, related_name="golden_outputs"
    )
    revision = models.CharField(max_length=16)
    model = models.CharField(max_length=500)  # the served name that was asked for
    prompt_set = models.CharField(max_length=60)
    answers = models.JSONField()  # prompt → {salt, answers}: paths.golden.packed
    digest = models.CharField(max_length=80)  # over model, prompt_set and answers
    verified_by = models.JSONField(default=list)  # [{kind, id}]: a person, or a verified combination
    verified_at = models.DateTimeField()  # since when somebody vouches for them
    revoked_reason = models.TextField(blank=True)
    recorded_at = models.DateTimeField()
    version = models.PositiveIntegerField(default=1)

    objects = models.Manager.from_queryset(GoldenQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["pool", "model", "prompt_set", "-verified_at"], name="golden_to_compare_with"
            )
        ]

    def __str__(self) -> str:
        return f"golden outputs {self.pk} of {self.pool}"
