"""Reads of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from django.db import models

from controlplane.access.permissions import Caller, allowed

if TYPE_CHECKING:
    from controlplane.fleet.models import Cluster
    from controlplane.recovery.models import Combination, Restore  # noqa: F401


class CombinationQuerySet(models.QuerySet["Combination"]):
    """Combinations."""

    def visible_to(self, user: Caller) -> Self:
        """Those of sets in the caller's scope."""
        rows = allowed(self, user, cluster="cluster__name", namespace="namespace")
        return cast(Self, rows)

    def for_lists(self) -> Self:
        """Newest first, without the documents."""
        return self.select_related("cluster").defer("document", "golden").order_by("-id")

    def of_set(self, *, cluster: Cluster, namespace: str, name: str) -> Self:
        """Those of one set, newest first."""
        return self.filter(cluster=cluster, namespace=namespace, name=name).order_by("-number")


class RestoreQuerySet(models.QuerySet["Restore"]):
    """Restores."""

    def visible_to(self, user: Caller) -> Self:
        """Those of sets in the caller's scope, newest first."""
        rows = self.select_related("operation", "combination__cluster", "review").order_by("-id")
        return cast(
            Self,
            allowed(rows, user, cluster="combination__cluster__name", namespace="combination__namespace"),
        )
