"""Reads of this room."""

from __future__ import annotations

from django.db import models

from controlplane.access.permissions import Caller, allowed


class PlanQuerySet(models.QuerySet["Plan"]):  # type: ignore[name-defined]
    """Plans with what every list shows, in one query."""

    def visible_to(self, user: Caller) -> PlanQuerySet:
        """Plans of sets in the caller's scope."""
        rows = self.select_related("workload__cluster", "requester")
        return allowed(rows, user, cluster="workload__cluster__name", namespace="workload__namespace")  # type: ignore[return-value]


class UpdateRecordQuerySet(models.QuerySet["UpdateRecord"]):  # type: ignore[name-defined]
    """Update records."""

    def visible_to(self, user: Caller) -> UpdateRecordQuerySet:
        """Records of sets in the caller's scope."""
        rows = self.select_related("operation", "plan__workload__cluster")
        return allowed(
            rows, user, cluster="plan__workload__cluster__name", namespace="plan__workload__namespace"
        )  # type: ignore[return-value]
