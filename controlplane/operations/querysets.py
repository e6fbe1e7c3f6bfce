"""Reads of operations and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from django.db import models
from django.db.models import Prefetch

from controlplane.access.permissions import Caller, allowed

if TYPE_CHECKING:
    from controlplane.operations.models import AutomationPause, Operation, Run  # noqa: F401


class OperationQuerySet(models.QuerySet["Operation"]):
    """Operations, newest first where a list is wanted."""

    def unfinished(self) -> Self:
        """Those that still own their targets: working, waiting or held."""
        return self.filter(state__in=["working", "waiting", "held"])

    def visible_to(self, user: Caller) -> Self:
        """Those in the caller's scope."""
        rows = allowed(self, user, cluster="cluster__name", namespace="namespace")
        return cast(Self, rows)

    def for_lists(self) -> Self:
        """One query for the row and what its line says."""
        return self.select_related("cluster", "started_by").order_by("-id")

    def for_pages(self) -> Self:
        """With steps in order and targets, in a constant number of queries."""
        from controlplane.operations.models import Step

        steps = Prefetch("steps", queryset=Step.objects.order_by("index"))
        return self.for_lists().prefetch_related(steps, "targets")


class PauseQuerySet(models.QuerySet["AutomationPause"]):
    """Pauses of automation."""

    def standing(self) -> Self:
        """Those that nobody has resumed."""
        return self.filter(resumed_at=None)

    def visible_to(self, user: Caller) -> Self:
        """Those of sets in the caller's scope, newest first."""
        rows = self.select_related("cluster", "resumed_by").order_by("-id")
        return cast(Self, allowed(rows, user, cluster="cluster__name", namespace="namespace"))


class RunQuerySet(models.QuerySet["Run"]):
    """Runs."""

    def visible_to(self, user: Caller) -> Self:
        """Those in the caller's scope; what is about a whole cluster shows to those who see all of it."""
        rows = self.filter(cluster__isnull=False)
        return cast(Self, allowed(rows, user, cluster="cluster__name", namespace="namespace"))
