"""Reading named numbers of one set and its router, all at one moment.

Every number belongs to a revision *incarnation*: a label comes back after a restore, with the same pod names, so no
sample from before the incarnation began may count. Runs in workers, never in a web request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controlplane.metrics.asked import Asked, Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.engines import read_engines
from controlplane.metrics.evaluate import share_of
from controlplane.metrics.measured import Measured
from controlplane.metrics.named import Kind, Query
from controlplane.metrics.queries import QUERIES
from controlplane.metrics.routers import read_router
from controlplane.metrics.source import Source
from controlplane.metrics.survey import Survey, look_at_engines, look_at_router


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The source's clock minus ours in seconds, known to within `uncertainty_s` either way."""

    offset_s: float
    uncertainty_s: float


def clock_offset(client: Prometheus, *, clock: Callable[[], float] = time.time) -> ClockOffset:
    """Compare the source's clock with `clock` (unix seconds). Raises MetricsError."""
    asked = clock()
    there = client.now()
    answered = clock()
    return ClockOffset(there - (asked + answered) / 2, (answered - asked) / 2)


def measure_all(
    client: Prometheus,
    source: Source,
    names: Iterable[str],
    *,
    namespace: str,
    window_s: int,
    set: str = "",
    revisions: Sequence[Incarnation] = (),
    router: str = "",
    slice: str = "",
    roles: Sequence[str] = (),
    stats: Sequence[str] = (),
    now: float | None = None,
) -> list[Measured]:
    """Named numbers (keys of QUERIES) of the same moment, in the order of the names: at `now` (unix seconds on the
    source's clock; its present if left out), over `window_s` seconds.

    Engine numbers are of `set` and its `revisions`, one per incarnation and role; a role of `roles` that
    nobody scrapes is among them as no-data. Router numbers are of the pods of `router`, the name of a
    Deployment or StatefulSet. `stats` are wanted of histograms
    (`p95`, `mean`, `count`). Raises MetricsError, KeyError for an unknown name, ValueError for a stat or
    window that makes no sense.
    """
    queries = [QUERIES[name] for name in names]
    _check(queries, window_s=window_s, set_name=set, revisions=revisions, router=router, stats=stats)
    asked = Asked(
        client=client,
        source=source,
        namespace=namespace,
        set=set,
        slice=slice,
        router=router,
        revisions=tuple(revisions),
        roles=tuple(roles),
        window_s=window_s,
        at=client.now() if now is None else now,
        stats=tuple(stats),
    )
    engines = _engines(asked, queries)
    router_seen = _router(asked, queries)
    found: list[Measured] = []
    for query in queries:
        if query.router and router_seen:
            found += read_router(asked, router_seen, engines, query)
        elif engines:
            found += read_engines(asked, engines, query)
    return found


def _check(
    queries: Sequence[Query],
    *,
    window_s: int,
    set_name: str,
    revisions: Sequence[Incarnation],
    router: str,
    stats: Sequence[str],
) -> None:
    if window_s < 1:
        raise ValueError("a window has at least one second")
    for stat in stats:
        if stat not in ("mean", "count"):
            share_of(stat)
    if any(query.router for query in queries) and not router:
        raise ValueError("numbers of a router need the name of its workload")
    if any(not query.router for query in queries) and not (set_name and revisions):
        raise ValueError("numbers of engines need a set and its revisions")
    labels = [revision.revision for revision in revisions]
    if len(labels) != len({*labels}):
        raise ValueError("of two incarnations of a revision only the present one can be measured")


def _engines(asked: Asked, queries: Sequence[Query]) -> Survey | None:
    joined = asked.set and any(query.kind is Kind.ATTEMPTS for query in queries)
    mine = [query for query in queries if not query.router]
    if not asked.revisions or not (mine or joined):
        return None
    return look_at_engines(
        asked.client,
        asked.source,
        mine,
        matchers=asked.engine_matchers(),
        revisions=[each.revision for each in asked.revisions],
        window_s=asked.window_s,
        at=asked.at,
    )


def _router(asked: Asked, queries: Sequence[Query]) -> Survey | None:
    mine = [query for query in queries if query.router]
    if not mine:
        return None
    return look_at_router(
        asked.client,
        asked.source,
        mine,
        matchers=asked.router_matchers(),
        window_s=asked.window_s,
        at=asked.at,
    )
