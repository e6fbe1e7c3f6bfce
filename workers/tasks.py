"""Tasks: take an id, call a service, return. The names are in controlplane.queue."""

from __future__ import annotations

import os
import socket
from typing import Any

import structlog
from celery import Celery
from django.conf import settings

from controlplane import queue
from controlplane.audit.services import seal_events
from controlplane.holds.scalers.orphans import ask_to_give_back
from controlplane.operations import engine, retention, runs, sweep
from controlplane.operations.contract import RunRegistry, StepRegistry
from controlplane.operations.engine import Connect
from controlplane.upgrades.records import close_superseded

PRUNE_EVERY = 300.0  # seconds; what it lets go of is months old
log = structlog.get_logger(__name__)


def make_app(*, steps: StepRegistry, runs: RunRegistry, connect: Connect) -> Celery:
    """The configured app with every task registered on it, for these steps and runs."""
    app = queue.configure()
    _register_operations(app, steps, connect)
    _register_runs(app, runs, connect)
    _register_upkeep(app)
    app.conf.beat_scheduler = "celery.beat:Scheduler"  # the schedule is static: nothing to keep in a file
    app.conf.beat_schedule = schedule()
    return app


def schedule() -> dict[str, dict[str, Any]]:
    """What beat rings. Bells that nobody picks up before the next one are thrown away."""
    return {
        task: {"task": task, "schedule": seconds, "options": {"expires": max(1.0, seconds)}}
        for task, seconds in (
            (queue.TICK, settings.LOCKSTEP_TICK),
            (queue.RECONCILE, settings.LOCKSTEP_SWEEP),
            (queue.SEAL_AUDIT, 1.0),
            (queue.PRUNE, PRUNE_EVERY),
        )
    }


def owner() -> str:
    """Who holds a lease that this process takes: host and process."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}"


def _register_operations(app: Celery, steps: StepRegistry, connect: Connect) -> None:
    @app.task(name=queue.ADVANCE)
    def advance(operation_id: str) -> None:
        came = engine.advance(operation_id=int(operation_id), steps=steps, connect=connect, owner=owner())
        log.debug("advanced", operation=operation_id, outcome=came)

    @app.task(name=queue.WAKE)
    def wake(operation_id: str) -> None:
        if engine.wake(operation_id=int(operation_id)):
            advance(operation_id)


def _register_runs(app: Celery, registry: RunRegistry, connect: Connect) -> None:
    limit: Any = settings.LOCKSTEP_TASK_HARD_LIMIT * runs.PATIENCE

    @app.task(name=queue.CARRY_OUT_RUN, time_limit=limit)
    def carry_out_run(run_id: str) -> None:
        came = runs.carry_out_run(run_id=int(run_id), runs=registry, connect=connect, owner=owner())
        log.debug("run_carried_out", run=run_id, outcome=came)


def _register_upkeep(app: Celery) -> None:
    @app.task(name=queue.TICK)
    def tick() -> None:
        sweep.ring_due()

    @app.task(name=queue.RECONCILE)
    def reconcile() -> None:
        sweep.reconcile()
        ask_to_give_back()
        close_superseded()

    @app.task(name=queue.SEAL_AUDIT)
    def seal_audit() -> None:
        seal_events()

    @app.task(name=queue.PRUNE)
    def prune() -> None:
        retention.prune()
