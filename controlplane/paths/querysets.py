"""Reads of pools, probe series and golden outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from django.db import models
from django.db.models import F

from controlplane.access.permissions import Caller, allowed
from controlplane.fleet.querysets import SecondsSince

if TYPE_CHECKING:
    from controlplane.paths.models import GoldenOutputs, Pool, ProbeSeries  # noqa: F401


class PoolQuerySet(models.QuerySet["Pool"]):
    """Pools as observed."""

    def visible_to(self, user: Caller) -> Self:
        """Pools in namespaces that the caller may read."""
        return cast(Self, allowed(self, user, cluster="cluster__name", namespace="namespace"))

    def present(self) -> Self:
        """Pools that exist, as far as is known."""
        return self.filter(gone_at=None)

    def with_age(self) -> Self:
        """Adds `age`: seconds since the paths of the cluster were last read, and `measured_age`: since the metric
        source was read for the pool."""
        return self.annotate(
            age=SecondsSince(F("cluster__paths_read_at")), measured_age=SecondsSince(F("measured_at"))
        )


class SeriesQuerySet(models.QuerySet["ProbeSeries"]):
    """Probe series."""

    def visible_to(self, user: Caller) -> Self:
        """Series of pools that the caller may read."""
        rows = allowed(self, user, cluster="pool__cluster__name", namespace="pool__namespace")
        return cast(Self, rows)


class GoldenQuerySet(models.QuerySet["GoldenOutputs"]):
    """Golden outputs."""

    def visible_to(self, user: Caller) -> Self:
        """Golden outputs of pools that the caller may read."""
        rows = allowed(self, user, cluster="pool__cluster__name", namespace="pool__namespace")
        return cast(Self, rows)

    def usable(self) -> Self:
        """Those that somebody vouches for."""
        return self.exclude(verified_by=[])

    def comparable(self, *, pool: int, model: str, prompt_set: str) -> Self:
        """Usable ones whose answers are to the same texts, the newest first."""
        rows = self.usable().filter(pool_id=pool, model=model, prompt_set=prompt_set)
        return rows.order_by("-verified_at", "-pk")
