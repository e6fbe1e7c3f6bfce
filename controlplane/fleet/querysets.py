"""Reads of the fleet. Ages are measured on the database's clock, as everything that expires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from django.db import models
from django.db.models import F, Q

from controlplane.access.permissions import Caller, allowed

if TYPE_CHECKING:
    from controlplane.fleet.models import Cluster, Revision, Workload  # noqa: F401

# DESIGN 3: a cache older than this disables promote.
STALE_AFTER_S = 30.0


class SecondsSince(models.Func):
    """Seconds between a moment and now; null where there was none."""

    template = "EXTRACT(EPOCH FROM (clock_timestamp() - %(expressions)s))::float8"
    arity = 1
    output_field = models.FloatField()


class ClusterQuerySet(models.QuerySet["Cluster"]):
    """Clusters."""

    def visible_to(self, user: Caller) -> Self:
        """Clusters in which the caller may read anything."""
        return cast(Self, allowed(self, user, cluster="name"))

    def with_age(self) -> Self:
        """Adds `age`: seconds since the watch was last known to be current, null before its first look."""
        return self.annotate(age=SecondsSince(F("observed_at")))

    def age_of(self, cluster_id: int) -> float | None:
        """Seconds since the watch of one cluster was last known to be current; None before its first look."""
        found: float | None = self.values_list(SecondsSince(F("observed_at")), flat=True).get(pk=cluster_id)
        return found


class WorkloadQuerySet(models.QuerySet["Workload"]):
    """DisaggregatedSets as observed."""

    def visible_to(self, user: Caller) -> Self:
        """Sets in namespaces that the caller may read."""
        return cast(Self, allowed(self, user, cluster="cluster__name", namespace="namespace"))

    def present(self) -> Self:
        """Sets that exist, as far as the watch knows."""
        return self.filter(gone_at=None)

    def with_age(self) -> Self:
        """Adds `age`: seconds since the picture of the cluster was last known to be current."""
        return self.annotate(age=SecondsSince(F("cluster__observed_at")))


class RevisionQuerySet(models.QuerySet["Revision"]):
    """Revision incarnations."""

    def visible_to(self, user: Caller) -> Self:
        """Revisions of sets in namespaces that the caller may read."""
        return cast(
            Self, allowed(self, user, cluster="workload__cluster__name", namespace="workload__namespace")
        )

    def with_recorded(self) -> Self:
        """Adds `recorded`: whether the roles are known, so that one can go back; does not load them."""
        known = models.ExpressionWrapper(Q(roles__isnull=False), output_field=models.BooleanField())
        return self.annotate(recorded=known).defer("roles")
