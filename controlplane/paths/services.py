"""Writes of this room: pools by whoever reads the cluster, their settings by people, series by workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane import events
from controlplane.access.etags import check_version
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from controlplane.audit.services import record_event
from controlplane.errors import NotFound, Refused
from controlplane.fleet.models import Cluster
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.pool_settings import checked_settings, read_settings
from controlplane.paths.view import PathView

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeenPool:
    """One pool with its path as JSON."""

    uid: str
    namespace: str
    name: str
    path: Json


def seen_pools(paths: Iterable[PathView]) -> list[SeenPool]:
    """Every pool of these paths, as it is stored: a tuple comes back as a list, and would differ for ever."""
    return [
        SeenPool(pool.uid, pool.namespace, pool.name, json.loads(json.dumps(path.as_json(pool.name))))
        for path in paths
        for pool in path.pools
    ]


def record_pools(*, cluster_id: int, fence: int, seen: Sequence[SeenPool]) -> int | None:
    """Store every pool of a cluster; rows that say so already are left as they are. How many changed, None where a
    newer watcher has taken over: an older picture never overwrites. Pools not among `seen` are marked as gone."""
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update(no_key=True).filter(pk=cluster_id, watcher_fence=fence)
        if not cluster.exists():
            return None
        now = database_now()
        known = {pool.uid: pool for pool in Pool.objects.filter(cluster_id=cluster_id).defer("measured")}
        new = [each for each in seen if each.uid not in known]
        made = Pool.objects.bulk_create([_new(cluster_id, each, fence, now) for each in new])
        changed = [
            known[each.uid] for each in seen if each.uid in known and _take(known[each.uid], each, fence, now)
        ]
        present = {each.uid for each in seen}
        gone = [pool for uid, pool in known.items() if uid not in present and pool.gone_at is None]
        for pool in gone:
            pool.gone_at, pool.observed_at, pool.observed_fence = now, now, fence
        Pool.objects.bulk_update(
            [*changed, *gone],
            ["namespace", "name", "path", "observed_at", "observed_fence", "gone_at"],
            batch_size=200,
        )
        cluster.update(paths_read_at=now)
        for pool in (*made, *changed, *gone):
            events.publish(event="pool-changed", object_kind="pool", object_id=str(pool.pk))
    return len(made) + len(changed) + len(gone)


def _new(cluster_id: int, seen: SeenPool, fence: int, now: datetime) -> Pool:
    return Pool(
        cluster_id=cluster_id,
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        path=seen.path,
        observed_at=now,
        observed_fence=fence,
    )


def _take(pool: Pool, seen: SeenPool, fence: int, now: datetime) -> bool:
    if pool.path == seen.path and pool.gone_at is None:
        return False
    pool.namespace, pool.name, pool.path = seen.namespace, seen.name, seen.path
    pool.observed_at, pool.observed_fence, pool.gone_at = now, fence, None
    return True


def record_measured(*, cluster_id: int, fence: int, measured: Mapping[str, Json]) -> int | None:
    """Store what the metric source says, by pool UID; how many pools, None where a newer watcher has taken over.

    An absence that is stored already stays as it is: its time says since when.
    """
    with transaction.atomic():
        if not _still_watching(cluster_id, fence):
            return None
        now = database_now()
        rows = list(Pool.objects.filter(cluster_id=cluster_id, gone_at=None, uid__in=measured))
        changed = [row for row in rows if row.measured != measured[row.uid]]
        told = [row for row in changed if _said(row.measured) != _said(measured[row.uid])]
        for row in changed:
            row.measured, row.measured_at = measured[row.uid], now
        Pool.objects.bulk_update(changed, ["measured", "measured_at"], batch_size=200)
        for row in told:
            events.publish(event="pool-changed", object_kind="pool", object_id=str(row.pk))
    return len(changed)


def forget_measured(*, cluster_id: int, fence: int) -> int | None:
    """The cluster has no metric source any more: what it once said is not shown as if it still did."""
    with transaction.atomic():
        if not _still_watching(cluster_id, fence):
            return None
        rows = Pool.objects.filter(cluster_id=cluster_id, measured_at__isnull=False)
        return rows.update(measured={}, measured_at=None)


def _still_watching(cluster_id: int, fence: int) -> bool:
    rows = Cluster.objects.select_for_update(no_key=True).filter(pk=cluster_id, watcher_fence=fence)
    return rows.exists()


def _said(measured: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a person would act on: numbers alone change all the time."""
    return measured.get("state"), (measured.get("agreement") or {}).get("verdict")


def set_pool_settings(*, pool_id: int, version: int, changes: Mapping[str, Any], actor: Actor) -> Pool:
    """Say how a pool may be probed. Raises NotFound, StaleEdit, BadInput."""
    with transaction.atomic():
        pool = Pool.objects.select_for_update(no_key=True).filter(pk=pool_id).first()
        if pool is None:
            raise NotFound("not-found", f"There is no pool {pool_id}.")
        check_version(expected=version, actual=pool.version)
        before, pool.settings = pool.settings, checked_settings(changes, before=pool.settings)
        pool.version += 1
        pool.save(update_fields=["settings", "version"])
        record_event(
            actor=actor,
            action="pool.set_settings",
            target_kind="pool",
            target_id=f"{pool.namespace}/{pool.name}",
            before=before,
            after=pool.settings,
        )
        events.publish(event="pool-changed", object_kind="pool", object_id=str(pool.pk))
    return pool


def open_series(
    *, pool: Pool, kind: str, subject_kind: str, subject_id: str, key: str, revision: str = ""
) -> tuple[ProbeSeries, bool]:
    """The series of this look, made if it is the first time that somebody asks; whether it was made.

    Raises Refused `pool-not-probed` where nobody has said how the pool is reached.
    """
    if not read_settings(pool.settings).can_probe:
        raise Refused(
            "pool-not-probed",
            f"Nobody has said how {pool.namespace}/{pool.name} is reached and which model to ask for.",
            next_action="Set probe_url and model of the pool.",
        )
    with transaction.atomic():
        return ProbeSeries.objects.get_or_create(
            pool=pool,
            kind=kind,
            subject_kind=subject_kind,
            subject_id=subject_id,
            key=key,
            defaults={"revision": revision, "created_at": database_now()},
        )


def store_progress(*, series_id: int, plan: Json, results: Sequence[Json], done_before: int) -> bool:
    """Add what was sent since `done_before` requests; False where another worker has gone on meanwhile."""
    with transaction.atomic():
        series = ProbeSeries.objects.select_for_update(no_key=True).get(pk=series_id)
        if series.state != ProbeSeries.State.RUNNING or len(series.results) != done_before:
            return False
        series.plan, series.results = plan, [*series.results, *results]
        series.save(update_fields=["plan", "results"])
    return True


def judge_series(*, series_id: int, verdict: Json) -> None:
    """Close a series with its verdict; a series that is closed stays as it is."""
    _close(series_id, state=ProbeSeries.State.JUDGED, verdict=verdict)


def fail_series(*, series_id: int, problem: Json) -> None:
    """Close a series that could not be run, with the problem as {code, sentence, next_action}."""
    _close(series_id, state=ProbeSeries.State.FAILED, problem=problem)


def _close(series_id: int, *, state: str, **fields: Json) -> None:
    with transaction.atomic():
        open_ones = ProbeSeries.objects.filter(pk=series_id, state=ProbeSeries.State.RUNNING)
        if open_ones.update(state=state, finished_at=database_now(), **fields):
            events.publish(
                event="series-changed", object_kind="series", object_id=str(series_id), data={"state": state}
            )
