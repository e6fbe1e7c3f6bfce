"""Live events: `publish` is the only writer. They wake screens; they are never the record of anything."""

from __future__ import annotations

import functools
import json
from typing import Any

import redis
import structlog
from django.conf import settings
from django.db import transaction

CHANNEL = "lockstep:events"
log = structlog.get_logger(__name__)


@functools.cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.LOCKSTEP_BROKER_URL, socket_timeout=2, socket_connect_timeout=2)


def publish(*, event: str, object_kind: str, object_id: str, data: dict[str, Any] | None = None) -> None:
    """Send one event after the running transaction commits; a broker that is away loses it, never the write."""
    body = json.dumps({"event": event, "kind": object_kind, "id": object_id, "data": data or {}})
    transaction.on_commit(functools.partial(_send, body), robust=True)


def _send(body: str) -> None:
    try:
        _client().publish(CHANNEL, body)
    except redis.RedisError as error:
        log.warning("event_lost", error=str(error))
