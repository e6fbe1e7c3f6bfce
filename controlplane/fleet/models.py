"""Observed state. Rows here display and ring bells; facts used to act are read live (DESIGN 3)."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.fleet.querysets import ClusterQuerySet, RevisionQuerySet, WorkloadQuerySet


class Cluster(models.Model):
    """One Kubernetes API. `context` names its entry in the kubeconfig that workers and watchers hold."""

    class Environment(models.TextChoices):
        """Decides the risk class of a change."""

        DEVELOPMENT = "development"
        STAGING = "staging"
        PRODUCTION = "production"

    class Writes(models.TextChoices):
        """Whether this installation may write: only with the cluster's installation Lease in hand."""

        UNKNOWN = "unknown"  # not looked at yet
        OURS = "ours"
        FOREIGN = "foreign"  # another installation holds the Lease
        BEHIND = "behind"  # a number in the cluster is above ours: our database is older than the cluster
        UNPREPARED = "unprepared"  # admission policies or namespace missing: read-only for holds

    name = models.SlugField(max_length=63, unique=True)
    context = models.CharField(max_length=253)
    environment = models.CharField(max_length=20, choices=Environment)
    writes = models.CharField(max_length=20, choices=Writes, default=Writes.UNKNOWN)
    writes_reason = models.TextField(blank=True)
    lease_transitions = models.PositiveIntegerField(default=0)
    lws_version = models.CharField(max_length=60, blank=True)
    kubernetes_version = models.CharField(max_length=60, blank=True)
    watcher_fence = models.BigIntegerField(default=0)  # the newest watcher; older ones may not write
    observed_at = models.DateTimeField(null=True)  # last time the watch was known to be current
    paths_read_at = models.DateTimeField(null=True)  # last time the request paths were read
    problem = models.TextField(blank=True)  # why the watch is not current, or what is missing in the cluster
    # Where numbers come from: the base address of a Prometheus (empty: nowhere) and how names look there
    # (metrics.source). No credentials: their headers are named, values are files that workers hold.
    metrics_url = models.CharField(max_length=500, blank=True)
    metrics_options = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)  # of what people edit
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = models.Manager.from_queryset(ClusterQuerySet)()


class Workload(models.Model):
    """A DisaggregatedSet as last observed. Identity is the UID; the name may come back."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="workloads")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=63)
    state = models.CharField(max_length=20)  # one of fleet.rollout_state.STATES
    target_revision = models.CharField(max_length=16, blank=True)
    # What lists show: per role desired, wanted and ready groups, and since when the set waits.
    headline = models.JSONField(default=dict)
    # Everything, for one page: slices → revisions → roles → groups → pods (fleet.view, fleet.rollout_state).
    summary = models.JSONField(default=dict)
    observed_at = models.DateTimeField()  # when the summary last changed
    observed_fence = models.BigIntegerField()
    gone_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(WorkloadQuerySet)()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "uid"], name="one_row_per_set")]
        indexes: ClassVar = [
            models.Index(fields=["cluster", "namespace", "name"], name="sets_by_name"),
            models.Index(fields=["state"], condition=models.Q(gone_at=None), name="sets_by_state"),
        ]


class Revision(models.Model):
    """One incarnation of a template generation: (workload UID, label, incarnation start)."""

    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="revisions")
    label = models.CharField(max_length=16)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # UIDs of its LeaderWorkerSets: the label alone comes back after a restore, these do not.
    members = models.JSONField(default=list)
    # The recorded truth to go back to: defaulted spec.roles in order. Null where Lockstep has never seen
    # the spec that made this label.
    roles = models.JSONField(null=True)
    roles_digest = models.CharField(max_length=80, blank=True)
    images = models.JSONField(default=dict)  # role → {container: {image, image_ids}}

    objects = models.Manager.from_queryset(RevisionQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workload", "label", "started_at"], name="one_row_per_incarnation"
            )
        ]
