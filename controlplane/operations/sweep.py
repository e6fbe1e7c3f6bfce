"""The sweep: rings what is due, in case a bell was lost, and lets time do what nobody rings for."""

from __future__ import annotations

from django.conf import settings
from django.db import connection

from controlplane import queue
from controlplane.approvals.services import expire_requests
from controlplane.operations.clock import database_now
from controlplane.operations.expiry import abort_expired
from controlplane.operations.installation import check_unknown_clusters, record_sweep

# Rings a row once when it becomes due or loses its lease, then once a sweep for as long as nobody takes it,
# so that a backlog is not rung over and over. A row that is locked has somebody at it.
_DUE = """
UPDATE {table} SET rung_at = clock_timestamp()
WHERE id IN (
    SELECT id FROM {table}
    WHERE state IN ('working', 'waiting') AND not_before <= clock_timestamp()
        AND (lease_until IS NULL OR lease_until <= clock_timestamp())
        AND (rung_at IS NULL OR rung_at < not_before OR rung_at < lease_until
            OR rung_at < clock_timestamp() - make_interval(secs => %s))
    ORDER BY not_before LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING id
"""
_TABLES = {queue.ADVANCE: "operations_operation", queue.CARRY_OUT_RUN: "operations_run"}


def ring_due(*, limit: int = 500) -> int:
    """Ring every due, free operation and run, at most `limit` of each; how many were rung."""
    rung = 0
    for task, table in _TABLES.items():
        with connection.cursor() as cursor:
            cursor.execute(_DUE.format(table=table), [settings.LOCKSTEP_SWEEP, limit])
            due = [row[0] for row in cursor.fetchall()]
        for one in due:
            queue.ring(task, one)
        rung += len(due)
    return rung


def reconcile() -> int:
    """The full sweep: send back what has expired, ring what is due, expire requests, check unknown clusters, say
    that a sweep has been; how many bells were rung."""
    abort_expired()
    rung = ring_due()
    now = database_now()
    expire_requests(now=now)
    check_unknown_clusters()
    record_sweep(now=now)
    return rung
