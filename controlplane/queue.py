"""The Celery app and the doorbell. The database is the queue of record; a bell only says "look now".

Tasks are named here and registered by `workers.tasks`; the domain never imports workers.
"""

from __future__ import annotations

import functools
import uuid

import structlog
from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu import Queue
from kombu.exceptions import OperationalError

ADVANCE = "lockstep.advance"  # (operation id) one step, if it is due
# (operation id) something it waits for may have happened: look now, even before it is due
WAKE = "lockstep.wake"
TICK = "lockstep.tick"  # ring what is due
RECONCILE = "lockstep.reconcile"  # the full sweep
CARRY_OUT_RUN = "lockstep.carry_out_run"  # (run id)
SEAL_AUDIT = "lockstep.seal_audit"

QUEUE = "lockstep"
# Runs take longer than steps; a queue of their own lets an installation give them workers of their own.
RUNS_QUEUE = "lockstep-runs"
# Queues are served in turn: sweep and sealer get their turn whatever backlog of bells there is.
UPKEEP_QUEUE = "lockstep-upkeep"

log = structlog.get_logger(__name__)
app = Celery("lockstep")


@functools.cache
def configure() -> Celery:
    """Apply every reliability setting (research B7) to the app and return it."""
    app.conf.update(
        broker_url=settings.LOCKSTEP_BROKER_URL,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": 900,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "health_check_interval": 25,
            "socket_keepalive": True,
        },
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # Once, at once: a connection that has been idle through a restart of the broker is found out by its
        # use.
        task_publish_retry=True,
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0},
        worker_prefetch_multiplier=1,
        worker_max_tasks_per_child=500,
        worker_soft_shutdown_timeout=settings.LOCKSTEP_TASK_HARD_LIMIT,
        worker_hijack_root_logger=False,
        task_time_limit=settings.LOCKSTEP_TASK_HARD_LIMIT,
        task_default_queue=QUEUE,
        task_queues=[Queue(QUEUE), Queue(RUNS_QUEUE), Queue(UPKEEP_QUEUE)],
        task_routes={
            CARRY_OUT_RUN: {"queue": RUNS_QUEUE},
            **dict.fromkeys((TICK, RECONCILE, SEAL_AUDIT), {"queue": UPKEEP_QUEUE}),
        },
        timezone="UTC",
    )
    return app


def ring_on_commit(task: str, argument: int | uuid.UUID) -> None:
    """Ring one bell when the running transaction commits. A bell that can't be rung is no error: the sweep
    looks."""
    transaction.on_commit(functools.partial(ring, task, argument), robust=True)


def ring(task: str, argument: int | uuid.UUID) -> None:
    """Ring one bell now."""
    try:
        configure().send_task(task, args=[str(argument)], expires=60)
    except (OperationalError, OSError) as error:
        log.warning("bell_not_rung", task=task, argument=str(argument), error=str(error))
