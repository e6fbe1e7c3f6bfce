"""Runs: work outside an operation that reads a cluster. Claimed by lease, done over after a crash, five
tries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from controlplane import events, queue
from controlplane.errors import LockstepError
from controlplane.fleet.models import Cluster
from controlplane.operations.backoff import MAX_ATTEMPTS, Failure, describe_failure, retry_delay
from controlplane.operations.clock import brief_transaction, database_now
from controlplane.operations.contract import Again, Json, RunRegistry
from controlplane.operations.engine import Connect
from controlplane.operations.models import Run

# A run may take longer than a step: its task's hard limit and its lease are the ones of a step times this.
PATIENCE = 4
_CLAIM = """
UPDATE operations_run
SET lease_owner = %(owner)s, lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
    attempts = attempts + 1
WHERE id = %(id)s AND state = 'waiting' AND not_before <= clock_timestamp()
    AND (lease_until IS NULL OR lease_until <= clock_timestamp())
RETURNING lease_until
"""
log = structlog.get_logger(__name__)


def create_run(*, kind: str, args: Json, cluster: Cluster | None = None, namespace: str = "") -> Run:
    """Ask for a run; a worker takes it up when the caller's transaction has committed."""
    with brief_transaction():
        now = database_now()
        run = Run.objects.create(
            kind=kind, args=args, cluster=cluster, namespace=namespace, not_before=now, created_at=now
        )
        queue.ring_on_commit(queue.CARRY_OUT_RUN, run.pk)
    return run


def carry_out_run(*, run_id: int, runs: RunRegistry, connect: Connect, owner: str) -> str:
    """Do a run, if it is waiting, due and free. Returns `not-due`, `overtaken`, `done`, `again` or `failed`.

    A try counts when it begins, so a run that kills its worker ends after five tries as well."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"id": run_id, "owner": owner, "lease": settings.LOCKSTEP_LEASE * PATIENCE})
        row = cursor.fetchone()
    if row is None:
        return "not-due"
    run = Run.objects.select_related("cluster").get(pk=run_id)
    if run.attempts > MAX_ATTEMPTS:
        lost = Failure("worker-lost", "the worker was lost each time", "Look at the workers' logs.", {})
        return _fail(run, row[0], lost, runs, for_good=True)
    try:
        result = _carry_out(run, runs, connect)
    except Exception as error:
        failure = describe_failure(error)
        if not failure.expected:
            log.exception("run_crashed", run=run.pk, kind=run.kind)
        refused = isinstance(error, LockstepError) and error.status < 500
        return _fail(run, row[0], failure, runs, for_good=refused or run.attempts >= MAX_ATTEMPTS)
    with brief_transaction():
        if (mine := _lock(run, row[0])) is None:
            return "overtaken"
        if isinstance(result, Again):
            mine.attempts, mine.not_before = 0, database_now() + timedelta(seconds=result.seconds)
            if not result.seconds:
                queue.ring_on_commit(queue.CARRY_OUT_RUN, mine.pk)
        else:
            mine.state, mine.result, mine.done_at = Run.State.DONE, result, database_now()
        _release(mine)
    return "again" if isinstance(result, Again) else "done"


def _carry_out(run: Run, runs: RunRegistry, connect: Connect) -> Json | Again:
    definition = runs.get(run.kind)
    if definition is None:
        raise LockstepError(
            "unknown-run",
            f"this worker does not know the run {run.kind}",
            next_action="Bring all workers to the same version.",
        )
    if run.cluster is None:
        return definition.run(kube=None, now=database_now(), **run.args)
    with connect(run.cluster) as kube:
        return definition.run(kube=kube, now=database_now(), **run.args)


def _fail(run: Run, lease_until: datetime, failure: Failure, runs: RunRegistry, *, for_good: bool) -> str:
    with brief_transaction():
        if (mine := _lock(run, lease_until)) is None:
            return "overtaken"
        now = database_now()
        mine.problem = failure.as_json()
        if for_good:
            mine.state, mine.done_at = Run.State.FAILED, now
            definition = runs.get(run.kind)
            if definition is not None and definition.failed is not None:
                definition.failed(problem=mine.problem, **run.args)
        else:
            mine.not_before = now + timedelta(seconds=retry_delay(run.attempts))
        _release(mine)
    return "failed" if for_good else "again"


def _lock(run: Run, lease_until: datetime) -> Run | None:
    """The row, if the claim still stands: a lease end in microseconds belongs to one claim."""
    return (
        Run.objects.select_for_update(no_key=True)
        .filter(pk=run.pk, state=Run.State.WAITING, lease_until=lease_until)
        .first()
    )


def _release(run: Run) -> None:
    run.lease_owner, run.lease_until = "", None
    run.save()
    data: dict[str, Any] = {"state": run.state, "kind": run.kind}
    events.publish(event="run-changed", object_kind="run", object_id=str(run.pk), data=data)
