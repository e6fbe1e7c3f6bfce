"""`/healthz`, `/readyz` and `/metrics`: is the process alive, is Lockstep whole, and how is it doing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from controlplane.approvals.models import ChangeRequest
from controlplane.audit.chain import unsealed_age
from controlplane.audit.clock import database_now
from controlplane.fleet.models import Cluster
from controlplane.operations.models import Installation, Operation

DRIFT_SHOWN_FROM = 5.0  # seconds, DESIGN 3
STALE_AFTER = 30.0  # seconds without a look at a cluster, DESIGN 3

Part = dict[str, Any]


def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is asked."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Every part with `ok` and what was seen; 503 where requests cannot be served.

    Database and migrations decide that. A broker that is away, a late sweep, clock drift or a stale watch are
    shown as degraded with 200: pages, aborts and the sweep work on without them.
    """
    parts: dict[str, Part] = {"database": _guarded(_database), "broker": _guarded(_broker)}
    if parts["database"]["ok"]:
        parts["migrations"] = _guarded(_migrations)
    ready = all(parts[name]["ok"] for name in ("database", "migrations") if name in parts)
    if ready:
        parts |= {"clock": _guarded(_clock), "sweep": _guarded(_sweep), "audit": _guarded(_audit)}
        parts |= {"watch": _guarded(_watch)}
    degraded = sorted(name for name, part in parts.items() if not part["ok"])
    document = {"ready": ready, "degraded": degraded, "parts": parts}
    return JsonResponse(document, status=200 if ready else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text: this process, and what the database knows of the installation."""
    _register()
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _guarded(look: Callable[[], Part]) -> Part:
    try:
        return look()
    except (DatabaseError, redis.RedisError, OSError) as error:
        # Addresses and names of the inside stay in the log.
        return {"ok": False, "problem": type(error).__name__}


def _database() -> Part:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return {"ok": True}


def _broker() -> Part:
    url = settings.LOCKSTEP_BROKER_URL
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        return {"ok": bool(client.ping())}


def _migrations() -> Part:
    executor = MigrationExecutor(connection)
    missing = [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    return {"ok": not missing, "missing": missing}


def _clock() -> Part:
    drift = (database_now() - datetime.now(UTC)).total_seconds()
    return {"ok": abs(drift) <= DRIFT_SHOWN_FROM, "drift_seconds": round(drift, 3)}


def _sweep() -> Part:
    last = Installation.objects.order_by("created_at").values_list("reconciled_at", flat=True).first()
    age = None if last is None else (database_now() - last).total_seconds()
    ok = age is not None and age <= max(4 * settings.LOCKSTEP_SWEEP, 2)
    return {"ok": ok, "age_seconds": None if age is None else round(age, 3)}


def _audit() -> Part:
    age = unsealed_age()
    return {"ok": age <= 60, "unsealed_age_seconds": round(age, 3)}


def _watch() -> Part:
    ages = _watch_ages()
    late = sorted(name for name, age in ages.items() if age is None or age > STALE_AFTER)
    return {"ok": not late, "age_seconds": ages, "stale": late}


def _watch_ages() -> dict[str, float | None]:
    now = database_now()
    seen = Cluster.objects.order_by("name").values_list("name", "observed_at")
    return {name: None if at is None else round((now - at).total_seconds(), 3) for name, at in seen}


@functools.cache
def _register() -> None:
    REGISTRY.register(_Installation())


class _Installation:
    """What the database knows, read at each scrape; a database that is away shows as lockstep_database_up 0."""

    def describe(self) -> list[Metric]:
        """Nothing up front: registering must not ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """A handful of gauges, six queries."""
        up = GaugeMetricFamily("lockstep_database_up", "1 while the database answers.")
        try:
            gauges = list(self._gauges())
        except DatabaseError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from gauges

    def _gauges(self) -> Iterator[Metric]:
        operations = GaugeMetricFamily(
            "lockstep_operations", "Operations by kind and state.", labels=["kind", "state"]
        )
        for kind, state, count in Operation.objects.values_list("kind", "state").annotate(Count("pk")):
            operations.add_metric([kind, state], count)
        yield operations
        requests = GaugeMetricFamily(
            "lockstep_change_requests", "Change requests by state.", labels=["state"]
        )
        for state, count in ChangeRequest.objects.values_list("state").annotate(Count("pk")):
            requests.add_metric([state], count)
        yield requests
        watch = GaugeMetricFamily(
            "lockstep_watch_age_seconds", "Time since a cluster's watch was last current.", labels=["cluster"]
        )
        for cluster, age in _watch_ages().items():
            if age is not None:
                watch.add_metric([cluster], age)
        yield watch
        yield _gauge("lockstep_audit_unsealed_age_seconds", "Age of the unsealed tail.", unsealed_age())
        yield _gauge("lockstep_clock_drift_seconds", "Database minus process.", _clock()["drift_seconds"])
        age = _sweep()["age_seconds"]
        if age is not None:
            yield _gauge("lockstep_sweep_age_seconds", "Time since the last full sweep.", age)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)
