"""A round of the metric source for the pools of one cluster: those measured longest ago first, as far as the time goes.

Numbers here are for display and agreement. Gates of an upgrade read their own, live.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.audit.clock import database_now
from controlplane.errors import LockstepError
from controlplane.fleet.connections import connect_metrics
from controlplane.fleet.models import Cluster, Revision
from controlplane.metrics.client import Prometheus
from controlplane.metrics.source import Source
from controlplane.paths.links import links_of
from controlplane.paths.measuring import Standing, measure_path
from controlplane.paths.models import Pool, ProbeSeries
from controlplane.paths.objects import PathObjects
from controlplane.paths.pool_settings import read_settings
from controlplane.paths.services import forget_measured, record_measured
from controlplane.paths.view import PathView

Json = dict[str, Any]

CALL_S = 3.0
# Pinned probes that end now are in the next scrape: counts begin after it.
SCRAPED_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Known:
    """What the database knows beside the paths: pools by UID, when each last saw a pinned probe, and when revisions
    began by (namespace, set, label)."""

    pools: Mapping[str, Pool]
    probed_at: Mapping[str, datetime]
    began: Mapping[tuple[str, str, str], datetime]
    now: datetime


def measure_round(
    *, cluster: Cluster, fence: int, objects: PathObjects, paths: Sequence[PathView], budget_s: float
) -> int | None:
    """Measure and store; how many pools, None where a newer watcher has taken over. A source that does not answer is
    the reason why there is no data; nothing is raised for it."""
    if not cluster.metrics_url:
        return forget_measured(cluster_id=cluster.pk, fence=fence)
    known = read_known(cluster, paths)
    pods = {str(pod["metadata"].get("uid") or ""): pod for pod in objects.pods}
    ends, found = time.monotonic() + budget_s, dict[str, Json]()
    try:
        client, source = connect_metrics(cluster, timeout_s=CALL_S)
        with client:
            for path in oldest_first(paths, known):
                if found and time.monotonic() >= ends:
                    break
                found |= _measured(client, source, path, known, pods)
    except LockstepError as error:
        away: Json = {"state": "no-data", "reason": error.sentence, "problem": error.code}
        found |= {pool.uid: away for path in paths for pool in path.pools if pool.uid not in found}
    return record_measured(cluster_id=cluster.pk, fence=fence, measured=found)


def read_known(cluster: Cluster, paths: Sequence[PathView]) -> Known:
    """Three queries, however many pools."""
    uids = [pool.uid for path in paths for pool in path.pools]
    pools = {row.uid: row for row in Pool.objects.filter(cluster=cluster, uid__in=uids)}
    running = ProbeSeries.State.RUNNING
    probed: dict[str, datetime] = {}
    now = database_now()
    lately = ProbeSeries.objects.filter(pool__in=pools.values()).exclude(revision="")
    for uid, state, ended in lately.filter(created_at__gt=now - timedelta(days=1)).values_list(
        "pool__uid", "state", "finished_at"
    ):
        at = now if state == running or ended is None else ended
        probed[uid] = max(at, probed.get(uid, at))
    sets = {(pool.namespace, name) for path in paths for pool in path.pools for name in pool.sets}
    rows = Revision.objects.filter(
        workload__cluster=cluster,
        workload__gone_at=None,
        ended_at=None,
        workload__name__in={n for _, n in sets},
    )
    began = {
        (namespace, name, label): started
        for namespace, name, label, started in rows.values_list(
            "workload__namespace", "workload__name", "label", "started_at"
        )
    }
    return Known(pools, probed, began, now)


def oldest_first(paths: Iterable[PathView], known: Known) -> list[PathView]:
    """Paths by the time of their last reading; those never read come first."""
    never = datetime.min.replace(tzinfo=known.now.tzinfo)

    def read_at(path: PathView) -> datetime:
        rows = (known.pools.get(pool.uid) for pool in path.pools)
        return min((row.measured_at if row and row.measured_at else never for row in rows), default=never)

    return sorted(paths, key=read_at)


def standing_of(path: PathView, known: Known) -> Standing:
    """For how long shares can be compared with the plan: no pool has changed since, and no pinned probe was sent."""
    moments = [known.pools[pool.uid].observed_at for pool in path.pools if pool.uid in known.pools]
    moments += [
        known.probed_at[pool.uid] + timedelta(seconds=SCRAPED_AFTER_S)
        for pool in path.pools
        if pool.uid in known.probed_at
    ]
    steady = max(0.0, (known.now - max(moments, default=known.now)).total_seconds())
    ages: dict[tuple[str, str], float] = {}
    for pool in path.pools:
        for pod in pool.pods:
            began = known.began.get((pool.namespace, pod.set_name, pod.revision), pod.created_at)
            if began is not None:
                age = (known.now - began).total_seconds()
                key = (pod.set_name, pod.revision)
                ages[key] = max(age, ages.get(key, 0.0))
    return Standing(ages, steady)


def _measured(
    client: Prometheus, source: Source, path: PathView, known: Known, pods: Mapping[str, Json]
) -> dict[str, Json]:
    """UID → document, for every pool of a path that has a row."""
    rows = {pool.uid: known.pools[pool.uid] for pool in path.pools if pool.uid in known.pools}
    if not rows:
        return {}
    shown, numbers = measure_path(client, source, path, standing_of(path, known))
    return {
        pool.uid: {
            **shown,
            "links": links_of(
                pool, numbers.engines, pods=pods, settings=read_settings(rows[pool.uid].settings)
            ),
        }
        for pool in path.pools
        if pool.uid in rows
    }
