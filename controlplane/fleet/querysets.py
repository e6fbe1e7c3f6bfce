"""Reads of the fleet. Ages are measured on the database's clock, as everything that expires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models
from django.db.models import F, Q

from controlplane.access.permissions import Caller, allowed

if TYPE_CHECKING:
    from controlplane.fleet.models import Cluster, Revision, Workload

# DESIGN 3: a cache older than this disables promote.
STALE_AFTER_S = 30.0
M = TypeVar("M", bound=models.Model)


class SecondsSince(models.Func):
    """Seconds between a moment and now; null where there was none."""

    template = "EXTRACT(EPOCH FROM (clock_timestamp() - %(expressions)s))::float8"
    arity = 1
    output_field = models.FloatField()


class ClusterQuerySet(models.QuerySet["Cluster"]):
    """Clusters."""

    def visible_to(self, user: Caller) -> models.QuerySet[Cluster]:
        """Clusters in which the caller may read anything."""
        return allowed(self, user, cluster="name")

    def with_age(self) -> models.QuerySet[Cluster, Any]:
        """Adds `age`: seconds since the watch was last known to be current, null before its first look."""
        return self.annotate(age=SecondsSince(F("observed_at")))


class WorkloadQuerySet(models.QuerySet["Workload"]):
    """DisaggregatedSets as observed."""

    def visible_to(self, user: Caller) -> models.QuerySet[Workload]:
        """Sets in namespaces that the caller may read."""
        return allowed(self, user, cluster="cluster__name", namespace="namespace")

    def present(self) -> models.QuerySet[Workload]:
        """Sets that exist, as far as the watch knows."""
        return self.filter(gone_at=None)

    def with_age(self) -> models.QuerySet[Workload, Any]:
        """Adds `age`: seconds since the picture of the cluster was last known to be current."""
        return self.annotate(age=SecondsSince(F("cluster__observed_at")))


class RevisionQuerySet(models.QuerySet["Revision"]):
    """Revision incarnations."""

    def visible_to(self, user: Caller) -> models.QuerySet[Revision]:
        """Revisions of sets in namespaces that the caller may read."""
        return allowed(self, user, cluster="workload__cluster__name", namespace="workload__namespace")

    def with_recorded(self) -> models.QuerySet[Revision, Any]:
        """Adds `recorded`: whether the roles are known, so that one can go back; does not load them."""
        return self.annotate(
            recorded=models.ExpressionWrapper(Q(roles__isnull=False), output_field=models.BooleanField())
        ).defer("roles")
