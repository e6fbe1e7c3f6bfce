"""The Celery app and the doorbell. The database is the queue of record; a bell only says "look now".

Tasks are named here and registered by `workers.tasks`; the domain never imports workers.
"""

from __future__ import annotations

import functools
import ssl
import uuid
from typing import Any

import structlog
from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu import Queue
from kombu.exceptions import OperationalError
from kombu.transport import redis

ADVANCE = "lockstep.advance"  # (operation id) one step, if it is due
# (operation id) something it waits for may have happened: look now, even before it is due
WAKE = "lockstep.wake"
TICK = "lockstep.tick"  # ring what is due
RECONCILE = "lockstep.reconcile"  # the full sweep
CARRY_OUT_RUN = "lockstep.carry_out_run"  # (run id)
SEAL_AUDIT = "lockstep.seal_audit"
PRUNE = "lockstep.prune"  # let go of what ended long ago

QUEUE = "lockstep"
# Runs take longer than steps; a queue of their own lets an installation give them workers of their own.
RUNS_QUEUE = "lockstep-runs"
# Queues are served in turn: sweep and sealer get their turn whatever backlog of bells there is.
UPKEEP_QUEUE = "lockstep-upkeep"

log = structlog.get_logger(__name__)
app = Celery("lockstep")


class BellChannel(redis.Channel):
    """A channel that lets go of bells when its connection is lost. kombu 5.7 gives them back, or acknowledges
    them, through the connection that it has just closed, and a worker that was at work when the broker went away
    ends with `'NoneType' object has no attribute 'hostname'`. Bells are worth nothing: the sweep rings again."""

    do_restore = False

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge, while there is somebody to tell."""
        if not self.closed:
            super().basic_ack(delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give one back, while there is somebody to take it."""
        if not self.closed:
            super().basic_reject(delivery_tag, requeue=requeue)


class BellTransport(redis.Transport):
    """Valkey or Redis, with channels as above."""

    Channel: Any = BellChannel


@functools.cache
def configure() -> Celery:
    """Apply every reliability setting (research B7) to the app and return it."""
    app.conf.update(
        broker_url=settings.LOCKSTEP_BROKER_URL,
        broker_transport=f"{__name__}:{BellTransport.__name__}",
        broker_use_ssl=_encryption(settings.LOCKSTEP_BROKER_URL),
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
            **dict.fromkeys((TICK, RECONCILE, SEAL_AUDIT, PRUNE), {"queue": UPKEEP_QUEUE}),
        },
        timezone="UTC",
    )
    return app


def _encryption(url: str) -> dict[str, Any] | bool:
    """A rediss:// address means a certificate that is checked; `?ssl_cert_reqs=` in it says otherwise."""
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss://") else False


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
